//! Where an edge stands, as others read it.

use headwater_event::Identity;
use headwater_session::EdgeStreamStatus;

use crate::connection::session::SessionStatus;
use crate::upstream::UpstreamStatus;

/// Where an edge stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeStatus {
    /// Who it is.
    pub identity: Identity,
    /// Whether a hub has welcomed its session.
    pub connected: bool,
    /// The hub that was tried last, as it was given; `None` before the first.
    pub hub: Option<String>,
    /// Reports that the cloud has not acknowledged.
    pub outbox_depth: usize,
    /// When the pod status snapshot was last derived, wall clock in milliseconds; 0: never.
    pub last_meta_sync_ms: i64,
    /// Its streams.
    pub streams: Vec<EdgeStreamStatus>,
    /// Why it cannot go on, or does not do all it should.
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
