//! The order in which the sink writes Events: the nodes in turn, each at a bounded rate.
//!
//! It holds keys alone. The Events are in the picture, which has so many of a node at most, until the API
//! has them. A node whose Event fails waits with the others of its Events; no other node does.

use std::collections::{BTreeSet, HashMap, VecDeque};

use headwater_event::{NodeName, ResourceKey};

/// Events of a node a second, and at once: what a node sends, so that a well-behaved one never waits here.
const INTERVAL_MS: u64 = 1_000;
const BURST: u64 = 25;

/// Events of a node that wait, about 100 bytes each: as many as the picture keeps of it. For another one,
/// the oldest one goes.
const NODE_EVENTS_MAX: usize = 256;

/// The requests on their way. An Event costs the API server some 3 ms, so that is a thousand a second.
pub(super) const EVENT_REQUESTS_MAX: usize = 4;

/// The pauses of a node after failures, doubled from the first to the last. An Event is in no hurry.
const PAUSE_MIN_MS: u64 = 1_000;
const PAUSE_MAX_MS: u64 = 60_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    nodes: HashMap<NodeName, NodeEvents>,
    /// The nodes whose next Event may be written at a time, and among those of one time in turn.
    due: BTreeSet<(u64, u64, NodeName)>,
    turns: u64,
    in_flight: usize,
    /// No Event of any node before this time.
    not_before_ms: u64,
}

#[derive(Debug, Default)]
struct NodeEvents {
    keys: VecDeque<ResourceKey>,
    /// When the bucket of the rate is full again.
    full_at_ms: u64,
    not_before_ms: u64,
    failures: u32,
    in_flight: bool,
    /// Its place in [`EventQueue::due`].
    place: Option<(u64, u64)>,
}

/// What became of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventEnd {
    /// It needs no request any more.
    Settled,
    /// No request was sent: it counts for no rate.
    Unsent,
    /// It is to be tried again.
    Failed,
    /// It is to be tried again after this pause.
    Paused(u64),
}

impl EventQueue {
    /// Adds an Event of `node`, unless it waits already.
    pub(super) fn add(&mut self, node: &NodeName, key: ResourceKey, now_ms: u64) {
        let events = self.nodes.entry(node.clone()).or_default();
        if events.keys.contains(&key) {
            return;
        }
        if events.keys.len() >= NODE_EVENTS_MAX {
            events.keys.pop_front();
        }
        events.keys.push_back(key);
        self.place(node, now_ms);
    }

    /// Takes the next Event to write. [`EventQueue::end`] is called once for each.
    pub(super) fn take(&mut self, now_ms: u64) -> Option<(NodeName, ResourceKey)> {
        if self.next_due_ms()? > now_ms {
            return None;
        }
        let (_, _, node) = self.due.pop_first()?;
        let events = self.nodes.get_mut(&node)?;
        events.place = None;
        let key = events.keys.pop_front()?;
        events.full_at_ms = events.full_at_ms.max(now_ms) + INTERVAL_MS;
        events.in_flight = true;
        self.in_flight += 1;
        Some((node, key))
    }

    /// The Event that was taken has ended so.
    pub(super) fn end(&mut self, node: &NodeName, key: ResourceKey, end: EventEnd, now_ms: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(events) = self.nodes.get_mut(node) else { return };
        events.in_flight = false;
        let pause_ms = match end {
            EventEnd::Settled => None,
            EventEnd::Unsent => {
                events.full_at_ms = events.full_at_ms.saturating_sub(INTERVAL_MS);
                None
            }
            EventEnd::Failed => Some((PAUSE_MIN_MS << events.failures.min(16)).min(PAUSE_MAX_MS)),
            EventEnd::Paused(pause_ms) => Some(pause_ms),
        };
        match pause_ms {
            None => events.failures = 0,
            Some(pause_ms) => {
                events.failures += 1;
                events.not_before_ms = now_ms + pause_ms;
                if !events.keys.contains(&key) {
                    events.keys.push_front(key);
                }
            }
        }
        self.place(node, now_ms);
    }

    /// No Event is written before the pause is over: the API server has too much to do.
    pub(super) fn pause(&mut self, now_ms: u64, pause_ms: u64) {
        self.not_before_ms = self.not_before_ms.max(now_ms + pause_ms);
    }

    /// When the next Event may be written; `None`: none waits, or enough are on their way.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        let first = self.due.first().filter(|_| self.in_flight < EVENT_REQUESTS_MAX);
        first.map(|(due_ms, ..)| (*due_ms).max(self.not_before_ms))
    }

    /// Forgets nodes that have neither an Event nor used up their rate.
    pub(super) fn forget_idle(&mut self, now_ms: u64) {
        self.nodes.retain(|_, events| {
            !events.keys.is_empty() || events.in_flight || events.full_at_ms > now_ms
        });
    }

    /// Puts a node where its next Event is due.
    fn place(&mut self, node: &NodeName, now_ms: u64) {
        let Some(events) = self.nodes.get_mut(node) else { return };
        if let Some((due_ms, turn)) = events.place.take() {
            self.due.remove(&(due_ms, turn, node.clone()));
        }
        if events.in_flight || events.keys.is_empty() {
            return;
        }
        let free_at_ms = events.full_at_ms.saturating_sub(INTERVAL_MS * (BURST - 1));
        let due_ms = free_at_ms.max(events.not_before_ms).max(now_ms);
        self.turns += 1;
        events.place = Some((due_ms, self.turns));
        self.due.insert((due_ms, self.turns, node.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn key(number: usize) -> ResourceKey {
        format!("d/event/p.{number}").parse().expect("a key")
    }

    /// Writes all that may be written now, and returns how many Events of each node that are.
    fn written(queue: &mut EventQueue, now_ms: u64) -> HashMap<NodeName, usize> {
        let mut counts = HashMap::new();
        while let Some((node, key)) = queue.take(now_ms) {
            queue.end(&node, key, EventEnd::Settled, now_ms);
            *counts.entry(node).or_default() += 1;
        }
        counts
    }

    #[test]
    fn some_events_of_a_node_are_written_at_once_and_then_one_a_second() {
        let mut queue = EventQueue::default();
        (0..100).for_each(|number| queue.add(&node("a"), key(number), 5_000));
        let count = |queue: &mut EventQueue, now_ms| {
            written(queue, now_ms).remove(&node("a")).unwrap_or_default()
        };
        assert_eq!(count(&mut queue, 5_000), BURST as usize);
        assert_eq!((count(&mut queue, 5_999), queue.next_due_ms()), (0, Some(6_000)));
        assert_eq!(count(&mut queue, 6_000), 1);
        // What is not sent counts for no rate.
        let (of, taken) = queue.take(7_000).expect("due");
        queue.end(&of, taken, EventEnd::Unsent, 7_000);
        assert_eq!(count(&mut queue, 7_000), 1);
        assert_eq!(count(&mut queue, 17_000), 10);
    }

    #[test]
    fn ten_thousand_events_of_a_node_delay_no_other_and_take_bounded_memory() {
        let mut queue = EventQueue::default();
        (0..10_000).for_each(|number| queue.add(&node("loud"), key(number), 0));
        assert_eq!(queue.nodes[&node("loud")].keys.len(), NODE_EVENTS_MAX);
        queue.add(&node("calm"), key(0), 0);
        let first: Vec<_> = std::iter::from_fn(|| queue.take(0)).collect();
        // One request of a node at a time.
        let expected = [(node("loud"), key(10_000 - NODE_EVENTS_MAX)), (node("calm"), key(0))];
        assert_eq!(first, expected);
        let mut turns = EventQueue::default();
        for number in 0..5 {
            turns.add(&node("loud"), key(number), 0);
            turns.add(&node("calm"), key(number), 0);
        }
        assert_eq!(written(&mut turns, 0), HashMap::from([(node("loud"), 5), (node("calm"), 5)]));
        turns.forget_idle(4_999);
        assert_eq!(turns.nodes.len(), 2);
        turns.forget_idle(5_000);
        assert_eq!((turns.nodes.len(), turns.due.len()), (0, 0));
    }

    #[test]
    fn no_more_requests_than_the_bound_are_on_their_way_and_none_during_a_pause() {
        let mut queue = EventQueue::default();
        for number in 0..=EVENT_REQUESTS_MAX {
            queue.add(&node(&format!("gw-{number}")), key(number), 0);
        }
        queue.pause(0, 100);
        assert_eq!((queue.take(99), queue.next_due_ms()), (None, Some(100)));
        let taken = std::iter::from_fn(|| queue.take(100)).count();
        assert_eq!((taken, queue.next_due_ms()), (EVENT_REQUESTS_MAX, None));
    }

    #[test]
    fn an_event_that_fails_comes_again_first_after_a_pause_that_grows_to_a_bound() {
        let mut queue = EventQueue::default();
        queue.add(&node("a"), key(0), 0);
        queue.add(&node("a"), key(1), 0);
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let (of, taken) = queue.take(now_ms).expect("due");
            assert_eq!(taken, key(0));
            queue.end(&of, taken, EventEnd::Failed, now_ms);
            let due_ms = queue.next_due_ms().expect("it waits");
            pauses.push(due_ms - now_ms);
            now_ms = due_ms;
        }
        assert_eq!(pauses[..3], [1_000, 2_000, 4_000]);
        assert_eq!(pauses[8], PAUSE_MAX_MS);
        assert_eq!(written(&mut queue, now_ms), HashMap::from([(node("a"), 2)]));
    }
}
