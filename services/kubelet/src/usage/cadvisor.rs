//! `/metrics/cadvisor`: usage under the names of cAdvisor, as far as the runtime measures it.
//!
//! A line without a container is about the whole pod, as cAdvisor's lines of a pod's cgroup are. There is no `id` and
//! no `name`: they depend on the runtime, and no usual query needs them.

use headwater_edged::NodePods;
use headwater_edged::pod::every_container;
use headwater_edged::runtime::{DiskUsage, ProcessUsage, RuntimeError};
use http::Response;
use k8s_openapi::api::core::v1::Pod;
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts, Registry};

use super::{NANOS, PodNumbers, measured};
use crate::metrics::response;
use crate::response::Body;

const LABELS: [&str; 4] = ["container", "image", "namespace", "pod"];

/// `/metrics/cadvisor`.
///
/// # Errors
/// The runtime measures nothing, or cannot now.
pub(crate) async fn cadvisor(
    pods: &NodePods,
    listed: &[Pod],
) -> Result<Response<Body>, RuntimeError> {
    Ok(response(families(&measured(pods, listed).await?)))
}

/// The metrics, by what cAdvisor calls them.
struct ContainerMetrics {
    cpu: CounterVec,
    memory_usage: GaugeVec,
    memory_working_set: GaugeVec,
    memory_rss: GaugeVec,
    threads: GaugeVec,
    disk_usage: GaugeVec,
    start_time: GaugeVec,
}

fn families(measured: &[PodNumbers<'_>]) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let metrics = ContainerMetrics::new(&registry)?;
    for pod in measured {
        let labels = ["", "", pod.namespace, pod.name];
        metrics.set_processes(&labels, &pod.usage.processes);
        for container in &pod.usage.containers {
            let name = container.container.as_str();
            let spec = every_container(pod.pod).find(|spec| spec.name == name);
            let image = spec.and_then(|spec| spec.image.clone()).unwrap_or_default();
            let labels = [name, image.as_str(), pod.namespace, pod.name];
            metrics.set_processes(&labels, &container.processes);
            if let Some(disk) = container.disk {
                metrics.set_disk(&labels, disk);
            }
            if let Some(started) = pod.started.get(name) {
                let seconds = started.as_duration().as_secs_f64();
                metrics.start_time.with_label_values(&labels).set(seconds);
            }
        }
    }
    Ok(registry.gather())
}

impl ContainerMetrics {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| -> prometheus::Result<GaugeVec> {
            let gauge = GaugeVec::new(Opts::new(name, help), &LABELS)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let cpu = CounterVec::new(
            Opts::new(
                "container_cpu_usage_seconds_total",
                "Cumulative cpu time consumed in seconds.",
            )
            .const_label("cpu", "total"),
            &LABELS,
        )?;
        registry.register(Box::new(cpu.clone()))?;
        Ok(Self {
            cpu,
            memory_usage: gauge(
                "container_memory_usage_bytes",
                "Current memory usage in bytes, including all memory regardless of when it was accessed",
            )?,
            memory_working_set: gauge(
                "container_memory_working_set_bytes",
                "Current working set in bytes.",
            )?,
            memory_rss: gauge("container_memory_rss", "Size of RSS in bytes.")?,
            threads: gauge("container_threads", "Number of threads running inside the container")?,
            disk_usage: gauge(
                "container_fs_usage_bytes",
                "Number of bytes that are consumed by the container on this filesystem.",
            )?,
            start_time: gauge(
                "container_start_time_seconds",
                "Start time of the container since unix epoch in seconds.",
            )?,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "the text format has floats")]
    fn set_processes(&self, labels: &[&str], processes: &ProcessUsage) {
        self.cpu.with_label_values(labels).inc_by(processes.cpu_ns as f64 / NANOS);
        for (gauge, value) in [
            (&self.memory_usage, processes.memory_used_bytes),
            (&self.memory_working_set, processes.memory_bytes),
            (&self.memory_rss, processes.memory_anonymous_bytes),
            (&self.threads, processes.count),
        ] {
            gauge.with_label_values(labels).set(value as f64);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the text format has floats")]
    fn set_disk(&self, labels: &[&str], disk: DiskUsage) {
        self.disk_usage.with_label_values(labels).set(disk.bytes as f64);
    }
}
