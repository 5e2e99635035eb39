//! One task per pod: it looks, plans, acts, reports, and waits for the next reason to look.

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
use crate::container::volume_content;
use crate::container::{LaunchSpec, WaitReason};
use crate::desired::compressed_object::CompressedObject;
use crate::desired::objects::Objects;
use crate::error_chain::error_chain;
use crate::metrics::{EdgedCounts, PodCount};
use crate::pod::{self, PodRecord};
use crate::runtime::Runtime;
use plan::{Containers, Fate, FinalStep, Outcome, Plan};
use status::StatusFacts;

mod container_tracker;
mod crash_loop;
mod executor;
mod handler;
pub mod plan;
mod probe;
mod signal;
pub(crate) mod status;

use container_tracker::ContainerTracker;
pub(crate) use signal::{SIGNALS_MAX, Signal, Signals};

/// What the pod's worker is to bring about; the latest counts.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// The pod's object, as last seen.
    pub(crate) pod: CompressedObject<Pod>,
    /// The objects it may name.
    pub(crate) objects: Objects,
    /// Whether the view still wants it.
    pub(crate) wanted: bool,
    /// Set when the machine stops: by when the pod must have ended.
    pub(crate) shutdown: Option<Instant>,
    /// The trace context of the pod's last change, where it is in a trace.
    pub(crate) cause: Option<String>,
}

/// Why a worker has something to do.
enum Reason {
    /// What it is to bring about is new to it.
    Assignment,
    /// It was woken.
    Signal(Box<Signal>),
    /// It is time to look.
    Time,
}

/// What all workers share.
pub(crate) struct WorkerDependencies {
    pub(crate) node: NodeName,
    pub(crate) address: IpAddr,
    pub(crate) settings: Settings,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) reporter: PodReporter,
    pub(crate) metrics: EdgedCounts,
    /// A permit each for a pod that is being started.
    pub(crate) adding: Semaphore,
    /// A permit each for a pod that is being stopped or cleaned up.
    pub(crate) removing: Semaphore,
    pub(crate) cancel: CancellationToken,
}

/// The worker of one pod.
pub(crate) struct Worker {
    record: PodRecord,
    shared: Arc<WorkerDependencies>,
    intents: watch::Receiver<Assignment>,
    intent: Assignment,
    signals: Signals,
    inbox: mpsc::Receiver<Box<Signal>>,
    /// Boxed, for a map has room for eleven, and most pods have one container.
    tracked: BTreeMap<String, Box<ContainerTracker>>,
    /// What the volumes are to hold, as it was when all of that was last there.
    volumes: Vec<Volume>,
    /// Whether they hold it.
    is_laid_out: bool,
    /// What has to be there before the volumes can be laid out.
    missing: Option<WaitReason>,
    /// Containers that cannot be launched, and why. How the others are is made up when they start:
    /// an environment is large, and needed once.
    refused: BTreeMap<String, WaitReason>,
    /// Why the volumes could not be laid out, and when that is tried again.
    layout_error: Option<(WaitReason, Instant)>,
    /// When a step that failed is tried again.
    retry_at: Option<Instant>,
    end_since: Option<Instant>,
    ended: Option<Outcome>,
    /// The latest status, perhaps from before this worker's time.
    reported: Option<CompressedObject<PodStatus>>,
    /// Whether this worker has told it.
    has_reported: bool,
    /// Where the trace of the pod's last change stands.
    trace: Option<String>,
    count: PodCount,
}

impl Worker {
    pub(crate) fn new(
        record: PodRecord,
        shared: Arc<WorkerDependencies>,
        mut intents: watch::Receiver<Assignment>,
        signals: Signals,
        inbox: mpsc::Receiver<Box<Signal>>,
    ) -> Self {
        let intent = intents.borrow_and_update().clone();
        let reported = shared.runtime.remembered(&record.uid);
        let reported = reported.and_then(|status| CompressedObject::encode(&status).ok());
        let (trace, count) = (intent.cause.clone(), shared.metrics.pod());
        Self {
            record,
            shared,
            intents,
            intent,
            signals,
            inbox,
            tracked: BTreeMap::new(),
            volumes: Vec::new(),
            is_laid_out: false,
            missing: None,
            refused: BTreeMap::new(),
            layout_error: None,
            retry_at: None,
            end_since: None,
            ended: None,
            reported,
            has_reported: false,
            trace,
            count,
        }
    }

    /// Works until the pod is forgotten, or the worker is cancelled.
    ///
    /// It is borrowed, for a future has room twice for what it is given.
    pub(crate) async fn run(&mut self) {
        // Most of its life a worker waits: what it works with is boxed, and gone meanwhile.
        let mut reason = Reason::Assignment;
        while let Some(wake_at) = Box::pin(self.work(reason)).await {
            reason = tokio::select! {
                () = self.shared.cancel.cancelled() => return,
                changed = self.intents.changed() => match changed {
                    Ok(()) => Reason::Assignment,
                    Err(_) => return,
                },
                Some(signal) = self.inbox.recv() => Reason::Signal(signal),
                () = tokio::time::sleep_until(wake_at) => Reason::Time,
            };
        }
    }

    /// Acts until nothing is left to do, and says when to look again though nothing happened;
    /// `None` once the pod is forgotten.
    async fn work(&mut self, reason: Reason) -> Option<Instant> {
        let pod = match reason {
            Reason::Assignment => {
                let before = self.intent.cause.take();
                self.intent = self.intents.borrow_and_update().clone();
                if self.intent.cause != before {
                    self.trace = self.intent.cause.clone();
                }
                let pod = self.intent.pod.decode();
                self.resolve(&pod);
                pod
            }
            Reason::Signal(signal) => {
                let pod = self.intent.pod.decode();
                self.take(*signal, &pod);
                while let Ok(signal) = self.inbox.try_recv() {
                    self.take(*signal, &pod);
                }
                pod
            }
            Reason::Time => self.intent.pod.decode(),
        };
        loop {
            self.look(&pod);
            let now = Instant::now();
            let fate = self.fate(&pod, now);
            if fate == Fate::Run {
                self.update_volumes().await;
            }
            let plan = self.plan(&pod, fate, now);
            self.report(&pod, fate, &plan).await;
            self.retry_at = None;
            let mut acted = false;
            for action in &plan.actions {
                match self.act(action, &pod, fate).await {
                    executor::StepOutcome::Again => acted = true,
                    executor::StepOutcome::Wait => {}
                    executor::StepOutcome::Finished => return None,
                }
            }
            if acted && !self.shared.cancel.is_cancelled() {
                continue;
            }
            let resync = now + self.shared.settings.resync;
            // One that is past was not tried again: the pod is to end, or has.
            let layout_at = self.layout_error.as_ref().map(|(_, at)| *at).filter(|at| *at > now);
            let wake_at = [plan.wake_at, self.retry_at, layout_at];
            return Some(wake_at.into_iter().flatten().fold(resync, Instant::min));
        }
    }

    /// Decides what the volumes hold and which containers can be launched.
    fn resolve(&mut self, pod: &Pod) {
        let volumes = volume_content::resolve(&self.fields(pod), &self.intent.objects);
        self.missing = volumes.as_ref().err().cloned();
        if let Ok(volumes) = volumes
            && self.volumes != volumes
        {
            (self.volumes, self.is_laid_out) = (volumes, false);
        }
        self.refused = pod::all_containers(pod)
            .filter_map(|container| {
                Some((container.name.clone(), self.launch(pod, container).err()?))
            })
            .collect();
        // What was missing may be there now.
        self.layout_error = None;
    }

    /// How the container is launched.
    fn launch(&self, pod: &Pod, container: &Container) -> Result<LaunchSpec, WaitReason> {
        let runtime = &self.shared.runtime;
        runtime.accepts(pod, container)?;
        let mut base = runtime.environment(&self.record.uid, pod, &container.name);
        base.insert("HOSTNAME".to_owned(), hostname(pod));
        crate::container::environment::launch(
            container,
            &base,
            &self.fields(pod),
            &self.intent.objects,
        )
    }

    fn fields<'a>(&'a self, pod: &'a Pod) -> FieldSource<'a> {
        let WorkerDependencies { node, address, .. } = &*self.shared;
        FieldSource { pod, node: node.as_str(), node_address: *address }
    }

    /// Brings what is known of each container up to date with the runtime.
    fn look(&mut self, pod: &Pod) {
        let now = Instant::now();
        let runs = self.shared.runtime.containers(&self.record.uid);
        for (name, runs) in runs {
            let settings = &self.shared.settings;
            let new = || Box::new(ContainerTracker::new(settings));
            let tracked = self.tracked.entry(name).or_insert_with(new);
            tracked.observe(runs, now);
        }
        self.start_probes(pod);
    }

    fn plan(&mut self, pod: &Pod, fate: Fate, now: Instant) -> Plan {
        let mut containers = BTreeMap::new();
        for container in pod::all_containers(pod) {
            let tracked = self.tracked.get(&container.name);
            let mut view = tracked.map(|t| t.view(now)).unwrap_or_default();
            let missing = match self.missing.as_ref().or(self.refused.get(&container.name)) {
                Some(waiting) => Some((waiting.clone(), None)),
                None => self.layout_error.clone().map(|(waiting, at)| (waiting, Some(at))),
            };
            if let Some((waiting, retry_at)) = missing {
                view.refused = Some(waiting);
                view.retry_at = retry_at.filter(|at| *at > now);
            }
            containers.insert(container.name.clone(), view);
        }
        for (name, tracked) in &self.tracked {
            containers.entry(name.clone()).or_insert_with(|| tracked.view(now));
        }
        // A pod that is being stopped has not ended by itself.
        if fate == Fate::Run && self.ended.is_none() {
            self.ended = plan::outcome(pod, &containers);
        }
        plan::plan(pod, fate, self.ended, &containers, now)
    }

    fn fate(&mut self, pod: &Pod, now: Instant) -> Fate {
        if let Some(deadline) = self.intent.shutdown {
            return Fate::End { deadline, then: FinalStep::Leave };
        }
        let then = if !self.intent.wanted {
            FinalStep::CleanUp
        } else if pod::is_deleting(pod) {
            FinalStep::AskDelete
        } else {
            return Fate::Run;
        };
        let since = *self.end_since.get_or_insert(now);
        Fate::End { deadline: since + pod::grace(pod), then }
    }

    /// Tells the edge of the pod's status, if it changed.
    async fn report(&mut self, pod: &Pod, fate: Fate, plan: &Plan) {
        if !self.intent.wanted || self.intent.shutdown.is_some() {
            return;
        }
        let now = Instant::now();
        let containers: Containers =
            self.tracked.iter().map(|(name, tracked)| (name.clone(), tracked.view(now))).collect();
        let runs = self.shared.runtime.containers(&self.record.uid);
        let ended = self.ended.or_else(|| match fate {
            Fate::Run => None,
            Fate::End { .. } => plan::stopped(pod, &containers),
        });
        let ready = self.tracked.iter().filter(|(_, tracked)| tracked.is_ready());
        let ready = ready.map(|(name, _)| name.as_str()).collect();
        let before = self.reported.as_ref().map(CompressedObject::decode);
        let facts = StatusFacts {
            pod,
            uid: &self.record.uid,
            containers: &containers,
            runs: &runs,
            ready: &ready,
            waiting: &plan.waiting,
            ended,
            start_time: self.record.seen_at,
            address: self.shared.address,
            before: before.as_ref(),
        };
        let status = status::derive(&facts, Timestamp::now());
        let packed = match CompressedObject::encode(&status) {
            Ok(packed) => packed,
            Err(error) => {
                // The disk holds times that no clock has.
                tracing::warn!(pod = %self.record.key, %error, "a status cannot be told");
                return;
            }
        };
        let is_new = self.reported.as_ref() != Some(&packed);
        if !is_new && self.has_reported {
            return;
        }
        let Self { record, shared, .. } = self;
        let trace = self.trace.clone();
        shared.reporter.status(&record.key, &record.uid, packed.clone(), trace).await;
        self.has_reported = true;
        self.count.phase(status.phase.as_deref());
        if is_new && let Err(error) = shared.runtime.remember(&record.uid, &status).await {
            let message = error_chain(&error);
            tracing::warn!(pod = %record.key, message, "a status cannot be kept");
        }
        self.reported = Some(packed);
    }

    fn take(&mut self, signal: Signal, pod: &Pod) {
        let now = Instant::now();
        let grace = pod::grace(pod);
        let tracked = &mut self.tracked;
        match signal {
            Signal::Runtime => {}
            Signal::Probe { container, attempt, kind, healthy, message } => {
                let spec = container_of(pod, &container);
                let own_grace = spec
                    .and_then(|c| kind.of(c)?.termination_grace_period_seconds)
                    .and_then(pod::grace_of);
                if !healthy {
                    let pod = &self.record.key;
                    tracing::info!(%pod, container, ?kind, message, "a probe failed");
                    self.shared.metrics.probe_failed();
                }
                if let Some(tracked) = tracked.get_mut(&container) {
                    tracked.probed(attempt, kind, healthy, now + own_grace.unwrap_or(grace));
                }
            }
            Signal::PostStart { container, attempt, result } => {
                if let Err(message) = &result {
                    let pod = &self.record.key;
                    tracing::warn!(%pod, container, message, "a postStart hook failed");
                }
                if let Some(tracked) = tracked.get_mut(&container) {
                    tracked.post_started(attempt, result.is_ok(), now + grace);
                }
            }
            Signal::PreStop { container, attempt } => {
                if let Some(tracked) = tracked.get_mut(&container) {
                    tracked.pre_stopped(attempt);
                }
            }
        }
    }
}

/// The pod's container of this name.
fn container_of<'p>(pod: &'p Pod, name: &str) -> Option<&'p Container> {
    pod::all_containers(pod).find(|container| container.name == name)
}

/// The name a container has for its machine.
fn hostname(pod: &Pod) -> String {
    let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    hostname.or_else(|| pod.metadata.name.clone()).unwrap_or_default()
}
