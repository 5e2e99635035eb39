//! What a pod worker counts. Several may share a process, so each family has a label `node`; the
//! handles of one node are bound once.

use std::sync::Arc;
use std::time::Duration;

use headwater_event::NodeName;
use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

use crate::runtime::RuntimeError;

/// Bounds of durations, in seconds: from a quick start to a minute of a disk that is slow.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The phases a pod has, as Kubernetes names them.
const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];

/// Where a phase stands that is none of these.
const UNKNOWN: usize = PHASES.len() - 1;

/// The kinds of errors of a runtime.
const RUNTIME_ERRORS: [&str; 6] = ["file", "start", "exec", "not_running", "signal", "volume"];

const ACTS: [(RuntimeAction, &str); 4] = [
    (RuntimeAction::Start, "start"),
    (RuntimeAction::Signal, "signal"),
    (RuntimeAction::LayOut, "lay_out"),
    (RuntimeAction::CleanUp, "clean_up"),
];

const REPORTS: [(ReportOutcome, &str); 3] = [
    (ReportOutcome::Accepted, "taken"),
    (ReportOutcome::Postponed, "later"),
    (ReportOutcome::Refused, "refused"),
];

/// The families of all pod workers of a process.
#[derive(Clone, Debug)]
pub struct EdgedMetrics {
    pods: IntGaugeVec,
    starts: IntCounterVec,
    restarts: IntCounterVec,
    act_seconds: HistogramVec,
    runtime_errors: IntCounterVec,
    reports: IntCounterVec,
    probe_failures: IntCounterVec,
}

/// What one pod worker counts; without a registry, nothing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EdgedCounts(Option<Arc<Handles>>);

/// What a pod worker does to a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeAction {
    /// Starts a container.
    Start,
    /// Asks one to end, or ends it.
    Signal,
    /// Lays out volumes.
    LayOut,
    /// Removes what is left of a pod.
    CleanUp,
}

/// What became of something told to the edge.
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
    act_seconds: [Histogram; ACTS.len()],
    runtime_errors: [IntCounter; RUNTIME_ERRORS.len()],
    reports: [IntCounter; REPORTS.len()],
    probe_failures: IntCounter,
}

impl EdgedMetrics {
    /// Registers the families.
    ///
    /// # Errors
    /// When one is registered already.
    pub fn new(registry: &Registry) -> Result<Self, Error> {
        let to = |collector: Box<dyn Collector>| registry.register(collector);
        let counter = |name, help, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            to(Box::new(counter.clone())).map(|()| counter)
        };
        let pods = Opts::new("headwater_edged_pods", "Pods that have a worker, by phase.");
        let pods = IntGaugeVec::new(pods, &["node", "phase"])?;
        to(Box::new(pods.clone()))?;
        let act_seconds = HistogramOpts::new(
            "headwater_edged_act_duration_seconds",
            "How long the runtime took to do what it was asked.",
        );
        let act_seconds =
            HistogramVec::new(act_seconds.buckets(SECONDS.to_vec()), &["node", "action"])?;
        to(Box::new(act_seconds.clone()))?;
        Ok(Self {
            pods,
            act_seconds,
            starts: counter(
                "headwater_edged_container_starts_total",
                "Containers that were started, again or for the first time.",
                &["node"],
            )?,
            restarts: counter(
                "headwater_edged_container_restarts_total",
                "Containers that were started again.",
                &["node"],
            )?,
            runtime_errors: counter(
                "headwater_edged_runtime_errors_total",
                "What the runtime could not do, by kind.",
                &["node", "kind"],
            )?,
            reports: counter(
                "headwater_edged_reports_total",
                "Statuses and deletes told to the edge, by what became of them.",
                &["node", "outcome"],
            )?,
            probe_failures: counter(
                "headwater_edged_probe_failures_total",
                "Verdicts of probes that a container is not well.",
                &["node"],
            )?,
        })
    }

    /// What the pod worker of `node` counts.
    pub fn of(&self, node: &NodeName) -> EdgedCounts {
        let node = node.as_str();
        EdgedCounts(Some(Arc::new(Handles {
            pods: PHASES.map(|phase| self.pods.with_label_values(&[node, phase])),
            starts: self.starts.with_label_values(&[node]),
            restarts: self.restarts.with_label_values(&[node]),
            act_seconds: ACTS.map(|(_, act)| self.act_seconds.with_label_values(&[node, act])),
            runtime_errors: RUNTIME_ERRORS
                .map(|kind| self.runtime_errors.with_label_values(&[node, kind])),
            reports: REPORTS.map(|(_, of)| self.reports.with_label_values(&[node, of])),
            probe_failures: self.probe_failures.with_label_values(&[node]),
        })))
    }
}

impl EdgedCounts {
    /// A pod has a worker from now on.
    pub(crate) fn pod(&self) -> PodCount {
        let pod = PodCount { counts: self.clone(), phase: UNKNOWN };
        pod.add(1);
        pod
    }

    /// A container was started; `again` if it had run before.
    pub(crate) fn started(&self, again: bool) {
        if let Some(handles) = &self.0 {
            handles.starts.inc();
            handles.restarts.inc_by(again.into());
        }
    }

    /// The runtime was asked for something.
    pub(crate) fn acted(
        &self,
        act: RuntimeAction,
        took: Duration,
        result: &Result<(), RuntimeError>,
    ) {
        let Some(handles) = &self.0 else { return };
        let seconds = ACTS.iter().zip(&handles.act_seconds).find(|((of, _), _)| *of == act);
        if let Some((_, seconds)) = seconds {
            seconds.observe(took.as_secs_f64());
        }
        if let Err(error) = result {
            let kind = kind(error);
            let errors = RUNTIME_ERRORS.iter().zip(&handles.runtime_errors);
            for (_, errors) in errors.filter(|(of, _)| **of == kind) {
                errors.inc();
            }
        }
    }

    /// Something was told to the edge.
    pub(crate) fn reported(&self, what: ReportOutcome) {
        let Some(handles) = &self.0 else { return };
        if let Some((_, reports)) =
            REPORTS.iter().zip(&handles.reports).find(|((of, _), _)| *of == what)
        {
            reports.inc();
        }
    }

    /// A probe found a container not well.
    pub(crate) fn probe_failed(&self) {
        if let Some(handles) = &self.0 {
            handles.probe_failures.inc();
        }
    }
}

impl PodCount {
    /// The pod's phase is this now.
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

fn kind(error: &RuntimeError) -> &'static str {
    match error {
        RuntimeError::File { .. } => "file",
        RuntimeError::Start { .. } => "start",
        RuntimeError::Exec { .. } => "exec",
        RuntimeError::NotRunning { .. } => "not_running",
        RuntimeError::Signal { .. } => "signal",
        RuntimeError::Volume { .. } => "volume",
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

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
        let says = |phase: &str, count: u8| {
            let line = format!("headwater_edged_pods{{node=\"gw\",phase=\"{phase}\"}} {count}\n");
            assert!(text(&registry).contains(&line), "{line} in {}", text(&registry));
        };
        let mut pod = counts.pod();
        says("Unknown", 1);
        pod.phase(Some("Running"));
        says("Unknown", 0);
        says("Running", 1);
        pod.phase(Some("of the moon"));
        says("Running", 0);
        says("Unknown", 1);
        drop(pod);
        says("Unknown", 0);
    }

    #[test]
    fn every_kind_of_error_is_counted_under_a_name_of_the_list() {
        let (registry, counts) = counted();
        let error = RuntimeError::NotRunning { container: "c".to_owned() };
        counts.acted(RuntimeAction::Signal, Duration::from_millis(3), &Err(error));
        let text = text(&registry);
        let line = "headwater_edged_runtime_errors_total{kind=\"not_running\",node=\"gw\"} 1\n";
        assert!(text.contains(line), "{text}");
        let line = "headwater_edged_act_duration_seconds_count{action=\"signal\",node=\"gw\"} 1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn without_a_registry_nothing_is_counted() {
        let counts = EdgedCounts::default();
        let mut pod = counts.pod();
        pod.phase(Some("Running"));
        counts.started(true);
    }
}
