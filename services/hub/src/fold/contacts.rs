//! The last contact of each node with any hub, as the position records of the upstream log have it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_event::{NodeName, NodeProgress};
use headwater_store::{Folded, Json, Table, TableId};

/// The last positions, by node, without their streams.
pub(super) const CONTACTS: Table<NodeName, Json<NodeProgress>, Folded> =
    Table::new(TableId::NodeContacts);

/// The last contacts, by node.
#[derive(Debug, Default)]
pub(crate) struct NodeContacts {
    last: Mutex<HashMap<NodeName, NodeProgress>>,
}

impl NodeContacts {
    /// The last contact of `node`, if one is known.
    pub(crate) fn of(&self, node: &NodeName) -> Option<NodeProgress> {
        self.lock().get(node).cloned()
    }

    /// Records a position, and returns what is kept of it: nothing, if the node has connected again
    /// since, as the last one shows.
    pub(super) fn observe(&self, node: &NodeName, position: NodeProgress) -> Option<NodeProgress> {
        let mut last = self.lock();
        if last.get(node).is_some_and(|last| position.is_superseded_by(last)) {
            return None;
        }
        let position = NodeProgress { streams: Vec::new(), ..position };
        last.insert(node.clone(), position.clone());
        Some(position)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, NodeProgress>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};

    use super::*;

    #[test]
    fn the_end_of_an_earlier_connection_replaces_no_later_one() {
        let node: NodeName = "gw-1".parse().expect("a name");
        let at = |hub: &str, connection, connected| NodeProgress {
            hub: hub.to_owned(),
            connected,
            incarnation: Incarnation(1),
            boot: Boot { number: 1, nonce: 1 },
            connection,
            outbox_depth: 0,
            contact_ms: 0,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: Vec::new(),
        };
        let contacts = NodeContacts::default();
        assert!(contacts.observe(&node, at("hub-1", 1, true)).is_some());
        assert!(contacts.observe(&node, at("hub-2", 2, true)).is_some());
        assert_eq!(contacts.observe(&node, at("hub-1", 1, false)), None);
        assert_eq!(contacts.of(&node).map(|last| last.hub), Some("hub-2".to_owned()));
    }
}
