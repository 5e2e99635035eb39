//! The plan by which a stream catches up: a pure decision.
//!
//! ```text
//!   fold not complete, or behind the edge ------------------------> park
//!   a log that does not follow the edge's ------------------------> park
//!   nothing held, another history, or reset --- reconciled? ------> snapshot, else park
//!   the edge is at the end ---------------------------------------> idle
//!   few events, all readable -------------------------------------> tail
//!   no hole since the edge's position ----------------------------> delta
//!   many events, all readable ------------------------------------> tail
//!   otherwise ------------------------------- reconciled? --------> snapshot, else park
//! ```

use headwater_event::{Seq, WriterEpoch};

use crate::message::ReplicaPosition;
use crate::source::{FoldStatus, Readiness};

/// The next step of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CatchUpPlan {
    /// The edge has everything.
    Idle,
    /// The stream is not served now, for this reason.
    Park(&'static str),
    /// Every event as it is.
    Tail,
    /// Each changed key, once.
    Delta,
    /// The complete state, or a correction of the edge's.
    Snapshot,
}

/// The edge's state, as far as the plan depends on it.
#[derive(Clone, Debug)]
pub(super) struct PlanInput<'a> {
    /// The edge's position once it has received everything sent; `None`: it holds nothing.
    pub(super) held: Option<&'a ReplicaPosition>,
    /// Whether the edge reported a divergence, or has sent its summary.
    pub(super) reset: bool,
    /// Whether the window was full while events were left: they are sent as one delta.
    pub(super) overflowed: bool,
    /// Whether the source no longer has the next event.
    pub(super) lacks_events: bool,
    /// The first seq of the lowest epoch above that of `held`.
    pub(super) next_epoch_from: Option<Seq>,
}

const FOLDING: &str = "the hub has not read the log to its end";
const BEHIND: &str = "the hub is behind the edge";
const OTHER_LOG: &str = "the edge's state is of a log that this one does not follow";
const UNRECONCILED: &str = "the edge needs a snapshot, and the writer has not reconciled yet";

impl CatchUpPlan {
    /// Chooses the plan. At most `tail_events_max` events are sent as a tail, unless a delta is not
    /// possible.
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
            return CatchUpPlan::Idle;
        }
        let events = tail.seq.0 - held.seq.0;
        let is_few = events <= tail_events_max && (events == 1 || !input.overflowed);
        let has_events = held.seq >= status.raw_from && !input.lacks_events;
        match (has_events, is_few, held.seq >= status.delta_from) {
            (true, true, _) | (true, false, false) => CatchUpPlan::Tail,
            (_, _, true) => CatchUpPlan::Delta,
            (false, _, false) => snapshot,
        }
    }
}

/// Whether the edge holds events that are not in this history. The fold is at or ahead of the edge
/// in (epoch, seq).
fn has_diverged(
    position: &ReplicaPosition,
    next_epoch_from: Option<Seq>,
    status: &FoldStatus,
) -> bool {
    let (held, tail) = (position.checkpoint, status.checkpoint);
    let overtaken = next_epoch_from.is_some_and(|first| first <= held.seq);
    // The claim of a higher epoch ended the history below the edge's position.
    let went_back = tail.seq < held.seq;
    let differs = tail.seq == held.seq && status.hash != position.hash;
    // No writer has epoch 0: a position in it is of no log.
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

    /// A reconciled fold at epoch 2, seq 20, with the events behind 10 and every change behind 5.
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
        PlanInput {
            held,
            reset: false,
            overflowed: false,
            lacks_events: false,
            next_epoch_from: None,
        }
    }

    fn plan(held: &ReplicaPosition) -> CatchUpPlan {
        CatchUpPlan::choose(&input(Some(held)), &status(), 8)
    }

    #[test]
    fn the_cheapest_complete_plan_is_chosen() {
        assert_eq!(plan(&at(1, 2, 20)), CatchUpPlan::Idle);
        assert_eq!(plan(&at(1, 2, 15)), CatchUpPlan::Tail);
        assert_eq!(plan(&at(1, 2, 11)), CatchUpPlan::Delta, "more events than a tail may have");
        assert_eq!(plan(&at(1, 2, 7)), CatchUpPlan::Delta);
        assert_eq!(plan(&at(1, 2, 4)), CatchUpPlan::Snapshot);
        assert_eq!(CatchUpPlan::choose(&input(None), &status(), 8), CatchUpPlan::Snapshot);
        let holed = FoldStatus { delta_from: Seq(19), ..status() };
        assert_eq!(CatchUpPlan::choose(&input(Some(&at(1, 2, 11))), &holed, 8), CatchUpPlan::Tail);
    }

    #[test]
    fn events_behind_a_full_window_come_as_one_delta() {
        let held = at(1, 2, 15);
        let overflowed = PlanInput { overflowed: true, ..input(Some(&held)) };
        assert_eq!(CatchUpPlan::choose(&overflowed, &status(), 8), CatchUpPlan::Delta);
    }

    #[test]
    fn a_delta_or_a_snapshot_replaces_events_that_are_gone() {
        for (seq, expected) in [(15, CatchUpPlan::Delta), (11, CatchUpPlan::Delta)] {
            let held = at(1, 2, seq);
            let lacking = PlanInput { lacks_events: true, ..input(Some(&held)) };
            assert_eq!(CatchUpPlan::choose(&lacking, &status(), 8), expected);
        }
        let held = at(1, 2, 15);
        let lacking = PlanInput { lacks_events: true, ..input(Some(&held)) };
        let holed = FoldStatus { delta_from: Seq(19), ..status() };
        assert_eq!(CatchUpPlan::choose(&lacking, &holed, 8), CatchUpPlan::Snapshot);
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
        assert_eq!(plan(&other), CatchUpPlan::Snapshot, "another state at the same position");
        let held = at(1, 2, 15);
        let reset = PlanInput { reset: true, ..input(Some(&held)) };
        assert_eq!(CatchUpPlan::choose(&reset, &status(), 8), CatchUpPlan::Snapshot);
    }

    #[test]
    fn an_edge_ahead_of_the_hub_waits() {
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
