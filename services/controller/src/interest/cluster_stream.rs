//! Which nodes get the shared stream `cluster`: Services, Endpoints and EndpointSlices.
//!
//! Thousands of them are megabytes at each edge, and each change is a message to each edge that has the
//! stream. A node reports to its hub whether any of its programs reads them; the position record of the
//! node carries that into the log.

use std::collections::HashMap;

use headwater_event::{NodeName, ObjectHash};
use serde::{Deserialize, Serialize};

/// The content of `!streams` of a node with the shared stream, besides its own.
const WITH_CLUSTER: &[u8] = br#"["cluster"]"#;

/// The content of `!streams` of a node with its own stream only.
const WITHOUT_CLUSTER: &[u8] = b"[]";

/// Which nodes get the shared stream `cluster`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterStream {
    /// Every node.
    #[default]
    Always,
    /// No node.
    Never,
    /// The nodes with programs that read it, as their edges report. A node without a report keeps what
    /// it has; a new one gets the stream with its report.
    Auto,
}

/// The assignment of the shared stream to nodes.
#[derive(Debug, Default)]
pub(super) struct ClusterAssignments {
    setting: ClusterStream,
    /// Whether programs of the node read it, of each node that has reported.
    consumers: HashMap<NodeName, bool>,
}

impl ClusterAssignments {
    pub(super) fn new(setting: ClusterStream) -> Self {
        Self { setting, ..Self::default() }
    }

    /// The node reports whether its programs read the stream. Returns whether its streams may be others
    /// now.
    pub(super) fn note(&mut self, node: &NodeName, consumes: bool) -> bool {
        let before = self.consumers.insert(node.clone(), consumes);
        self.setting == ClusterStream::Auto && before != Some(consumes)
    }

    /// The content of `!streams` of a node.
    pub(super) fn streams_of(&self, node: &NodeName) -> &'static [u8] {
        let has_cluster = match self.setting {
            ClusterStream::Always => true,
            ClusterStream::Never => false,
            ClusterStream::Auto => self.consumers.get(node).copied().unwrap_or(false),
        };
        if has_cluster { WITH_CLUSTER } else { WITHOUT_CLUSTER }
    }

    /// Whether the published `!streams` of a node, of which `published` is the hash, may stay. Those of
    /// a node without a report do: a controller without its picture must not take the stream from
    /// every node.
    pub(super) fn may_stay(&self, node: &NodeName, published: ObjectHash) -> bool {
        let is_unknown = self.setting == ClusterStream::Auto && !self.consumers.contains_key(node);
        published == ObjectHash::of(self.streams_of(node))
            || (is_unknown && published == ObjectHash::of(WITH_CLUSTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    #[test]
    fn the_setting_decides_before_the_report_of_a_node() {
        for (setting, expected) in
            [(ClusterStream::Always, WITH_CLUSTER), (ClusterStream::Never, WITHOUT_CLUSTER)]
        {
            let mut assignments = ClusterAssignments::new(setting);
            for consumes in [true, false] {
                assert!(!assignments.note(&node("a"), consumes), "it changes nothing");
                assert_eq!(assignments.streams_of(&node("a")), expected);
            }
            assert!(assignments.may_stay(&node("b"), ObjectHash::of(expected)));
        }
        let never = ClusterAssignments::new(ClusterStream::Never);
        assert!(!never.may_stay(&node("a"), ObjectHash::of(WITH_CLUSTER)));
    }

    #[test]
    fn a_node_gets_the_stream_while_its_programs_read_it() {
        let mut assignments = ClusterAssignments::new(ClusterStream::Auto);
        assert_eq!(assignments.streams_of(&node("a")), WITHOUT_CLUSTER);
        assert!(assignments.note(&node("a"), true));
        assert!(!assignments.note(&node("a"), true), "it is the same report");
        assert_eq!(assignments.streams_of(&node("a")), WITH_CLUSTER);
        assert_eq!(assignments.streams_of(&node("b")), WITHOUT_CLUSTER);
        assert!(assignments.note(&node("a"), false));
        assert_eq!(assignments.streams_of(&node("a")), WITHOUT_CLUSTER);
    }

    #[test]
    fn a_node_without_a_report_keeps_the_stream() {
        let mut assignments = ClusterAssignments::new(ClusterStream::Auto);
        let [with, without] = [WITH_CLUSTER, WITHOUT_CLUSTER].map(ObjectHash::of);
        assert!(
            assignments.may_stay(&node("a"), with) && assignments.may_stay(&node("a"), without)
        );
        assert!(!assignments.may_stay(&node("a"), ObjectHash::of(b"")));
        assignments.note(&node("a"), false);
        assert!(
            !assignments.may_stay(&node("a"), with) && assignments.may_stay(&node("a"), without)
        );
    }
}
