//! I9: a snapshot and the tail behind it make what a full replay makes.

use headwater_event::{Envelope, Seq, StreamId};

use crate::prefix::{self, NoPrefix};
use crate::state::State;

/// A snapshot that is wrong, by itself or with its tail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unequal {
    /// The snapshot is not the state at its position.
    #[error("I9 the snapshot is not the state at its position")]
    Snapshot(#[source] Box<NoPrefix>),
    /// Snapshot and tail together are not the state at the end.
    #[error("I9 snapshot and tail are not the state at the end")]
    Tail(#[source] Box<NoPrefix>),
}

/// Checks a snapshot taken at `at` of a stream whose whole log is `log`.
///
/// # Errors
/// Says whether the snapshot alone or with its tail differs, and where.
pub fn check(
    log: &[Envelope],
    stream: &StreamId,
    at: Seq,
    snapshot: &State,
) -> Result<(), Unequal> {
    prefix::check(log, stream, at, snapshot).map_err(Unequal::Snapshot)?;
    let mut state = snapshot.clone();
    let mut end = at;
    for event in log.iter().filter(|event| event.seq > at) {
        if let Some(change) = event.event.change() {
            state.apply(&change);
        }
        end = event.seq;
    }
    prefix::check(log, stream, end, &state).map_err(Unequal::Tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::log;

    #[test]
    fn a_snapshot_with_something_too_much_is_found() {
        let log = log(&[(1, Some(1)), (2, Some(2)), (1, None), (3, Some(3))]);
        let snapshot = State::fold(&log, Seq(3));
        assert_eq!(check(&log, &StreamId::Cluster, Seq(3), &snapshot), Ok(()));
        let stale = State::fold(&log, Seq(2));
        assert!(matches!(
            check(&log, &StreamId::Cluster, Seq(3), &stale),
            Err(Unequal::Snapshot(_))
        ));
    }
}
