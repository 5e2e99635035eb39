//! `/stats/summary`: what the machine and its pods use, as a kubelet's `Summary`.

use headwater_edged::NodePods;
use headwater_edged::runtime::{DiskUsage, FileSystemUsage, ProcessUsage, RuntimeError};
use http::Response;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::machine::{self, MachineUsage};
use super::volumes::{VolumeNumbers, VolumesByPod};
use super::{PodNumbers, measured, measuring};
use crate::response::{Body, json as encoded};

/// `/stats/summary`.
///
/// # Errors
/// The runtime measures nothing, or cannot now.
pub(crate) async fn summary(
    pods: &NodePods,
    listed: &[Pod],
    volumes: &VolumesByPod,
) -> Result<Response<Body>, RuntimeError> {
    let named = measured(pods, listed).await?;
    let systems = measuring(pods)?.file_systems().await?;
    let now = Timestamp::now();
    let mut node = machine::measure().map(|machine| of_machine(&machine, now)).unwrap_or_default();
    node["nodeName"] = json!(pods.node().as_str());
    // The first is that of the node's own files. A runtime that keeps its images there names no other.
    if let Some(own) = systems.first() {
        node["fs"] = of_file_system(own, now);
        let images = systems.get(1).unwrap_or(own);
        node["runtime"] = json!({"imageFs": of_file_system(images, now)});
    }
    let of_pods: Vec<Value> = named
        .iter()
        .map(|pod| of_pod(pod, volumes.get(pod.uid).map(AsRef::as_ref).unwrap_or_default(), now))
        .collect();
    let summary = json!({"node": node, "pods": of_pods});
    Ok(encoded(summary.to_string().into_bytes()))
}

fn of_machine(machine: &MachineUsage, now: Timestamp) -> Value {
    let mut stats = of_processes(&machine.processes, now);
    stats["startTime"] = json!(machine.started);
    stats["memory"]["availableBytes"] = json!(machine.memory_available_bytes);
    stats["rlimit"] = json!({"time": now, "curproc": machine.processes.count});
    stats
}

fn of_pod(pod: &PodNumbers<'_>, volumes: &[VolumeNumbers], now: Timestamp) -> Value {
    let containers = pod.usage.containers.iter().map(|container| {
        let mut stats = of_processes(&container.processes, now);
        stats["name"] = json!(container.container);
        stats["startTime"] = json!(pod.started.get(&container.container));
        stats["logs"] = of_disk(container.logs, now);
        if let Some(disk) = container.disk {
            stats["rootfs"] = of_disk(disk, now);
        }
        stats
    });
    let mut stats = of_processes(&pod.usage.processes, now);
    stats["podRef"] = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
    stats["containers"] = containers.collect();
    stats["process_stats"] = json!({"process_count": pod.usage.processes.count});
    stats["ephemeral-storage"] = of_disk(pod.disk(), now);
    stats["volume"] = volumes.iter().map(|volume| of_volume(volume, pod.namespace)).collect();
    stats
}

fn of_volume(volume: &VolumeNumbers, namespace: &str) -> Value {
    let mut stats = of_file_system(&volume.system, volume.at);
    stats["name"] = json!(volume.name);
    if let Some(claim) = &volume.claim {
        stats["pvcRef"] = json!({"name": claim, "namespace": namespace});
    }
    stats
}

fn of_processes(processes: &ProcessUsage, now: Timestamp) -> Value {
    json!({
        "cpu": {"time": now, "usageCoreNanoSeconds": processes.cpu_ns},
        "memory": {
            "time": now,
            "usageBytes": processes.memory_used_bytes,
            "workingSetBytes": processes.memory_bytes,
            "rssBytes": processes.memory_anonymous_bytes,
        },
    })
}

fn of_disk(disk: DiskUsage, now: Timestamp) -> Value {
    json!({"time": now, "usedBytes": disk.bytes, "inodesUsed": disk.inodes})
}

fn of_file_system(system: &FileSystemUsage, now: Timestamp) -> Value {
    let mut stats = of_disk(system.used, now);
    stats["capacityBytes"] = json!(system.capacity.bytes);
    stats["availableBytes"] = json!(system.available.bytes);
    stats["inodes"] = json!(system.capacity.inodes);
    stats["inodesFree"] = json!(system.available.inodes);
    stats
}
