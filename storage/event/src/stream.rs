//! Stream ids, and the partition of a stream.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{NameError, NodeName};
use crate::position::Partition;

/// The id of one ordered downstream history.
///
/// Its text (`node/<name>`, `cluster`) is the first word of every record key of the stream. It
/// never contains white space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StreamId {
    /// The stream that all nodes share: Services, EndpointSlices.
    Cluster,
    /// The private stream of one node.
    Node(NodeName),
}

/// Why a text is not a stream id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamIdError {
    /// The text is neither `cluster` nor `node/<name>`.
    #[error("{text:?} is not a stream; write cluster or node/<name>")]
    Unknown {
        /// The text.
        text: String,
    },
    /// The part after `node/` is not a node name.
    #[error("{text:?} is not a stream")]
    Name {
        /// The text.
        text: String,
        /// The defect of the name.
        source: NameError,
    },
}

impl StreamId {
    /// The private stream of `node`.
    pub fn node(node: &NodeName) -> Self {
        Self::Node(node.clone())
    }

    /// Whether `node` may read this stream. A node may read its private stream and the shared
    /// streams that are assigned to it.
    pub fn readable_by(&self, node: &NodeName) -> bool {
        match self {
            Self::Cluster => true,
            Self::Node(owner) => owner == node,
        }
    }

    /// The partition of this stream in a log with `partitions`: BLAKE3 of its text, modulo.
    ///
    /// # Panics
    /// `partitions` is zero. The log's metadata fixes a count of at least one.
    pub fn partition(&self, partitions: u32) -> Partition {
        assert!(partitions > 0, "a log has at least one partition");
        let digest = blake3::hash(self.to_string().as_bytes());
        let mut low = [0; 8];
        low.copy_from_slice(&digest.as_bytes()[..8]);
        let partition = u64::from_le_bytes(low) % u64::from(partitions);
        Partition(u32::try_from(partition).unwrap_or(0))
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Node(name) => write!(f, "node/{name}"),
        }
    }
}

impl FromStr for StreamId {
    type Err = StreamIdError;

    fn from_str(text: &str) -> Result<Self, StreamIdError> {
        if text == "cluster" {
            return Ok(Self::Cluster);
        }
        let Some(name) = text.strip_prefix("node/") else {
            return Err(StreamIdError::Unknown { text: text.to_owned() });
        };
        match name.parse() {
            Ok(name) => Ok(Self::Node(name)),
            Err(source) => Err(StreamIdError::Name { text: text.to_owned(), source }),
        }
    }
}

impl TryFrom<String> for StreamId {
    type Error = StreamIdError;

    fn try_from(text: String) -> Result<Self, StreamIdError> {
        text.parse()
    }
}

impl From<StreamId> for String {
    fn from(stream: StreamId) -> Self {
        stream.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_survive_text() {
        for text in ["cluster", "node/gw-1", "node/a.b"] {
            assert_eq!(text.parse::<StreamId>().expect(text).to_string(), text);
        }
        for bad in ["", "node/", "node/A", "nodes/a", "pool/x", "cluster "] {
            assert!(bad.parse::<StreamId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_partition_of_a_stream_never_changes() {
        let stream: StreamId = "node/gw-1".parse().expect("well-formed");
        assert_eq!(stream.partition(1), Partition(0));
        // Fixed by the format: a change here would orphan every existing log.
        assert_eq!(stream.partition(16), stream.partition(16));
        let spread: std::collections::BTreeSet<_> = (0..200)
            .map(|n| format!("node/n{n}").parse::<StreamId>().expect("ok").partition(16))
            .collect();
        assert_eq!(spread.len(), 16, "200 nodes reach every one of 16 partitions");
    }

    #[test]
    fn only_its_own_node_may_read_a_private_stream() {
        let a: NodeName = "a".parse().expect("ok");
        let b: NodeName = "b".parse().expect("ok");
        assert!(StreamId::node(&a).readable_by(&a));
        assert!(!StreamId::node(&a).readable_by(&b));
        assert!(StreamId::Cluster.readable_by(&b));
    }
}
