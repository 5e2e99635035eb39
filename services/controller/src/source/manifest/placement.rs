//! Placement: which node each pod goes to.
//!
//! A pod goes to the node it names. Others stay where they were while that node is there and they
//! are the same pod, or still fit; the rest go, one after another in the order of their keys, to
//! the node with the fewest pods among those that fit and have their ports free. Nothing else ever
//! moves a pod.

use std::collections::{BTreeMap, HashMap};

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
    let mut fitting = HashMap::new();
    for pod in homeless {
        let fitting = fitting.entry(NodeTraits::asked_by(&pod.pod)).or_insert_with(|| {
            (0..nodes.len()).filter(|at| nodes[*at].fits(&pod.pod)).collect::<Vec<_>>()
        });
        let free = fitting.iter().copied().filter(|at| loads[*at].is_free(&pod.ports));
        let Some(at) = free.min_by_key(|at| loads[*at].pods) else { continue };
        put(pod, at, &mut loads);
    }
    placed
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
