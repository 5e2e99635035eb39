//! The presence of nodes, as hubs send it on their streams to the active controller.
//!
//! | module | what it owns |
//! |---|---|
//! | `table` | which node is connected to which hub, as values of time and messages |
//! | `node_presence` | whether a node and its worker live |

mod node_presence;
mod table;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_event::{NodeName, NodeProgress, PresenceUpdate};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::table::{LinkId, PresenceTable};
use super::changes::ChangeFeed;

pub use self::node_presence::NodePresence;
pub(super) use self::table::Contact;

/// How long after its last moment a hub is seen as silent: one step of the clock, so that the look
/// finds it silent.
const SILENCE_TICK: Duration = Duration::from_millis(1);

/// Receives the presence of nodes from hubs. Cheap to clone.
#[derive(Clone)]
pub struct PresenceReceiver {
    table: Arc<Mutex<PresenceTable>>,
    /// Notified when a stream begins.
    connected: Arc<Notify>,
    changes: ChangeFeed,
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
        Self { table: Arc::default(), connected: Arc::default(), changes }
    }

    /// Begins the stream of a hub.
    pub fn connect(&self, hub: &str) -> PresenceLink {
        let id = self.lock().connect(hub, Instant::now());
        self.connected.notify_one();
        PresenceLink { receiver: self.clone(), id }
    }

    /// What is known of the connection of `node`, whose last position in the log is `progress`.
    pub(super) fn contact(&self, node: &NodeName, progress: Option<&NodeProgress>) -> Contact {
        self.lock().contact(node, progress.map(|progress| &*progress.hub), Instant::now())
    }

    /// The presence of `node`, whose last position in the log is `progress`.
    pub(super) fn presence(
        &self,
        node: &NodeName,
        progress: Option<&NodeProgress>,
    ) -> NodePresence {
        let hub = progress.map(|progress| &*progress.hub);
        NodePresence::of(self.lock().connected(node, hub, Instant::now()), progress)
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
