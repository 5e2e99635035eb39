//! The position of a session's node: its content, and when the hub publishes it.

mod schedule;

use std::time::Duration;

use headwater_event::{Identity, NodeName, NodeProgress, NodeState, NodeStreamProgress};
use headwater_session::HubSession;
use headwater_session::message::EdgeHeartbeat;
use tokio::time::Instant;

use self::schedule::AppendSchedule;
use super::SessionDependencies;

/// How often at most the position is recorded for readers of this hub.
const RECORD_INTERVAL: Duration = Duration::from_millis(100);

/// Publishes the position of a node: in this hub at once, upstream at a bounded rate.
pub(super) struct PositionPublisher {
    /// The identity in the edge's hello; `None` before the hub has taken it.
    identity: Option<Identity>,
    heartbeat: EdgeHeartbeat,
    /// Whether programs of the node read the shared stream; `None` before the first heartbeat.
    consumes_cluster: Option<bool>,
    /// The state of the node; `None` before the first heartbeat. The node is not present before: an
    /// edge sends a heartbeat as soon as it is welcome.
    state: Option<NodeState>,
    contact_ms: i64,
    contact_at: Instant,
    schedule: AppendSchedule,
    recorded_at: Option<Instant>,
    /// Whether anything but time has passed since the position was recorded.
    has_moved: bool,
}

impl PositionPublisher {
    /// A session whose first contact was at `contact_ms`.
    pub(super) fn new(contact_ms: i64) -> Self {
        Self {
            identity: None,
            heartbeat: EdgeHeartbeat::default(),
            consumes_cluster: None,
            state: None,
            contact_ms,
            contact_at: Instant::now(),
            schedule: AppendSchedule::default(),
            recorded_at: None,
            has_moved: true,
        }
    }

    /// The session has received something other than the time.
    pub(super) fn moved(&mut self) {
        self.has_moved = true;
    }

    /// The hub has taken the identity of the edge.
    pub(super) fn identified(&mut self, identity: Identity) {
        self.identity = Some(identity);
        self.schedule = AppendSchedule::default();
        self.recorded_at = None;
    }

    /// The edge has sent a message.
    pub(super) fn contact(&mut self, contact_ms: i64) {
        self.contact_ms = contact_ms;
        self.contact_at = Instant::now();
    }

    /// The edge has sent a heartbeat.
    pub(super) fn heartbeat(&mut self, heartbeat: EdgeHeartbeat) {
        // An edge of an earlier version does not report this, and may have programs that read it.
        self.consumes_cluster = Some(heartbeat.consumes_cluster.unwrap_or(true));
        let had_drained = self.state.is_some_and(|state| state.has_drained);
        let state = NodeState {
            lacks_worker: heartbeat.lacks_worker,
            has_drained: had_drained || heartbeat.outbox_depth == 0,
        };
        if self.state.replace(state) != Some(state) {
            // A change of the state is recorded at once.
            self.recorded_at = None;
        }
        self.heartbeat = heartbeat;
    }

    /// Records the position, and appends it upstream if it is due.
    pub(super) fn publish_if_due(
        &mut self,
        session: &HubSession,
        node: &NodeName,
        hub: &SessionDependencies,
    ) {
        // A session has no streams before the welcome.
        if !session.is_open() || self.recorded_at.is_some_and(|at| at.elapsed() < RECORD_INTERVAL) {
            return;
        }
        let Some(identity) = &self.identity else { return };
        let now = Instant::now();
        // An idle session makes no position each second.
        if !self.has_moved && !self.schedule.may_be_due(now) {
            return;
        }
        let position = self.position(identity, session, hub, true);
        self.recorded_at = Some(now);
        self.has_moved = false;
        if let Some(state) = self.state {
            hub.presence.contact(node, self.contact_at, state);
        }
        if !self.schedule.is_due(&position, now) {
            hub.sessions.record_position(node, position);
            return;
        }
        self.schedule.appended(&position, now);
        hub.fold.identities().observe(identity);
        hub.publish_position(node, position);
    }

    /// Publishes the position at which the session ended. A refused session has none.
    pub(super) fn publish_last(
        self,
        session: &HubSession,
        node: &NodeName,
        hub: &SessionDependencies,
    ) {
        if let Some(identity) = &self.identity
            && self.schedule.has_appended()
        {
            hub.publish_last_position(node, self.position(identity, session, hub, false));
        }
    }

    fn position(
        &self,
        identity: &Identity,
        session: &HubSession,
        hub: &SessionDependencies,
        connected: bool,
    ) -> NodeProgress {
        let streams = session.streams().map(|stream| NodeStreamProgress {
            stream: stream.stream.clone(),
            log_id: stream.log_id.map(|log_id| log_id.to_string()).unwrap_or_default(),
            tail: stream.tail,
            sent: stream.sent,
            applied: stream.applied,
            durable: stream.durable,
            acked: stream.acked,
        });
        NodeProgress {
            hub: hub.name.clone(),
            connected,
            incarnation: identity.incarnation,
            boot: identity.boot,
            connection: session.connection(),
            outbox_depth: self.heartbeat.outbox_depth,
            contact_ms: self.contact_ms,
            meta_sync_ms: self.heartbeat.meta_sync_ms,
            consumes_cluster: self.consumes_cluster,
            streams: streams.collect(),
        }
    }
}
