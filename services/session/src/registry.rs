//! The live session of each node, and the clones.
//!
//! At most one session of a node is live at a hub. A newer connection of the same start, or of
//! a later start, replaces the older one, whose connection is dead or about to end. Two live
//! sessions with the same incarnation and boot number but different nonces are two machines with
//! one disk image: the hub refuses both and holds the node until an operator releases it.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{Identity, NodeName};

use crate::message::{Refusal, RefusalCode};

/// A session of this hub, numbered by the shell, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The live session of each node, and the nodes held as clones.
#[derive(Debug, Default)]
pub struct SessionRegistry {
    live: BTreeMap<NodeName, (SessionId, Identity)>,
    held: BTreeSet<NodeName>,
}

/// The decision about a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The shell passes it to the new session: `Ok` as [`crate::HubInput::Admitted`], `Err` as
    /// [`crate::HubInput::Dismissed`].
    pub result: Result<Option<Identity>, Refusal>,
    /// The older session, if there is one. The shell passes it the refusal as
    /// [`crate::HubInput::Dismissed`].
    pub replaced: Option<(SessionId, Refusal)>,
}

impl SessionRegistry {
    /// Decides about a hello. An admitted session is live until [`SessionRegistry::remove`] or
    /// until a newer session replaces it.
    pub fn admit(&mut self, session: SessionId, identity: &Identity) -> Admission {
        let node = &identity.node;
        let clone = || Refusal {
            code: RefusalCode::Clone,
            message: format!(
                "two machines use the identity of node {node} with incarnation {} and boot {}: \
                 both are refused until one is re-enrolled and the hub releases the node \
                 (`headwater node release {node}`)",
                identity.incarnation.0, identity.boot.number,
            ),
        };
        if self.held.contains(node) {
            return Admission { result: Err(clone()), replaced: None };
        }
        let Some((older, theirs)) = self.live.get(node).cloned() else {
            self.live.insert(node.clone(), (session, identity.clone()));
            return Admission { result: Ok(None), replaced: None };
        };
        if theirs.rank() == identity.rank() && theirs.boot.nonce != identity.boot.nonce {
            self.live.remove(node);
            self.held.insert(node.clone());
            return Admission { result: Err(clone()), replaced: Some((older, clone())) };
        }
        if theirs.rank() > identity.rank() {
            // The session sends the known identity and refuses the edge, which raises its boot
            // number and connects again.
            return Admission { result: Ok(Some(theirs)), replaced: None };
        }
        self.live.insert(node.clone(), (session, identity.clone()));
        let superseded = Refusal {
            code: RefusalCode::Superseded,
            message: format!("a newer connection of node {node} replaced this one"),
        };
        Admission { result: Ok(None), replaced: Some((older, superseded)) }
    }

    /// Removes a session whose connection has ended. A replaced session changes nothing.
    pub fn remove(&mut self, node: &NodeName, session: SessionId) {
        if self.live.get(node).is_some_and(|(live, _)| *live == session) {
            self.live.remove(node);
        }
    }

    /// Releases a held node, which may connect again; `false`: the node was not held.
    pub fn release(&mut self, node: &NodeName) -> bool {
        self.held.remove(node)
    }

    /// The nodes held as clones.
    pub fn clones(&self) -> impl Iterator<Item = &NodeName> {
        self.held.iter()
    }

    /// The live session of a node.
    pub fn live(&self, node: &NodeName) -> Option<(SessionId, &Identity)> {
        self.live.get(node).map(|(session, identity)| (*session, identity))
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};

    use super::*;

    fn identity(number: u64, nonce: u64) -> Identity {
        let node = "a".parse().expect("well-formed");
        Identity { node, incarnation: Incarnation(1), boot: Boot { number, nonce } }
    }

    fn code(admission: &Admission) -> Option<RefusalCode> {
        admission.result.as_ref().err().map(|refusal| refusal.code)
    }

    #[test]
    fn a_newer_connection_of_the_same_start_takes_over() {
        let mut registry = SessionRegistry::default();
        let same = identity(1, 7);
        assert_eq!(registry.admit(SessionId(1), &same).result, Ok(None));
        let admission = registry.admit(SessionId(2), &same);
        assert_eq!(admission.result, Ok(None));
        let (older, refusal) = admission.replaced.expect("the first one");
        assert_eq!((older, refusal.code), (SessionId(1), RefusalCode::Superseded));
        // The late end of the first connection changes nothing.
        registry.remove(&same.node, SessionId(1));
        assert_eq!(registry.live(&same.node), Some((SessionId(2), &same)));
        registry.remove(&same.node, SessionId(2));
        assert_eq!(registry.live(&same.node), None);
    }

    #[test]
    fn two_machines_with_one_disk_are_both_held_until_released() {
        let mut registry = SessionRegistry::default();
        let (one, other) = (identity(3, 7), identity(3, 8));
        registry.admit(SessionId(1), &one);
        let admission = registry.admit(SessionId(2), &other);
        assert_eq!(code(&admission), Some(RefusalCode::Clone));
        let (older, refusal) = admission.replaced.expect("the first one");
        assert_eq!((older, refusal.code), (SessionId(1), RefusalCode::Clone));
        assert_eq!(code(&registry.admit(SessionId(3), &one)), Some(RefusalCode::Clone));
        assert_eq!(registry.clones().count(), 1);
        assert!(registry.release(&one.node));
        assert_eq!(code(&registry.admit(SessionId(4), &one)), None);
    }

    #[test]
    fn an_earlier_start_learns_of_the_later_one() {
        let mut registry = SessionRegistry::default();
        let later = identity(4, 7);
        registry.admit(SessionId(1), &later);
        let admission = registry.admit(SessionId(2), &identity(3, 8));
        assert_eq!(admission, Admission { result: Ok(Some(later)), replaced: None });
    }
}
