//! Placement: which node each pod goes to.
//!
//! A pod goes to the node it names. Others stay where they were while that node is there and they
//! are the same pod, or still fit; the rest go, one after another in the order of their keys, to
//! the node with the fewest pods among those that fit and have their ports free. Nothing else ever
//! moves a pod.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use headwater_event::{NodeName, ResourceKey};
use headwater_object::host_ports::{HostPort, are_taken};
use serde_json::Value;

use super::fit::NodeTraits;

/// A pod that names no node.
pub(crate) struct Floating<'a> {
    /// Which.
    pub(crate) key: &'a ResourceKey,
    /// What it asks for.
    pub(crate) pod: Value,
    /// The ports of the machine that it takes.
    pub(crate) ports: Vec<HostPort>,
    /// Where it was, if it was anywhere.
    pub(crate) was_on: Option<NodeName>,
    /// Whether it is the pod that was there, so that only the node's leaving moves it.
    pub(crate) is_same: bool,
}

/// What the pods of a node take.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeLoad {
    pods: usize,
    ports: Vec<HostPort>,
}

impl NodeLoad {
    /// Adds a pod that takes `ports`.
    pub(crate) fn add(&mut self, ports: &[HostPort]) {
        self.pods += 1;
        self.ports.extend_from_slice(ports);
    }

    fn is_free(&self, ports: &[HostPort]) -> bool {
        !are_taken(ports, &self.ports)
    }
}

/// The nodes that fit pods which ask for the same, ports included, by load. A load only grows while pods are placed:
/// one that has grown since it was noted is put right when it comes first, and a node whose ports are taken never
/// comes back.
struct NodeQueue {
    /// The pods of each node when it was noted, and its place.
    noted: BinaryHeap<Reverse<(usize, usize)>>,
    /// How many nodes were looked at, so that a test can measure the cost of a pod.
    #[cfg(test)]
    visits: usize,
}

/// Assigns each floating pod, given in the order of keys, to a node; a pod that fits nowhere is
/// left out. `named` counts the pods that name their node.
pub(crate) fn place(
    floating: &[Floating<'_>],
    nodes: &BTreeMap<NodeName, NodeTraits>,
    named: &BTreeMap<NodeName, NodeLoad>,
) -> BTreeMap<ResourceKey, NodeName> {
    let nodes: Vec<&NodeTraits> = nodes.values().collect();
    let at = |name: &NodeName| nodes.binary_search_by_key(&name, |node| &node.name).ok();
    let mut loads: Vec<NodeLoad> =
        nodes.iter().map(|node| named.get(&node.name).cloned().unwrap_or_default()).collect();
    let mut placed = BTreeMap::new();
    let mut homeless = Vec::new();
    let mut put = |pod: &Floating<'_>, at: usize, loads: &mut [NodeLoad]| {
        loads[at].add(&pod.ports);
        placed.insert(pod.key.clone(), nodes[at].name.clone());
    };
    let (same, others): (Vec<_>, Vec<_>) = floating.iter().partition(|pod| pod.is_same);
    // A pod that stays for certain has its ports before one that only may.
    for pod in same.into_iter().chain(others) {
        let was_on = pod.was_on.as_ref().and_then(at);
        let stays = |at: &usize| {
            pod.is_same || (nodes[*at].fits(&pod.pod) && loads[*at].is_free(&pod.ports))
        };
        match was_on.filter(stays) {
            Some(at) => put(pod, at, &mut loads),
            None => homeless.push(pod),
        }
    }
    homeless.sort_by_key(|pod| pod.key);
    // Most pods ask for the same as others, and a thousand nodes are looked through once for all.
    let mut queues = HashMap::new();
    for pod in homeless {
        let ports: Vec<String> = pod.ports.iter().map(ToString::to_string).collect();
        let queue = queues.entry((NodeTraits::asked_by(&pod.pod), ports)).or_insert_with(|| {
            NodeQueue::new((0..nodes.len()).filter(|at| nodes[*at].fits(&pod.pod)))
        });
        let Some(at) = queue.first(&loads, &pod.ports) else { continue };
        put(pod, at, &mut loads);
    }
    placed
}

impl NodeQueue {
    fn new(nodes: impl Iterator<Item = usize>) -> Self {
        let noted = nodes.map(|at| Reverse((0, at))).collect();
        Self {
            noted,
            #[cfg(test)]
            visits: 0,
        }
    }

    /// The node with the fewest pods, the first one of several, among those that have `ports` free.
    fn first(&mut self, loads: &[NodeLoad], ports: &[HostPort]) -> Option<usize> {
        loop {
            let mut least = self.noted.peek_mut()?;
            #[cfg(test)]
            {
                self.visits += 1;
            }
            let Reverse((pods, at)) = *least;
            let load = &loads[at];
            if pods < load.pods {
                *least = Reverse((load.pods, at));
            } else if load.is_free(ports) {
                return Some(at);
            } else {
                PeekMut::pop(least);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_object::host_ports::host_ports_of;
    use serde_json::json;

    use super::*;

    fn nodes(names: &[&str]) -> BTreeMap<NodeName, NodeTraits> {
        names
            .iter()
            .map(|name| name.parse().expect("ok"))
            .map(|name| (NodeName::clone(&name), NodeTraits::new(&name, None)))
            .collect()
    }

    fn keys(count: usize) -> Vec<ResourceKey> {
        (0..count).map(|n| format!("d/pod/p{n}").parse().expect("ok")).collect()
    }

    fn floating<'a>(
        key: &'a ResourceKey,
        pod: &Value,
        was_on: Option<&str>,
        is_same: bool,
    ) -> Floating<'a> {
        let was_on = was_on.map(|node| node.parse().expect("ok"));
        let ports = host_ports_of(pod);
        Floating { key, pod: pod.clone(), ports, was_on, is_same }
    }

    fn loads(placed: &BTreeMap<ResourceKey, NodeName>) -> BTreeMap<&str, usize> {
        let mut loads = BTreeMap::new();
        for node in placed.values() {
            *loads.entry(node.as_str()).or_default() += 1;
        }
        loads
    }

    #[test]
    fn pods_are_spread_evenly_those_that_name_their_node_counted() {
        let (keys, pod) = (keys(7), json!({}));
        let pods: Vec<_> = keys.iter().map(|key| floating(key, &pod, None, false)).collect();
        let mut load = NodeLoad::default();
        load.add(&[]);
        load.add(&[]);
        let named = BTreeMap::from([("a".parse().expect("ok"), load)]);
        let placed = place(&pods, &nodes(&["a", "b", "c"]), &named);
        assert_eq!(loads(&placed), BTreeMap::from([("a", 1), ("b", 3), ("c", 3)]));
    }

    #[test]
    fn a_pod_costs_as_many_looks_among_a_thousand_nodes_as_among_ten() {
        let looks = |nodes: usize, pods: usize| {
            let mut loads = vec![NodeLoad::default(); nodes];
            let mut queue = NodeQueue::new(0..nodes);
            for _ in 0..pods {
                let at = queue.first(&loads, &[]).expect("a node");
                loads[at].add(&[]);
            }
            queue.visits
        };
        let (few, many) = (looks(10, 5_000), looks(1_000, 5_000));
        assert!(many <= 2 * few && many <= 2 * 5_000, "{few}, {many}");
    }

    /// The node of each pod, found by a look at every node.
    fn by_every_node(
        pods: &[Floating<'_>],
        nodes: &BTreeMap<NodeName, NodeTraits>,
        named: &BTreeMap<NodeName, NodeLoad>,
    ) -> BTreeMap<ResourceKey, NodeName> {
        let mut loads: Vec<NodeLoad> =
            nodes.keys().map(|name| named.get(name).cloned().unwrap_or_default()).collect();
        let nodes: Vec<&NodeTraits> = nodes.values().collect();
        let mut placed = BTreeMap::new();
        for pod in pods {
            let fits = |at: &usize| nodes[*at].fits(&pod.pod) && loads[*at].is_free(&pod.ports);
            let fitting = (0..nodes.len()).filter(fits);
            let Some(at) = fitting.min_by_key(|at| loads[*at].pods) else { continue };
            loads[at].add(&pod.ports);
            placed.insert(pod.key.clone(), nodes[at].name.clone());
        }
        placed
    }

    proptest::proptest! {
        #[test]
        fn each_pod_goes_where_a_look_at_every_node_puts_it(
            asks in proptest::collection::vec((0..4_usize, 0..4_u16), 1..60),
            loaded in proptest::collection::vec(0..5_usize, 4),
        ) {
            let names = ["a", "b", "c", "d"];
            let mut keys = keys(asks.len());
            keys.sort();
            let pods: Vec<_> = asks.iter().zip(&keys).map(|((node, port), key)| {
                let selector = match names.get(*node).filter(|name| **name != "d") {
                    Some(name) => json!({"kubernetes.io/hostname": name}),
                    None => json!({}),
                };
                let ports = match port {
                    0 => json!([]),
                    port => json!([{"containerPort": 1, "hostPort": port}]),
                };
                let containers = json!([{"name": "c", "ports": ports}]);
                let pod = json!({"spec": {"nodeSelector": selector, "containers": containers}});
                floating(key, &pod, None, false)
            }).collect();
            let named = names.iter().zip(loaded).map(|(name, pods)| {
                let mut load = NodeLoad::default();
                (0..pods).for_each(|_| load.add(&[]));
                (name.parse().expect("ok"), load)
            }).collect();
            let nodes = nodes(&names);
            proptest::prop_assert_eq!(
                place(&pods, &nodes, &named),
                by_every_node(&pods, &nodes, &named)
            );
        }
    }

    #[test]
    fn a_pod_stays_until_its_node_leaves() {
        let (keys, pod) = (keys(3), json!({}));
        let pods: Vec<_> = keys.iter().map(|key| floating(key, &pod, Some("a"), true)).collect();
        assert_eq!(
            loads(&place(&pods, &nodes(&["a", "b"]), &BTreeMap::new())),
            BTreeMap::from([("a", 3)])
        );
        assert_eq!(
            loads(&place(&pods, &nodes(&["b", "c"]), &BTreeMap::new())).values().sum::<usize>(),
            3
        );
    }

    #[test]
    fn another_pod_of_the_name_stays_only_if_it_fits() {
        let keys = keys(2);
        let picky = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "b"}}});
        let pods = [
            floating(&keys[0], &picky, Some("a"), false),
            floating(&keys[1], &picky, Some("a"), true),
        ];
        let placed = place(&pods, &nodes(&["a", "b"]), &BTreeMap::new());
        assert_eq!((placed[&keys[0]].as_str(), placed[&keys[1]].as_str()), ("b", "a"));
    }

    #[test]
    fn a_pod_that_fits_nowhere_is_left_out() {
        let keys = keys(1);
        let picky = json!({"spec": {"nodeSelector": {"gpu": "yes"}}});
        let pods = [floating(&keys[0], &picky, None, false)];
        assert!(place(&pods, &nodes(&["a"]), &BTreeMap::new()).is_empty());
        assert!(place(&pods, &BTreeMap::new(), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn pods_with_one_port_of_the_machine_go_to_nodes_of_their_own() {
        let keys = keys(4);
        let with_port = json!({"spec": {"containers": [
            {"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]}});
        let mut load = NodeLoad::default();
        load.add(&host_ports_of(&with_port));
        let named = BTreeMap::from([("a".parse().expect("ok"), load)]);
        let pods: Vec<_> = keys.iter().map(|key| floating(key, &with_port, None, false)).collect();
        let placed = place(&pods, &nodes(&["a", "b", "c"]), &named);
        let places = placed.iter().map(|(key, node)| (key.name(), node.as_str()));
        assert_eq!(places.collect::<Vec<_>>(), [("p0", "b"), ("p1", "c")]);
    }

    #[test]
    fn a_pod_that_stays_keeps_its_port() {
        let keys = keys(2);
        let with_port = json!({"spec": {"hostNetwork": true, "containers": [
            {"name": "c", "ports": [{"containerPort": 80}]}]}});
        let pods = [
            floating(&keys[0], &with_port, Some("a"), false),
            floating(&keys[1], &with_port, Some("a"), true),
        ];
        let placed = place(&pods, &nodes(&["a", "b"]), &BTreeMap::new());
        assert_eq!((placed[&keys[0]].as_str(), placed[&keys[1]].as_str()), ("b", "a"));
    }
}
