//! I6: no bytes of a node's private stream reach another node.

use headwater_event::{NodeName, StreamId};

/// Something of another node's that reached a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Leak {
    /// A push or position of a stream that the node may not read.
    #[error("I6 node {node} received {stream}")]
    Stream {
        /// The node that received it.
        node: NodeName,
        /// Of what.
        stream: StreamId,
    },
    /// Bytes that only another node's stream holds.
    #[error("I6 node {node} received bytes of node {owner}")]
    Bytes {
        /// The node that received them.
        node: NodeName,
        /// Whose they are.
        owner: NodeName,
    },
}

/// Something of `stream` was delivered to `node`.
///
/// # Errors
/// When the stream is another node's.
pub fn check_stream(node: &NodeName, stream: &StreamId) -> Result<(), Leak> {
    if stream.readable_by(node) {
        return Ok(());
    }
    Err(Leak::Stream { node: node.clone(), stream: stream.clone() })
}

/// `bytes` were delivered to `node`; each marker is a text that only its owner's private stream
/// holds.
///
/// # Errors
/// When another node's marker is among the bytes.
pub fn check_bytes<'a>(
    node: &NodeName,
    bytes: &[u8],
    markers: impl IntoIterator<Item = (&'a NodeName, &'a str)>,
) -> Result<(), Leak> {
    for (owner, marker) in markers {
        let holds = !marker.is_empty()
            && bytes.windows(marker.len()).any(|window| window == marker.as_bytes());
        if owner != node && holds {
            return Err(Leak::Bytes { node: node.clone(), owner: owner.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sees_its_own_alone() {
        let (a, b): (NodeName, NodeName) = ("a".parse().expect("ok"), "b".parse().expect("ok"));
        assert!(check_stream(&a, &StreamId::Cluster).is_ok());
        assert!(check_stream(&a, &StreamId::node(&b)).is_err());
        let markers = [(&a, "of-a"), (&b, "of-b")];
        assert!(check_bytes(&a, b"xx of-a", markers).is_ok());
        assert!(check_bytes(&a, b"xx of-b", markers).is_err());
    }
}
