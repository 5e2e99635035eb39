//! Which node has a pod. The fold is ordered by nodes, so a pod whose node is unknown is looked for at one
//! node after the other: with 10,000 nodes, a tenth of a second of a processor. A client asks for the same
//! pod again and again, so the node where it was found is remembered, and looked at first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_event::{NodeName, ResourceKey};

/// Pods that are remembered before the earlier half is forgotten, some 150 bytes each.
const RECENT_PODS_MAX: usize = 4_096;

/// The nodes at which pods were found. A memory of the past: each use is checked.
#[derive(Debug, Default)]
pub(super) struct PodNodes {
    found: Mutex<FoundPods>,
}

#[derive(Debug, Default)]
struct FoundPods {
    recent: HashMap<ResourceKey, NodeName>,
    /// Those that were recent before.
    earlier: HashMap<ResourceKey, NodeName>,
}

impl PodNodes {
    /// The node that has `pod`. Of two, while a pod moves, one that is connected.
    ///
    /// # Errors
    /// As `nodes` and `has`.
    pub(super) fn find<E>(
        &self,
        pod: &ResourceKey,
        nodes: impl FnOnce() -> Result<Vec<NodeName>, E>,
        is_connected: impl Fn(&NodeName) -> bool,
        has: impl Fn(&NodeName) -> Result<bool, E>,
    ) -> Result<Option<NodeName>, E> {
        let found = self.lock().get(pod);
        // A node that is away may have lost the pod to another one.
        if let Some(node) = found.filter(&is_connected)
            && has(&node)?
        {
            return Ok(Some(node));
        }
        let (connected, others): (Vec<NodeName>, Vec<NodeName>) =
            nodes()?.into_iter().partition(&is_connected);
        for node in connected.into_iter().chain(others) {
            if has(&node)? {
                self.lock().insert(pod.clone(), node.clone());
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    fn lock(&self) -> MutexGuard<'_, FoundPods> {
        // The tables are whole between two calls.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FoundPods {
    /// The node of a pod. It counts as found again.
    fn get(&mut self, pod: &ResourceKey) -> Option<NodeName> {
        if let Some(node) = self.recent.get(pod) {
            return Some(node.clone());
        }
        let (pod, node) = self.earlier.remove_entry(pod)?;
        self.insert(pod, node.clone());
        Some(node)
    }

    fn insert(&mut self, pod: ResourceKey, node: NodeName) {
        if self.recent.len() >= RECENT_PODS_MAX {
            self.earlier = std::mem::take(&mut self.recent);
        }
        self.recent.insert(pod, node);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;

    use super::*;

    /// A fleet in which one node has every pod.
    struct Fleet {
        has: RefCell<NodeName>,
        connected: RefCell<Vec<NodeName>>,
        reads: Cell<usize>,
    }

    fn node(number: usize) -> NodeName {
        format!("n{number}").parse().expect("a name")
    }

    fn pod(number: usize) -> ResourceKey {
        format!("d/pod/p{number}").parse().expect("a key")
    }

    impl Fleet {
        fn new() -> Self {
            let connected = RefCell::new((0..50).map(node).collect());
            Self { has: RefCell::new(node(49)), connected, reads: Cell::new(0) }
        }

        /// The node of `pod`, and how many nodes were looked at.
        fn find(&self, nodes: &PodNodes, pod: &ResourceKey) -> (Option<NodeName>, usize) {
            self.reads.set(0);
            let has = |node: &NodeName| {
                self.reads.set(self.reads.get() + 1);
                Ok::<_, Infallible>(*node == *self.has.borrow())
            };
            let is_connected = |node: &NodeName| self.connected.borrow().contains(node);
            let found = nodes.find(pod, || Ok((0..50).map(node).collect()), is_connected, has);
            let Ok(found) = found;
            (found, self.reads.get())
        }
    }

    #[test]
    fn a_pod_that_was_found_before_is_looked_for_at_one_node() {
        let (fleet, nodes) = (Fleet::new(), PodNodes::default());
        assert_eq!(fleet.find(&nodes, &pod(1)), (Some(node(49)), 50));
        assert_eq!(fleet.find(&nodes, &pod(1)), (Some(node(49)), 1));
        *fleet.has.borrow_mut() = node(0);
        assert_eq!(fleet.find(&nodes, &pod(1)), (Some(node(0)), 2), "it has moved");
    }

    #[test]
    fn a_node_that_is_connected_comes_before_one_that_is_away() {
        let (fleet, nodes) = (Fleet::new(), PodNodes::default());
        *fleet.connected.borrow_mut() = vec![node(49)];
        assert_eq!(fleet.find(&nodes, &pod(1)), (Some(node(49)), 1));
        fleet.connected.borrow_mut().clear();
        assert_eq!(fleet.find(&nodes, &pod(1)), (Some(node(49)), 50), "another may have it now");
    }

    #[test]
    fn the_pods_that_are_remembered_are_bounded() {
        let mut found = FoundPods::default();
        for number in 0..3 * RECENT_PODS_MAX {
            found.insert(pod(number), node(0));
            assert!(found.get(&pod(0)).is_some(), "{number}: it is found again and again");
        }
        assert!(found.recent.len() + found.earlier.len() <= 2 * RECENT_PODS_MAX);
        assert_eq!(found.get(&pod(1)), None);
    }
}
