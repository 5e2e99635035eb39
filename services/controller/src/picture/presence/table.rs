//! Which node is connected to which hub.
//!
//! ```text
//!            a stream begins          Complete               silent for too long
//!  nothing ────────────────► partial ──────────► complete ◄────────────────────► silent
//!                               │                   │           an update comes     │
//!                               ▼                   ▼ it ends                       ▼ it ends
//!                           forgotten       kept until the hub's next stream is complete, or silent
//! ```
//!
//! The end of a stream changes nothing for the nodes: its hub may be back within a second.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use headwater_event::presence::PRESENCE_SILENCE_MAX;
use headwater_event::{ConnectedNode, NodeName, NodeState, PresenceUpdate};
use tokio::time::Instant;

use super::node_presence::ConnectedState;

/// What is known of the connection of a node. Each duration is the time since its last contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::picture) enum Contact {
    /// A hub has it connected.
    Connected(Duration),
    /// A hub has it connected, but its worker has not run for `gone_for`.
    WithoutWorker { age: Duration, gone_for: Duration },
    /// Its hub sent that it left.
    Disconnected(Option<Duration>),
    /// Its hub is silent.
    Lost(Duration),
    /// No stream has named it: only the log has.
    Unknown,
}

/// A stream of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::picture) struct LinkId(u64);

/// The presence of all nodes.
#[derive(Debug, Default)]
pub(in crate::picture) struct PresenceTable {
    links: BTreeMap<LinkId, Link>,
    next: u64,
    /// Of nodes that left, and of those of forgotten streams: one for each node that ever connected.
    last: HashMap<NodeName, LastContact>,
}

/// What a stream has sent.
#[derive(Debug)]
struct Link {
    hub: Arc<str>,
    /// When its last update came.
    updated: Instant,
    is_open: bool,
    is_complete: bool,
    /// Whether its silence was noticed.
    is_noticed: bool,
    nodes: BTreeMap<NodeName, NamedNode>,
}

/// A node that a stream has as connected.
#[derive(Clone, Copy, Debug)]
struct NamedNode {
    /// When the stream named it last.
    at: Instant,
    state: Option<NodeState>,
}

/// The last contact of a node that no live stream has as connected.
#[derive(Clone, Debug)]
struct LastContact {
    hub: Arc<str>,
    at: Instant,
    /// Whether the hub sent that the node left; otherwise the hub fell silent.
    has_left: bool,
}

impl PresenceTable {
    /// Begins a stream of the hub of this name.
    pub(in crate::picture) fn connect(&mut self, hub: &str, now: Instant) -> LinkId {
        self.forget(|_, link| !link.is_open && link.is_silent(now));
        let id = LinkId(self.next);
        self.next += 1;
        let link = Link {
            hub: hub.into(),
            updated: now,
            is_open: true,
            is_complete: false,
            is_noticed: false,
            nodes: BTreeMap::new(),
        };
        self.links.insert(id, link);
        id
    }

    /// Takes an update of a stream over. Returns the nodes whose presence it may change.
    pub(in crate::picture) fn receive(
        &mut self,
        id: LinkId,
        update: PresenceUpdate,
        now: Instant,
    ) -> BTreeSet<NodeName> {
        let mut changed = BTreeSet::new();
        let Some(link) = self.links.get_mut(&id) else { return changed };
        if link.is_silent(now) {
            // Of an open stream no update is missing, however late they come.
            changed.extend(link.nodes.keys().cloned());
        }
        link.updated = now;
        link.is_noticed = false;
        match update {
            PresenceUpdate::Connected(nodes) => {
                for ConnectedNode { node, state } in nodes {
                    let before = link.nodes.insert(node.clone(), NamedNode { at: now, state });
                    if before.is_none_or(|before| before.state != state) {
                        changed.insert(node);
                    }
                }
            }
            PresenceUpdate::Disconnected(nodes) => {
                for gone in nodes {
                    link.nodes.remove(&gone.node);
                    let at = now.checked_sub(gone.silent_for).unwrap_or(now);
                    let last = LastContact { hub: link.hub.clone(), at, has_left: true };
                    self.last.insert(gone.node.clone(), last);
                    changed.insert(gone.node);
                }
            }
            PresenceUpdate::Complete => {
                link.is_complete = true;
                changed.extend(link.nodes.keys().cloned());
                let hub = link.hub.clone();
                changed.extend(self.forget(|other, link| other != id && link.hub == hub));
            }
            PresenceUpdate::Beat => {}
        }
        changed
    }

    /// Whether a hub sends presence, and has named its nodes.
    pub(in crate::picture) fn has_hub(&self, now: Instant) -> bool {
        self.links.values().any(|link| link.is_complete && !link.is_silent(now))
    }

    /// The stream has ended. What it sent stays for a while if it was complete.
    pub(in crate::picture) fn disconnect(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.is_open = false;
        }
        self.forget(|other, link| other == id && !link.is_complete);
    }

    /// What is known of the connection of `node`. The log has it as last connected to `hub`: what
    /// another hub sent of it is older then.
    pub(in crate::picture) fn contact(
        &self,
        node: &NodeName,
        hub: Option<&str>,
        now: Instant,
    ) -> Contact {
        let since = |at: Instant| now.saturating_duration_since(at);
        if let Some(connected) = self.connected(node, hub, now) {
            return match connected.lacks_worker() {
                true => {
                    Contact::WithoutWorker { age: connected.age, gone_for: connected.named_for }
                }
                false => Contact::Connected(connected.age),
            };
        }
        let links = self.links.values().filter(|link| link.nodes.contains_key(node));
        let silent = links.map(Link::silent);
        let last = silent.chain(self.last.get(node).cloned()).max_by_key(|last| last.at);
        let is_of_hub = |name: &Arc<str>| hub.is_none_or(|hub| **name == *hub);
        let is_absent =
            |link: &Link| link.is_complete && !link.is_silent(now) && is_of_hub(&link.hub);
        match last {
            _ if self.links.values().any(is_absent) => {
                Contact::Disconnected(last.map(|last| since(last.at)))
            }
            Some(last) if !is_of_hub(&last.hub) => Contact::Unknown,
            Some(last) if last.has_left => Contact::Disconnected(Some(since(last.at))),
            Some(last) => Contact::Lost(since(last.at)),
            None => Contact::Unknown,
        }
    }

    /// The node, if a hub that is not silent has it. A node that went to another hub may be left over
    /// at the first one: the state that counts is that of `hub`, else the one that was sent last.
    pub(in crate::picture) fn connected(
        &self,
        node: &NodeName,
        hub: Option<&str>,
        now: Instant,
    ) -> Option<ConnectedState> {
        let live = || {
            let links = self.links.values().filter(|link| !link.is_silent(now));
            links.filter_map(|link| Some((link, link.nodes.get(node)?)))
        };
        let updated = live().map(|(link, _)| link.updated).max()?;
        let rank = |(link, named): &(&Link, &NamedNode)| (hub == Some(&*link.hub), named.at);
        let (_, NamedNode { at, state }) = live().max_by_key(rank)?;
        let since = |at| now.saturating_duration_since(at);
        Some(ConnectedState { age: since(updated), named_for: since(*at), state: *state })
    }

    /// Whether [`PresenceTable::connected`], or what follows from it, takes the last position of the node in the log:
    /// several hubs have the node, or the one that has it sends no states.
    pub(in crate::picture) fn needs_position(&self, node: &NodeName, now: Instant) -> bool {
        let live = self.links.values().filter(|link| !link.is_silent(now));
        let mut named = live.filter_map(|link| link.nodes.get(node));
        match (named.next(), named.next()) {
            (None, _) => false,
            (Some(only), None) => only.state.is_none(),
            (Some(_), Some(_)) => true,
        }
    }

    /// When the next hub is silent for too long, if it sends nothing more.
    pub(in crate::picture) fn next_silence(&self) -> Option<Instant> {
        let noticeable = self.links.values().filter(|link| !link.is_noticed);
        noticeable.map(|link| link.updated + PRESENCE_SILENCE_MAX).min()
    }

    /// The nodes of hubs that have become silent since the last call.
    pub(in crate::picture) fn notice_silence(&mut self, now: Instant) -> BTreeSet<NodeName> {
        let silent = |link: &&mut Link| !link.is_noticed && link.is_silent(now);
        let noticed = self.links.values_mut().filter(silent).flat_map(|link| {
            link.is_noticed = true;
            link.nodes.keys().cloned()
        });
        noticed.collect()
    }

    /// Forgets streams, but not the last contacts of their nodes. Returns these nodes.
    fn forget(&mut self, which: impl Fn(LinkId, &Link) -> bool) -> BTreeSet<NodeName> {
        let ids: Vec<LinkId> =
            self.links.iter().filter(|(id, link)| which(**id, link)).map(|(id, _)| *id).collect();
        let mut nodes = BTreeSet::new();
        for link in ids.iter().filter_map(|id| self.links.remove(id)) {
            let silent = link.silent();
            for node in link.nodes.into_keys() {
                let last = self.last.entry(node.clone()).or_insert_with(|| silent.clone());
                if last.at < silent.at {
                    last.clone_from(&silent);
                }
                nodes.insert(node);
            }
        }
        nodes
    }
}

impl Link {
    fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.updated) > PRESENCE_SILENCE_MAX
    }

    /// The last contact of its nodes if nothing else follows.
    fn silent(&self) -> LastContact {
        LastContact { hub: self.hub.clone(), at: self.updated, has_left: false }
    }
}

#[cfg(test)]
mod tests;
