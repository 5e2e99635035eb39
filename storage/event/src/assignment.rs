//! The stream assignment of a node: the object of the `!streams` entry in its private stream.
//!
//! A JSON array of stream ids, sorted: `["cluster","node/gw-1"]`. The private stream belongs to
//! the node whether or not it is listed.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::name::NodeName;
use crate::stream::StreamId;

/// The streams of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    streams: BTreeSet<StreamId>,
}

/// Why the object of a `!streams` entry cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the !streams entry of node {node} is not a JSON array of stream ids")]
pub struct AssignmentError {
    /// The node.
    pub node: NodeName,
    /// What is wrong.
    pub source: serde_json::Error,
}

impl Assignment {
    /// Assigns to `node` its private stream and those of `shared` that it may read.
    pub fn new(node: &NodeName, shared: impl IntoIterator<Item = StreamId>) -> Self {
        let mut streams: BTreeSet<_> =
            shared.into_iter().filter(|stream| stream.readable_by(node)).collect();
        streams.insert(StreamId::node(node));
        Self { streams }
    }

    /// Decodes the object of the `!streams` entry of `node`. Leaves out other nodes' streams.
    ///
    /// # Errors
    /// The bytes are not a JSON array of stream ids.
    pub fn decode(node: &NodeName, object: &[u8]) -> Result<Self, AssignmentError> {
        let shared: BTreeSet<StreamId> = serde_json::from_slice(object)
            .map_err(|source| AssignmentError { node: node.clone(), source })?;
        Ok(Self::new(node, shared))
    }

    /// Encodes the object of the `!streams` entry.
    pub fn encode(&self) -> Bytes {
        let texts: Vec<String> = self.streams.iter().map(ToString::to_string).collect();
        serde_json::Value::from(texts).to_string().into()
    }

    /// Whether the assignment contains `stream`.
    pub fn contains(&self, stream: &StreamId) -> bool {
        self.streams.contains(stream)
    }

    /// The assigned streams, shared streams first.
    pub fn streams(&self) -> &BTreeSet<StreamId> {
        &self.streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_survives_json_and_names_no_other_node() {
        let node: NodeName = "gw-1".parse().expect("well-formed");
        let assignment = Assignment::new(&node, [StreamId::Cluster]);
        assert_eq!(assignment.encode(), r#"["cluster","node/gw-1"]"#);
        assert_eq!(Assignment::decode(&node, &assignment.encode()).expect("own"), assignment);
        let foreign = Assignment::decode(&node, br#"["node/gw-2"]"#).expect("an array");
        assert_eq!(foreign, Assignment::new(&node, []));
        assert!(Assignment::decode(&node, b"{}").is_err());
    }
}
