//! The metrics of pod workers. Several may share a process, so each family has a label `node`. The
//! handles of one node are bound once.

use std::sync::Arc;
use std::time::Duration;

use headwater_event::NodeName;
use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

use crate::collection::RemovalReason;
use crate::eviction::EVICTION_SIGNALS;

/// Bounds of durations, in seconds: from a quick start to a minute on a slow disk.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The phases of a pod, as Kubernetes names them.
const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];

/// The index of a phase that is none of these.
const UNKNOWN: usize = PHASES.len() - 1;

/// The kinds of errors of a runtime.
const RUNTIME_ERRORS: [&str; 8] =
    ["file", "start", "exec", "not_running", "signal", "volume", "sandbox", "unsupported"];

const ACTIONS: [(RuntimeAction, &str); 7] = [
    (RuntimeAction::Start, "start"),
    (RuntimeAction::Stop, "signal"),
    (RuntimeAction::Resize, "resize"),
    (RuntimeAction::WriteVolumes, "lay_out"),
    (RuntimeAction::CleanUp, "clean_up"),
    (RuntimeAction::Open, "open"),
    (RuntimeAction::Close, "close"),
];

const REPORTS: [(ReportOutcome, &str); 3] = [
    (ReportOutcome::Accepted, "taken"),
    (ReportOutcome::Postponed, "later"),
    (ReportOutcome::Refused, "refused"),
];

/// As in a kubelet's `image_garbage_collected_total`.
const REMOVALS: [(RemovalReason, &str); 2] =
    [(RemovalReason::Age, "age"), (RemovalReason::Space, "space")];

/// The families of all pod workers of a process.
#[derive(Clone, Debug)]
pub struct EdgedMetrics {
    pods: IntGaugeVec,
    starts: IntCounterVec,
    restarts: IntCounterVec,
    action_seconds: HistogramVec,
    runtime_errors: IntCounterVec,
    reports: IntCounterVec,
    probe_failures: IntCounterVec,
    images_collected: IntCounterVec,
    image_collections_failed: IntCounterVec,
    evictions: IntCounterVec,
}

/// The counters of one pod worker. Without a registry they count nothing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EdgedCounts(Option<Arc<Handles>>);

/// A request to a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeAction {
    /// Start a container.
    Start,
    /// Ask a container to end, or kill it.
    Stop,
    /// Change the resources of a pod that runs.
    Resize,
    /// Write volumes.
    WriteVolumes,
    /// Remove everything of a pod.
    CleanUp,
    /// Open a sandbox.
    Open,
    /// Close a sandbox.
    Close,
}

/// The edge's response to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportOutcome {
    /// The edge accepted it.
    Accepted,
    /// The edge could not accept it now.
    Postponed,
    /// The edge refused it.
    Refused,
}

/// One pod, counted under its phase until dropped.
#[derive(Debug)]
pub(crate) struct PodCount {
    counts: EdgedCounts,
    phase: usize,
}

#[derive(Debug)]
struct Handles {
    pods: [IntGauge; PHASES.len()],
    starts: IntCounter,
    restarts: IntCounter,
    action_seconds: [Histogram; ACTIONS.len()],
    runtime_errors: [IntCounter; RUNTIME_ERRORS.len()],
    reports: [IntCounter; REPORTS.len()],
    probe_failures: IntCounter,
    images_collected: [IntCounter; REMOVALS.len()],
    image_collections_failed: IntCounter,
    evictions: [IntCounter; EVICTION_SIGNALS.len()],
}

impl EdgedMetrics {
    /// Registers the families.
    ///
    /// # Errors
    /// A family is already registered.
    pub fn new(registry: &Registry) -> Result<Self, Error> {
        let to = |collector: Box<dyn Collector>| registry.register(collector);
        let counter = |name, help, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            to(Box::new(counter.clone())).map(|()| counter)
        };
        let pods = Opts::new("headwater_edged_pods", "Pods that have a worker, by phase.");
        let pods = IntGaugeVec::new(pods, &["node", "phase"])?;
        to(Box::new(pods.clone()))?;
        let action_seconds = HistogramOpts::new(
            "headwater_edged_act_duration_seconds",
            "The time that the runtime took for a request.",
        );
        let action_seconds =
            HistogramVec::new(action_seconds.buckets(SECONDS.to_vec()), &["node", "action"])?;
        to(Box::new(action_seconds.clone()))?;
        Ok(Self {
            pods,
            action_seconds,
            starts: counter(
                "headwater_edged_container_starts_total",
                "Starts of containers, the first and later ones.",
                &["node"],
            )?,
            restarts: counter(
                "headwater_edged_container_restarts_total",
                "Starts of containers after the first.",
                &["node"],
            )?,
            runtime_errors: counter(
                "headwater_edged_runtime_errors_total",
                "Requests that the runtime could not fulfil, by kind of error.",
                &["node", "kind"],
            )?,
            reports: counter(
                "headwater_edged_reports_total",
                "Statuses and deletes sent to the edge, by its response.",
                &["node", "outcome"],
            )?,
            probe_failures: counter(
                "headwater_edged_probe_failures_total",
                "Verdicts of probes that a container is unhealthy.",
                &["node"],
            )?,
            images_collected: counter(
                "headwater_edged_images_collected_total",
                "Images that were removed for their age or for the space on their disk.",
                &["node", "reason"],
            )?,
            image_collections_failed: counter(
                "headwater_edged_image_collections_failed_total",
                "Collections of images that failed, or did not free enough space.",
                &["node"],
            )?,
            evictions: counter(
                "headwater_edged_evictions_total",
                "Pods that were evicted, by what the node lacked, or by the limit that they exceeded.",
                &["node", "signal"],
            )?,
        })
    }

    /// The counters of the pod worker of `node`.
    pub fn of(&self, node: &NodeName) -> EdgedCounts {
        let node = node.as_str();
        EdgedCounts(Some(Arc::new(Handles {
            pods: PHASES.map(|phase| self.pods.with_label_values(&[node, phase])),
            starts: self.starts.with_label_values(&[node]),
            restarts: self.restarts.with_label_values(&[node]),
            action_seconds: ACTIONS
                .map(|(_, action)| self.action_seconds.with_label_values(&[node, action])),
            runtime_errors: RUNTIME_ERRORS
                .map(|kind| self.runtime_errors.with_label_values(&[node, kind])),
            reports: REPORTS.map(|(_, of)| self.reports.with_label_values(&[node, of])),
            probe_failures: self.probe_failures.with_label_values(&[node]),
            images_collected: REMOVALS
                .map(|(_, reason)| self.images_collected.with_label_values(&[node, reason])),
            image_collections_failed: self.image_collections_failed.with_label_values(&[node]),
            evictions: EVICTION_SIGNALS
                .map(|signal| self.evictions.with_label_values(&[node, signal])),
        })))
    }
}

impl EdgedCounts {
    /// Counts a pod that has a worker, until the result is dropped.
    pub(crate) fn pod(&self) -> PodCount {
        let pod = PodCount { counts: self.clone(), phase: UNKNOWN };
        pod.add(1);
        pod
    }

    /// Counts a start of a container.
    pub(crate) fn started(&self, is_restart: bool) {
        if let Some(handles) = &self.0 {
            handles.starts.inc();
            handles.restarts.inc_by(is_restart.into());
        }
    }

    /// Counts a request to the runtime, and its error by kind.
    pub(crate) fn acted(&self, action: RuntimeAction, took: Duration, error: Option<&'static str>) {
        let Some(handles) = &self.0 else { return };
        let seconds =
            ACTIONS.iter().zip(&handles.action_seconds).find(|((of, _), _)| *of == action);
        if let Some((_, seconds)) = seconds {
            seconds.observe(took.as_secs_f64());
        }
        let errors = RUNTIME_ERRORS.iter().zip(&handles.runtime_errors);
        for (_, errors) in errors.filter(|(of, _)| Some(**of) == error) {
            errors.inc();
        }
    }

    /// Counts a report to the edge.
    pub(crate) fn reported(&self, outcome: ReportOutcome) {
        let Some(handles) = &self.0 else { return };
        if let Some((_, reports)) =
            REPORTS.iter().zip(&handles.reports).find(|((of, _), _)| *of == outcome)
        {
            reports.inc();
        }
    }

    /// Counts an image that was removed.
    pub(crate) fn image_collected(&self, reason: RemovalReason) {
        let Some(handles) = &self.0 else { return };
        let mut counters = REMOVALS.iter().zip(&handles.images_collected);
        if let Some((_, counter)) = counters.find(|((of, _), _)| *of == reason) {
            counter.inc();
        }
    }

    /// Counts a collection of images that failed.
    pub(crate) fn image_collection_failed(&self) {
        if let Some(handles) = &self.0 {
            handles.image_collections_failed.inc();
        }
    }

    /// Counts a pod that is evicted.
    pub(crate) fn evicted(&self, signal: &str) {
        let Some(handles) = &self.0 else { return };
        let mut counters = EVICTION_SIGNALS.iter().zip(&handles.evictions);
        if let Some((_, counter)) = counters.find(|(name, _)| **name == signal) {
            counter.inc();
        }
    }

    /// Counts a verdict that a container is unhealthy.
    pub(crate) fn probe_failed(&self) {
        if let Some(handles) = &self.0 {
            handles.probe_failures.inc();
        }
    }
}

impl PodCount {
    /// Counts the pod under this phase.
    pub(crate) fn phase(&mut self, phase: Option<&str>) {
        let phase = phase.and_then(|phase| PHASES.iter().position(|known| *known == phase));
        self.add(-1);
        self.phase = phase.unwrap_or(UNKNOWN);
        self.add(1);
    }

    fn add(&self, pods: i64) {
        if let Some(handles) = &self.counts.0 {
            handles.pods[self.phase].add(pods);
        }
    }
}

impl Drop for PodCount {
    fn drop(&mut self) {
        self.add(-1);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::node::signal::Signal;
    use crate::runtime::RuntimeError;

    fn counted() -> (Registry, EdgedCounts) {
        let registry = Registry::new();
        let metrics = EdgedMetrics::new(&registry).expect("names");
        let node = NodeName::try_from("gw".to_owned()).expect("a name");
        (registry, metrics.of(&node))
    }

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
    }

    #[test]
    fn a_pod_is_counted_under_one_phase_until_it_is_gone() {
        let (registry, counts) = counted();
        let shows = |phase: &str, count: u8| {
            let line = format!("headwater_edged_pods{{node=\"gw\",phase=\"{phase}\"}} {count}\n");
            assert!(text(&registry).contains(&line), "{line} in {}", text(&registry));
        };
        let mut pod = counts.pod();
        shows("Unknown", 1);
        pod.phase(Some("Running"));
        shows("Unknown", 0);
        shows("Running", 1);
        pod.phase(Some("of the moon"));
        shows("Running", 0);
        shows("Unknown", 1);
        drop(pod);
        shows("Unknown", 0);
    }

    #[test]
    fn every_kind_of_error_is_counted_under_a_name_of_the_list() {
        let (registry, counts) = counted();
        let error = RuntimeError::NotRunning { container: "c".to_owned() };
        counts.acted(RuntimeAction::Stop, Duration::from_millis(3), Some(error.kind()));
        let text = text(&registry);
        let line = "headwater_edged_runtime_errors_total{kind=\"not_running\",node=\"gw\"} 1\n";
        assert!(text.contains(line), "{text}");
        let line = "headwater_edged_act_duration_seconds_count{action=\"signal\",node=\"gw\"} 1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn an_eviction_is_counted_under_what_it_is_for() {
        let (registry, counts) = counted();
        let signals = [
            Signal::Memory,
            Signal::PodsMemory,
            Signal::DiskBytes,
            Signal::DiskFiles,
            Signal::ImageBytes,
            Signal::ImageFiles,
            Signal::Pids,
        ];
        let limits = EVICTION_SIGNALS.into_iter().filter(|name| name.ends_with("fs.limit"));
        for name in signals.into_iter().map(Signal::name).chain(limits) {
            counts.evicted(name);
            let text = text(&registry);
            let line =
                format!("headwater_edged_evictions_total{{node=\"gw\",signal=\"{name}\"}} 1\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn without_a_registry_nothing_is_counted() {
        let counts = EdgedCounts::default();
        let mut pod = counts.pod();
        pod.phase(Some("Running"));
        counts.started(true);
    }
}
