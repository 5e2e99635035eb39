//! I1: what an edge shows at seq N is `fold(log[..=N])`.

use headwater_event::{EntryKey, Envelope, Seq, StreamId};

use crate::state::{Entry, State};

/// A replica that is no prefix of its stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I1 {stream} at seq {at}: entry {key} is {found:?}, the log makes it {expected:?}")]
pub struct NoPrefix {
    /// The stream.
    pub stream: StreamId,
    /// The replica's position, as the replica reports it.
    pub at: Seq,
    /// The first key that differs.
    pub key: EntryKey,
    /// What the log makes of it.
    pub expected: Option<Entry>,
    /// What the replica has.
    pub found: Option<Entry>,
}

/// Compares a replica that reports the position `at` with the log of its stream.
///
/// # Errors
/// Names the first entry that differs.
pub fn check<'a>(
    log: impl IntoIterator<Item = &'a Envelope>,
    stream: &StreamId,
    at: Seq,
    replica: &State,
) -> Result<(), Box<NoPrefix>> {
    check_state(&State::fold(log, at), stream, at, replica)
}

/// Compares a replica that reports the position `at` with what the log makes of its stream there.
///
/// # Errors
/// Names the first entry that differs.
pub fn check_state(
    expected: &State,
    stream: &StreamId,
    at: Seq,
    replica: &State,
) -> Result<(), Box<NoPrefix>> {
    match expected.difference(replica) {
        None => Ok(()),
        Some((key, expected, found)) => Err(Box::new(NoPrefix {
            stream: stream.clone(),
            at,
            key: key.clone(),
            expected: expected.cloned(),
            found: found.cloned(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::log;

    #[test]
    fn a_replica_that_is_ahead_or_behind_is_no_prefix() {
        let log = log(&[(1, Some(1)), (2, Some(2)), (1, None)]);
        let state = State::fold(&log, Seq(2));
        assert_eq!(check(&log, &StreamId::Cluster, Seq(2), &state), Ok(()));
        assert!(check(&log, &StreamId::Cluster, Seq(1), &state).is_err());
        assert!(check(&log, &StreamId::Cluster, Seq(3), &state).is_err());
    }
}
