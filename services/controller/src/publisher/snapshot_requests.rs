//! The nodes that are to be asked for their whole pod status snapshot, each at most once in a while.
//!
//! A node whose snapshots never match would otherwise make the publisher append a request for each
//! of them, while the changes of all other nodes wait.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_event::NodeName;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The shortest time between two requests to one node: longer than a healthy node takes to answer.
pub(super) const REQUEST_INTERVAL: Duration = Duration::from_secs(10);

/// The requests as the fold of reports adds them and the publisher appends them. The fold never
/// waits for the publisher, which appends nothing before the first list, as a standby, or while the
/// log is away: the picture goes on meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedSnapshotRequests {
    requests: Arc<Mutex<SnapshotRequests>>,
    added: Arc<Notify>,
}

/// The nodes that wait for a request, at most once each, and those that were asked lately.
#[derive(Debug, Default)]
struct SnapshotRequests {
    /// By the time from which the request may be appended.
    due: BTreeSet<(Instant, NodeName)>,
    nodes: HashMap<NodeName, NodeState>,
    /// The requests of the last interval, oldest first.
    requested: VecDeque<(Instant, NodeName)>,
}

#[derive(Debug, Default)]
struct NodeState {
    is_waiting: bool,
    last_request: Option<Instant>,
}

impl SharedSnapshotRequests {
    /// Notes that `node` is to be asked. A node that waits already waits once.
    pub(crate) fn add(&self, node: NodeName) {
        self.lock().add(node, Instant::now());
        self.added.notify_one();
    }

    /// Waits until a request was added. Cancel safe.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// See [`SnapshotRequests::next_due`].
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lock().next_due()
    }

    /// See [`SnapshotRequests::take_due`].
    pub(super) fn take_due(&self, now: Instant, max: usize) -> Vec<NodeName> {
        self.lock().take_due(now, max)
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotRequests> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotRequests {
    /// Notes that `node` is to be asked. A node that waits already waits once.
    fn add(&mut self, node: NodeName, now: Instant) {
        let state = self.nodes.entry(node.clone()).or_default();
        if std::mem::replace(&mut state.is_waiting, true) {
            return;
        }
        let earliest = state.last_request.map_or(now, |last| now.max(last + REQUEST_INTERVAL));
        self.due.insert((earliest, node));
    }

    /// When the next node may be asked; `None` while no node waits.
    fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes up to `max` nodes that may be asked at `now`, the longest waiting first. They count as
    /// asked from here on.
    fn take_due(&mut self, now: Instant, max: usize) -> Vec<NodeName> {
        self.forget_before(now);
        let mut nodes = Vec::new();
        while nodes.len() < max
            && self.next_due().is_some_and(|due| due <= now)
            && let Some((_, node)) = self.due.pop_first()
        {
            let state = NodeState { is_waiting: false, last_request: Some(now) };
            self.nodes.insert(node.clone(), state);
            self.requested.push_back((now, node.clone()));
            nodes.push(node);
        }
        nodes
    }

    /// Forgets the nodes that were asked more than an interval ago and do not wait.
    fn forget_before(&mut self, now: Instant) {
        let is_over = |last: Instant| last + REQUEST_INTERVAL <= now;
        while let Some((_, node)) = self.requested.pop_front_if(|(last, _)| is_over(*last)) {
            if let Some(state) = self.nodes.get(&node)
                && !state.is_waiting
                && state.last_request.is_none_or(is_over)
            {
                self.nodes.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    #[test]
    fn a_node_is_asked_once_in_an_interval_however_often_it_is_wanted() {
        let mut requests = SnapshotRequests::default();
        let start = Instant::now();
        assert_eq!(requests.next_due(), None);
        for _ in 0..3_000 {
            requests.add(node("a"), start);
        }
        assert_eq!(requests.next_due(), Some(start));
        assert_eq!(requests.take_due(start, 10), [node("a")]);
        requests.add(node("a"), start + Duration::from_secs(1));
        assert_eq!(requests.next_due(), Some(start + REQUEST_INTERVAL));
        assert!(requests.take_due(start + REQUEST_INTERVAL / 2, 10).is_empty());
        assert_eq!(requests.take_due(start + REQUEST_INTERVAL, 10), [node("a")]);
    }

    #[test]
    fn the_node_that_waits_longest_comes_first_and_the_rest_stays() {
        let mut requests = SnapshotRequests::default();
        let start = Instant::now();
        for (second, name) in [(1, "c"), (2, "b"), (3, "a")] {
            requests.add(node(name), start + Duration::from_secs(second));
        }
        let now = start + Duration::from_secs(3);
        assert_eq!(requests.take_due(now, 2), [node("c"), node("b")]);
        assert_eq!(requests.take_due(now, 2), [node("a")]);
    }

    #[test]
    fn nodes_of_the_past_cost_no_memory() {
        let mut requests = SnapshotRequests::default();
        let start = Instant::now();
        for number in 0..1_000 {
            requests.add(node(&format!("n{number}")), start);
        }
        assert_eq!(requests.take_due(start, usize::MAX).len(), 1_000);
        let later = start + REQUEST_INTERVAL;
        requests.add(node("n7"), later);
        assert_eq!(requests.take_due(later, usize::MAX), [node("n7")]);
        assert_eq!((requests.nodes.len(), requests.requested.len()), (1, 1));
    }
}
