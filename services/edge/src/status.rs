//! The status of an edge.

use headwater_event::Identity;
use headwater_session::EdgeStreamStatus;

use crate::connection::session::SessionStatus;
use crate::upstream::UpstreamStatus;

/// The status of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeStatus {
    /// The identity of this start.
    pub identity: Identity,
    /// Whether a hub has welcomed its session.
    pub connected: bool,
    /// The hub that was dialed last, as it was configured; `None` before the first.
    pub hub: Option<String>,
    /// Reports that the cloud has not acknowledged.
    pub outbox_depth: usize,
    /// When the pod status snapshot was last derived: wall clock in milliseconds; 0: never.
    pub last_meta_sync_ms: i64,
    /// The streams of the node.
    pub streams: Vec<EdgeStreamStatus>,
    /// What keeps the edge from its work, and needs a person.
    pub trouble: Option<String>,
}

impl EdgeStatus {
    pub(crate) fn new(session: SessionStatus, upstream: &UpstreamStatus) -> Self {
        Self {
            identity: upstream.identity.clone(),
            connected: session.connected,
            hub: session.hub,
            outbox_depth: upstream.depth,
            last_meta_sync_ms: upstream.last_meta_sync_ms,
            streams: session.streams,
            trouble: session.trouble.or_else(|| upstream.trouble.clone()),
        }
    }
}
