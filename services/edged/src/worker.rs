//! One task per pod: it observes, plans, executes, reports, and waits for the next reason to do so.
//!
//! ```text
//!   assignment, signal or time --> observe --> plan --> report --> execute --+
//!                ^                   ^                                       |
//!                |                   +------- something changed -------------+
//!                +----------------------------- nothing is left to do -------+
//! ```
//!
//! `plan` and `status` decide and are pure; `executor` carries out the steps. A worker keeps for
//! each container what the runtime does not know (`container_tracker`): back-off, probes, stops.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use headwater_event::NodeName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::pod_reporter::PodReporter;
use crate::config::Settings;
use crate::container::downward_api::FieldSource;
use crate::container::volume::Volume;
use crate::container::{LaunchSpec, WaitReason, environment, volume_content};
use crate::desired::compressed_object::CompressedObject;
use crate::desired::objects::Objects;
use crate::disk::pod_store::PodStore;
use crate::error_chain::error_chain;
use crate::metrics::{EdgedCounts, PodCount};
use crate::pod::{self, PodRecord};
use crate::runtime::{NodeRuntime, PodState, SandboxState};

mod backoff;
mod container_tracker;
mod executor;
mod handler;
mod image_tracker;
pub mod plan;
mod probe;
mod signal;
pub(crate) mod status;

use container_tracker::ContainerTracker;
use image_tracker::ImageTracker;
use plan::{Containers, FailReason, Fate, FinalStep, Outcome, Plan, PodFacts, Sandbox};
pub(crate) use signal::{SIGNALS_MAX, Signal, Signals};
use status::StatusFacts;

/// The pod that a worker brings about; the latest one counts.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// The pod's latest object.
    pub(crate) pod: CompressedObject<Pod>,
    /// The objects that it may name.
    pub(crate) objects: Objects,
    /// Whether the edge's view still has the pod.
    pub(crate) is_desired: bool,
    /// Set when the machine stops: the time by which the pod must have ended.
    pub(crate) shutdown: Option<Instant>,
    /// The trace context of the pod's last change, if it is in a trace.
    pub(crate) trace: Option<String>,
}

/// What all workers need from outside.
pub(crate) struct WorkerDependencies {
    pub(crate) node: NodeName,
    pub(crate) address: IpAddr,
    pub(crate) settings: Settings,
    pub(crate) runtime: NodeRuntime,
    pub(crate) store: PodStore,
    pub(crate) reporter: PodReporter,
    pub(crate) metrics: EdgedCounts,
    /// One permit for each pod that is being started.
    pub(crate) adding: Semaphore,
    /// One permit for each pod that is being stopped or cleaned up.
    pub(crate) removing: Semaphore,
    pub(crate) cancel: CancellationToken,
}

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
    /// The images of containers; empty if the runtime has no images.
    images: ImageTracker,
    /// The content of the volumes, from the last time when all of it was available.
    volumes: Vec<Volume>,
    /// Whether the volumes have this content.
    volumes_written: bool,
    /// What is missing for the content of the volumes.
    missing: Option<WaitReason>,
    /// Containers that cannot be launched, and why. The launch of a container is decided again when
    /// it starts: an environment is large, and needed once.
    refused: BTreeMap<String, WaitReason>,
    /// Why volumes or sandbox could not be set up, and the time of the next attempt.
    setup_error: Option<(WaitReason, Instant)>,
    /// The time at which a step that failed is tried again.
    retry_at: Option<Instant>,
    end_since: Option<Instant>,
    ended: Option<Outcome>,
    /// Why the pod failed although its containers did not.
    fail_reason: Option<FailReason>,
    /// The latest status, perhaps from an earlier worker of this pod.
    reported: Option<CompressedObject<PodStatus>>,
    /// Whether this worker has reported it.
    has_reported: bool,
    /// The trace context of the pod's last change, or of the last step that followed from it.
    trace: Option<String>,
    count: PodCount,
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
    ) -> Self {
        let assignment = assignments.borrow_and_update().clone();
        let reported = shared.store.status(&record.uid);
        let reported = reported.and_then(|status| CompressedObject::encode(&status).ok());
        let (trace, count) = (assignment.trace.clone(), shared.metrics.pod());
        let images = ImageTracker::new(&shared.settings);
        Self {
            record,
            shared,
            assignments,
            assignment,
            signals,
            inbox,
            containers: BTreeMap::new(),
            images,
            volumes: Vec::new(),
            volumes_written: false,
            missing: None,
            refused: BTreeMap::new(),
            setup_error: None,
            retry_at: None,
            end_since: None,
            ended: None,
            fail_reason: None,
            reported,
            has_reported: false,
            trace,
            count,
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
        loop {
            let state = self.observe(&pod).await;
            let now = Instant::now();
            let fate = self.fate(&pod, now);
            if fate == Fate::Run {
                self.write_volumes().await;
            }
            let plan = self.plan(&pod, &state, fate, now);
            self.report(&pod, &state, fate, &plan).await;
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
            let resync = now + self.shared.settings.resync;
            // A time in the past was not tried again: the pod is about to end, or has ended.
            let setup_at = self.setup_error.as_ref().map(|(_, at)| *at).filter(|at| *at > now);
            let wake_at = [plan.wake_at, self.retry_at, setup_at];
            return Some(wake_at.into_iter().flatten().fold(resync, Instant::min));
        }
    }

    /// Applies the assignment or the signals that woke the worker, and returns the pod's object.
    fn receive(&mut self, wake: Wake) -> Pod {
        if matches!(wake, Wake::Assignment) {
            let before = self.assignment.trace.take();
            self.assignment = self.assignments.borrow_and_update().clone();
            if self.assignment.trace != before {
                self.trace = self.assignment.trace.clone();
            }
        }
        let pod = self.assignment.pod.decode();
        match wake {
            Wake::Assignment => self.resolve(&pod),
            Wake::Signal(signal) => {
                self.apply(*signal, &pod);
                while let Ok(signal) = self.inbox.try_recv() {
                    self.apply(*signal, &pod);
                }
            }
            Wake::Time => {}
        }
        pod
    }

    /// Resolves the content of the volumes, and which containers can be launched.
    fn resolve(&mut self, pod: &Pod) {
        let volumes = volume_content::resolve(&self.fields(pod), &self.assignment.objects);
        self.missing = volumes.as_ref().err().cloned();
        if let Ok(volumes) = volumes
            && self.volumes != volumes
        {
            (self.volumes, self.volumes_written) = (volumes, false);
        }
        self.refused = pod::all_containers(pod)
            .filter_map(|container| {
                Some((container.name.clone(), self.launch(pod, container).err()?))
            })
            .collect();
        // The missing object may be here now.
        self.setup_error = None;
    }

    /// How the container is launched.
    fn launch(&self, pod: &Pod, container: &Container) -> Result<LaunchSpec, WaitReason> {
        let runtime = &self.shared.runtime;
        runtime.check(pod, container)?;
        let mut base = runtime.environment(&self.record.uid, pod, &container.name);
        base.insert("HOSTNAME".to_owned(), hostname(pod));
        environment::launch(container, &base, &self.fields(pod), &self.assignment.objects)
    }

    fn fields<'a>(&'a self, pod: &'a Pod) -> FieldSource<'a> {
        let WorkerDependencies { node, address, .. } = &*self.shared;
        FieldSource {
            pod,
            node: node.as_str(),
            node_address: *address,
            pod_address: self.pod_address(),
        }
    }

    /// The pod's own address, else the node's.
    fn pod_address(&self) -> IpAddr {
        let state = self.shared.runtime.pod(&self.record.uid);
        state.addresses.first().copied().unwrap_or(self.shared.address)
    }

    /// Reads the pod's state from the runtime, and brings the trackers up to date with it.
    async fn observe(&mut self, pod: &Pod) -> PodState {
        let now = Instant::now();
        let state = self.shared.runtime.pod(&self.record.uid);
        for (name, runs) in &state.containers {
            let settings = &self.shared.settings;
            let new = || Box::new(ContainerTracker::new(settings));
            self.containers.entry(name.clone()).or_insert_with(new).observe(runs.clone(), now);
        }
        if let Some(images) = self.shared.runtime.images() {
            self.images.observe(&**images, pod, &state).await;
        }
        self.start_probes(pod);
        state
    }

    /// The facts of the containers that ever ran.
    fn container_facts(&self, state: &PodState, now: Instant) -> Containers {
        let facts = self.containers.iter().map(|(name, tracker)| {
            let mut facts = tracker.facts(now);
            facts.in_earlier_sandbox = state
                .containers
                .get(name)
                .is_some_and(|runs| runs.sandbox_attempt != state.sandbox_attempt);
            (name.clone(), facts)
        });
        facts.collect()
    }

    fn plan(&mut self, pod: &Pod, state: &PodState, fate: Fate, now: Instant) -> Plan {
        let mut containers = self.container_facts(state, now);
        for container in pod::all_containers(pod) {
            let name = &container.name;
            let facts = containers.entry(name.clone()).or_default();
            let missing = match self.missing.as_ref().or(self.refused.get(name)) {
                Some(reason) => Some((reason.clone(), None)),
                None => self.setup_error.clone().map(|(reason, at)| (reason, Some(at))),
            };
            if let Some((reason, retry_at)) = missing {
                facts.refused = Some(reason);
                facts.retry_at = retry_at.filter(|at| *at > now);
            }
            if self.shared.runtime.images().is_some() {
                facts.image = self.images.state(name);
            }
        }
        // A pod that is being stopped has not ended by itself.
        if fate == Fate::Run && self.ended.is_none() {
            self.ended = plan::outcome(pod, &containers);
        }
        let sandbox = match state.sandbox {
            _ if !self.shared.runtime.features().sandboxes => Sandbox::Unneeded,
            SandboxState::None => Sandbox::None,
            SandboxState::Ready => Sandbox::Ready,
            SandboxState::Lost => Sandbox::Lost,
        };
        let containers = &containers;
        plan::plan(&PodFacts { pod, fate, ended: self.ended, sandbox, containers, now })
    }

    fn fate(&mut self, pod: &Pod, now: Instant) -> Fate {
        if let Some(deadline) = self.assignment.shutdown {
            return Fate::End { deadline, then: FinalStep::Leave };
        }
        let then = if !self.assignment.is_desired {
            FinalStep::CleanUp
        } else if pod::is_deleting(pod) {
            FinalStep::AskDelete
        } else {
            return Fate::Run;
        };
        let since = *self.end_since.get_or_insert(now);
        Fate::End { deadline: since + pod::grace(pod), then }
    }

    /// Reports the pod's status to the edge if it changed.
    async fn report(&mut self, pod: &Pod, state: &PodState, fate: Fate, plan: &Plan) {
        if !self.assignment.is_desired || self.assignment.shutdown.is_some() {
            return;
        }
        let containers = self.container_facts(state, Instant::now());
        let ended = self.ended.or_else(|| match fate {
            Fate::Run => None,
            Fate::End { .. } | Fate::Fail { .. } => plan::stopped(pod, &containers),
        });
        let ready = self.containers.iter().filter(|(_, tracker)| tracker.is_ready());
        let ready = ready.map(|(name, _)| name.as_str()).collect();
        let before = self.reported.as_ref().map(CompressedObject::decode);
        let facts = StatusFacts {
            pod,
            uid: &self.record.uid,
            state,
            containers: &containers,
            ready: &ready,
            waiting: &plan.waiting,
            ended,
            fail_reason: self.fail_reason,
            start_time: self.record.seen_at,
            node_address: self.shared.address,
            before: before.as_ref(),
        };
        let status = status::derive(&facts, Timestamp::now());
        let compressed = match CompressedObject::encode(&status) {
            Ok(compressed) => compressed,
            Err(error) => {
                // The files of a run state a time that no clock shows.
                tracing::warn!(pod = %self.record.key, %error, "a status cannot be encoded");
                return;
            }
        };
        let is_new = self.reported.as_ref() != Some(&compressed);
        if !is_new && self.has_reported {
            return;
        }
        let Self { record, shared, .. } = self;
        let trace = self.trace.clone();
        shared.reporter.status(&record.key, &record.uid, compressed.clone(), trace).await;
        self.has_reported = true;
        self.count.phase(status.phase.as_deref());
        if is_new && let Err(error) = shared.store.write_status(&record.uid, &status).await {
            let message = error_chain(&error);
            tracing::warn!(pod = %record.key, message, "a status cannot be written to the disk");
        }
        self.reported = Some(compressed);
    }

    fn apply(&mut self, signal: Signal, pod: &Pod) {
        let now = Instant::now();
        let grace = pod::grace(pod);
        let key = &self.record.key;
        match signal {
            Signal::Runtime => {}
            Signal::Probe { container, attempt, kind, healthy, message } => {
                let spec = container_of(pod, &container);
                let own_grace = spec
                    .and_then(|c| kind.of(c)?.termination_grace_period_seconds)
                    .and_then(pod::grace_of);
                if !healthy {
                    tracing::info!(pod = %key, container, ?kind, message, "a probe failed");
                    self.shared.metrics.probe_failed();
                }
                if let Some(tracker) = self.containers.get_mut(&container) {
                    tracker.set_verdict(attempt, kind, healthy, now + own_grace.unwrap_or(grace));
                }
            }
            Signal::PostStart { container, attempt, result } => {
                if let Err(message) = &result {
                    tracing::warn!(pod = %key, container, message, "a postStart hook failed");
                }
                if let Some(tracker) = self.containers.get_mut(&container) {
                    tracker.end_post_start(attempt, result.is_ok(), now + grace);
                }
            }
            Signal::PreStop { container, attempt } => {
                if let Some(tracker) = self.containers.get_mut(&container) {
                    tracker.end_pre_stop(attempt);
                }
            }
            Signal::Pull { container, result } => {
                if let Err(error) = &result {
                    tracing::warn!(pod = %key, container, %error, "an image was not pulled");
                }
                self.images.end_pull(&container, result, now);
            }
        }
    }
}

/// The pod's container of this name.
fn container_of<'p>(pod: &'p Pod, name: &str) -> Option<&'p Container> {
    pod::all_containers(pod).find(|container| container.name == name)
}

/// The hostname that the pod's containers see.
fn hostname(pod: &Pod) -> String {
    let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    hostname.or_else(|| pod.metadata.name.clone()).unwrap_or_default()
}
