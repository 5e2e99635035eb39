//! What every session of a hub needs from the hub.

use std::sync::Arc;

use headwater_event::{NodeName, NodeProgress};
use headwater_follow::WallClock;
use headwater_session::HubSettings;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{ReportLimiter, Sessions, TransferLimiter};
use crate::fold::Fold;
use crate::limits::HubLimits;
use crate::metrics::HubMetrics;
use crate::presence::NodePresence;
use crate::requests::RequestDispatcher;
use crate::tunnels::PendingDials;
use crate::upstream::{PositionAppender, UpstreamAppender};

/// What every session of a hub needs from the hub.
pub(crate) struct SessionDependencies {
    /// The hub's name, for position records.
    pub(crate) name: String,
    /// The bounds of one session.
    pub(crate) settings: Arc<HubSettings>,
    /// The bounds of all sessions together.
    pub(crate) limits: HubLimits,
    /// The fold that sessions read.
    pub(crate) fold: Arc<Fold>,
    /// The way of reports into the upstream log.
    pub(crate) upstream: UpstreamAppender,
    /// The way of positions into the upstream log.
    pub(crate) positions: PositionAppender,
    /// The way of requests to their handlers.
    pub(crate) requests: RequestDispatcher,
    /// The sessions of the hub.
    pub(crate) sessions: Sessions,
    /// The streams that clients of the hub wait for.
    pub(crate) dials: PendingDials,
    /// The rates of reports.
    pub(crate) reports: ReportLimiter,
    /// The nodes that are connected.
    pub(crate) presence: Arc<NodePresence>,
    /// The slots of transfers.
    pub(crate) transfers: TransferLimiter,
    /// The hub's clock.
    pub(crate) wall_clock: WallClock,
    /// Draws from `[0, 1)`: when within its range a session is too old.
    pub(crate) chance: Box<dyn Fn() -> f64 + Send + Sync>,
    /// What the hub counts.
    pub(crate) metrics: HubMetrics,
    /// Cancelled when the hub stops: no session begins any more.
    pub(crate) stop: CancellationToken,
    /// The tasks of all connections.
    pub(crate) connections: TaskTracker,
}

impl SessionDependencies {
    /// Records the position of a node, and appends it upstream, where every part sees it.
    pub(super) fn publish_position(&self, node: &NodeName, position: NodeProgress) {
        // A topic that is made again meanwhile gets what is recorded: see `repeat_positions`.
        self.sessions.record_position(node, position.clone());
        self.positions.append(node, position);
    }

    /// Appends the position of each connected node once more whenever the topic of positions was made again. Those of
    /// other nodes may be superseded by what another hub has appended.
    pub(crate) async fn repeat_positions(&self) {
        let mut positions = self.positions.clone();
        while positions.topic_replaced().await.is_some() {
            let positions = self.sessions.positions();
            for (node, position) in positions.into_iter().filter(|(_, it)| it.connected) {
                let mut last = position;
                loop {
                    self.positions.append(&node, last.clone());
                    // A session may have appended a later one before.
                    match self.sessions.position(&node) {
                        Some(present) if present != last => last = present,
                        _ => break,
                    }
                }
            }
        }
    }

    /// Publishes the position at which a session ended, unless another session of the node is
    /// live.
    pub(super) fn publish_last_position(&self, node: &NodeName, position: NodeProgress) {
        if let Some(position) = self.sessions.record_last_position(node, position) {
            self.presence.disconnect(node);
            self.positions.append(node, position);
        }
    }
}
