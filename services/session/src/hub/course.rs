//! Which way brings a replica forward: the decision, and nothing else.
//!
//! ```text
//!   fold not complete, or behind the edge ------------------------> park
//!   nothing held, another history, or reset --- reconciled? ------> snapshot, else park
//!   few events, all of them there --------------------------------> tail
//!   no hole since the edge's position ----------------------------> delta
//!   many events, all of them there -------------------------------> tail
//!   otherwise ------------------------------- reconciled? --------> snapshot, else park
//! ```

use headwater_event::{Seq, WriterEpoch};

use crate::message::StreamPosition;
use crate::source::{Readiness, Standing};

/// What to do next for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The edge has everything.
    Rest,
    /// Not served just now.
    Park(&'static str),
    /// Events as they are.
    Tail,
    /// Each changed key once.
    Delta,
    /// The complete state, or what the edge lacks of it.
    Snapshot,
}

/// Where the edge stands, as the decision sees it.
#[derive(Clone, Debug)]
pub(super) struct Behind<'a> {
    /// What the edge will have once it has everything that was sent; `None`: nothing.
    pub(super) held: Option<&'a StreamPosition>,
    /// Whether the edge said that its state differs from the log, or what it holds, when asked.
    pub(super) reset: bool,
    /// Whether the window was closed with events left: they come as one delta.
    pub(super) overflowed: bool,
    /// The first seq of the lowest epoch above the held one.
    pub(super) next_epoch_from: Option<Seq>,
}

const FOLDING: &str = "the hub has not read the log to its end";
const BEHIND: &str = "the hub is behind the edge";
const OTHER_LOG: &str = "the edge's state is of a log that this one does not follow";
const UNRECONCILED: &str = "the edge needs a snapshot, and the writer has not reconciled yet";

/// Decides. `tail_events_max` is how many events may go out as such.
pub(super) fn choose(behind: &Behind<'_>, standing: &Standing, tail_events_max: u64) -> Course {
    if standing.readiness < Readiness::Folded {
        return Course::Park(FOLDING);
    }
    let snapshot = match standing.readiness {
        Readiness::Reconciled => Course::Snapshot,
        Readiness::Folded | Readiness::Folding => Course::Park(UNRECONCILED),
    };
    let Some(position) = behind.held else { return snapshot };
    let (held, tail) = (position.checkpoint, standing.checkpoint);
    if held.log_id != tail.log_id {
        let follows = tail.log_id.follows(&held.log_id);
        return if follows { snapshot } else { Course::Park(OTHER_LOG) };
    }
    if (tail.epoch, tail.seq) < (held.epoch, held.seq) {
        return Course::Park(BEHIND);
    }
    if behind.reset || has_diverged(position, behind.next_epoch_from, standing) {
        return snapshot;
    }
    if held.seq == tail.seq {
        return Course::Rest;
    }
    let events = tail.seq.0 - held.seq.0;
    let is_few = events <= tail_events_max && (events == 1 || !behind.overflowed);
    let has_events = held.seq >= standing.raw_from;
    match (has_events, is_few, held.seq >= standing.delta_from) {
        (true, true, _) | (true, false, false) => Course::Tail,
        (_, _, true) => Course::Delta,
        (false, _, false) => snapshot,
    }
}

/// Whether the edge holds events that are not in this history. Called with the fold at or ahead
/// of the edge in (epoch, seq).
fn has_diverged(
    position: &StreamPosition,
    next_epoch_from: Option<Seq>,
    standing: &Standing,
) -> bool {
    let (held, tail) = (position.checkpoint, standing.checkpoint);
    let overtaken = next_epoch_from.is_some_and(|first| first <= held.seq);
    // The claim of a higher epoch settled that the history ends below what is held.
    let went_back = tail.seq < held.seq;
    let differs = tail.seq == held.seq && standing.hash != position.hash;
    // No writer has epoch 0: a position in it is not of any log.
    let is_void = held.seq > Seq::ZERO && held.epoch == WriterEpoch::default();
    overtaken || went_back || differs || is_void
}

#[cfg(test)]
mod tests {
    use headwater_event::{Checkpoint, LogId, StateHash, StreamId};
    use uuid::Uuid;

    use super::*;

    fn at(log: u64, epoch: u64, seq: u64) -> StreamPosition {
        let log_id = LogId { number: log, uuid: Uuid::from_u128(log.into()) };
        let checkpoint = Checkpoint { log_id, epoch: WriterEpoch(epoch), seq: Seq(seq) };
        StreamPosition { stream: StreamId::Cluster, checkpoint, hash: StateHash::EMPTY }
    }

    /// A reconciled fold at epoch 2, seq 20, which has the events behind 10 and every change
    /// behind 5.
    fn standing() -> Standing {
        Standing {
            checkpoint: at(1, 2, 20).checkpoint,
            hash: StateHash::EMPTY,
            readiness: Readiness::Reconciled,
            raw_from: Seq(10),
            delta_from: Seq(5),
        }
    }

    fn behind(held: Option<&StreamPosition>) -> Behind<'_> {
        Behind { held, reset: false, overflowed: false, next_epoch_from: None }
    }

    fn course(held: &StreamPosition) -> Course {
        choose(&behind(Some(held)), &standing(), 8)
    }

    #[test]
    fn the_cheapest_way_that_is_complete_is_taken() {
        assert_eq!(course(&at(1, 2, 20)), Course::Rest);
        assert_eq!(course(&at(1, 2, 15)), Course::Tail);
        assert_eq!(course(&at(1, 2, 11)), Course::Delta, "more events than go out as such");
        assert_eq!(course(&at(1, 2, 7)), Course::Delta);
        assert_eq!(course(&at(1, 2, 4)), Course::Snapshot);
        assert_eq!(choose(&behind(None), &standing(), 8), Course::Snapshot);
        let holed = Standing { delta_from: Seq(19), ..standing() };
        assert_eq!(choose(&behind(Some(&at(1, 2, 11))), &holed, 8), Course::Tail);
    }

    #[test]
    fn what_lay_past_the_window_comes_as_one_delta() {
        let held = at(1, 2, 15);
        let overflowed = Behind { overflowed: true, ..behind(Some(&held)) };
        assert_eq!(choose(&overflowed, &standing(), 8), Course::Delta);
    }

    #[test]
    fn another_history_is_replaced() {
        assert_eq!(course(&at(0, 9, 99)), Course::Snapshot, "a later life of the log");
        let held = at(1, 1, 15);
        let overtaken = Behind { next_epoch_from: Some(Seq(15)), ..behind(Some(&held)) };
        assert_eq!(choose(&overtaken, &standing(), 8), Course::Snapshot);
        let fine = Behind { next_epoch_from: Some(Seq(16)), ..behind(Some(&held)) };
        assert_eq!(choose(&fine, &standing(), 8), Course::Tail);
        assert_eq!(course(&at(1, 1, 25)), Course::Snapshot, "the claim of epoch 2 ended it");
        let other = StreamPosition { hash: StateHash::from_bytes(&[1; 32]), ..at(1, 2, 20) };
        assert_eq!(course(&other), Course::Snapshot, "another state at the same place");
        let held = at(1, 2, 15);
        let reset = Behind { reset: true, ..behind(Some(&held)) };
        assert_eq!(choose(&reset, &standing(), 8), Course::Snapshot);
    }

    #[test]
    fn an_edge_that_knows_more_than_the_hub_waits() {
        assert_eq!(course(&at(1, 2, 21)), Course::Park(BEHIND));
        assert_eq!(course(&at(1, 3, 4)), Course::Park(BEHIND));
        assert_eq!(course(&at(2, 1, 1)), Course::Park(OTHER_LOG));
    }

    #[test]
    fn absence_means_nothing_before_the_writer_has_reconciled() {
        let folded = Standing { readiness: Readiness::Folded, ..standing() };
        assert_eq!(choose(&behind(None), &folded, 8), Course::Park(UNRECONCILED));
        assert_eq!(choose(&behind(Some(&at(1, 2, 15))), &folded, 8), Course::Tail);
        let folding = Standing { readiness: Readiness::Folding, ..standing() };
        assert_eq!(choose(&behind(Some(&at(1, 2, 15))), &folding, 8), Course::Park(FOLDING));
    }
}
