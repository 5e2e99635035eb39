//! The presence of nodes, for the active controller.
//!
//! ```text
//!  sessions ──► NodePresence ──► PresenceFeed ──► the controller
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_event::presence::{NODE_SILENCE_MAX, PRESENCE_BEAT};
use headwater_event::{DisconnectedNode, NodeName, PresenceUpdate};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Nodes in one update, some 50 bytes each: a small fraction of what a message may have.
const NODES_PER_UPDATE: usize = 1_000;

/// How often at most changes are looked for: a site whose nodes all connect within a second costs a
/// few looks at all nodes, and a change is seen at once as people count.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The nodes that are connected to a hub, with their last contact.
#[derive(Debug, Default)]
pub(crate) struct NodePresence {
    nodes: Mutex<BTreeMap<NodeName, Instant>>,
    /// Counts changes of the set.
    changes: watch::Sender<u64>,
}

/// The updates for one controller.
pub struct PresenceFeed {
    presence: Arc<NodePresence>,
    changes: watch::Receiver<u64>,
    /// The nodes that were sent as connected.
    sent: BTreeSet<NodeName>,
    waiting: VecDeque<PresenceUpdate>,
    is_complete: bool,
    looked_at: Option<Instant>,
    /// When changes are looked for, if some are known.
    look_at: Option<Instant>,
    beat_at: Instant,
}

impl NodePresence {
    /// The hub received the last message of `node` at `at`.
    pub(crate) fn contact(&self, node: &NodeName, at: Instant) {
        let before = self.lock().insert(node.clone(), at);
        if before.is_none_or(|before| at.saturating_duration_since(before) > NODE_SILENCE_MAX) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// The last session of `node` has ended.
    pub(crate) fn disconnect(&self, node: &NodeName) {
        if self.lock().remove(node).is_some() {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// A feed that begins with the nodes that are connected now.
    pub(crate) fn feed(self: &Arc<Self>) -> PresenceFeed {
        PresenceFeed {
            presence: self.clone(),
            changes: self.changes.subscribe(),
            sent: BTreeSet::new(),
            waiting: VecDeque::new(),
            is_complete: false,
            looked_at: None,
            look_at: Some(Instant::now()),
            beat_at: Instant::now() + PRESENCE_BEAT,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, Instant>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PresenceFeed {
    /// Waits for the next update; there is one every [`PRESENCE_BEAT`]. Cancel safe.
    pub async fn next(&mut self) -> PresenceUpdate {
        loop {
            if let Some(update) = self.waiting.pop_front() {
                self.beat_at = Instant::now() + PRESENCE_BEAT;
                return update;
            }
            let look_at = self.look_at;
            let look = async move {
                match look_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = look => self.look(),
                () = sleep_until(self.beat_at) => {
                    // Silence is no change that anything notifies of.
                    self.look();
                    if self.waiting.is_empty() {
                        self.waiting.push_back(PresenceUpdate::Beat);
                    }
                }
                Ok(()) = self.changes.changed(), if look_at.is_none() => {
                    let earliest = self.looked_at.map_or_else(Instant::now, |at| at + LOOK_INTERVAL);
                    self.look_at = Some(earliest.max(Instant::now()));
                }
            }
        }
    }

    /// Compares what the controller knows with what is so.
    fn look(&mut self) {
        let now = Instant::now();
        (self.looked_at, self.look_at) = (Some(now), None);
        let mut connected = Vec::new();
        let mut disconnected = Vec::new();
        {
            let nodes = self.presence.lock();
            let silent_for = |at: &Instant| now.saturating_duration_since(*at);
            let is_present = |at: &Instant| silent_for(at) <= NODE_SILENCE_MAX;
            for (node, _) in nodes.iter().filter(|(_, at)| is_present(at)) {
                if !self.sent.contains(node) {
                    connected.push(node.clone());
                }
            }
            for node in &self.sent {
                let at = nodes.get(node);
                if at.is_none_or(|at| !is_present(at)) {
                    // The session of a node without an entry has just ended.
                    let silent_for = at.map_or(Duration::ZERO, silent_for);
                    disconnected.push(DisconnectedNode { node: node.clone(), silent_for });
                }
            }
        }
        disconnected.iter().for_each(|gone| {
            self.sent.remove(&gone.node);
        });
        self.sent.extend(connected.iter().cloned());
        for nodes in connected.chunks(NODES_PER_UPDATE) {
            self.waiting.push_back(PresenceUpdate::Connected(nodes.to_vec()));
        }
        for nodes in disconnected.chunks(NODES_PER_UPDATE) {
            self.waiting.push_back(PresenceUpdate::Disconnected(nodes.to_vec()));
        }
        if !std::mem::replace(&mut self.is_complete, true) {
            self.waiting.push_back(PresenceUpdate::Complete);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn connected(names: &[&str]) -> PresenceUpdate {
        PresenceUpdate::Connected(names.iter().map(|name| node(name)).collect())
    }

    fn disconnected(name: &str, silent_for: Duration) -> PresenceUpdate {
        PresenceUpdate::Disconnected(vec![DisconnectedNode { node: node(name), silent_for }])
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_sends_everything_once_then_changes_and_beats() {
        let presence = Arc::<NodePresence>::default();
        presence.contact(&node("a"), Instant::now());
        presence.contact(&node("b"), Instant::now());
        let mut feed = presence.feed();
        assert_eq!(feed.next().await, connected(&["a", "b"]));
        assert_eq!(feed.next().await, PresenceUpdate::Complete);
        let start = Instant::now();
        assert_eq!(feed.next().await, PresenceUpdate::Beat);
        assert!(start.elapsed() >= PRESENCE_BEAT && start.elapsed() < PRESENCE_BEAT * 2);

        let start = Instant::now();
        presence.contact(&node("c"), Instant::now());
        presence.disconnect(&node("b"));
        assert_eq!(feed.next().await, connected(&["c"]));
        assert_eq!(feed.next().await, disconnected("b", Duration::ZERO));
        assert!(start.elapsed() < LOOK_INTERVAL * 2, "{:?}", start.elapsed());

        // A heartbeat is no change; a node without one leaves, although its session is still there.
        for _ in 0..4 {
            presence.contact(&node("a"), Instant::now());
            assert_eq!(feed.next().await, PresenceUpdate::Beat);
        }
        presence.contact(&node("a"), Instant::now());
        let PresenceUpdate::Disconnected(gone) = feed.next().await else { panic!("c is silent") };
        assert_eq!(gone[0].node, node("c"));
        assert!(gone[0].silent_for > NODE_SILENCE_MAX && gone.len() == 1, "{gone:?}");
        presence.contact(&node("c"), Instant::now());
        assert_eq!(feed.next().await, connected(&["c"]));

        let mut another = presence.feed();
        assert_eq!(another.next().await, connected(&["a", "c"]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_that_was_not_taken_is_not_lost() {
        let presence = Arc::<NodePresence>::default();
        let mut feed = presence.feed();
        assert_eq!(feed.next().await, PresenceUpdate::Complete);
        presence.contact(&node("a"), Instant::now());
        let soon = tokio::time::timeout(Duration::from_millis(1), feed.next()).await;
        assert!(soon.is_err(), "it waits for more changes");
        assert_eq!(feed.next().await, connected(&["a"]));
    }
}
