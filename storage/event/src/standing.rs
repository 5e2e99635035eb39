//! Where a node stands, as a hub says it: the value of the upstream record `!position`.

use serde::{Deserialize, Serialize};

use crate::position::Seq;
use crate::report::{Boot, Incarnation};
use crate::stream::StreamId;

/// A hub's account of a node. JSON in the log; fields are added, never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStanding {
    /// Which hub says so.
    pub hub: String,
    /// Whether the node was connected to it.
    pub connected: bool,
    /// The issue of the node's identity.
    pub incarnation: Incarnation,
    /// The start of the node that is or was connected.
    pub boot: Boot,
    /// Reports that the node holds and the log has not acknowledged.
    pub outbox_depth: u64,
    /// When the hub last heard of the node, by the hub's clock, milliseconds since the Unix
    /// epoch.
    pub contact_ms: i64,
    /// When the node last closed a pod status snapshot, by the node's clock; zero is never.
    pub meta_sync_ms: i64,
    /// Where the node stands in each of its streams.
    pub streams: Vec<StreamStanding>,
}

/// Where a node stands in one stream: `acked <= durable <= applied <= sent <= tail`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStanding {
    /// The stream.
    pub stream: StreamId,
    /// The life of the log, as people read it.
    pub log_id: String,
    /// The end of the stream at the hub.
    pub tail: Seq,
    /// The last event sent.
    pub sent: Seq,
    /// What the edge has applied.
    pub applied: Seq,
    /// What the edge has synced.
    pub durable: Seq,
    /// What the hub took as acknowledged.
    pub acked: Seq,
}
