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

use crate::message::ReplicaPosition;
use crate::source::{FoldStatus, Readiness};

/// What to do next for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CatchUpPlan {
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
pub(super) struct PlanInput<'a> {
    /// What the edge will have once it has everything that was sent; `None`: nothing.
    pub(super) held: Option<&'a ReplicaPosition>,
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

impl CatchUpPlan {
    /// Decides. `tail_events_max` is how many events may go out as such.
    pub(super) fn choose(input: &PlanInput<'_>, status: &FoldStatus, tail_events_max: u64) -> Self {
        if status.readiness < Readiness::Folded {
            return CatchUpPlan::Park(FOLDING);
        }
        let snapshot = match status.readiness {
            Readiness::Reconciled => CatchUpPlan::Snapshot,
            Readiness::Folded | Readiness::Folding => CatchUpPlan::Park(UNRECONCILED),
        };
        let Some(position) = input.held else { return snapshot };
        let (held, tail) = (position.checkpoint, status.checkpoint);
        if held.log_id != tail.log_id {
            let follows = tail.log_id.follows(&held.log_id);
            return if follows { snapshot } else { CatchUpPlan::Park(OTHER_LOG) };
        }
        if (tail.epoch, tail.seq) < (held.epoch, held.seq) {
            return CatchUpPlan::Park(BEHIND);
        }
        if input.reset || has_diverged(position, input.next_epoch_from, status) {
            return snapshot;
        }
        if held.seq == tail.seq {
            return CatchUpPlan::Rest;
        }
        let events = tail.seq.0 - held.seq.0;
        let is_few = events <= tail_events_max && (events == 1 || !input.overflowed);
        let has_events = held.seq >= status.raw_from;
        match (has_events, is_few, held.seq >= status.delta_from) {
            (true, true, _) | (true, false, false) => CatchUpPlan::Tail,
            (_, _, true) => CatchUpPlan::Delta,
            (false, _, false) => snapshot,
        }
    }
}

/// Whether the edge holds events that are not in this history. Called with the fold at or ahead
/// of the edge in (epoch, seq).
fn has_diverged(
    position: &ReplicaPosition,
    next_epoch_from: Option<Seq>,
    status: &FoldStatus,
) -> bool {
    let (held, tail) = (position.checkpoint, status.checkpoint);
    let overtaken = next_epoch_from.is_some_and(|first| first <= held.seq);
    // The claim of a higher epoch settled that the history ends below what is held.
    let went_back = tail.seq < held.seq;
    let differs = tail.seq == held.seq && status.hash != position.hash;
    // No writer has epoch 0: a position in it is not of any log.
    let is_void = held.seq > Seq::ZERO && held.epoch == WriterEpoch::default();
    overtaken || went_back || differs || is_void
}

#[cfg(test)]
mod tests {
    use headwater_event::{Checkpoint, LogId, StateHash, StreamId};
    use uuid::Uuid;

    use super::*;

    fn at(log: u64, epoch: u64, seq: u64) -> ReplicaPosition {
        let log_id = LogId { number: log, uuid: Uuid::from_u128(log.into()) };
        let checkpoint = Checkpoint { log_id, epoch: WriterEpoch(epoch), seq: Seq(seq) };
        ReplicaPosition { stream: StreamId::Cluster, checkpoint, hash: StateHash::EMPTY }
    }

    /// A reconciled fold at epoch 2, seq 20, which has the events behind 10 and every change
    /// behind 5.
    fn status() -> FoldStatus {
        FoldStatus {
            checkpoint: at(1, 2, 20).checkpoint,
            hash: StateHash::EMPTY,
            readiness: Readiness::Reconciled,
            raw_from: Seq(10),
            delta_from: Seq(5),
        }
    }

    fn input(held: Option<&ReplicaPosition>) -> PlanInput<'_> {
        PlanInput { held, reset: false, overflowed: false, next_epoch_from: None }
    }

    fn plan(held: &ReplicaPosition) -> CatchUpPlan {
        CatchUpPlan::choose(&input(Some(held)), &status(), 8)
    }

    #[test]
    fn the_cheapest_way_that_is_complete_is_taken() {
        assert_eq!(plan(&at(1, 2, 20)), CatchUpPlan::Rest);
        assert_eq!(plan(&at(1, 2, 15)), CatchUpPlan::Tail);
        assert_eq!(plan(&at(1, 2, 11)), CatchUpPlan::Delta, "more events than go out as such");
        assert_eq!(plan(&at(1, 2, 7)), CatchUpPlan::Delta);
        assert_eq!(plan(&at(1, 2, 4)), CatchUpPlan::Snapshot);
        assert_eq!(CatchUpPlan::choose(&input(None), &status(), 8), CatchUpPlan::Snapshot);
        let holed = FoldStatus { delta_from: Seq(19), ..status() };
        assert_eq!(CatchUpPlan::choose(&input(Some(&at(1, 2, 11))), &holed, 8), CatchUpPlan::Tail);
    }

    #[test]
    fn what_lay_past_the_window_comes_as_one_delta() {
        let held = at(1, 2, 15);
        let overflowed = PlanInput { overflowed: true, ..input(Some(&held)) };
        assert_eq!(CatchUpPlan::choose(&overflowed, &status(), 8), CatchUpPlan::Delta);
    }

    #[test]
    fn another_history_is_replaced() {
        assert_eq!(plan(&at(0, 9, 99)), CatchUpPlan::Snapshot, "a later life of the log");
        let held = at(1, 1, 15);
        let overtaken = PlanInput { next_epoch_from: Some(Seq(15)), ..input(Some(&held)) };
        assert_eq!(CatchUpPlan::choose(&overtaken, &status(), 8), CatchUpPlan::Snapshot);
        let fine = PlanInput { next_epoch_from: Some(Seq(16)), ..input(Some(&held)) };
        assert_eq!(CatchUpPlan::choose(&fine, &status(), 8), CatchUpPlan::Tail);
        assert_eq!(plan(&at(1, 1, 25)), CatchUpPlan::Snapshot, "the claim of epoch 2 ended it");
        let other = ReplicaPosition { hash: StateHash::from_bytes(&[1; 32]), ..at(1, 2, 20) };
        assert_eq!(plan(&other), CatchUpPlan::Snapshot, "another state at the same place");
        let held = at(1, 2, 15);
        let reset = PlanInput { reset: true, ..input(Some(&held)) };
        assert_eq!(CatchUpPlan::choose(&reset, &status(), 8), CatchUpPlan::Snapshot);
    }

    #[test]
    fn an_edge_that_knows_more_than_the_hub_waits() {
        assert_eq!(plan(&at(1, 2, 21)), CatchUpPlan::Park(BEHIND));
        assert_eq!(plan(&at(1, 3, 4)), CatchUpPlan::Park(BEHIND));
        assert_eq!(plan(&at(2, 1, 1)), CatchUpPlan::Park(OTHER_LOG));
    }

    #[test]
    fn absence_means_nothing_before_the_writer_has_reconciled() {
        let folded = FoldStatus { readiness: Readiness::Folded, ..status() };
        assert_eq!(CatchUpPlan::choose(&input(None), &folded, 8), CatchUpPlan::Park(UNRECONCILED));
        assert_eq!(CatchUpPlan::choose(&input(Some(&at(1, 2, 15))), &folded, 8), CatchUpPlan::Tail);
        let folding = FoldStatus { readiness: Readiness::Folding, ..status() };
        assert_eq!(
            CatchUpPlan::choose(&input(Some(&at(1, 2, 15))), &folding, 8),
            CatchUpPlan::Park(FOLDING)
        );
    }
}
