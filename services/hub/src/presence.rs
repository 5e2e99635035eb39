//! The presence of nodes, for the active controller.
//!
//! ```text
//!  sessions ──► NodePresence ──► PresenceFeed ──► the controller
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_event::presence::{NODE_SILENCE_MAX, PRESENCE_BEAT};
use headwater_event::{ConnectedNode, DisconnectedNode, NodeName, NodeState, PresenceUpdate};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Nodes in one update, some 50 bytes each: a small fraction of what a message may have.
const NODES_PER_UPDATE: usize = 1_000;

/// How often at most changes are looked for: a site whose nodes all connect within a second costs a
/// few looks at all nodes, and a change is seen at once as people count.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How long after the end of its last moment a node is seen as silent: one step of the clock, so that
/// the look finds it silent.
const SILENCE_TICK: Duration = Duration::from_millis(1);

/// The nodes that are connected to a hub, with their last contact and their state.
#[derive(Debug, Default)]
pub(crate) struct NodePresence {
    nodes: Mutex<BTreeMap<NodeName, NodeContact>>,
    /// Counts changes of the set and of the states.
    changes: watch::Sender<u64>,
}

/// The last contact of a node, and its state as of the last heartbeat.
#[derive(Clone, Copy, Debug)]
struct NodeContact {
    at: Instant,
    state: NodeState,
}

/// The updates for one controller.
pub struct PresenceFeed {
    presence: Arc<NodePresence>,
    changes: watch::Receiver<u64>,
    /// The nodes that were sent as connected, with the states that were sent.
    sent: BTreeMap<NodeName, NodeState>,
    waiting: VecDeque<PresenceUpdate>,
    is_complete: bool,
    looked_at: Option<Instant>,
    /// When changes are looked for, if some are known.
    look_at: Option<Instant>,
    /// When the next node of those sent is silent for too long, if no message comes.
    silent_at: Option<Instant>,
    beat_at: Instant,
}

impl NodePresence {
    /// The hub received the last message of `node` at `at`.
    pub(crate) fn contact(&self, node: &NodeName, at: Instant, state: NodeState) {
        let contact = NodeContact { at, state };
        let before = self.lock().insert(node.clone(), contact);
        if before.is_none_or(|before| !before.is_present(at) || before.state != state) {
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
            sent: BTreeMap::new(),
            waiting: VecDeque::new(),
            is_complete: false,
            looked_at: None,
            look_at: Some(Instant::now()),
            silent_at: None,
            beat_at: Instant::now() + PRESENCE_BEAT,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, NodeContact>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeContact {
    fn is_present(&self, now: Instant) -> bool {
        self.silent_for(now) <= NODE_SILENCE_MAX
    }

    fn silent_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
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
            tokio::select! {
                biased;
                () = until(look_at) => self.look(),
                // Silence is no change that anything notifies of.
                () = until(self.silent_at) => self.look(),
                () = sleep_until(self.beat_at) => {
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
            let mut oldest = None;
            for (node, contact) in nodes.iter().filter(|(_, contact)| contact.is_present(now)) {
                oldest = oldest.into_iter().chain([contact.at]).min();
                if self.sent.get(node) != Some(&contact.state) {
                    let state = Some(contact.state);
                    connected.push(ConnectedNode { node: node.clone(), state });
                }
            }
            self.silent_at = oldest.map(|at| at + NODE_SILENCE_MAX + SILENCE_TICK);
            for node in self.sent.keys() {
                let contact = nodes.get(node);
                if contact.is_none_or(|contact| !contact.is_present(now)) {
                    // The session of a node without an entry has just ended.
                    let silent_for = contact.map_or(Duration::ZERO, |it| it.silent_for(now));
                    disconnected.push(DisconnectedNode { node: node.clone(), silent_for });
                }
            }
        }
        disconnected.iter().for_each(|gone| {
            self.sent.remove(&gone.node);
        });
        let states = connected.iter().filter_map(|it| Some((it.node.clone(), it.state?)));
        self.sent.extend(states);
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

/// Waits until `at`; `None`: for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::presence::NODE_BEAT;

    use super::*;

    const RUNNING: NodeState = NodeState { lacks_worker: false, has_drained: false };

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn connected(names: &[&str]) -> PresenceUpdate {
        PresenceUpdate::Connected(names.iter().map(|name| in_state(name, RUNNING)).collect())
    }

    fn in_state(name: &str, state: NodeState) -> ConnectedNode {
        ConnectedNode { node: node(name), state: Some(state) }
    }

    fn disconnected(name: &str, silent_for: Duration) -> PresenceUpdate {
        PresenceUpdate::Disconnected(vec![DisconnectedNode { node: node(name), silent_for }])
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_sends_everything_once_then_changes_and_beats() {
        let presence = Arc::<NodePresence>::default();
        presence.contact(&node("a"), Instant::now(), RUNNING);
        presence.contact(&node("b"), Instant::now(), RUNNING);
        let mut feed = presence.feed();
        assert_eq!(feed.next().await, connected(&["a", "b"]));
        assert_eq!(feed.next().await, PresenceUpdate::Complete);
        let start = Instant::now();
        assert_eq!(feed.next().await, PresenceUpdate::Beat);
        assert!(start.elapsed() >= PRESENCE_BEAT && start.elapsed() < PRESENCE_BEAT * 2);

        let start = Instant::now();
        presence.contact(&node("c"), Instant::now(), RUNNING);
        presence.disconnect(&node("b"));
        assert_eq!(feed.next().await, connected(&["c"]));
        assert_eq!(feed.next().await, disconnected("b", Duration::ZERO));
        assert!(start.elapsed() < LOOK_INTERVAL * 2, "{:?}", start.elapsed());

        // A heartbeat is no change; a node without one leaves, although its session is still there.
        for _ in 0..4 {
            presence.contact(&node("a"), Instant::now(), RUNNING);
            assert_eq!(feed.next().await, PresenceUpdate::Beat);
        }
        presence.contact(&node("a"), Instant::now(), RUNNING);
        let PresenceUpdate::Disconnected(gone) = feed.next().await else { panic!("c is silent") };
        assert_eq!(gone[0].node, node("c"));
        assert!(gone[0].silent_for > NODE_SILENCE_MAX && gone.len() == 1, "{gone:?}");
        presence.contact(&node("c"), Instant::now(), RUNNING);
        assert_eq!(feed.next().await, connected(&["c"]));

        let mut another = presence.feed();
        assert_eq!(another.next().await, connected(&["a", "c"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_named_again_when_its_state_changes_and_only_then() {
        let presence = Arc::<NodePresence>::default();
        presence.contact(&node("a"), Instant::now(), RUNNING);
        presence.contact(&node("b"), Instant::now(), RUNNING);
        let mut feed = presence.feed();
        assert_eq!(feed.next().await, connected(&["a", "b"]));
        assert_eq!(feed.next().await, PresenceUpdate::Complete);
        let start = Instant::now();
        for (lacks_worker, has_drained) in [(true, false), (true, true), (false, true)] {
            let state = NodeState { lacks_worker, has_drained };
            presence.contact(&node("a"), Instant::now(), state);
            assert_eq!(feed.next().await, PresenceUpdate::Connected(vec![in_state("a", state)]));
            presence.contact(&node("a"), Instant::now(), state);
        }
        assert!(start.elapsed() < PRESENCE_BEAT, "each is sent at once: {:?}", start.elapsed());
        assert_eq!(feed.next().await, PresenceUpdate::Beat);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_leaves_at_its_bound_and_not_with_the_next_beat() {
        for late in [Duration::ZERO, Duration::from_millis(1_700), Duration::from_millis(4_900)] {
            let presence = Arc::<NodePresence>::default();
            let mut feed = presence.feed();
            assert_eq!(feed.next().await, PresenceUpdate::Complete);
            tokio::time::sleep(late).await;
            let at = Instant::now();
            presence.contact(&node("a"), at, RUNNING);
            let gone = loop {
                if let PresenceUpdate::Disconnected(gone) = feed.next().await {
                    break gone;
                }
            };
            assert_eq!(at.elapsed(), NODE_SILENCE_MAX + SILENCE_TICK, "{gone:?}");
        }
    }

    #[test]
    fn a_heartbeat_may_be_lost_and_the_next_one_late() {
        assert!(NODE_BEAT * 2 + Duration::from_secs(5) <= NODE_SILENCE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_that_was_not_taken_is_not_lost() {
        let presence = Arc::<NodePresence>::default();
        let mut feed = presence.feed();
        assert_eq!(feed.next().await, PresenceUpdate::Complete);
        presence.contact(&node("a"), Instant::now(), RUNNING);
        let soon = tokio::time::timeout(Duration::from_millis(1), feed.next()).await;
        assert!(soon.is_err(), "it waits for more changes");
        assert_eq!(feed.next().await, connected(&["a"]));
    }
}
