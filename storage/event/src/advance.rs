//! Which advances the state of a stream accepts. The edge's session and the view decide by this
//! one rule.
//!
//! A state moves forward in (log number, writer epoch, seq). An advance from a position continues
//! the state exactly there. An advance to a complete state, a snapshot or a correction, may also
//! lead to a later life of the log, or lower the seq under a higher writer epoch. Within one log
//! and epoch nothing goes back, so a removed UID stays removed.

use crate::position::{Checkpoint, Seq};

/// What an advance needs of the state that it is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvanceBase {
    /// The state at this seq; zero: an empty state.
    Position(Seq),
    /// Nothing: the advance carries the complete state.
    Complete,
}

/// Why a state does not accept an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvanceFault {
    /// The advance is from another life of the log, and is no complete state of a later one.
    ForeignLog,
    /// The advance is from a writer that a later one has fenced.
    Fenced,
    /// Seqs are missing between the state and the advance.
    Gap,
    /// The state is past the base, or past the end, of the advance.
    Stale,
}

/// Checks that a state at `at` (`None`: empty) accepts an advance from `base` to `to`.
///
/// # Errors
/// See [`AdvanceFault`].
pub fn check_advance(
    at: Option<&Checkpoint>,
    base: AdvanceBase,
    to: &Checkpoint,
) -> Result<(), AdvanceFault> {
    let applied = at.map_or(Seq::ZERO, |at| at.seq);
    if let Some(at) = at {
        if at.log_id != to.log_id {
            let follows = base == AdvanceBase::Complete && to.log_id.follows(&at.log_id);
            return if follows { Ok(()) } else { Err(AdvanceFault::ForeignLog) };
        }
        if to.epoch < at.epoch {
            return Err(AdvanceFault::Fenced);
        }
    }
    match base {
        AdvanceBase::Complete => {
            // Only the history of a later writer may be shorter.
            let may_go_back = at.is_none_or(|at| to.epoch > at.epoch);
            if to.seq < applied && !may_go_back { Err(AdvanceFault::Stale) } else { Ok(()) }
        }
        AdvanceBase::Position(from) if from > applied => Err(AdvanceFault::Gap),
        AdvanceBase::Position(from) if from < applied || to.seq < applied => {
            Err(AdvanceFault::Stale)
        }
        AdvanceBase::Position(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::position::{LogId, WriterEpoch};

    fn at(log: u64, epoch: u64, seq: u64) -> Checkpoint {
        let log_id = LogId { number: log, uuid: Uuid::from_u128(log.into()) };
        Checkpoint { log_id, epoch: WriterEpoch(epoch), seq: Seq(seq) }
    }

    fn check(base: AdvanceBase, to: Checkpoint) -> Result<(), AdvanceFault> {
        check_advance(Some(&at(2, 5, 10)), base, &to)
    }

    #[test]
    fn an_advance_from_a_position_continues_the_state() {
        let from = |seq| AdvanceBase::Position(Seq(seq));
        assert_eq!(check(from(10), at(2, 5, 12)), Ok(()));
        assert_eq!(check(from(10), at(2, 6, 12)), Ok(()));
        assert_eq!(check(from(11), at(2, 5, 12)), Err(AdvanceFault::Gap));
        assert_eq!(check(from(9), at(2, 5, 12)), Err(AdvanceFault::Stale));
        assert_eq!(check(from(10), at(2, 5, 9)), Err(AdvanceFault::Stale));
        assert_eq!(check(from(10), at(2, 4, 12)), Err(AdvanceFault::Fenced));
        assert_eq!(check(from(10), at(3, 5, 12)), Err(AdvanceFault::ForeignLog));
        assert_eq!(check_advance(None, from(0), &at(2, 5, 3)), Ok(()));
        assert_eq!(check_advance(None, from(1), &at(2, 5, 3)), Err(AdvanceFault::Gap));
    }

    #[test]
    fn a_complete_state_goes_back_only_under_a_later_writer_or_log() {
        let complete = AdvanceBase::Complete;
        assert_eq!(check(complete, at(2, 5, 10)), Ok(()));
        assert_eq!(check(complete, at(2, 5, 9)), Err(AdvanceFault::Stale));
        assert_eq!(check(complete, at(2, 6, 1)), Ok(()));
        assert_eq!(check(complete, at(2, 4, 99)), Err(AdvanceFault::Fenced));
        assert_eq!(check(complete, at(3, 1, 1)), Ok(()));
        assert_eq!(check(complete, at(1, 9, 99)), Err(AdvanceFault::ForeignLog));
        assert_eq!(check_advance(None, complete, &at(1, 1, 1)), Ok(()));
    }
}
