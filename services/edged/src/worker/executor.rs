//! Carries out the steps that the planner names: the thin half of a worker.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::container_tracker::{ContainerTracker, Gate, ProbeStage};
use super::handler::{Handler, Target};
use super::observation::LaunchError;
use super::plan::{Action, FailReason, Fate, Outcome, Stopping, TERMINATION_MIN};
use super::probe::ProbedRun;
use super::setup_failure::SetupFailure;
use super::signal::{ProbeKind, Signal};
use super::{Worker, container_of, probe};
use crate::backoff::Backoff;
use crate::container::compute_resources::ComputeResources;
use crate::container::variable_file::{self, FileVariables, VariableFile, VariableFiles};
use crate::container::{ContainerCpus, LaunchSpec, WaitReason};
use crate::cpus::AssignError;
use crate::event::{Occurrence, Severity, Subject};
use crate::metrics::RuntimeAction;
use crate::pod;
use crate::runtime::{PodState, RuntimeError, SandboxState, StopRequest};
use headwater_telemetry::error_chain;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// Something changed: observe and plan again.
    Changed,
    /// A signal or a time will bring the next change.
    Waiting,
    /// The pod is forgotten.
    Finished,
}

/// The first wait before a step that failed while a pod ends is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Waits between such attempts double up to this: as long as a kubelet waits.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A container that could not be signalled is signalled again after this time.
const STOP_RETRY: Duration = Duration::from_millis(100);

/// The limit of a postStart hook, which has none under a kubelet: it ends a hook that hangs.
const POST_START_MAX: Duration = Duration::from_mins(10);

impl Worker {
    /// Carries out one step.
    pub(super) async fn execute(&mut self, action: &Action, pod: &Pod, fate: Fate) -> StepOutcome {
        match action {
            Action::Open => self.open(pod).await,
            Action::Close => self.close().await,
            Action::Pull(name) => self.pull(pod, name).await,
            Action::Start(name) => self.start(pod, name).await,
            Action::Resize => self.resize(pod).await,
            Action::PreStop(name) => self.pre_stop(pod, name, fate),
            Action::Terminate(name) => {
                let deadline = self.deadline(pod, name, fate);
                let within = deadline.saturating_duration_since(Instant::now());
                self.stop(pod, name, fate, within.max(TERMINATION_MIN)).await
            }
            Action::Kill(name) => self.stop(pod, name, fate, Duration::ZERO).await,
            Action::Refuse(reason) => self.refuse(*reason),
            Action::Discard => self.discard().await,
            Action::AskDelete => {
                // Its successor may come as soon as the cloud knows.
                self.give_back().await;
                let trace = self.trace.clone();
                self.shared.reporter.delete(&self.record, trace).await;
                StepOutcome::Waiting
            }
            Action::CleanUp => self.clean_up().await,
            Action::Leave => StepOutcome::Finished,
        }
    }

    /// Writes down that the node has admitted the pod, before it is reported: it is not judged again.
    pub(super) async fn keep_record(&mut self) {
        if self.ended.is_none()
            && let Err(error) = self.shared.store.insert(&self.record).await
        {
            // Its volumes are not written either: the pod waits, and says why.
            tracing::debug!(pod = %self.record.key, %error, "a pod has no record yet");
        }
    }

    /// Gives the pod the processors that it requests for itself, before its first container starts. A pod that runs already
    /// is not judged again: it shares the others until those that it requests are free.
    pub(super) async fn assign_cpus(&mut self, pod: &Pod) {
        let Some(cpus) = self.shared.cpus.clone() else { return };
        let ends = !self.assignment.is_desired || pod::is_deleting(pod);
        let is_over = self.ended.is_some() || self.failing.is_some();
        if self.has_cpus || ends || is_over || self.assignment.shutdown.is_some() {
            return;
        }
        match cpus.assign(&self.record.uid, pod).await {
            Ok(()) => self.has_cpus = true,
            Err(error @ AssignError::TooFew(_)) if self.containers.is_empty() => {
                let message = format!("Pod was rejected: {error}");
                tracing::warn!(pod = %self.record.key, message, "a pod fails");
                self.rejection = Some(message.into());
                self.failing = Some((FailReason::UnexpectedAdmissionError, Instant::now()));
            }
            Err(error @ AssignError::TooFew(_)) => {
                let message = error.to_string();
                self.warn(None, "a pod that runs shares its processors with others", &message);
            }
            // The pod waits, and says why.
            Err(error @ AssignError::File(_)) => {
                let cause = error_chain(&error);
                self.fail_setup("ContainerCreating", &RuntimeError::Sandbox { cause });
            }
        }
    }

    /// Takes back the processors and devices of a pod that has ended, and of which nothing runs.
    pub(super) async fn release_allocations(&mut self) {
        let has_ended = self.ended.is_some() || !self.assignment.is_desired;
        let runs = self.containers.values().any(|tracker| tracker.is_running());
        if has_ended && !runs {
            self.give_back().await;
        }
    }

    /// Takes back the processors and devices of a pod of which nothing runs.
    async fn give_back(&mut self) {
        if let Some(cpus) = &self.shared.cpus {
            cpus.release(&self.record.uid).await;
            self.has_cpus = false;
        }
        self.release_devices().await;
    }

    async fn cpus_of(&self, container: &str) -> Option<ContainerCpus> {
        match &self.shared.cpus {
            Some(cpus) => Some(cpus.of(&self.record.uid, container).await),
            None => None,
        }
    }

    /// Writes changed volumes, so that running containers see the new content.
    pub(super) async fn write_volumes(&mut self) {
        let failed_lately =
            self.setup.as_ref().is_some_and(|setup| Instant::now() < setup.retry_at());
        // A pod that is refused has nothing to write, unless it runs already.
        let is_refused = self.assignment.findings.refuses_pod() && self.containers.is_empty();
        let is_due = self.missing.is_none() && !self.volumes_written && !is_refused;
        if !is_due || self.ended.is_some() || failed_lately {
            return;
        }
        let Some(volumes) = self.placed_volumes() else { return };
        let shared = self.shared.clone();
        let place = shared.adding.take().await;
        let (span, began) = (self.span("pod lay out"), Instant::now());
        let writing = async {
            self.shared.store.insert(&self.record).await?;
            self.shared.runtime.write_volumes(&self.record, &volumes).await
        };
        let written = place.during(writing.instrument(span.clone())).await;
        self.count(RuntimeAction::WriteVolumes, began, &written);
        match written {
            Ok(()) => {
                follow(&mut self.trace, &span);
                self.volumes_written = true;
                self.setup = None;
            }
            Err(error) => self.fail_setup("ContainerCreating", &error),
        }
    }

    async fn open(&mut self, pod: &Pod) -> StepOutcome {
        let shared = self.shared.clone();
        let place = shared.adding.take().await;
        let (span, began) = (self.span("pod open"), Instant::now());
        let opening = self.shared.runtime.open(&self.record, pod);
        let opened = place.during(opening.instrument(span.clone())).await;
        self.count(RuntimeAction::Open, began, &opened);
        match opened {
            Ok(()) => {
                follow(&mut self.trace, &span);
                self.setup = None;
                self.resizing.sandbox_opened();
                StepOutcome::Changed
            }
            Err(error) => {
                self.fail_setup("CreatePodSandboxError", &error);
                // The status states the error.
                StepOutcome::Changed
            }
        }
    }

    async fn close(&mut self) -> StepOutcome {
        let shared = self.shared.clone();
        let place = shared.removing.take().await;
        let began = Instant::now();
        let closed = place.during(self.shared.runtime.close(&self.record.uid)).await;
        self.count(RuntimeAction::Close, began, &closed);
        match closed {
            Ok(()) => {
                self.take_down = None;
                StepOutcome::Changed
            }
            Err(error) => self.retry_later("a sandbox cannot be closed yet", &error),
        }
    }

    async fn start(&mut self, pod: &Pod, name: &str) -> StepOutcome {
        let Some(container) = container_of(pod, name) else { return StepOutcome::Waiting };
        let container = &*container;
        // Without a permit: a device plugin that hangs delays no other pod.
        let prepared = match self.forget_former_runs().await {
            Ok(()) => self.prepare_devices(container).await,
            Err(reason) => Err(reason),
        };
        let devices = match prepared {
            Ok(devices) => devices,
            Err(reason) => {
                self.warn(Some(name), "a start is put off", &reason.message);
                let new = || Box::new(ContainerTracker::new(&self.shared.settings));
                let tracker = self.containers.entry(name.to_owned()).or_insert_with(new);
                tracker.put_off_start(reason, Instant::now());
                return StepOutcome::Changed;
            }
        };
        let shared = self.shared.clone();
        let files = self.read_variable_files(pod, container).await;
        let place = shared.adding.take().await;
        let launch = match self.launch(pod, container, &files) {
            Ok(launch) => {
                LaunchSpec { cpus: self.cpus_of(name).await, ..launch.with_devices(devices) }
            }
            Err(reason) => {
                // A file changes without a word.
                let retry = Instant::now() + self.shared.settings.backoff_base;
                let retry_at = (!files.is_empty()).then_some(retry);
                self.launch_errors.insert(name.to_owned(), LaunchError { reason, retry_at });
                return StepOutcome::Changed;
            }
        };
        self.launch_errors.remove(name);
        self.tell_presence(container);
        let is_restart = self.containers.get(name).is_some_and(|tracker| tracker.has_run());
        // A restart does not follow from the change that brought the pod here.
        let span = if is_restart { Span::none() } else { self.span("pod start") };
        let began = Instant::now();
        let starting = self.shared.runtime.start(&self.record, pod, &launch);
        let result = place.during(starting.instrument(span.clone())).await;
        self.count(RuntimeAction::Start, began, &result);
        follow(&mut self.trace, &span);
        if let Some(images) = &mut self.images {
            images.forget(name);
        }
        let now = Instant::now();
        if let Err(error) = &result {
            self.warn(Some(name), "a start failed", &error_chain(error));
        }
        let settings = &self.shared.settings;
        let new = || Box::new(ContainerTracker::new(settings));
        let tracker = self.containers.entry(name.to_owned()).or_insert_with(new);
        if let Err(error) = result {
            match error {
                // The runtime reports a command that cannot be started as a run that has ended.
                RuntimeError::Start { .. } => {}
                RuntimeError::Refused { reason } => tracker.fail_start(reason, now),
                error => {
                    let is_away = matches!(error, RuntimeError::Away { .. });
                    let message = error_chain(&error);
                    let reason = WaitReason { reason: "CreateContainerError", message };
                    if is_away {
                        tracker.put_off_start(reason, now);
                    } else {
                        tracker.fail_start(reason, now);
                    }
                }
            }
            return StepOutcome::Changed;
        }
        self.shared.metrics.started(is_restart);
        if let Some(runs) = self.shared.runtime.pod(&self.record.uid).containers.remove(name) {
            tracker.observe(runs, now);
            tracker.set_image(container.image.as_deref().unwrap_or_default());
            tracker.set_resources(ComputeResources::of(container));
        }
        self.post_start(container);
        StepOutcome::Changed
    }

    fn post_start(&mut self, container: &Container) {
        let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.post_start.as_ref());
        let hook = self.hook(hook);
        let target = self.target(container);
        let Some(tracker) = self.containers.get_mut(&container.name) else { return };
        tracker.begin_post_start(hook.is_some());
        let (Some(hook), Some(attempt)) = (hook, tracker.attempt()) else { return };
        let signals = self.signals.clone();
        let container = container.name.clone();
        tokio::spawn(async move {
            let result = hook.run(&target, POST_START_MAX).await;
            let result = result.map(drop).map_err(|error| error.to_string());
            let signal = Signal::PostStart { container, attempt, result };
            let _ = signals.send(Box::new(signal)).await;
        });
    }

    fn pre_stop(&mut self, pod: &Pod, name: &str, fate: Fate) -> StepOutcome {
        let container = container_of(pod, name);
        let container = container.as_deref();
        let hook = container.and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref());
        let hook = self.hook(hook);
        let target = container.map(|container| self.target(container));
        let timeout = match fate {
            Fate::End { deadline, .. } | Fate::Fail { deadline, .. } => {
                deadline.saturating_duration_since(Instant::now())
            }
            Fate::Run => pod::grace(pod),
        };
        let Some(tracker) = self.containers.get_mut(name) else { return StepOutcome::Waiting };
        let (Some(hook), Some(target), Some(attempt)) = (hook, target, tracker.attempt()) else {
            tracker.set_stopping(Stopping::PreStop { done: true });
            return StepOutcome::Changed;
        };
        tracker.set_stopping(Stopping::PreStop { done: false });
        let signals = self.signals.clone();
        let container = name.to_owned();
        tokio::spawn(async move {
            let result = hook.run(&target, timeout).await;
            let result = result.map(drop).map_err(|error| error.to_string());
            let signal = Signal::PreStop { container, attempt, result };
            let _ = signals.send(Box::new(signal)).await;
        });
        StepOutcome::Waiting
    }

    /// Asks the container to end within this time; zero kills it. That takes no place: a runtime only passes it on.
    async fn stop(&mut self, pod: &Pod, name: &str, fate: Fate, within: Duration) -> StepOutcome {
        let runtime = &self.shared.runtime;
        let is_shutdown = self.assignment.shutdown.is_some();
        let is_lost = runtime.features().sandboxes
            && runtime.pod(&self.record.uid).sandbox == SandboxState::Lost;
        // A container whose image is to be replaced, or that restarts with all others, starts again under any restart
        // policy, too.
        let is_outdated = container_of(pod, name).is_some_and(|c| self.is_outdated(&c));
        let is_replaced = fate == Fate::Run && (is_outdated || self.is_superseded(name));
        let request = StopRequest { within, interrupts: is_shutdown || is_lost || is_replaced };
        // A stop of the machine does not follow from the change that brought the pod here.
        let span = if is_shutdown { Span::none() } else { self.span("pod stop") };
        let began = Instant::now();
        let stopping = runtime.stop(&self.record.uid, name, request);
        let result = stopping.instrument(span.clone()).await;
        self.count(RuntimeAction::Stop, began, &result);
        follow(&mut self.trace, &span);
        let since = Instant::now();
        if let Err(error) = result {
            // The container has ended, which the runtime will report, or its start is not complete.
            tracing::debug!(pod = %self.record.key, container = name, %error, "no signal was sent");
            self.retry_at = Some(since + STOP_RETRY);
            return StepOutcome::Waiting;
        }
        self.event(Some(name), Severity::Normal, "Killing", format!("Stopping container {name}"));
        if let Some(tracker) = self.containers.get_mut(name) {
            tracker.set_stopping(if request.kills() {
                Stopping::Killed { since }
            } else {
                Stopping::Terminated { since }
            });
        }
        StepOutcome::Changed
    }

    fn refuse(&mut self, reason: FailReason) -> StepOutcome {
        self.ended = Some(Outcome::Failed);
        self.fail_reason = Some(reason);
        StepOutcome::Changed
    }

    /// Removes what an evicted pod has on the machine: the node needs the room. Its record and its status stay until the
    /// cloud deletes it, as under a kubelet.
    pub(super) async fn discard_evicted(&mut self, fate: Fate) {
        let is_evicted =
            self.ended.is_some() && self.fail_reason.is_some_and(FailReason::is_of_others);
        let has_content = || {
            self.shared.runtime.pod(&self.record.uid) != PodState::default()
                || (self.has_reported && !self.is_final)
        };
        let stays = matches!(fate, Fate::Run | Fate::Fail { .. });
        if !is_evicted || !stays || !has_content() {
            return;
        }
        self.discard().await;
    }

    /// Removes what a pod that has ended has on the machine. Its record and its last status stay: if the pod worker is
    /// killed meanwhile, the next one goes on here.
    async fn discard(&mut self) -> StepOutcome {
        if let Err(waiting) = self.take_back_volumes().await {
            return waiting;
        }
        let shared = self.shared.clone();
        let place = shared.removing.take().await;
        let began = Instant::now();
        let removed = place.during(self.shared.runtime.remove(&self.record)).await;
        self.count(RuntimeAction::CleanUp, began, &removed);
        match removed {
            Ok(()) => {
                (self.is_final, self.is_discarded, self.take_down) = (true, true, None);
                self.give_back().await;
                StepOutcome::Changed
            }
            Err(error) => self.retry_later("a pod cannot be taken down yet", &error),
        }
    }

    async fn clean_up(&mut self) -> StepOutcome {
        if let Err(waiting) = self.take_back_volumes().await {
            return waiting;
        }
        let shared = self.shared.clone();
        let place = shared.removing.take().await;
        let (span, began) = (self.span("pod clean up"), Instant::now());
        let removing = async {
            if !self.is_discarded {
                self.shared.runtime.remove(&self.record).await?;
            }
            Ok(self.shared.store.remove(&self.record.uid).await?)
        };
        let removed = place.during(removing.instrument(span)).await;
        self.count(RuntimeAction::CleanUp, began, &removed);
        match removed {
            Ok(()) => {
                self.release_allocations().await;
                self.shared.reporter.removed(&self.record).await;
                StepOutcome::Finished
            }
            Err(error) => self.retry_later("a pod cannot be cleaned up yet", &error),
        }
    }

    /// Has drivers take the volumes back before the pod's files go. A driver that hangs takes the place of no other pod.
    async fn take_back_volumes(&mut self) -> Result<(), StepOutcome> {
        if self.next_unpublish().is_some_and(|at| Instant::now() < at) {
            self.retry_at = self.next_unpublish();
            return Err(StepOutcome::Waiting);
        }
        let Err(error) = self.unpublish_volumes().await else { return Ok(()) };
        self.warn(None, "a volume is not taken back yet", &error_chain(&error));
        self.event(None, Severity::Warning, "FailedUnmount", error_chain(&error));
        self.retry_at = self.next_unpublish();
        Err(StepOutcome::Waiting)
    }

    /// Starts the probes that are due: the startup probe first, then the others.
    pub(super) fn start_probes(&mut self, pod: &Pod) {
        let can_be_probed = self.shared.runtime.features().commands;
        for container in pod::all_containers(pod) {
            let Some(tracker) = self.containers.get(&container.name) else { continue };
            let (stage, is_running) = (tracker.probe_stage(), tracker.is_running());
            let is_startup_due = is_running && stage == ProbeStage::None;
            let are_others_due = tracker.is_started() && stage == ProbeStage::Startup;
            if !(is_startup_due || are_others_due) {
                continue;
            }
            let target = self.target(container);
            let Some(tracker) = self.containers.get_mut(&container.name) else { continue };
            let Some(attempt) = tracker.attempt() else { continue };
            let age = tracker.age(Timestamp::now());
            let start = |kind: ProbeKind, failing| {
                kind.of(container).filter(|_| can_be_probed)?;
                let counter = self.probes.counter(&container.name, kind);
                let run = ProbedRun { attempt, age, failing, counter };
                probe::start(kind, container, &target, run, self.signals.clone())
            };
            let gate = |closed: bool| if closed { Gate::Closed } else { Gate::Open };
            if is_startup_due {
                // A run that an earlier worker has seen started is not asked again.
                let is_due = !tracker.is_started();
                let failing = tracker.failure(ProbeKind::Startup).cloned();
                let startup = is_due.then(|| start(ProbeKind::Startup, failing)).flatten();
                let closed = startup.is_some();
                let probers = startup.into_iter().collect();
                tracker.set_probes(ProbeStage::Startup, probers, gate(closed));
            }
            if tracker.is_started() && tracker.probe_stage() == ProbeStage::Startup {
                let failing = |kind| tracker.failure(kind).cloned();
                let readiness = start(ProbeKind::Readiness, failing(ProbeKind::Readiness));
                let closed = readiness.is_some() && !tracker.is_readiness_open();
                let liveness = start(ProbeKind::Liveness, failing(ProbeKind::Liveness));
                let probers = readiness.into_iter().chain(liveness).collect();
                tracker.set_probes(ProbeStage::Steady, probers, gate(closed));
            }
        }
    }

    /// The time by which a container that is asked to end must have ended.
    fn deadline(&self, pod: &Pod, name: &str, fate: Fate) -> Instant {
        match fate {
            Fate::End { deadline, .. } | Fate::Fail { deadline, .. } => deadline,
            Fate::Run => {
                let unhealthy = self.containers.get(name).and_then(|tracker| tracker.unhealthy());
                unhealthy.unwrap_or_else(|| Instant::now() + pod::grace(pod))
            }
        }
    }

    pub(super) fn fail_setup(&mut self, reason: &'static str, error: &RuntimeError) {
        let message = error_chain(error);
        self.warn(None, "a pod cannot be set up", &message);
        let event = if reason == "CreatePodSandboxError" {
            "FailedCreatePodSandBox"
        } else {
            "FailedMount"
        };
        self.event(None, Severity::Warning, event, message.clone());
        let (reason, now) = (WaitReason { reason, message }, Instant::now());
        match &mut self.setup {
            Some(setup) => setup.fail(reason, now),
            None => {
                let cap = self.shared.settings.backoff_cap;
                self.setup = Some(Box::new(SetupFailure::new(reason, now, cap)));
            }
        }
    }

    /// Reads the files that the container's variables name.
    async fn read_variable_files(&self, pod: &Pod, container: &Container) -> VariableFiles {
        let (mut files, mut left) = (VariableFiles::new(), variable_file::BYTES_MAX);
        for file in VariableFile::all(pod, container) {
            let (runtime, uid) = (&self.shared.runtime, &self.record.uid);
            let read = runtime.volume_file(uid, &file.volume, file.path.as_ref(), left).await;
            let variables = match read {
                Ok(content) => {
                    left = left.saturating_sub(content.len() as u64);
                    FileVariables::parse(&content)
                }
                Err(error) => FileVariables::unread(error_chain(&error)),
            };
            files.insert(file, variables);
        }
        files
    }

    /// Records what happened to the pod, or to one of its containers.
    pub(super) fn event(
        &self,
        container: Option<&str>,
        severity: Severity,
        reason: &'static str,
        message: String,
    ) {
        let (key, uid) = (self.record.key.clone(), self.record.uid.clone());
        self.record_occurrence(Occurrence {
            about: Subject::Pod { key, uid, container: container.map(str::to_owned) },
            severity,
            reason: reason.to_owned(),
            message,
        });
    }

    /// Records what happened to the pod. The cloud does not know a static pod: it happened to the node.
    pub(super) fn record_occurrence(&self, occurrence: Occurrence) {
        let occurrence = if self.record.is_static {
            occurrence.on_node(self.shared.node.clone())
        } else {
            occurrence
        };
        self.shared.events.record(occurrence);
    }

    /// Logs a warning about the pod. Equal ones are counted, and logged at every doubling.
    pub(super) fn warn(&mut self, container: Option<&str>, what: &'static str, message: &str) {
        if let Some(times) = self.warnings.count(container, what, message) {
            tracing::warn!(pod = %self.record.key, container, message, times, "{what}");
        }
    }

    fn retry_later(&mut self, what: &'static str, error: &RuntimeError) -> StepOutcome {
        let message = error_chain(error);
        self.warn(None, what, &message);
        let killing = format!("error killing pod: {message}");
        self.event(None, Severity::Warning, "FailedKillPod", killing);
        let new = || Box::new(Backoff::new(RETRY, RETRY_MAX));
        let wait = self.take_down.get_or_insert_with(new).next_wait();
        self.retry_at = Some(Instant::now() + wait);
        StepOutcome::Waiting
    }

    pub(super) fn count(
        &self,
        action: RuntimeAction,
        began: Instant,
        result: &Result<(), RuntimeError>,
    ) {
        let error = result.as_ref().err().map(RuntimeError::kind);
        self.shared.metrics.acted(action, began.elapsed(), error);
    }

    /// A span in the trace of the pod's last change, if the change is in one.
    fn span(&self, name: &str) -> Span {
        let Some(trace) = &self.trace else { return Span::none() };
        let span = tracing::info_span!("pod act", otel.name = name, key = %self.record.key);
        headwater_telemetry::continue_from(&span, Some(trace));
        span
    }

    /// The handler of a hook, if the runtime can run it.
    fn hook(&self, hook: Option<&LifecycleHandler>) -> Option<Handler> {
        hook.and_then(Handler::of_hook).filter(|_| self.shared.runtime.features().commands)
    }

    fn target(&self, container: &Container) -> Target {
        Target {
            runtime: self.shared.runtime.clone(),
            pod: self.record.uid.clone(),
            container: container.name.clone(),
            ports: container.ports.clone().unwrap_or_default(),
            address: self.pod_address(),
        }
    }
}

/// Continues the trace from `span`, if `span` is in one.
fn follow(trace: &mut Option<String>, span: &Span) {
    if let Some(context) = headwater_telemetry::traceparent(span) {
        *trace = Some(context);
    }
}
