//! EdgeUpstream: one thread owns the outbox engine, and with it the identity, the pods' statuses and
//! MetaSync. Every write is synced; what is queued shares one.
//!
//! ```text
//!  pod worker --status--> statuses --MetaSync--> outbox --read--> session --> hub
//!  replica ----pods-----> orphans go             forgotten only when acknowledged
//! ```
//!
//! Whoever asks is answered once the write that its question caused is on disk.

pub mod contents;
pub mod identity;
mod meta_sync;
pub mod outbox;
pub(crate) mod pod_statuses;
mod report_cause;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::{
    Identity, Incarnation, NodeName, Report, ReportBody, ReportId, ReportKey, ResourceKey,
};
use headwater_store::{Batch, Durability, Engine, EngineError};
use tokio::sync::{mpsc, oneshot, watch};

use crate::dependencies::{Chance, Clock};
use crate::meta::object::Object;
use crate::meta::operation::OperationError;
use crate::metrics::{EdgeCounts, ErrorKind};
use crate::owner::tell;
use crate::upstream::identity::{Issuer, NodeStart, OlderIncarnation};
use crate::upstream::outbox::{Outbox, OutboxFull, OutboxSettings};
use crate::upstream::pod_statuses::{PodStatus, PodStatuses};
use crate::upstream::report_cause::ReportCause;

/// How often the pod status snapshot is derived though nothing has changed: KubeEdge's
/// PodStatusSyncInterval.
pub const META_SYNC_INTERVAL: Duration = Duration::from_secs(60);

/// How long a full snapshot waits for pods that have no status yet: a pod worker that has just
/// started speaks of all its pods within moments, and the cloud need not see them go and come.
pub const META_SYNC_SETTLE: Duration = Duration::from_secs(2);

/// The most questions that share one synced write.
const GROUP_MAX: usize = 256;

/// A batch this heavy takes nothing more; a batch may have 8 MiB, and one report 1.5.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// How upstream works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The bounds of the outbox.
    pub outbox: OutboxSettings,
    /// See [`META_SYNC_INTERVAL`].
    pub sync_interval: Duration,
    /// See [`META_SYNC_SETTLE`].
    pub settle: Duration,
}

/// What upstream is asked.
#[derive(Debug)]
pub(crate) enum UpstreamCommand {
    /// The durable view of the node's pods has changed.
    View(Vec<ViewChange>),
    /// Note a pod's status; answered with whether it is another.
    SetStatus {
        pod: ResourceKey,
        status: PodStatus,
        /// The trace context of what changed it.
        cause: Option<String>,
        reply: oneshot::Sender<Result<bool, OperationError>>,
    },
    /// Forget a pod's status; answered with whether there was one.
    RemoveStatus { pod: ResourceKey, reply: oneshot::Sender<Result<bool, OperationError>> },
    /// Report to the cloud.
    Report { body: ReportBody, reply: oneshot::Sender<Result<(), OperationError>> },
    /// Report that a pod has terminated; answered with whether it was still there.
    Terminate {
        pod: ResourceKey,
        uid: String,
        /// The trace context of what ended it.
        cause: Option<String>,
        reply: oneshot::Sender<Result<bool, OperationError>>,
    },
    /// Look statuses up.
    Statuses { of: StatusesOf, reply: oneshot::Sender<Vec<Object>> },
    /// Derive the snapshot now; answered with whether the cloud is told anything.
    MetaSync { reply: oneshot::Sender<Result<bool, OperationError>> },
    /// The monotonic clock, milliseconds.
    Tick(u64),
    /// Read reports behind `after`, at most `count`.
    Read { after: Option<ReportId>, count: usize },
    /// The cloud has every report up to this one.
    Forget(ReportId),
    /// Move past another start of this node.
    Raise { known: Identity },
    /// End.
    Stop,
}

/// Which statuses are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusesOf {
    /// That of one pod.
    Pod(ResourceKey),
    /// Those of a namespace; of all, without one.
    Namespace(Option<String>),
}

/// A change of the durable view of the node's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ViewChange {
    /// These are the pods, with their UIDs. `complete`: the node has its whole private stream.
    Listed { pods: BTreeMap<ResourceKey, String>, complete: bool },
    /// A pod came or changed.
    Pod { pod: ResourceKey, uid: String },
    /// A pod left.
    PodGone { pod: ResourceKey, uid: String },
    /// The cloud asks for a full snapshot, the n-th time.
    SnapshotRequested(u64),
}

/// What upstream says to the session.
#[derive(Debug)]
pub(crate) enum UpstreamEvent {
    /// The outbox has a report that it had not before.
    Reported,
    /// The answer to [`UpstreamCommand::Read`].
    Read(Vec<Report>),
    /// The answer to [`UpstreamCommand::Raise`].
    Raised(Identity),
}

/// Where upstream stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamStatus {
    pub(crate) identity: Identity,
    pub(crate) depth: usize,
    /// Wall clock, milliseconds; 0: never.
    pub(crate) last_meta_sync_ms: i64,
    /// Why something is not reported, if that is so.
    pub(crate) trouble: Option<String>,
}

/// Why upstream does not start.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The engine failed.
    #[error("the outbox engine failed")]
    Engine(#[from] EngineError),
    /// The configuration is older than the disk.
    #[error(transparent)]
    Older(#[from] OlderIncarnation),
}

/// Where upstream gets and puts things.
#[derive(Debug)]
pub(crate) struct UpstreamDependencies {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<dyn Chance>,
    pub(crate) session: mpsc::Sender<UpstreamEvent>,
    pub(crate) metrics: EdgeCounts,
}

/// See the module.
pub(crate) struct EdgeUpstream {
    settings: UpstreamSettings,
    around: UpstreamDependencies,
    issuer: Issuer,
    outbox: Outbox,
    statuses: PodStatuses,
    /// The pods of the durable view, with their UIDs.
    pods: BTreeMap<ResourceKey, String>,
    /// Pods whose status may be one of another pod or of none.
    suspects: BTreeSet<ResourceKey>,
    /// What changed statuses that the cloud has not been told.
    causes: BTreeMap<ResourceKey, ReportCause>,
    /// Whether the view is the node's whole private stream.
    complete: bool,
    /// The snapshot request of the view.
    requested: u64,
    /// Whether the snapshot may differ from what the cloud was told.
    is_dirty: bool,
    /// Whether the end of a snapshot is due, also without news: behind statuses that were told,
    /// and once after every start. By its hash the cloud finds out that this disk is an old one:
    /// what the outbox then holds, and what the base lacks, was outrun by reports of later.
    closing_due: bool,
    stopping: bool,
    last_meta_sync_ms: i64,
    trouble: Option<String>,
    now_ms: u64,
    /// When the view first was complete.
    complete_ms: Option<u64>,
    synced_ms: u64,
    status: watch::Sender<UpstreamStatus>,
    group: Group,
}

/// The questions that share one write.
#[derive(Default)]
struct Group {
    batch: Batch,
    /// Whether a report was added.
    reported: bool,
    /// What is said once the write is on disk.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    reads: Vec<(Option<ReportId>, usize)>,
    /// Their spans end when the write is on disk.
    causes: Vec<ReportCause>,
    events: Vec<UpstreamEvent>,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            outbox: OutboxSettings::default(),
            sync_interval: META_SYNC_INTERVAL,
            settle: META_SYNC_SETTLE,
        }
    }
}

impl EdgeUpstream {
    /// Begins a start of `node` over the outbox: its boot number is raised and synced.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn open(
        node: NodeName,
        incarnation: Incarnation,
        settings: UpstreamSettings,
        around: UpstreamDependencies,
    ) -> Result<(Self, watch::Receiver<UpstreamStatus>), OpenError> {
        let engine = &*around.engine;
        let nonce = around.chance.draw();
        let NodeStart { issuer, enrolled_anew } = Issuer::start(engine, node, incarnation, nonce)??;
        let outbox = Outbox::open(engine, settings.outbox)?;
        let statuses = PodStatuses::open(engine, issuer.node())?;
        let (status, receiver) = watch::channel(UpstreamStatus {
            identity: issuer.identity(),
            depth: outbox.depth(),
            last_meta_sync_ms: 0,
            trouble: None,
        });
        let mut upstream = Self {
            settings,
            around,
            issuer,
            outbox,
            statuses,
            pods: BTreeMap::new(),
            suspects: BTreeSet::new(),
            causes: BTreeMap::new(),
            complete: false,
            requested: 0,
            is_dirty: false,
            closing_due: true,
            stopping: false,
            last_meta_sync_ms: 0,
            trouble: None,
            now_ms: 0,
            complete_ms: None,
            synced_ms: 0,
            status,
            group: Group::default(),
        };
        if enrolled_anew {
            upstream.reissue()?;
            upstream.finish_group()?;
        }
        Ok((upstream, receiver))
    }

    /// Who this start is.
    pub(crate) fn identity(&self) -> Identity {
        self.issuer.identity()
    }

    /// Works until it is told to stop, or every asker is gone.
    ///
    /// # Errors
    /// When the engine fails; what was not answered may or may not be in the outbox.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<UpstreamCommand>,
    ) -> Result<(), EngineError> {
        while !self.stopping
            && let Some(command) = commands.recv().await
        {
            self.group(command, || commands.try_recv().ok())?;
        }
        Ok(())
    }

    /// Does what `first` asks, and with it what else is queued.
    fn group(
        &mut self,
        first: UpstreamCommand,
        mut queued: impl FnMut() -> Option<UpstreamCommand>,
    ) -> Result<(), EngineError> {
        let mut next = Some(first);
        for _ in 0..GROUP_MAX {
            let Some(command) = next.take() else { break };
            self.take(command)?;
            let is_full = self.group.batch.bytes() >= BATCH_BYTES_MAX;
            next = if is_full || self.stopping { None } else { queued() };
        }
        if let Some(command) = next {
            self.take(command)?;
        }
        if self.is_dirty {
            // Why not, is in the status.
            let _ = self.meta_sync()?;
        }
        self.finish_group()
    }

    fn take(&mut self, command: UpstreamCommand) -> Result<(), EngineError> {
        match command {
            UpstreamCommand::View(changes) => {
                changes.into_iter().for_each(|change| self.view(change))
            }
            UpstreamCommand::SetStatus { pod, status, cause, reply } => {
                let set = self.set_status(pod, status, cause);
                self.answer(reply, set);
            }
            UpstreamCommand::RemoveStatus { pod, reply } => {
                let removed = self.statuses.remove(&mut self.group.batch, &pod);
                self.is_dirty |= removed;
                self.answer(reply, Ok(removed));
            }
            UpstreamCommand::Report { body, reply } => {
                let reported = self.report(body, None)?;
                self.answer(reply, reported.map(|_| ()).map_err(|full| unavailable(&full)));
            }
            UpstreamCommand::Terminate { pod, uid, cause, reply } => {
                let terminated = if self.pods.get(&pod) == Some(&uid) {
                    let cause = ReportCause::of(&pod, cause);
                    let body = ReportBody::PodTerminated { pod, uid };
                    let reported = self.report(body, cause)?;
                    reported.map(|_| true).map_err(|full| unavailable(&full))
                } else {
                    Ok(false)
                };
                self.answer(reply, terminated);
            }
            UpstreamCommand::Statuses { of, reply } => {
                let found = self.statuses_of(&of);
                self.answer(reply, found);
            }
            UpstreamCommand::MetaSync { reply } => {
                let told = self.meta_sync()?;
                self.answer(reply, told);
            }
            UpstreamCommand::Tick(now_ms) => self.tick(now_ms),
            UpstreamCommand::Stop => self.stopping = true,
            UpstreamCommand::Read { after, count } => self.group.reads.push((after, count)),
            UpstreamCommand::Forget(through) => {
                let forgotten = self.outbox.forget(&mut self.group.batch, through);
                // What there was no room for may have it now.
                self.is_dirty |= forgotten > 0 && self.trouble.is_some();
                let (base, full_since) = (self.issuer.base(), self.issuer.full_since());
                if full_since.is_some() && !self.outbox.holds(&ReportKey::Snapshot) {
                    self.issuer.set_base(&mut self.group.batch, base, None);
                }
            }
            UpstreamCommand::Raise { known } => {
                // All of the outbox is issued anew in the batch: it must have it for itself.
                self.finish_group()?;
                let nonce = self.around.chance.draw();
                self.issuer.raise(&mut self.group.batch, &known, nonce);
                self.reissue()?;
                self.group.events.push(UpstreamEvent::Raised(self.issuer.identity()));
                self.finish_group()?;
            }
        }
        Ok(())
    }

    fn view(&mut self, change: ViewChange) {
        match change {
            ViewChange::Listed { pods, complete } => {
                self.pods = pods;
                self.suspects = self.statuses.all().keys().cloned().collect();
                self.causes.retain(|pod, _| self.pods.contains_key(pod));
                self.complete = complete;
                self.requested = 0;
                if complete {
                    self.complete_ms.get_or_insert(self.now_ms);
                }
                self.is_dirty = true;
            }
            ViewChange::Pod { pod, uid } => {
                self.suspect(&pod);
                self.pods.insert(pod, uid);
            }
            ViewChange::PodGone { pod, uid } => {
                if self.pods.get(&pod) == Some(&uid) {
                    self.pods.remove(&pod);
                    self.causes.remove(&pod);
                }
                self.is_dirty |= self.suspect(&pod);
            }
            ViewChange::SnapshotRequested(number) => {
                self.requested = number;
                self.is_dirty = true;
            }
        }
    }

    /// Tells whether there is a status of the pod.
    fn suspect(&mut self, pod: &ResourceKey) -> bool {
        let has_status = self.statuses.all().contains_key(pod);
        if has_status {
            self.suspects.insert(pod.clone());
        }
        has_status
    }

    fn set_status(
        &mut self,
        pod: ResourceKey,
        status: PodStatus,
        cause: Option<String>,
    ) -> Result<bool, OperationError> {
        match self.pods.get(&pod) {
            None => {
                return Err(OperationError::NotFound(format!("{pod}: this node has no such pod")));
            }
            Some(uid) if *uid != status.uid => {
                let reason =
                    format!("{pod}: the pod of this node has UID {uid}, not {}", status.uid);
                return Err(OperationError::NotFound(reason));
            }
            Some(_) => {}
        }
        if let Some(cause) = ReportCause::of(&pod, cause) {
            self.causes.insert(pod.clone(), cause);
        }
        let changed = self.statuses.set(&mut self.group.batch, pod, status);
        self.is_dirty |= changed;
        Ok(changed)
    }

    fn statuses_of(&self, of: &StatusesOf) -> Vec<Object> {
        let object = |(pod, status): (&ResourceKey, &PodStatus)| Object {
            key: pod.with_kind("podstatus"),
            uid: status.uid.clone(),
            resource_version: String::new(),
            object: status.status.clone(),
        };
        let all = self.statuses.all();
        match of {
            StatusesOf::Pod(pod) => all.get_key_value(pod).map(object).into_iter().collect(),
            StatusesOf::Namespace(None) => all.iter().map(object).collect(),
            StatusesOf::Namespace(namespace) => all
                .iter()
                .filter(|(pod, _)| pod.namespace() == namespace.as_deref())
                .map(object)
                .collect(),
        }
    }

    fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let interval = u64::try_from(self.settings.sync_interval.as_millis()).unwrap_or(u64::MAX);
        self.is_dirty |= self.now_ms - self.synced_ms >= interval;
        // A full snapshot may have waited for the pod worker long enough.
        self.is_dirty |= self.full_is_due();
    }

    /// Puts a report into the outbox under a new id.
    fn report(
        &mut self,
        body: ReportBody,
        cause: Option<ReportCause>,
    ) -> Result<Result<ReportId, OutboxFull>, EngineError> {
        let id = self.issuer.issue(&*self.around.engine)?;
        let traceparent = cause.as_ref().map(ReportCause::traceparent);
        let report = Report { id, body, traceparent };
        self.group.causes.extend(cause);
        let dropped = self.outbox.dropped();
        let put = self.outbox.put(&mut self.group.batch, self.issuer.node(), &report);
        self.around.metrics.gave_way(self.outbox.dropped() - dropped);
        self.group.reported |= put.is_ok();
        if put.is_err() {
            self.around.metrics.failed(ErrorKind::OutboxFull);
        }
        if put.is_ok() && self.group.batch.bytes() > BATCH_BYTES_MAX {
            self.write()?;
        }
        Ok(put.map(|()| id))
    }

    /// Issues the outbox anew under the present identity. What the pods' statuses are derived
    /// from is still there, so a full snapshot takes the place of their reports: the cloud may
    /// have heard anything from the other start.
    fn reissue(&mut self) -> Result<(), EngineError> {
        let reports = self.outbox.read(&*self.around.engine, None, usize::MAX)?;
        let batch = &mut self.group.batch;
        for key in self.outbox.keys() {
            self.outbox.withdraw(batch, &key);
        }
        for mut report in reports {
            let of_snapshot = matches!(
                report.body,
                ReportBody::PodStatus { .. }
                    | ReportBody::PodStatusRemoved { .. }
                    | ReportBody::SnapshotClosed(_)
            );
            if !of_snapshot {
                report.id = self.issuer.issue(&*self.around.engine)?;
                // It had room a moment ago.
                let _ = self.outbox.put(&mut self.group.batch, self.issuer.node(), &report);
            }
        }
        self.issuer.set_base(&mut self.group.batch, None, None);
        self.is_dirty = true;
        Ok(())
    }

    fn answer<T: Send + 'static>(&mut self, reply: oneshot::Sender<T>, answer: T) {
        self.group.answers.push(Box::new(move || {
            let _ = reply.send(answer);
        }));
    }

    fn write(&mut self) -> Result<(), EngineError> {
        let batch = std::mem::take(&mut self.group.batch);
        if batch.is_empty() {
            return Ok(());
        }
        batch.write(&*self.around.engine, Durability::Synced)
    }

    /// Writes what the group did, then answers.
    fn finish_group(&mut self) -> Result<(), EngineError> {
        self.write()?;
        let Group { reported, answers, reads, events, causes, .. } =
            std::mem::take(&mut self.group);
        drop(causes);
        self.publish();
        answers.into_iter().for_each(|answer| answer());
        let mut said = events;
        for (after, count) in reads {
            said.push(UpstreamEvent::Read(self.outbox.read(&*self.around.engine, after, count)?));
        }
        if reported {
            said.push(UpstreamEvent::Reported);
        }
        for event in said {
            // The session takes every event without waiting for anything; without one, the
            // edge is stopping.
            let _ = tell(&self.around.session, event);
        }
        Ok(())
    }

    fn publish(&self) {
        let dropped = match self.outbox.dropped() {
            0 => None,
            dropped => Some(format!("{dropped} messages of functions gave way in the full outbox")),
        };
        let metrics = &self.around.metrics;
        metrics.outbox(self.outbox.depth(), self.outbox.bytes());
        metrics.meta_synced(self.last_meta_sync_ms);
        let status = UpstreamStatus {
            identity: self.issuer.identity(),
            depth: self.outbox.depth(),
            last_meta_sync_ms: self.last_meta_sync_ms,
            trouble: self.trouble.clone().or(dropped),
        };
        self.status.send_if_modified(|current| {
            let is_other = *current != status;
            *current = status;
            is_other
        });
    }
}

impl fmt::Debug for EdgeUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeUpstream").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

fn unavailable(full: &OutboxFull) -> OperationError {
    OperationError::Unavailable(full.to_string())
}

#[cfg(test)]
mod tests;
