//! Which devices the node has, and which of them work. Pure.
//!
//! The rules are those of a kubelet (`pkg/kubelet/cm/devicemanager/manager.go`, `GetCapacity`): devices that do not work
//! count in the capacity of the node, and not in what it has for pods; a plugin that is gone leaves devices that do not
//! work, for some minutes; afterwards the node states that it has none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// The devices of a plugin that is gone count in the node's capacity for this time (`endpointStopGracePeriod`).
pub(super) const STAY: Duration = Duration::from_mins(5);

/// The devices of all resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory(BTreeMap<String, Resource>);

/// The devices of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resource {
    /// The registration that counts.
    registration: u64,
    /// A list has come since the pod worker started.
    has_come: bool,
    /// Whether each device works.
    devices: BTreeMap<String, bool>,
    gone_since: Option<Instant>,
}

/// The devices of a resource, as the Node object states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatedDevices {
    /// The resource.
    pub(crate) resource: String,
    /// All devices.
    pub(crate) capacity: usize,
    /// Those that work.
    pub(crate) allocatable: usize,
}

impl Inventory {
    /// An earlier pod worker had these resources: their plugins register again.
    pub(super) fn of_earlier(resources: &BTreeSet<String>) -> Self {
        Self(resources.iter().map(|name| (name.clone(), Resource::default())).collect())
    }

    /// A plugin has registered. It counts instead of an earlier one, whose devices stay until it lists its own.
    pub(super) fn register(&mut self, resource: &str, registration: u64) {
        let entry = self.0.entry(resource.to_owned()).or_default();
        entry.registration = entry.registration.max(registration);
    }

    /// Takes a list. Returns whether it is of the plugin that counts.
    pub(super) fn list(
        &mut self,
        resource: &str,
        registration: u64,
        devices: BTreeMap<String, bool>,
    ) -> bool {
        let entry = self.0.get_mut(resource).filter(|it| it.registration == registration);
        let Some(entry) = entry else { return false };
        (entry.has_come, entry.devices, entry.gone_since) = (true, devices, None);
        true
    }

    /// The plugin is gone: its devices do not work any more.
    pub(super) fn lose(&mut self, resource: &str, registration: u64, now: Instant) -> bool {
        let entry = self.0.get_mut(resource).filter(|it| it.registration == registration);
        let Some(entry) = entry else { return false };
        entry.devices.values_mut().for_each(|works| *works = false);
        entry.gone_since = Some(now);
        true
    }

    /// The devices that work; `None`: no plugin has listed any, or it has been gone for long.
    pub(super) fn healthy(&self, resource: &str, now: Instant) -> Option<BTreeSet<String>> {
        let entry = self.0.get(resource).filter(|it| it.has_come && !it.is_over(now))?;
        let healthy = entry.devices.iter().filter(|(_, works)| **works);
        Some(healthy.map(|(id, _)| id.clone()).collect())
    }

    /// Whether a plugin of the resource has listed its devices since the pod worker started.
    pub(super) fn has_come(&self, resource: &str) -> bool {
        self.0.get(resource).is_some_and(|it| it.has_come)
    }

    /// The resources that a plugin has registered, now or earlier.
    pub(super) fn resources(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    /// What the Node object states.
    pub(super) fn stated(&self, now: Instant) -> Vec<StatedDevices> {
        let stated = self.0.iter().map(|(resource, it)| {
            let devices = it.devices.values().filter(|_| !it.is_over(now));
            StatedDevices {
                resource: resource.clone(),
                capacity: devices.clone().count(),
                allocatable: devices.filter(|works| **works).count(),
            }
        });
        stated.collect()
    }
}

impl Resource {
    fn is_over(&self, now: Instant) -> bool {
        self.gone_since.is_some_and(|since| now.duration_since(since) >= STAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(all: &[(&str, bool)]) -> BTreeMap<String, bool> {
        all.iter().map(|(id, works)| ((*id).to_owned(), *works)).collect()
    }

    #[test]
    fn devices_are_stated_by_a_kubelets_rules() {
        let now = Instant::now();
        let mut all = Inventory::of_earlier(&["e.com/a".to_owned()].into());
        let stated = |all: &Inventory, now| {
            let stated = all.stated(now);
            stated.iter().map(|it| (it.capacity, it.allocatable)).collect::<Vec<_>>()
        };
        // It is known from earlier: the node says that it has none yet.
        assert_eq!((stated(&all, now), all.healthy("e.com/a", now)), (vec![(0, 0)], None));
        all.register("e.com/a", 1);
        assert!(!all.has_come("e.com/a"));
        assert!(all.list("e.com/a", 1, devices(&[("0", true), ("1", false), ("2", true)])));
        assert_eq!(stated(&all, now), [(3, 2)]);
        assert_eq!(all.healthy("e.com/a", now).map(|it| it.len()), Some(2));
        // Gone: nothing works; after a while there is nothing, and what was given stays given.
        assert!(all.lose("e.com/a", 1, now));
        assert_eq!(stated(&all, now), [(3, 0)]);
        assert_eq!(all.healthy("e.com/a", now).map(|it| it.len()), Some(0));
        assert_eq!(stated(&all, now + STAY), [(0, 0)]);
        assert_eq!(all.healthy("e.com/a", now + STAY), None);
        assert!(all.has_come("e.com/a"));
        // The next registration counts, and the words of the one before do not.
        all.register("e.com/a", 2);
        assert!(!all.list("e.com/a", 1, devices(&[("9", true)])));
        assert!(all.list("e.com/a", 2, devices(&[("0", true)])));
        assert!(!all.lose("e.com/a", 1, now));
        assert_eq!(stated(&all, now + STAY), [(1, 1)]);
        assert!(!all.list("e.com/b", 1, devices(&[])), "it has not registered");
    }
}
