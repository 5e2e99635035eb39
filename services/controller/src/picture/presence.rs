//! The presence of nodes, as hubs send it on their streams to the active controller.
//!
//! | module | what it owns |
//! |---|---|
//! | `node_presence` | whether a node is present |
//! | `table` | which node is connected to which hub, as values of time and messages |

mod node_presence;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{NodeName, NodeProgress, PresenceUpdate};
use tokio::time::Instant;

use self::table::{LinkId, PresenceTable};
use super::changes::ChangeFeed;

pub use self::node_presence::NodePresence;
pub(super) use self::table::Contact;

/// Receives the presence of nodes from hubs. Cheap to clone.
#[derive(Clone)]
pub struct PresenceReceiver {
    table: Arc<Mutex<PresenceTable>>,
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
        Self { table: Arc::default(), changes }
    }

    /// Begins the stream of a hub.
    pub fn connect(&self, hub: &str) -> PresenceLink {
        let id = self.lock().connect(hub, Instant::now());
        PresenceLink { receiver: self.clone(), id }
    }

    /// What is known of the connection of `node`, whose last position in the log is `progress`.
    pub(super) fn contact(&self, node: &NodeName, progress: Option<&NodeProgress>) -> Contact {
        self.lock().contact(node, progress.map(|progress| &*progress.hub), Instant::now())
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
