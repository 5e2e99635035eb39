//! The status of a stream in a session at the hub.

use headwater_event::{LogId, Seq, StreamId};

/// A node's positions in a stream:
/// `acked <= durable <= applied <= received <= sent <= tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubStreamStatus<'s> {
    /// The stream.
    pub stream: &'s StreamId,
    /// The log of the events sent; `None` before the first.
    pub log_id: Option<LogId>,
    /// The end of the stream in the hub's fold.
    pub tail: Seq,
    /// The last event sent.
    pub sent: Seq,
    /// The last event of the pushes received whole.
    pub received: Seq,
    /// The last event applied at the edge.
    pub applied: Seq,
    /// The last event synced to the edge's disk.
    pub durable: Seq,
    /// The last event that the hub counts as acknowledged.
    pub acked: Seq,
    /// Why the stream is parked; `None`: it is served. The inequality need not hold while it is
    /// parked.
    pub parked: Option<&'static str>,
    /// Whether a snapshot is due or partly sent. The seqs are then of two histories, and the
    /// inequality need not hold.
    pub resetting: bool,
}
