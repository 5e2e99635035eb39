//! Which pod is evicted first. Pure.
//!
//! The order is a kubelet's (`pkg/kubelet/eviction/helpers.go`, `rankMemoryPressure`, `rankDiskPressureFunc`,
//! `rankPIDPressure`): a pod above its requests before one below them, a lower priority before a higher one, more above the
//! requests before less. Requests of process ids do not exist. Pods that are critical are never evicted. Where a kubelet
//! evicts a pod of which it knows no usage first, such a pod stays here: it has nothing to leave to others.

use std::cmp::{Ordering, Reverse};

use crate::container::requests::Amounts;
use crate::node::signal::Signal;
use crate::pod::PodUid;
use crate::runtime::{DiskUsage, PodUsage};

/// A pod that could be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) pod: PodUid,
    pub(crate) priority: i32,
    /// The node does not work without it.
    pub(crate) is_critical: bool,
    pub(crate) requests: Amounts,
    pub(crate) usage: Usage,
}

/// What a pod takes of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) memory_bytes: u64,
    /// On the file system of pods: volumes and logs.
    pub(crate) disk: DiskUsage,
    /// On the file system of images: what containers wrote beside volumes.
    pub(crate) layers: DiskUsage,
    pub(crate) processes: u64,
}

impl Usage {
    /// What a pod takes. `is_one_disk`: images and pods have the same file system, and all of it counts on either.
    pub(crate) fn of(pod: &PodUsage, is_one_disk: bool) -> Self {
        let containers = pod.containers.iter();
        let (mut disk, mut layers) = (pod.volumes, DiskUsage::default());
        for container in containers {
            disk = disk + container.logs;
            layers = layers + container.disk.unwrap_or_default();
        }
        if is_one_disk {
            (disk, layers) = (disk + layers, disk + layers);
        }
        let memory_bytes = pod.processes.memory_bytes;
        Self { memory_bytes, disk, layers, processes: pod.processes.count }
    }

    fn amount(&self, signal: Signal) -> u64 {
        match signal {
            Signal::Memory | Signal::PodsMemory => self.memory_bytes,
            Signal::DiskBytes => self.disk.bytes,
            Signal::DiskFiles => self.disk.inodes,
            Signal::ImageBytes => self.layers.bytes,
            Signal::ImageFiles => self.layers.inodes,
            Signal::Pids => self.processes,
        }
    }
}

/// The pod to evict for a shortage; `None`: no pod can help.
pub(crate) fn first(signal: Signal, candidates: &[Candidate]) -> Option<&Candidate> {
    let can_go = |pod: &&Candidate| !pod.is_critical && pod.usage.amount(signal) > 0;
    candidates.iter().filter(can_go).min_by(|a, b| order(signal, a, b))
}

/// The order of evictions.
fn order(signal: Signal, a: &Candidate, b: &Candidate) -> Ordering {
    let key = |pod: &Candidate| {
        let (used, requested) = (pod.usage.amount(signal), requested(signal, &pod.requests));
        let is_below = requested.is_some_and(|requested| used <= requested);
        let above = i128::from(used) - i128::from(requested.unwrap_or(0));
        (is_below, pod.priority, Reverse(above))
    };
    key(a).cmp(&key(b)).then_with(|| a.pod.cmp(&b.pod))
}

/// The request of a resource; `None`: every pod is above it.
fn requested(signal: Signal, requests: &Amounts) -> Option<u64> {
    match signal {
        Signal::Memory | Signal::PodsMemory => Some(requests.memory_bytes),
        Signal::DiskBytes | Signal::ImageBytes => Some(requests.storage_bytes),
        Signal::DiskFiles | Signal::ImageFiles | Signal::Pids => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, priority: i32, requested: u64, used: u64) -> Candidate {
        let of = |amount| DiskUsage { bytes: amount, inodes: amount };
        Candidate {
            pod: PodUid::try_from(name.to_owned()).expect("a UID"),
            priority,
            is_critical: false,
            requests: Amounts {
                memory_bytes: requested,
                storage_bytes: requested,
                ..Amounts::default()
            },
            usage: Usage { memory_bytes: used, disk: of(used), layers: of(used), processes: used },
        }
    }

    /// The names of the pods in the order in which they go.
    fn all(signal: Signal, mut pods: Vec<Candidate>) -> String {
        let mut names = Vec::new();
        while let Some(next) = first(signal, &pods).map(|pod| pod.pod.clone()) {
            pods.retain(|pod| pod.pod != next);
            names.push(next.as_str().to_owned());
        }
        names.join(" ")
    }

    #[test]
    fn pods_go_by_requests_priority_and_usage() {
        let mut critical = candidate("critical", 2_000_000_000, 0, 999);
        critical.is_critical = true;
        let pods = vec![
            candidate("below-low", 0, 100, 90),
            candidate("below-high", 9, 100, 99),
            candidate("above-high", 9, 10, 90),
            candidate("above-low-little", 0, 10, 20),
            candidate("above-low-much", 0, 10, 80),
            candidate("same-as-requested", 0, 50, 50),
            candidate("idle", -9, 0, 0),
            critical,
        ];
        let by_requests = "above-low-much above-low-little above-high same-as-requested \
                           below-low below-high";
        for signal in [Signal::Memory, Signal::PodsMemory, Signal::DiskBytes, Signal::ImageBytes] {
            assert_eq!(all(signal, pods.clone()), by_requests, "{signal:?}");
        }
        let by_usage = "below-low above-low-much same-as-requested above-low-little below-high \
                        above-high";
        for signal in [Signal::DiskFiles, Signal::ImageFiles, Signal::Pids] {
            assert_eq!(all(signal, pods.clone()), by_usage, "{signal:?}");
        }
    }

    #[test]
    fn what_a_container_wrote_counts_on_the_file_system_where_it_lies() {
        use crate::runtime::{ContainerUsage, ProcessUsage};
        let of = |amount| DiskUsage { bytes: amount, inodes: 1 };
        let pod = PodUsage {
            pod: PodUid::try_from("u".to_owned()).expect("a UID"),
            processes: ProcessUsage { memory_bytes: 7, count: 3, ..ProcessUsage::default() },
            volumes: of(1),
            containers: vec![ContainerUsage {
                container: "a".to_owned(),
                processes: ProcessUsage::default(),
                disk: Some(of(10)),
                logs: of(100),
            }],
        };
        let amounts = |usage: &Usage| (usage.disk.bytes, usage.layers.bytes, usage.disk.inodes);
        assert_eq!(amounts(&Usage::of(&pod, false)), (101, 10, 2));
        assert_eq!(amounts(&Usage::of(&pod, true)), (111, 111, 3));
    }
}
