//! The highest identity that the cloud knows of each node, folded from the position records
//! that hubs append upstream.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_event::{Identity, NodeName, NodeStanding};

/// Identities by node.
#[derive(Debug, Default)]
pub(crate) struct Known {
    identities: Mutex<HashMap<NodeName, Identity>>,
}

impl Known {
    /// The highest identity of `node`, where one is known.
    pub(crate) fn of(&self, node: &NodeName) -> Option<Identity> {
        self.lock().get(node).cloned()
    }

    /// Takes in an identity that was met, unless a higher one is known.
    pub(crate) fn meet(&self, identity: &Identity) {
        let mut identities = self.lock();
        match identities.get(&identity.node) {
            Some(known) if known.rank() >= identity.rank() => {}
            _ => {
                identities.insert(identity.node.clone(), identity.clone());
            }
        }
    }

    /// Takes in a hub's account of a node.
    pub(crate) fn meet_standing(&self, node: &NodeName, standing: &NodeStanding) {
        self.meet(&Identity {
            node: node.clone(),
            incarnation: standing.incarnation,
            boot: standing.boot,
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, Identity>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};

    use super::*;

    #[test]
    fn only_a_higher_identity_replaces_a_known_one() {
        let identity = |number, nonce| Identity {
            node: "gw-1".parse().expect("a name"),
            incarnation: Incarnation(1),
            boot: Boot { number, nonce },
        };
        let known = Known::default();
        for (number, nonce) in [(2, 7), (1, 1), (2, 9)] {
            known.meet(&identity(number, nonce));
        }
        assert_eq!(known.of(&identity(0, 0).node), Some(identity(2, 7)));
    }
}
