//! Which container has which devices. Pure: decided from what works, what is given away, and what the plugin prefers.
//!
//! The rules are those of a kubelet (`pkg/kubelet/cm/devicemanager/manager.go`, `devicesToAllocate`), without its look at
//! the topology: first what an init container of the pod leaves, then what the plugin prefers, then any device.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::container::devices::ContainerDevices;
use crate::pod::PodUid;

/// The ids of devices of one resource.
pub(super) type Ids = BTreeSet<String>;

/// Devices of one resource that a container has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grant {
    /// Their ids.
    pub(super) ids: Ids,
    /// What the plugin gives with them.
    pub(super) gives: ContainerDevices,
}

/// The devices of a pod, by container and resource.
pub(super) type PodGrants = BTreeMap<String, BTreeMap<String, Grant>>;

/// The devices of all containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Allocations(BTreeMap<PodUid, PodGrants>);

/// There are too few devices for a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooFewDevices {
    /// Some work, and not enough of them are free.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, \
         Available: {available}"
    )]
    Taken { resource: String, requested: usize, available: usize },
    /// None works.
    #[error("no healthy devices present; cannot allocate unhealthy devices {resource}")]
    Unhealthy { resource: String },
}

/// Devices from which a container gets some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'a> {
    pub(super) resource: &'a str,
    pub(super) count: usize,
    /// The devices that work.
    pub(super) healthy: &'a Ids,
    /// The devices of others.
    pub(super) taken: &'a Ids,
    /// What init containers of the pod leave. It is no device of others.
    pub(super) reusable: &'a Ids,
}

impl Choice<'_> {
    /// What the container gets of the devices that an init container leaves.
    pub(super) fn reused(&self) -> Ids {
        let reusable = self.reusable.intersection(self.healthy);
        reusable.take(self.count).cloned().collect()
    }

    /// The devices that it may get.
    pub(super) fn free(&self) -> Ids {
        let free = self.healthy.difference(self.taken);
        free.filter(|id| !self.reusable.contains(*id)).cloned().collect()
    }

    /// Whether the plugin has a choice: more are free than the container needs.
    pub(super) fn is_open(&self) -> bool {
        let more = self.count - self.reused().len();
        more > 0 && self.free().len() > more
    }

    /// The devices that the container gets.
    ///
    /// # Errors
    /// There are too few.
    pub(super) fn choose(&self, preferred: &[String]) -> Result<Ids, TooFewDevices> {
        let resource = || self.resource.to_owned();
        if self.healthy.is_empty() {
            return Err(TooFewDevices::Unhealthy { resource: resource() });
        }
        let (mut chosen, free) = (self.reused(), self.free());
        let more = self.count - chosen.len();
        if free.len() < more {
            let available = free.len();
            return Err(TooFewDevices::Taken { resource: resource(), requested: more, available });
        }
        let first = preferred.iter().filter(|id| free.contains(*id));
        for id in first.chain(&free) {
            if chosen.len() < self.count {
                chosen.insert(id.clone());
            }
        }
        Ok(chosen)
    }
}

impl Allocations {
    /// The devices that a container has, by resource.
    pub(super) fn of(&self, pod: &PodUid, container: &str) -> Option<&BTreeMap<String, Grant>> {
        self.0.get(pod)?.get(container)
    }

    /// Whether the pod has devices.
    pub(super) fn contains(&self, pod: &PodUid) -> bool {
        self.0.contains_key(pod)
    }

    /// The pods that have devices.
    pub(super) fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.0.keys()
    }

    /// The devices of a resource that are given away.
    pub(super) fn taken(&self, resource: &str) -> Ids {
        let grants = self.0.values().flat_map(BTreeMap::values);
        grants.filter_map(|it| it.get(resource)).flat_map(|it| it.ids.iter().cloned()).collect()
    }

    /// Gives a pod its devices.
    pub(super) fn insert(&mut self, pod: PodUid, grants: PodGrants) {
        self.0.insert(pod, grants);
    }

    /// Takes back the devices of a pod. Returns whether it had any.
    pub(super) fn release(&mut self, pod: &PodUid) -> bool {
        self.0.remove(pod).is_some()
    }

    /// Whether these can be allocations: no device has two pods.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut owners: BTreeMap<(&str, &str), &PodUid> = BTreeMap::new();
        for (pod, containers) in &self.0 {
            for (resource, grant) in containers.values().flatten() {
                for id in &grant.ids {
                    let owner = owners.entry((resource, id)).or_insert(pod);
                    if *owner != pod {
                        return Err(format!(
                            "pods {owner} and {pod} have device {id} of {resource}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Ids {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_container_gets_what_is_left_in_its_pod_then_what_is_preferred_then_any() {
        for (count, healthy, taken, reusable, preferred, expected) in [
            (2, "a b c", "", "", "", "a b"),
            (2, "a b c", "", "", "c b a", "b c"),
            (1, "a b c", "", "b", "c", "b"),
            (2, "a b c", "a", "b", "c", "b c"),
            // A plugin that prefers what others have, what does not work, or what it does not have.
            (1, "a b c", "a", "", "a x d", "b"),
            // A device that was left and does not work any more.
            (1, "a", "", "b", "", "a"),
            (3, "a b c", "", "a b c", "", "a b c"),
        ] {
            let (healthy, taken, reusable) = (ids(healthy), ids(taken), ids(reusable));
            let preferred: Vec<String> = preferred.split_whitespace().map(str::to_owned).collect();
            let choice = Choice {
                resource: "e.com/a",
                count,
                healthy: &healthy,
                taken: &taken,
                reusable: &reusable,
            };
            assert_eq!(choice.choose(&preferred).expect("enough"), ids(expected), "{choice:?}");
        }
    }

    #[test]
    fn too_few_devices_are_named_in_a_kubelets_words() {
        let words = |count, healthy: &str, taken: &str, reusable: &str| {
            let (healthy, taken, reusable) = (ids(healthy), ids(taken), ids(reusable));
            let choice = Choice {
                resource: "e.com/a",
                count,
                healthy: &healthy,
                taken: &taken,
                reusable: &reusable,
            };
            choice.choose(&[]).expect_err("too few").to_string()
        };
        let short =
            "requested number of devices unavailable for e.com/a. Requested: 2, Available: 1";
        assert_eq!(words(2, "a b", "a", ""), short);
        assert_eq!(words(3, "a b", "", "a"), short);
        let none = "no healthy devices present; cannot allocate unhealthy devices e.com/a";
        assert_eq!(words(1, "", "", ""), none);
    }

    #[test]
    fn allocations_in_which_a_device_has_two_pods_are_none() {
        let read = |text: &str| serde_json::from_str::<Allocations>(text).expect("read");
        let grant = |pod: &str, container: &str, id: &str| {
            format!(
                r#""{pod}": {{"{container}": {{"e.com/a": {{"ids": ["{id}"], "gives": {{}}}}}}}}"#
            )
        };
        let two = |other: &str| read(&format!("{{{}, {other}}}", grant("u", "a", "0")));
        two(&grant("v", "a", "1")).check().expect("whole");
        let wrong = two(&grant("v", "a", "0")).check().expect_err("twice");
        assert_eq!(wrong, "pods u and v have device 0 of e.com/a");
        serde_json::from_str::<Allocations>(r#"{"../u": {}}"#).expect_err("no UID");
    }
}
