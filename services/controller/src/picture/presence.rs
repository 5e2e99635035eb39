//! The presence of nodes, as hubs send it on their streams to the active controller, and when this
//! controller read the last position of each in the log.
//!
//! | module | what it owns |
//! |---|---|
//! | `table` | which node is connected to which hub, as values of time and messages |
//! | `node_presence` | whether a node and its worker live |

mod node_presence;
mod table;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_event::{NodeName, NodeProgress, PresenceUpdate};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::table::{LinkId, PresenceTable};
use super::changes::ChangeFeed;
use super::connection::{Connection, LoggedPosition, NODE_GRACE, POSITION_GRACE};

pub use self::node_presence::NodePresence;
pub(super) use self::table::Contact;

/// How long after its last moment a hub is seen as silent: one step of the clock, so that the look
/// finds it silent.
const SILENCE_TICK: Duration = Duration::from_millis(1);

/// Receives the presence of nodes from hubs. Cheap to clone.
#[derive(Clone)]
pub struct PresenceReceiver {
    table: Arc<Mutex<PresenceTable>>,
    positions: Arc<Mutex<PositionReads>>,
    /// Notified when a stream begins.
    connected: Arc<Notify>,
    changes: ChangeFeed,
}

/// When this controller read the last position of each node.
#[derive(Debug)]
struct PositionReads {
    /// What is stored from an earlier run counts as read then: the time in between is unknown.
    started: Instant,
    /// One for each node that ever connected.
    read: HashMap<NodeName, Instant>,
}

/// The stream of one hub. When it is dropped, the nodes of the hub count as connected until the
/// silence of the hub is too long; a new stream of the hub takes them over.
pub struct PresenceLink {
    receiver: PresenceReceiver,
    id: LinkId,
}

impl PresenceReceiver {
    /// No hub has connected yet. The keys of Nodes whose presence changes go to `changes`.
    pub(crate) fn new(changes: ChangeFeed) -> Self {
        let positions = PositionReads { started: Instant::now(), read: HashMap::new() };
        Self {
            table: Arc::default(),
            positions: Arc::new(Mutex::new(positions)),
            connected: Arc::default(),
            changes,
        }
    }

    /// The log has a newer position of `node`.
    pub(crate) fn note_position(&self, node: &NodeName) {
        self.lock_positions().read.insert(node.clone(), Instant::now());
    }

    /// The connection of `node`, whose last position in the log is `progress`, at `now_ms`.
    pub(super) fn connection(
        &self,
        node: &NodeName,
        progress: Option<&NodeProgress>,
        now_ms: i64,
    ) -> Connection {
        let (read_for, grace) = {
            let positions = self.lock_positions();
            match positions.read.get(node) {
                Some(read) => (read.elapsed(), POSITION_GRACE),
                None => (positions.started.elapsed(), self.start_grace()),
            }
        };
        let logged = progress.map(|progress| LoggedPosition { progress, read_for, grace });
        Connection::of(self.contact(node, progress), logged, now_ms)
    }

    /// Begins the stream of a hub.
    pub fn connect(&self, hub: &str) -> PresenceLink {
        let id = self.lock().connect(hub, Instant::now());
        self.connected.notify_one();
        PresenceLink { receiver: self.clone(), id }
    }

    /// What is known of the connection of `node`, whose last position in the log is `progress`.
    fn contact(&self, node: &NodeName, progress: Option<&NodeProgress>) -> Contact {
        self.lock().contact(node, progress.map(|progress| &*progress.hub), Instant::now())
    }

    /// The presence of `node`. `read` reads its last position in the log, which is seldom needed: a sink asks for the
    /// presence at each comparison.
    pub(super) fn presence(
        &self,
        node: &NodeName,
        read: impl FnOnce() -> Option<NodeProgress>,
    ) -> NodePresence {
        let now = Instant::now();
        // Nothing is read while the table is locked.
        let needs_position = self.lock().needs_position(node, now);
        let progress = if needs_position { read() } else { None };
        let hub = progress.as_ref().map(|progress| &*progress.hub);
        NodePresence::of(self.lock().connected(node, hub, now), progress.as_ref())
    }

    /// Publishes the nodes of hubs that fall silent: no message names them.
    pub(crate) async fn watch_silence(self) -> Infallible {
        loop {
            let mut group = self.changes.begin();
            let (silent, next) = {
                let mut table = self.lock();
                (table.notice_silence(Instant::now()), table.next_silence())
            };
            silent.iter().for_each(|node| group.node(node));
            self.changes.publish(group);
            match next {
                Some(at) => sleep_until(at + SILENCE_TICK).await,
                None => self.connected.notified().await,
            }
        }
    }

    /// How long a position of an earlier run counts from the start. A hub that sends presence names its nodes as
    /// soon as it is connected; the hub of another node may be gone for days.
    fn start_grace(&self) -> Duration {
        if self.lock().has_hub(Instant::now()) { NODE_GRACE } else { POSITION_GRACE }
    }

    fn lock_positions(&self) -> MutexGuard<'_, PositionReads> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, PresenceTable> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PresenceLink {
    /// The hub has sent an update.
    pub fn receive(&self, update: PresenceUpdate) {
        let mut group = self.receiver.changes.begin();
        let changed = self.receiver.lock().receive(self.id, update, Instant::now());
        for node in &changed {
            group.node(node);
        }
        self.receiver.changes.publish(group);
    }
}

impl Drop for PresenceLink {
    fn drop(&mut self) {
        self.receiver.lock().disconnect(self.id);
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::presence::PRESENCE_SILENCE_MAX;
    use headwater_event::{Boot, ConnectedNode, Incarnation, NodeState};
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_position_is_read_only_where_hubs_leave_the_presence_of_a_node_open() {
        let presence = PresenceReceiver::new(ChangeFeed::new());
        let node: NodeName = "a".parse().expect("a name");
        let positions_read = || {
            let mut count = 0;
            presence.presence(&node, || {
                count += 1;
                None
            });
            count
        };
        let named =
            |state| PresenceUpdate::Connected(vec![ConnectedNode { node: node.clone(), state }]);
        let running = Some(NodeState { lacks_worker: false, has_drained: true });
        assert_eq!(positions_read(), 0, "no hub has it");
        let hub = presence.connect("hub");
        hub.receive(named(running));
        assert_eq!(positions_read(), 0);
        let other = presence.connect("other");
        other.receive(named(running));
        assert_eq!(positions_read(), 1, "the log has with which hub it is");
        advance(PRESENCE_SILENCE_MAX + SILENCE_TICK).await;
        hub.receive(named(running));
        assert_eq!(positions_read(), 0, "the other hub is silent");
        hub.receive(named(None));
        assert_eq!(positions_read(), 1, "an older hub appends what it does not send");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_only_the_log_has_is_reachable_from_when_its_position_was_read() {
        let presence = PresenceReceiver::new(ChangeFeed::new());
        let node: NodeName = "a".parse().expect("a name");
        let progress = NodeProgress {
            hub: "hub".to_owned(),
            connected: true,
            incarnation: Incarnation(1),
            boot: Boot::default(),
            connection: 0,
            outbox_depth: 0,
            contact_ms: 0,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: Vec::new(),
        };
        // By its own clock, the controller is years ahead of the hub.
        let is_reachable =
            || presence.connection(&node, Some(&progress), 1_800_000_000_000).is_reachable;
        assert!(is_reachable(), "an earlier run has read the position");
        advance(NODE_GRACE + SILENCE_TICK).await;
        let other_hub = presence.connect("other");
        assert!(is_reachable(), "it has not named its nodes yet");
        other_hub.receive(PresenceUpdate::Complete);
        assert!(!is_reachable(), "no hub has the node");
        // A hub that is silent says nothing of other nodes.
        advance(POSITION_GRACE - NODE_GRACE - SILENCE_TICK).await;
        assert!(is_reachable());
        advance(SILENCE_TICK).await;
        assert!(!is_reachable());
        presence.note_position(&node);
        advance(POSITION_GRACE).await;
        assert!(is_reachable());
        advance(SILENCE_TICK).await;
        assert!(!is_reachable());
    }
}
