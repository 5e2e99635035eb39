//! What pods use: `/metrics/resource` and `/stats/summary`, where the runtime measures it.

mod cadvisor;

use std::collections::BTreeMap;

use headwater_edged::NodePods;
use headwater_edged::runtime::{DiskUsage, PodUsage, ProcessUsage, RuntimeError};
use http::Response;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts, Registry};
use serde_json::{Value, json};

pub(crate) use self::cadvisor::cadvisor;
use crate::metrics::response;
use crate::response::{Body, json as encoded};

/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

/// The usage of one pod, with the names that the runtime does not know.
struct PodNumbers<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    pod: &'a Pod,
    usage: PodUsage,
}

/// `/metrics/resource`, which a metrics server reads.
///
/// # Errors
/// The runtime measures nothing, or cannot now.
pub(crate) async fn metrics(
    pods: &NodePods,
    listed: &[Pod],
) -> Result<Response<Body>, RuntimeError> {
    Ok(response(families(&measured(pods, listed).await?)))
}

/// `/stats/summary`.
///
/// # Errors
/// As [`metrics`].
pub(crate) async fn summary(
    pods: &NodePods,
    listed: &[Pod],
) -> Result<Response<Body>, RuntimeError> {
    let named = measured(pods, listed).await?;
    let now = Timestamp::now();
    let of_pods: Vec<Value> = named
        .iter()
        .map(|pod| {
            let containers = pod.usage.containers.iter().map(|container| {
                let mut stats = of_processes(&container.processes, now);
                stats["name"] = json!(container.container);
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
            stats
        })
        .collect();
    let summary = json!({"node": {"nodeName": pods.node().as_str()}, "pods": of_pods});
    Ok(encoded(summary.to_string().into_bytes()))
}

async fn measured<'a>(
    pods: &NodePods,
    listed: &'a [Pod],
) -> Result<Vec<PodNumbers<'a>>, RuntimeError> {
    let usage = pods.runtime().usage().ok_or(RuntimeError::Unsupported { verb: "measure pods" })?;
    let measured = usage.pods().await?;
    let mut by_uid: BTreeMap<String, PodUsage> =
        measured.into_iter().map(|usage| (usage.pod.to_string(), usage)).collect();
    let named = listed.iter().filter_map(|pod| {
        let uid = pod.metadata.uid.as_deref()?;
        let usage = by_uid.remove(uid)?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Some(PodNumbers { namespace, name: pod.metadata.name.as_deref()?, uid, pod, usage })
    });
    Ok(named.collect())
}

impl PodNumbers<'_> {
    /// What the pod's containers, logs and volumes take on the disk.
    fn disk(&self) -> DiskUsage {
        self.usage.containers.iter().fold(self.usage.volumes, |sum, container| {
            sum + container.logs + container.disk.unwrap_or_default()
        })
    }
}

/// CPU and memory, as `/stats/summary` has them.
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

/// Space and files, as `/stats/summary` has them.
fn of_disk(disk: DiskUsage, now: Timestamp) -> Value {
    json!({"time": now, "usedBytes": disk.bytes, "inodesUsed": disk.inodes})
}

#[expect(clippy::cast_precision_loss, reason = "the text format has floats")]
fn families(pods: &[PodNumbers<'_>]) -> prometheus::Result<Vec<MetricFamily>> {
    let (of_container, of_pod) = (["container", "namespace", "pod"], ["namespace", "pod"]);
    let counter =
        |name: &str, help: &str, labels: &[&str]| CounterVec::new(Opts::new(name, help), labels);
    let gauge =
        |name: &str, help: &str, labels: &[&str]| GaugeVec::new(Opts::new(name, help), labels);
    let container_cpu = counter(
        "container_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        &of_container,
    )?;
    let container_memory = gauge(
        "container_memory_working_set_bytes",
        "[STABLE] Current working set of the container in bytes",
        &of_container,
    )?;
    let pod_cpu = counter(
        "pod_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        &of_pod,
    )?;
    let pod_memory = gauge(
        "pod_memory_working_set_bytes",
        "[STABLE] Current working set of the pod in bytes",
        &of_pod,
    )?;
    for pod in pods {
        for container in &pod.usage.containers {
            let labels = [container.container.as_str(), pod.namespace, pod.name];
            container_cpu
                .with_label_values(&labels)
                .inc_by(container.processes.cpu_ns as f64 / NANOS);
            container_memory
                .with_label_values(&labels)
                .set(container.processes.memory_bytes as f64);
        }
        let labels = [pod.namespace, pod.name];
        pod_cpu.with_label_values(&labels).inc_by(pod.usage.processes.cpu_ns as f64 / NANOS);
        pod_memory.with_label_values(&labels).set(pod.usage.processes.memory_bytes as f64);
    }
    let registry = Registry::new();
    registry.register(Box::new(container_cpu))?;
    registry.register(Box::new(container_memory))?;
    registry.register(Box::new(pod_cpu))?;
    registry.register(Box::new(pod_memory))?;
    Ok(registry.gather())
}
