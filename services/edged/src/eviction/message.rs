//! The words of an eviction, as a kubelet writes them (`pkg/kubelet/eviction/helpers.go`, `evictionMessage`). Pure.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;

use super::shortage::Shortage;
use crate::container::requests::container_requests;
use crate::node::signal::{Resource, Signal};
use crate::pod::all_containers;
use crate::runtime::PodUsage;

/// Why the pod was evicted: the resource, its figures, and every container that uses more than it requests.
pub(super) fn message(shortage: &Shortage, pod: &Pod, usage: &PodUsage) -> String {
    let name = shortage.signal.resource_name();
    let amount = |amount: u64| match shortage.signal {
        Signal::DiskFiles | Signal::ImageFiles | Signal::Pids => amount.to_string(),
        _ => quantity(amount),
    };
    let (least, available) = (amount(shortage.least), amount(shortage.available));
    let mut text = format!(
        "The node was low on resource: {name}. Threshold quantity: {least}, available: {available}. "
    );
    for own in &usage.containers {
        let Some(container) = all_containers(pod).find(|it| it.name == own.container) else {
            continue;
        };
        let requests = container_requests(container);
        let (used, requested) = match (shortage.signal.resource(), own.disk) {
            (Resource::Memory, _) => (own.processes.memory_bytes, requests.memory_bytes),
            (Resource::Disk, Some(disk)) if name == "ephemeral-storage" => {
                ((disk + own.logs).bytes, requests.storage_bytes)
            }
            _ => continue,
        };
        if used > requested {
            let (used, requested) = (quantity(used), quantity(requested));
            let container = &own.container;
            // A string takes all that is written to it.
            let _ = write!(
                text,
                "Container {container} was using {used}, request is {requested}, has larger \
                 consumption of {name}. "
            );
        }
    }
    text
}

/// Bytes as Kubernetes writes them: in the largest unit without a remainder.
pub(super) fn quantity(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = if bytes == 0 { 0 } else { bytes.trailing_zeros() / 10 };
    let unit = usize::try_from(power).ok().and_then(|power| units.get(power)).unwrap_or(&"");
    format!("{}{unit}", bytes >> (power * 10))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodUid;
    use crate::runtime::{ContainerUsage, DiskUsage, ProcessUsage};

    #[test]
    fn the_resource_and_every_container_above_its_request_are_named() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"memory": "1Mi"}}}, {"name": "b"},
        ]}}))
        .expect("a pod");
        let container = |name: &str, memory_bytes, bytes| ContainerUsage {
            container: name.to_owned(),
            processes: ProcessUsage { memory_bytes, ..ProcessUsage::default() },
            disk: Some(DiskUsage { bytes, inodes: 1 }),
            logs: DiskUsage { bytes: 1 << 10, inodes: 1 },
        };
        let usage = PodUsage {
            pod: PodUid::try_from("u".to_owned()).expect("a UID"),
            processes: ProcessUsage::default(),
            volumes: DiskUsage::default(),
            containers: vec![container("a", 1 << 20, 0), container("b", 3 << 19, 1 << 10)],
        };
        let of = |signal| {
            let shortage = Shortage { signal, least: 100 << 20, available: 1025, is_soft: false };
            message(&shortage, &pod, &usage)
        };
        let memory = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1025. \
                      Container b was using 1536Ki, request is 0, has larger consumption of memory. ";
        assert_eq!(of(Signal::Memory), memory);
        let disk = "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, \
                    available: 1025. Container a was using 1Ki, request is 0, has larger consumption of \
                    ephemeral-storage. Container b was using 2Ki, request is 0, has larger consumption of \
                    ephemeral-storage. ";
        assert_eq!(of(Signal::DiskBytes), disk);
        let inodes = "The node was low on resource: inodes. Threshold quantity: 104857600, available: 1025. ";
        assert_eq!(of(Signal::ImageFiles), inodes);
    }
}
