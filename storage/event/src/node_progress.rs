//! The progress of a node, as a hub reports it: the value of the upstream record `!position`.

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
    /// The number of reports in the node's outbox that the log has not acknowledged.
    pub outbox_depth: u64,
    /// The time at which the hub last received a message from the node, by the hub's clock, in
    /// milliseconds since the Unix epoch.
    pub contact_ms: i64,
    /// The time at which the node last closed a pod status snapshot, by the node's clock, in
    /// milliseconds since the Unix epoch; zero if never.
    pub meta_sync_ms: i64,
    /// The node's positions in each of its streams.
    pub streams: Vec<NodeStreamProgress>,
}

/// The positions of a node in one stream: `acked <= durable <= applied <= sent <= tail`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
