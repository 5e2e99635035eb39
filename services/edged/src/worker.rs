//! One task per pod: it observes, plans, executes, reports, and waits for the next reason to do so.
//!
//! ```text
//!   assignment, signal or time --> observe --> plan --> report --> execute --+
//!                ^                   ^                                       |
//!                |                   +------- something changed -------------+
//!                +----------------------------- nothing is left to do -------+
//! ```
//!
//! | module | job |
//! |---|---|
//! | `observation` | the facts of the pod, from spec, objects and runtime |
//! | [`plan`] | the next steps (pure) |
//! | `report`, `status` | the pod's status (pure), and its report |
//! | `executor`, `pull` | the steps, carried out |
//! | `active_time` | how long the pod has been active, by what the clocks say (pure) |
//! | `places` | the places of pods that are started or taken down at the same time |
//! | `container_tracker`, `image_tracker`, `token_tracker`, `crash_loop`, `setup_failure` | facts that the runtime does not know |
//! | `restart` | the restart of all containers of the pod |
//! | `ending` | how the pod ends, for a pod worker without its object |
//! | `former_runs` | the ends of its containers in a runtime that the node had before |
//! | `resizing` | the resources of its running containers, and the changes of them |
//! | `devices` | the devices of the pod |
//! | `token_requests` | requests for the tokens of its volumes |
//! | `driver_mounts` | its volumes that storage drivers publish |
//! | `go_duration` | durations in messages |
//! | `warnings` | equal warnings, counted |
//! | `probe`, `handler`, `signal` | probes and hooks, and the signals that they send |
//! | `probe_failure`, `probe_totals` | the failures of probes in a status, the results of probes |
//! | `http_get`, `unverified_tls` | their HTTP requests |
//! | `dependencies` | the dependencies and the assignments of a worker |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::container::WaitReason;
use crate::container::volume::Volume;
use crate::desired::compressed_object::CompressedObject;
use crate::event::Severity;
use crate::metrics::PodCount;
use crate::pod::{self, PodRecord};

mod active_time;
mod container_tracker;
mod crash_loop;
mod dependencies;
mod devices;
mod driver_mounts;
mod ending;
mod executor;
mod former_runs;
mod go_duration;
mod handler;
mod http_get;
mod image_tracker;
mod observation;
mod places;
pub mod plan;
mod probe;
mod probe_failure;
mod probe_totals;
mod pull;
mod report;
mod resizing;
mod restart;
mod setup_failure;
mod signal;
pub(crate) mod status;
mod token_requests;
mod token_tracker;
mod unverified_tls;
mod warnings;

use active_time::{ActiveTime, Clocks};
use container_tracker::ContainerTracker;
pub(crate) use crash_loop::CrashRecord;
pub(crate) use dependencies::{AdmissionFailure, Assignment, PendingResize, WorkerDependencies};
use devices::DeviceState;
use driver_mounts::DriverMounts;
pub(crate) use former_runs::{FormerRuns, ends_that_count, has_pending_end};
use image_tracker::ImageTracker;
use observation::LaunchError;
pub(crate) use places::Places;
use plan::{Action, FailReason, Fate, Outcome};
use probe_totals::PodProbeTotals;
pub use probe_totals::ProbeTotal;
pub(crate) use probe_totals::ProbeTotals;
use resizing::Resizing;
use setup_failure::SetupFailure;
use signal::ProbeFinding;
pub(crate) use signal::{SIGNALS_MAX, Signal, Signals};
use token_tracker::TokenTracker;
use warnings::Warnings;

/// The worker of one pod.
pub(crate) struct Worker {
    record: PodRecord,
    shared: Arc<WorkerDependencies>,
    assignments: watch::Receiver<Assignment>,
    assignment: Assignment,
    signals: Signals,
    inbox: mpsc::Receiver<Box<Signal>>,
    /// Boxed: a map has room for eleven, and most pods have one container.
    containers: BTreeMap<String, Box<ContainerTracker>>,
    /// The waits of failing containers, as the pod worker's files have them.
    waits: BTreeMap<String, CrashRecord>,
    /// The latest run of each container from before the last restart of all containers. `None`: it is not read yet.
    restart: Option<BTreeMap<String, u32>>,
    /// The ends in a former runtime by which the pod had ended; empty if it had not. `None`: they are not read yet.
    former: Option<FormerRuns>,
    /// The pod worker's files have no ends in a former runtime.
    has_no_former: bool,
    /// The images of containers, if the runtime has images.
    images: Option<Box<ImageTracker>>,
    /// The tokens that its volumes name, if there are any and the runtime has files for them.
    tokens: Option<Box<TokenTracker>>,
    /// How the pod ends is on the disk.
    has_ending: bool,
    /// What storage drivers have published, if the pod has volumes of drivers.
    mounts: Option<Box<DriverMounts>>,
    /// The content of the volumes, from the last time when all of it was available.
    volumes: Vec<Volume>,
    /// Whether the volumes have this content.
    volumes_written: bool,
    /// What is missing for the content of the volumes.
    missing: Option<WaitReason>,
    /// Containers that cannot be launched, and why, as far as this is known before a launch.
    refused: BTreeMap<String, WaitReason>,
    /// Containers whose last launch was refused. Environments are large, and expanded only when a
    /// container starts.
    launch_errors: BTreeMap<String, LaunchError>,
    /// Why volumes or sandbox could not be set up.
    setup: Option<Box<SetupFailure>>,
    warnings: Warnings,
    /// The time at which a step that failed is tried again.
    retry_at: Option<Instant>,
    end_since: Option<Instant>,
    /// How long the pod has been active.
    active: ActiveTime,
    ended: Option<Outcome>,
    /// The changes of its resources.
    resizing: Resizing,
    /// Why the pod fails although its containers did not, and the time by which they end.
    failing: Option<(FailReason, Instant)>,
    /// Why the pod failed although its containers did not.
    fail_reason: Option<FailReason>,
    /// The words with which the node did not admit the pod.
    rejection: Option<Arc<str>>,
    /// The pod has the processors that it requests for itself.
    has_cpus: bool,
    devices: DeviceState,
    /// The reported status is final: what it was derived from is gone.
    is_final: bool,
    /// Nothing of the pod is on the machine any more but its record.
    is_discarded: bool,
    /// The waits between attempts to take the pod down, once one failed.
    take_down: Option<Box<Backoff>>,
    /// The latest status, perhaps from an earlier worker of this pod.
    reported: Option<CompressedObject<PodStatus>>,
    /// Whether this worker has reported it.
    has_reported: bool,
    /// The trace context of the pod's last change, or of the last step that followed from it.
    trace: Option<String>,
    count: PodCount,
    probes: PodProbeTotals,
    /// Shared with the supervisor: the pod has ended, and leaves its room to others.
    has_ended: Arc<AtomicBool>,
}

/// Why a worker works.
enum Wake {
    /// The assignment is new.
    Assignment,
    /// A signal arrived.
    Signal(Box<Signal>),
    /// The time of the next plan has come.
    Time,
}

impl Worker {
    pub(crate) fn new(
        record: PodRecord,
        shared: Arc<WorkerDependencies>,
        mut assignments: watch::Receiver<Assignment>,
        signals: Signals,
        inbox: mpsc::Receiver<Box<Signal>>,
        has_ended: Arc<AtomicBool>,
    ) -> Self {
        let assignment = assignments.borrow_and_update().clone();
        let status = shared.store.status(&record.uid);
        // Whatever the runtime has of its containers by now, the pod has ended: a terminal phase is never left.
        let reported_end = status.as_ref().and_then(status::outcome);
        // An earlier worker may have removed the containers from which it was derived, all or some.
        let is_final = status.as_ref().is_some_and(status::is_last);
        let reported = status.as_ref().and_then(|status| CompressedObject::encode(status).ok());
        let reported_start = status.as_ref().and_then(|status| status.start_time.as_ref());
        // The record may have been recovered since.
        let seen_at = reported_start.map_or(record.seen_at, |start| start.0.min(record.seen_at));
        let record = PodRecord { seen_at, ..record };
        let active = ActiveTime::begin(&record, &Clocks::read());
        let (trace, count) = (assignment.trace.clone(), shared.metrics.pod());
        let probes = shared.probes.pod(&record.uid);
        let failure = assignment.failure.clone();
        let images = shared.runtime.images().is_some();
        let images = images.then(|| Box::new(ImageTracker::new(&shared.settings)));
        Self {
            record,
            shared,
            assignments,
            assignment,
            signals,
            inbox,
            containers: BTreeMap::new(),
            waits: BTreeMap::new(),
            restart: None,
            former: None,
            has_no_former: false,
            has_ending: false,
            images,
            tokens: None,
            mounts: None,
            volumes: Vec::new(),
            volumes_written: false,
            missing: None,
            refused: BTreeMap::new(),
            launch_errors: BTreeMap::new(),
            setup: None,
            warnings: Warnings::default(),
            retry_at: None,
            end_since: None,
            active,
            // A pod that is not admitted has failed before anything of it runs.
            ended: failure.as_ref().map(|_| Outcome::Failed).or(reported_end),
            resizing: Resizing::of_status(status.as_ref()),
            failing: None,
            fail_reason: failure.as_ref().map(|failure| failure.reason),
            rejection: failure.map(|failure| failure.message),
            reported,
            has_cpus: false,
            devices: DeviceState::default(),
            is_final,
            is_discarded: false,
            take_down: None,
            has_reported: false,
            trace,
            count,
            probes,
            has_ended,
        }
    }

    /// Works until the pod is forgotten, or the worker is cancelled.
    ///
    /// It borrows the worker: a future has room twice for a value that it owns.
    pub(crate) async fn run(&mut self) {
        // A worker waits most of the time. Its work is boxed, and takes no memory while it waits.
        let mut wake = Wake::Assignment;
        while let Some(wake_at) = Box::pin(self.work(wake)).await {
            wake = tokio::select! {
                () = self.shared.cancel.cancelled() => return,
                changed = self.assignments.changed() => match changed {
                    Ok(()) => Wake::Assignment,
                    Err(_) => return,
                },
                Some(signal) = self.inbox.recv() => Wake::Signal(signal),
                () = tokio::time::sleep_until(wake_at) => Wake::Time,
            };
        }
    }

    /// Works until nothing is left to do. Returns the time of the next plan; `None` once the pod is
    /// forgotten.
    async fn work(&mut self, wake: Wake) -> Option<Instant> {
        let pod = self.receive(wake);
        let mut has_opened = false;
        loop {
            let state = self.observe(&pod).await;
            self.assign_cpus(&pod).await;
            self.assign_devices(&pod).await;
            let now = Instant::now();
            let fate = self.fate(&pod, &state, now);
            if fate == Fate::Run {
                self.keep_record().await;
                self.keep_ending(&pod).await;
                self.request_tokens(now);
                self.publish_volumes();
                self.write_volumes().await;
            }
            let plan = self.plan(&pod, &state, fate, now);
            self.has_ended.store(self.ended.is_some(), Ordering::Relaxed);
            // The containers that start in a sandbox that was opened just now are reported with it: pods that start together make
            // an edge busy.
            let is_half = has_opened && fate == Fate::Run && plan.only_starts();
            if !is_half {
                self.report(&pod, &state, fate, &plan).await;
            }
            // A failure that was reported is over: that is reported at once.
            has_opened = plan.actions.contains(&Action::Open) && self.setup.is_none();
            self.retry_at = None;
            let mut has_changed = false;
            for action in &plan.actions {
                match self.execute(action, &pod, fate).await {
                    executor::StepOutcome::Changed => has_changed = true,
                    executor::StepOutcome::Waiting => {}
                    executor::StepOutcome::Finished => return None,
                }
            }
            if has_changed && !self.shared.cancel.is_cancelled() {
                continue;
            }
            if plan.actions.is_empty() {
                self.release_allocations().await;
                self.release_volumes().await;
                self.discard_evicted(fate).await;
            }
            let resync = now + self.shared.settings.resync;
            // A time in the past was not tried again: the pod is about to end, or has ended.
            let setup_at = self.setup.as_ref().map(|setup| setup.retry_at()).filter(|at| *at > now);
            let tokens_at = self.tokens.as_ref().and_then(|tokens| tokens.next_at());
            let tokens_at = tokens_at.filter(|at| *at > now);
            let active_for = self.active_for(&pod, now).filter(|_| fate == Fate::Run);
            // A pod whose time is over waits for the ends of its containers, of which the runtime sends a notice.
            let active_for = active_for.filter(|left| !left.is_zero());
            let active_until = active_for.and_then(|left| now.checked_add(left));
            let unpublish_at = self.next_unpublish().filter(|at| *at > now);
            let republish_at = self.next_republish().filter(|at| *at > now);
            let wake_at = [
                plan.wake_at,
                self.retry_at,
                setup_at,
                tokens_at,
                unpublish_at,
                republish_at,
                active_until,
            ];
            return Some(wake_at.into_iter().flatten().fold(resync, Instant::min));
        }
    }

    /// Applies the assignment or the signals that woke the worker, and returns the pod's object.
    fn receive(&mut self, wake: Wake) -> Pod {
        let mut before = None;
        if matches!(wake, Wake::Assignment) {
            let next = self.assignments.borrow_and_update().clone();
            let last = std::mem::replace(&mut self.assignment, next);
            if self.assignment.trace != last.trace {
                self.trace = self.assignment.trace.clone();
            }
            before = Some(last.pod).filter(|pod| !pod.same(&self.assignment.pod));
        }
        let pod = self.assignment.pod.decode();
        if let Some(before) = before {
            self.note_resize(&before, &pod);
        }
        match wake {
            Wake::Assignment => self.resolve(&pod),
            Wake::Signal(signal) => {
                self.apply(*signal, &pod);
                while let Ok(signal) = self.inbox.try_recv() {
                    self.apply(*signal, &pod);
                }
            }
            // The runtime may have what it lacked by now.
            Wake::Time if !self.refused.is_empty() => self.resolve(&pod),
            Wake::Time => {}
        }
        pod
    }

    fn apply(&mut self, signal: Signal, pod: &Pod) {
        let now = Instant::now();
        let grace = pod::grace(pod);
        let key = &self.record.key;
        match signal {
            Signal::Runtime => self.recheck_drivers(),
            Signal::Evict { reason, message, within, signal } => {
                // A pod of which nothing runs may have ended well. If it has not, the next measurement asks again.
                let may_have_ended = reason == FailReason::Evicted
                    && self.shared.runtime.pod(&self.record.uid).awaits_ends();
                if self.ended.is_none() && self.failing.is_none() && !may_have_ended {
                    if let Some(signal) = signal {
                        self.shared.metrics.evicted(signal);
                    }
                    self.rejection = Some(message.into());
                    self.failing = Some((reason, now + within.min(grace)));
                }
            }
            Signal::Probe { container, attempt, kind, finding } => {
                let spec = container_of(pod, &container);
                let own_grace = spec
                    .and_then(|c| kind.of(&c)?.termination_grace_period_seconds)
                    .and_then(pod::grace_of);
                if let ProbeFinding::Unhealthy(failure) = &finding {
                    let message = &failure.answer;
                    tracing::info!(pod = %key, container, ?kind, message, "a probe failed");
                    self.shared.metrics.probe_failed();
                }
                if let ProbeFinding::Unhealthy(failure) | ProbeFinding::StillFailing(failure) =
                    &finding
                {
                    let message = format!("{} probe failed: {}", kind.title(), failure.answer);
                    self.event(Some(&container), Severity::Warning, "Unhealthy", message);
                }
                if let Some(tracker) = self.containers.get_mut(&container) {
                    tracker.set_finding(attempt, kind, finding, now + own_grace.unwrap_or(grace));
                }
            }
            Signal::ProbeWarning { container, kind, message } => {
                let message = format!("{} probe warning: {message}", kind.title());
                self.event(Some(&container), Severity::Warning, "ProbeWarning", message);
            }
            Signal::PostStart { container, attempt, result } => {
                if let Err(message) = &result {
                    tracing::warn!(pod = %key, container, message, "a postStart hook failed");
                    let message = format!("PostStartHook failed: {message}");
                    self.event(Some(&container), Severity::Warning, "FailedPostStartHook", message);
                }
                if let Some(tracker) = self.containers.get_mut(&container) {
                    tracker.end_post_start(attempt, result.is_ok(), now + grace);
                }
            }
            Signal::PreStop { container, attempt, result } => {
                if let Err(message) = result {
                    tracing::warn!(pod = %key, container, message, "a preStop hook failed");
                    let message = format!("PreStopHook failed: {message}");
                    self.event(Some(&container), Severity::Warning, "FailedPreStopHook", message);
                }
                if let Some(tracker) = self.containers.get_mut(&container) {
                    tracker.end_pre_stop(attempt);
                }
            }
            Signal::Token { claim, result } => self.end_token_request(pod, &claim, result),
            Signal::Pull { container, result } => self.end_pull(pod, &container, result, now),
            Signal::Published { result } => self.end_publish(result),
        }
    }
}

/// The pod's container of this name.
fn container_of<'p>(pod: &'p Pod, name: &str) -> Option<Cow<'p, Container>> {
    pod::every_container(pod).find(|container| container.name == name)
}
