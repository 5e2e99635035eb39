//! Which object is compared next: the latest first, one request an object at a time, a bounded number of
//! requests on their way, and a bounded number of them about one node, so that no node delays others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use headwater_event::NodeName;

use crate::cluster_view::ObjectId;

/// The requests on their way. An API server takes some 400 at once of all its clients.
pub(crate) const REQUESTS_MAX: usize = 32;

/// Those about one node.
pub(crate) const NODE_REQUESTS_MAX: usize = 8;

/// Each time after this many objects, the one that waits longest comes next: the latest first, but none
/// never.
const LATEST_IN_A_ROW: u64 = 3;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    next: u64,
    taken: u64,
    /// The objects to compare, by when they were marked.
    ready: BTreeMap<u64, ObjectId>,
    marks: HashMap<ObjectId, u64>,
    /// The objects to compare at a time, in milliseconds.
    waiting: BTreeSet<(u64, ObjectId)>,
    dues: HashMap<ObjectId, u64>,
    in_flight: HashMap<ObjectId, NodeName>,
    of_node: HashMap<NodeName, usize>,
    /// By node with enough requests on their way: its objects, by when they were parked.
    parked: HashMap<NodeName, BTreeMap<u64, ObjectId>>,
    parked_objects: HashSet<ObjectId>,
    /// The nodes with parked objects that have room for a request again, in turn.
    with_room: VecDeque<NodeName>,
}

impl Queue {
    /// Notes that an object is to be compared. One with a request on its way is compared at its end, and a
    /// parked one when its node has room.
    pub(crate) fn mark(&mut self, id: ObjectId) {
        if self.in_flight.contains_key(&id) || self.parked_objects.contains(&id) {
            return;
        }
        self.stop_waiting(&id);
        self.next += 1;
        if let Some(before) = self.marks.insert(id.clone(), self.next) {
            self.ready.remove(&before);
        }
        self.ready.insert(self.next, id);
    }

    /// Notes that an object is to be compared at `due_ms`, unless it is marked before.
    pub(crate) fn wait(&mut self, id: ObjectId, due_ms: u64) {
        self.stop_waiting(&id);
        if !self.marks.contains_key(&id) {
            self.dues.insert(id.clone(), due_ms);
            self.waiting.insert((due_ms, id));
        }
    }

    /// When the next waiting object is due.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.waiting.first().map(|(due_ms, _)| *due_ms)
    }

    /// Takes the next object to compare, if a request may be sent.
    pub(crate) fn take(&mut self, now_ms: u64) -> Option<ObjectId> {
        while let Some((due_ms, _)) = self.waiting.first()
            && *due_ms <= now_ms
        {
            let Some((_, id)) = self.waiting.pop_first() else { break };
            self.dues.remove(&id);
            self.mark(id);
        }
        if self.in_flight.len() >= REQUESTS_MAX {
            return None;
        }
        self.taken += 1;
        let is_turn_of_oldest = self.taken.is_multiple_of(LATEST_IN_A_ROW + 1);
        if is_turn_of_oldest || self.ready.is_empty() {
            let parked = self.take_parked(is_turn_of_oldest);
            if parked.is_some() {
                return parked;
            }
        }
        let (_, id) =
            if is_turn_of_oldest { self.ready.pop_first() } else { self.ready.pop_last() }?;
        self.marks.remove(&id);
        Some(id)
    }

    /// Takes one parked object of the next node that has room.
    fn take_parked(&mut self, is_turn_of_oldest: bool) -> Option<ObjectId> {
        let node = self.with_room.pop_front()?;
        let parked = self.parked.get_mut(&node)?;
        let (_, id) = if is_turn_of_oldest { parked.pop_first() } else { parked.pop_last() }?;
        if parked.is_empty() {
            self.parked.remove(&node);
        } else {
            self.with_room.push_back(node);
        }
        self.parked_objects.remove(&id);
        Some(id)
    }

    /// Notes a request about an object of `node` on its way. `false`: the node has enough of them; the
    /// object comes again when one of them ends.
    pub(crate) fn start(&mut self, id: &ObjectId, node: &NodeName) -> bool {
        let count = self.of_node.entry(node.clone()).or_default();
        if *count >= NODE_REQUESTS_MAX {
            self.next += 1;
            self.parked.entry(node.clone()).or_default().insert(self.next, id.clone());
            self.parked_objects.insert(id.clone());
            return false;
        }
        *count += 1;
        if *count == NODE_REQUESTS_MAX {
            self.with_room.retain(|other| other != node);
        }
        self.in_flight.insert(id.clone(), node.clone());
        true
    }

    /// Notes the end of a request. The object is compared again.
    pub(crate) fn end(&mut self, id: ObjectId) {
        if let Some(node) = self.in_flight.remove(&id) {
            if let Some(count) = self.of_node.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    self.of_node.remove(&node);
                }
            }
            if self.parked.contains_key(&node) && !self.with_room.contains(&node) {
                self.with_room.push_back(node);
            }
        }
        self.mark(id);
    }

    /// Whether [`Queue::take`] has an object now.
    pub(crate) fn is_ready(&self) -> bool {
        self.has_waiting() && self.in_flight.len() < REQUESTS_MAX
    }

    /// Whether an object waits to be compared, beside those of a node that has enough requests on their way.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.ready.is_empty() || !self.with_room.is_empty()
    }

    /// How many objects are to be compared now, or have a request on their way.
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.in_flight.len() + self.parked_objects.len()
    }

    fn stop_waiting(&mut self, id: &ObjectId) {
        if let Some(due_ms) = self.dues.remove(id) {
            self.waiting.remove(&(due_ms, id.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: impl std::fmt::Display) -> ObjectId {
        ObjectId::Pod(format!("d/pod/{name}").parse().expect("a key"))
    }

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    #[test]
    fn the_latest_comes_first_but_the_oldest_comes_in_its_turn() {
        let mut queue = Queue::default();
        for name in ["a", "b", "c", "d", "e", "b"] {
            queue.mark(id(name));
        }
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(0)).collect();
        assert_eq!(taken, ["b", "e", "d", "a", "c"].map(id));
    }

    #[test]
    fn an_object_has_one_request_and_is_compared_again_at_its_end() {
        let mut queue = Queue::default();
        queue.mark(id("a"));
        assert_eq!(queue.take(0), Some(id("a")));
        assert!(queue.start(&id("a"), &node("gw")));
        queue.mark(id("a"));
        assert_eq!(queue.take(0), None);
        queue.end(id("a"));
        assert_eq!(queue.take(0), Some(id("a")));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_node_with_enough_requests_delays_no_other() {
        let mut queue = Queue::default();
        for n in 0..=NODE_REQUESTS_MAX {
            let started = queue.start(&id(n), &node("loud"));
            assert_eq!(started, n < NODE_REQUESTS_MAX);
        }
        queue.mark(id("other"));
        assert_eq!(queue.take(0), Some(id("other")));
        assert!(queue.start(&id("other"), &node("calm")));
        queue.end(id(0));
        let next: HashSet<_> = std::iter::from_fn(|| queue.take(0)).collect();
        assert_eq!(next, HashSet::from([id(0), id(NODE_REQUESTS_MAX)]));
    }

    #[test]
    fn a_burst_of_one_node_is_compared_a_constant_number_of_times() {
        let mut queue = Queue::default();
        let (count, loud) = (1_000, node("loud"));
        (0..count).for_each(|n| queue.mark(id(n)));
        let mut in_flight = VecDeque::new();
        let (mut written, mut compared) = (HashSet::new(), 0);
        while written.len() < count {
            while let Some(next) = queue.take(0) {
                compared += 1;
                if !written.contains(&next) && queue.start(&next, &loud) {
                    in_flight.push_back(next);
                }
            }
            let ended = in_flight.pop_front().expect("a parked object is never forgotten");
            written.insert(ended.clone());
            queue.end(ended);
        }
        assert!(compared <= 3 * count, "{compared} comparisons for {count} objects");
    }

    #[test]
    fn a_parked_object_that_needs_no_request_leaves_its_turn_to_the_next() {
        let mut queue = Queue::default();
        let (first, second) = (NODE_REQUESTS_MAX, NODE_REQUESTS_MAX + 1);
        for n in 0..=second {
            queue.start(&id(n), &node("loud"));
        }
        queue.end(id(0));
        let next: HashSet<_> = std::iter::from_fn(|| queue.take(0)).collect();
        assert_eq!(next, HashSet::from([id(0), id(first), id(second)]));
        assert_eq!((queue.take(0), queue.is_ready()), (None, false));
    }

    #[test]
    fn no_more_requests_than_the_bound_are_on_their_way() {
        let mut queue = Queue::default();
        for n in 0..=REQUESTS_MAX {
            queue.mark(id(n));
        }
        let mut sent = 0;
        while let Some(next) = queue.take(0) {
            assert!(queue.start(&next, &node(&format!("gw-{sent}"))));
            sent += 1;
        }
        assert_eq!(sent, REQUESTS_MAX);
    }

    #[test]
    fn a_waiting_object_comes_when_it_is_due_or_marked() {
        let mut queue = Queue::default();
        queue.wait(id("a"), 100);
        queue.wait(id("b"), 50);
        queue.wait(id("b"), 200);
        assert_eq!((queue.take(99), queue.next_due_ms()), (None, Some(100)));
        assert_eq!(queue.take(100), Some(id("a")));
        queue.mark(id("b"));
        assert_eq!((queue.take(100), queue.next_due_ms()), (Some(id("b")), None));
    }
}
