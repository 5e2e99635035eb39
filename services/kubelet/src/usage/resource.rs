//! `/metrics/resource`: CPU and memory of the node, its pods and their containers, for a metrics server.

use headwater_edged::NodePods;
use headwater_edged::runtime::RuntimeError;
use http::Response;
use k8s_openapi::api::core::v1::Pod;
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts, Registry};

use super::machine::{self, MachineUsage};
use super::{NANOS, PodNumbers, measured};
use crate::metrics::response;
use crate::response::Body;

const OF_CONTAINER: [&str; 3] = ["container", "namespace", "pod"];
const OF_POD: [&str; 2] = ["namespace", "pod"];

/// `/metrics/resource`.
///
/// # Errors
/// The runtime measures nothing, or cannot now.
pub(crate) async fn resource(
    pods: &NodePods,
    listed: &[Pod],
) -> Result<Response<Body>, RuntimeError> {
    let measured = measured(pods, listed).await?;
    Ok(response(families(machine::measure().ok().as_ref(), &measured)))
}

#[expect(clippy::cast_precision_loss, reason = "the text format has floats")]
fn families(
    machine: Option<&MachineUsage>,
    pods: &[PodNumbers<'_>],
) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let counter = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<CounterVec> {
        let counter = CounterVec::new(Opts::new(name, help), labels)?;
        registry.register(Box::new(counter.clone()))?;
        Ok(counter)
    };
    let gauge = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<GaugeVec> {
        let gauge = GaugeVec::new(Opts::new(name, help), labels)?;
        registry.register(Box::new(gauge.clone()))?;
        Ok(gauge)
    };
    let container_cpu = counter(
        "container_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        &OF_CONTAINER,
    )?;
    let container_memory = gauge(
        "container_memory_working_set_bytes",
        "[STABLE] Current working set of the container in bytes",
        &OF_CONTAINER,
    )?;
    let container_start = gauge(
        "container_start_time_seconds",
        "[STABLE] Start time of the container since unix epoch in seconds",
        &OF_CONTAINER,
    )?;
    let pod_cpu = counter(
        "pod_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        &OF_POD,
    )?;
    let pod_memory = gauge(
        "pod_memory_working_set_bytes",
        "[STABLE] Current working set of the pod in bytes",
        &OF_POD,
    )?;
    for pod in pods {
        for container in &pod.usage.containers {
            let labels = [container.container.as_str(), pod.namespace, pod.name];
            let processes = &container.processes;
            container_cpu.with_label_values(&labels).inc_by(processes.cpu_ns as f64 / NANOS);
            container_memory.with_label_values(&labels).set(processes.memory_bytes as f64);
            if let Some(started) = pod.started.get(&container.container) {
                let seconds = started.as_duration().as_secs_f64();
                container_start.with_label_values(&labels).set(seconds);
            }
        }
        let labels = [pod.namespace, pod.name];
        pod_cpu.with_label_values(&labels).inc_by(pod.usage.processes.cpu_ns as f64 / NANOS);
        pod_memory.with_label_values(&labels).set(pod.usage.processes.memory_bytes as f64);
    }
    let failed = gauge(
        "resource_scrape_error",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        &[],
    )?;
    failed.with_label_values::<&str>(&[]).set(f64::from(u8::from(machine.is_none())));
    if let Some(machine) = machine {
        let cpu = counter(
            "node_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
            &[],
        )?;
        let memory = gauge(
            "node_memory_working_set_bytes",
            "[STABLE] Current working set of the node in bytes",
            &[],
        )?;
        cpu.with_label_values::<&str>(&[]).inc_by(machine.processes.cpu_ns as f64 / NANOS);
        memory.with_label_values::<&str>(&[]).set(machine.processes.memory_bytes as f64);
    }
    Ok(registry.gather())
}
