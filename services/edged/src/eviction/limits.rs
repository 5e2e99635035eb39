//! What a pod may take of the disk: the limits of its emptyDirs, of its containers, and of all of them together. Pure.
//!
//! The rules, their order and their words are a kubelet's (`pkg/kubelet/eviction/eviction_manager.go`,
//! `localStorageEviction`).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tokio::time::Instant;

use super::message::quantity;
use crate::container::quantity::value;
use crate::container::requests::{STORAGE, pod_storage_limit};
use crate::pod::main_containers;
use crate::runtime::{DiskUsage, PodDisk};

/// The names of the limits, as a kubelet's metric has them.
pub(crate) const EMPTY_DIR: &str = "emptydirfs.limit";
/// See [`EMPTY_DIR`].
pub(crate) const POD: &str = "ephemeralpodfs.limit";
/// See [`EMPTY_DIR`].
pub(crate) const CONTAINER: &str = "ephemeralcontainerfs.limit";

/// The pause after a look at the disk, as so many times what the look took: 2 % of a core at most, however many
/// files the volumes have.
const PAUSE: u32 = 50;

/// A limit that a pod exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    /// The words of its status.
    pub(super) message: String,
    /// The limit.
    pub(super) signal: &'static str,
}

/// When the disk of pods is measured next.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    next: Option<Instant>,
}

impl Schedule {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// A look took so long.
    pub(super) fn end(&mut self, now: Instant, took: Duration) {
        self.next = now.checked_add(took.saturating_mul(PAUSE));
    }
}

/// The volumes of the pod whose size has a limit.
pub(super) fn limited_volumes(pod: &Pod) -> Vec<String> {
    limited(pod).map(|(name, _)| name.to_owned()).collect()
}

/// Whether the pod has any limit of its disk.
pub(super) fn has_any(pod: &Pod) -> bool {
    limited(pod).next().is_some() || pod_storage_limit(pod) > 0
}

/// The first limit that the pod exceeds. `is_one_disk`: what containers write beside volumes lies on the disk of pods, too.
pub(super) fn excess(pod: &Pod, disk: &PodDisk, is_one_disk: bool) -> Option<Excess> {
    let of_volume = limited(pod).find_map(|(name, limit)| {
        let used = disk.volumes.get(name)?;
        let most = positive(limit)?;
        (used.bytes > most).then(|| Excess {
            message: format!("Usage of EmptyDir volume {name:?} exceeds the limit {:?}. ", limit.0),
            signal: EMPTY_DIR,
        })
    });
    of_volume.or_else(|| of_pod(pod, disk)).or_else(|| of_container(pod, disk, is_one_disk))
}

fn of_pod(pod: &Pod, disk: &PodDisk) -> Option<Excess> {
    let most = Some(pod_storage_limit(pod)).filter(|most| *most > 0)?;
    let containers = disk.containers.iter();
    let parts = containers.map(|own| own.logs + own.layer.unwrap_or_default());
    let used = parts.fold(disk.files, |sum, part| sum + part);
    (used.bytes > most).then(|| Excess {
        message: format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
            quantity(most)
        ),
        signal: POD,
    })
}

fn of_container(pod: &Pod, disk: &PodDisk, is_one_disk: bool) -> Option<Excess> {
    let limit = |name: &str| {
        let container = main_containers(pod).iter().find(|it| it.name == name)?;
        container.resources.as_ref()?.limits.as_ref()?.get(STORAGE)
    };
    disk.containers.iter().find_map(|own| {
        let limit = limit(&own.container)?;
        let layer = own.layer.filter(|_| is_one_disk).unwrap_or_default();
        let DiskUsage { bytes, .. } = own.logs + layer;
        (bytes > positive(limit)?).then(|| Excess {
            message: format!(
                "Container {} exceeded its local ephemeral storage limit {:?}. ",
                own.container, limit.0
            ),
            signal: CONTAINER,
        })
    })
}

/// The emptyDirs whose size has a limit.
fn limited(pod: &Pod) -> impl Iterator<Item = (&str, &Quantity)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        positive(limit).map(|_| (volume.name.as_str(), limit))
    })
}

/// A limit of zero is none.
fn positive(limit: &Quantity) -> Option<u64> {
    u64::try_from(value(limit)?).ok().filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::ContainerDisk;

    fn bytes(bytes: u64) -> DiskUsage {
        DiskUsage { bytes, inodes: 1 }
    }

    /// Volumes `small` and `free`, containers `a` and `b`, of which `a` has a limit.
    fn pod() -> Pod {
        let pod = json!({"spec": {
            "volumes": [
                {"name": "small", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "free", "emptyDir": {"sizeLimit": "0"}},
                {"name": "other", "hostPath": {"path": "/"}},
            ],
            "containers": [
                {"name": "a", "resources": {"limits": {"ephemeral-storage": "2Mi"}}},
                {"name": "b"},
            ],
        }});
        serde_json::from_value(pod).expect("a pod")
    }

    fn disk(small: u64, files: u64, a: (u64, u64), b: u64) -> PodDisk {
        let of = |container: &str, logs, layer| ContainerDisk {
            container: container.to_owned(),
            layer: Some(bytes(layer)),
            logs: bytes(logs),
        };
        PodDisk {
            files: bytes(files),
            volumes: [("small".to_owned(), bytes(small))].into(),
            containers: vec![of("a", a.0, a.1), of("b", 0, b)],
        }
    }

    #[test]
    fn each_limit_has_its_words_and_the_volume_comes_first() {
        const MIB: u64 = 1 << 20;
        let volume = "Usage of EmptyDir volume \"small\" exceeds the limit \"1Mi\". ";
        let all = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
        let one = "Container a exceeded its local ephemeral storage limit \"2Mi\". ";
        for (disk, is_one_disk, expected) in [
            (disk(MIB, 0, (MIB, MIB), 0), true, None),
            (disk(MIB + 1, 0, (0, 0), 0), true, Some((EMPTY_DIR, volume))),
            (disk(MIB + 1, 9 * MIB, (9 * MIB, 0), 0), true, Some((EMPTY_DIR, volume))),
            // What a container without a limit takes counts for the pod.
            (disk(0, MIB, (0, MIB), 1), true, Some((POD, all))),
            (disk(0, MIB, (0, 0), MIB + 1), false, Some((POD, all))),
        ] {
            let found = excess(&pod(), &disk, is_one_disk);
            let found = found.as_ref().map(|it| (it.signal, it.message.as_str()));
            assert_eq!(found, expected, "{disk:?}");
        }
        // A second container has room left for both, and not for one of them.
        let mut roomy = pod();
        let containers = &mut roomy.spec.as_mut().expect("a spec").containers;
        let limits = json!({"limits": {"ephemeral-storage": "8Mi"}});
        containers[1].resources = serde_json::from_value(limits).expect("resources");
        for (usage, is_one_disk, expected) in [
            ((MIB, MIB + 1), true, Some((CONTAINER, one))),
            ((MIB, MIB + 1), false, None),
            ((2 * MIB + 1, 0), false, Some((CONTAINER, one))),
        ] {
            let found = excess(&roomy, &disk(0, 0, usage, 0), is_one_disk);
            let found = found.as_ref().map(|it| (it.signal, it.message.as_str()));
            assert_eq!(found, expected, "{usage:?}");
        }
    }

    #[test]
    fn only_what_has_a_limit_is_measured() {
        assert!(has_any(&pod()));
        assert_eq!(limited_volumes(&pod()), ["small"]);
        let free = json!({"spec": {
            "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "a"}]}});
        let free: Pod = serde_json::from_value(free).expect("a pod");
        assert!(!has_any(&free));
        assert_eq!(excess(&free, &disk(1 << 40, 1 << 40, (1 << 40, 0), 0), true), None);
    }

    #[test]
    fn a_look_that_takes_long_is_rare() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        assert!(schedule.is_due(now));
        schedule.end(now, Duration::from_millis(200));
        assert!(!schedule.is_due(now + Duration::from_secs(9)));
        assert!(schedule.is_due(now + Duration::from_secs(10)));
    }
}
