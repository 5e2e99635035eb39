//! Numbers of the server and of its pods, under a kubelet's names.

mod probes;
mod volumes;

use headwater_edged::NodePods;
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::RunState;
use http::{Method, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

pub(crate) use self::probes::of_probes;
use self::volumes::of_volumes;
use crate::response::{Body, of_type, text, whole};
use crate::usage::VolumesByPod;

/// The media type of the text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerMetrics {
    registry: Registry,
    requests: IntCounterVec,
    in_flight: IntGaugeVec,
}

/// A request in flight.
pub(crate) struct InFlight<'a> {
    metrics: &'a ServerMetrics,
    labels: [&'a str; 2],
}

impl ServerMetrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let labels = ["method", "path"];
        let requests = IntCounterVec::new(
            Opts::new("kubelet_http_requests_total", "Number of the http requests received."),
            &labels,
        )
        .expect("a name and labels");
        let in_flight = IntGaugeVec::new(
            Opts::new("kubelet_http_inflight_requests", "Number of the inflight http requests."),
            &labels,
        )
        .expect("a name and labels");
        registry.register(Box::new(requests.clone())).expect("a name of its own");
        registry.register(Box::new(in_flight.clone())).expect("a name of its own");
        Self { registry, requests, in_flight }
    }

    /// Counts a request, until the value is dropped.
    pub(crate) fn begin<'a>(&'a self, method: &Method, path: &'a str) -> InFlight<'a> {
        // A client may send any word as a method.
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            _ => "other",
        };
        let labels = [method, path];
        self.requests.with_label_values(&labels).inc();
        self.in_flight.with_label_values(&labels).inc();
        InFlight { metrics: self, labels }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.with_label_values(&self.labels).dec();
    }
}

/// `/metrics`.
pub(crate) fn answer(
    metrics: &ServerMetrics,
    pods: &NodePods,
    listed: &[Pod],
    volumes: &VolumesByPod,
) -> Response<Body> {
    let gathered = of_pods(pods, listed).and_then(|registry| {
        let mut families = metrics.registry.gather();
        families.extend(registry.gather());
        families.extend(of_volumes(listed, volumes)?);
        Ok(families)
    });
    response(gathered)
}

/// Metrics in the text format.
pub(crate) fn response(gathered: prometheus::Result<Vec<MetricFamily>>) -> Response<Body> {
    match gathered.and_then(|families| TextEncoder::new().encode_to_string(&families)) {
        Ok(text) => of_type(StatusCode::OK, TEXT_FORMAT, whole(text)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn of_pods(pods: &NodePods, listed: &[Pod]) -> prometheus::Result<Registry> {
    let (mut running, mut exited, mut sandboxes) = (0_u32, 0_u32, 0_u32);
    for uid in listed.iter().filter_map(|pod| pod.metadata.uid.clone()) {
        let Ok(uid) = PodUid::try_from(uid) else { continue };
        let (before, state) = (running, pods.runtime().pod(&uid));
        for history in state.containers.values() {
            match history.state {
                RunState::Running { .. } => running += 1,
                RunState::EndPending { .. } | RunState::Exited(_) => exited += 1,
            }
        }
        sandboxes += u32::from(running > before);
    }
    let registry = Registry::new();
    let name = GaugeVec::new(
        Opts::new("kubelet_node_name", "The node's name. The count is always 1."),
        &["node"],
    )?;
    name.with_label_values(&[pods.node().as_str()]).set(1.0);
    registry.register(Box::new(name))?;
    let containers = GaugeVec::new(
        Opts::new("kubelet_running_containers", "Number of containers currently running"),
        &["container_state"],
    )?;
    containers.with_label_values(&["running"]).set(running.into());
    containers.with_label_values(&["exited"]).set(exited.into());
    registry.register(Box::new(containers))?;
    let of_running =
        Gauge::new("kubelet_running_pods", "Number of pods that have a running pod sandbox")?;
    of_running.set(sandboxes.into());
    registry.register(Box::new(of_running))?;
    Ok(registry)
}
