//! The progress of a node, as a hub reports it: the value of the upstream record `!position`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::position::Seq;
use crate::report::{Boot, Incarnation};
use crate::stream::StreamId;

/// The connection of a node to a hub, and the node's positions. JSON in the log: fields are added,
/// never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeProgress {
    /// The hub that reports.
    pub hub: String,
    /// Whether the node was connected to that hub.
    pub connected: bool,
    /// The issue number of the node's identity.
    pub incarnation: Incarnation,
    /// The start of the node that is or was connected.
    pub boot: Boot,
    /// The number of the connection, as the edge counts its connections since that start, from 1.
    /// Zero: the edge, or the hub, is of a version that does not count them.
    #[serde(default)]
    pub connection: u64,
    /// The number of reports in the node's outbox that the log has not acknowledged.
    pub outbox_depth: u64,
    /// The time at which the hub last received a message from the node, by the hub's clock, in
    /// milliseconds since the Unix epoch.
    pub contact_ms: i64,
    /// The time at which the node last closed a pod status snapshot, by the node's clock, in
    /// milliseconds since the Unix epoch; zero if never.
    pub meta_sync_ms: i64,
    /// Whether programs of the node read the shared stream `cluster`; `None`: the node has not reported
    /// since it connected.
    #[serde(default)]
    pub consumes_cluster: Option<bool>,
    /// The node's positions in each of its streams.
    pub streams: Vec<NodeStreamProgress>,
}

impl NodeProgress {
    /// Whether the node has connected again since, as `later` shows. A hub appends the end of a
    /// connection when it finds it silent, which may be after another hub has welcomed the node.
    pub fn is_superseded_by(&self, later: &Self) -> bool {
        let start = |progress: &Self| (progress.incarnation, progress.boot.number);
        match start(self).cmp(&start(later)) {
            Ordering::Less => true,
            Ordering::Equal => self.connection != 0 && self.connection < later.connection,
            Ordering::Greater => false,
        }
    }
}

/// The positions of a node in one stream: `acked <= durable <= applied <= sent <= tail`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeStreamProgress {
    /// The stream.
    pub stream: StreamId,
    /// The log id, as text for people.
    pub log_id: String,
    /// The last event of the stream at the hub.
    pub tail: Seq,
    /// The last event that the hub has sent.
    pub sent: Seq,
    /// The last event that the edge has applied.
    pub applied: Seq,
    /// The last event that the edge has synced to its disk.
    pub durable: Seq,
    /// The last event whose acknowledgement the hub has received.
    pub acked: Seq,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(incarnation: u64, boot: u64, connection: u64) -> NodeProgress {
        NodeProgress {
            hub: "hub".to_owned(),
            connected: true,
            incarnation: Incarnation(incarnation),
            boot: Boot { number: boot, nonce: 1 },
            connection,
            outbox_depth: 0,
            contact_ms: 0,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: Vec::new(),
        }
    }

    #[test]
    fn positions_are_ordered_by_incarnation_boot_and_connection() {
        let ordered = [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1)];
        let ordered = ordered.map(|(incarnation, boot, count)| progress(incarnation, boot, count));
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(one.is_superseded_by(other), at < other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn connections_that_are_not_counted_are_ordered_by_the_log() {
        let (earlier, counted) = (progress(1, 1, 0), progress(1, 1, 3));
        assert!(!earlier.is_superseded_by(&counted) && !counted.is_superseded_by(&earlier));
        assert!(earlier.is_superseded_by(&progress(1, 2, 0)));
        let old = serde_json::to_value(&counted).map(|mut value| {
            let fields = value.as_object_mut().expect("an object");
            fields.remove("connection");
            fields.remove("consumes_cluster");
            value
        });
        let read: NodeProgress = serde_json::from_value(old.expect("JSON")).expect("readable");
        assert_eq!(read, earlier);
    }
}
