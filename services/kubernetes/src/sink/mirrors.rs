//! Which node states which static pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use headwater_event::{NodeName, ResourceKey};

use crate::mirror_pod::{StatedPods, StaticPod};

/// The static pods of all nodes, as they were last reported.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    nodes: HashMap<NodeName, StatedPods>,
    /// The node that states a pod. The first one has it.
    owners: HashMap<ResourceKey, NodeName>,
}

impl Mirrors {
    /// Takes what a node states; `None`: it states nothing. Returns the pods that it stated before or states now.
    pub(super) fn set(
        &mut self,
        node: &NodeName,
        stated: Option<StatedPods>,
    ) -> BTreeSet<ResourceKey> {
        let before = self.nodes.remove(node).unwrap_or_default();
        let mut keys: BTreeSet<ResourceKey> = before.pods.into_keys().collect();
        for key in &keys {
            self.owners.remove(key);
        }
        let Some(mut stated) = stated else { return keys };
        stated.pods.retain(|key, _| {
            let owner = self.owners.entry(key.clone()).or_insert_with(|| node.clone());
            owner == node
        });
        keys.extend(stated.pods.keys().cloned());
        self.nodes.insert(node.clone(), stated);
        keys
    }

    /// The node that states a pod, and the pod.
    pub(super) fn of(&self, key: &ResourceKey) -> Option<(&NodeName, Arc<StaticPod>)> {
        let node = self.owners.get(key)?;
        Some((node, self.nodes.get(node)?.pods.get(key)?.clone()))
    }

    /// Whether a pod that a node does not state has no file there.
    pub(super) fn is_complete(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|stated| stated.is_complete)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stated(node: &str, names: &[&str]) -> StatedPods {
        let pod = |name: &&str| {
            let annotations = json!({"kubernetes.io/config.hash": "h"});
            json!({
                "metadata": {"name": name, "namespace": "d", "annotations": annotations},
                "spec": {"nodeName": node},
            })
        };
        let pods: Vec<_> = names.iter().map(pod).collect();
        let text = json!({"complete": true, "pods": pods}).to_string();
        StatedPods::parse(&text, node).expect("a statement")
    }

    fn names(keys: &BTreeSet<ResourceKey>) -> Vec<&str> {
        keys.iter().map(ResourceKey::name).collect()
    }

    #[test]
    fn a_pod_is_of_the_first_node_that_states_it_until_that_does_not_any_more() {
        // The name of a pod of one node may look like that of the other.
        let [a, b]: [NodeName; 2] = ["a", "x-a"].map(|name| name.parse().expect("a name"));
        let key: ResourceKey = "d/pod/web-x-a".parse().expect("a key");
        let mut mirrors = Mirrors::default();
        assert!(!mirrors.is_complete(&a));
        let both = mirrors.set(&a, Some(stated("a", &["web-x-a", "db-a"])));
        assert_eq!(names(&both), ["db-a", "web-x-a"]);
        assert!(mirrors.set(&b, Some(stated("x-a", &["web-x-a"]))).is_empty());
        assert_eq!(mirrors.of(&key).map(|(node, _)| node), Some(&a));
        let both = mirrors.set(&a, Some(stated("a", &["db-a"])));
        assert_eq!(names(&both), ["db-a", "web-x-a"], "its mirror is compared, too");
        assert!(mirrors.of(&key).is_none() && mirrors.is_complete(&a));
        mirrors.set(&b, Some(stated("x-a", &["web-x-a"])));
        assert_eq!(mirrors.of(&key).map(|(node, _)| node), Some(&b));
    }
}
