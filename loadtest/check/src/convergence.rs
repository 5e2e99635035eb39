//! I10: once faults have stopped, every healthy replica reaches the end of its streams.

use headwater_event::{NodeName, Seq, StateHash, StreamId};

/// The end of a stream, at a replica or in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The last event.
    pub seq: Seq,
    /// The state hash there.
    pub hash: StateHash,
}

/// A replica that did not reach the end of a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I10 node {node}, {stream}: is at {found:?}, the log ends at {expected:?}")]
pub struct NotConverged {
    /// The node.
    pub node: NodeName,
    /// The stream.
    pub stream: StreamId,
    /// Where the log ends.
    pub expected: End,
    /// The replica's position; `None`: it has nothing of the stream.
    pub found: Option<End>,
}

/// Compares a replica with the end of the log.
///
/// # Errors
/// When they differ in position or hash.
pub fn check(
    node: &NodeName,
    stream: &StreamId,
    expected: End,
    found: Option<End>,
) -> Result<(), Box<NotConverged>> {
    if found == Some(expected) {
        return Ok(());
    }
    let (node, stream) = (node.clone(), stream.clone());
    Err(Box::new(NotConverged { node, stream, expected, found }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_converged_when_it_is_at_the_end() {
        let node: NodeName = "a".parse().expect("well-formed");
        let end = |seq| End { seq: Seq(seq), hash: StateHash::EMPTY };
        assert!(check(&node, &StreamId::Cluster, end(3), Some(end(3))).is_ok());
        assert!(check(&node, &StreamId::Cluster, end(3), Some(end(2))).is_err());
        assert!(check(&node, &StreamId::Cluster, end(3), None).is_err());
    }
}
