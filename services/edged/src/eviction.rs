//! The node measures what is left of its resources, states its pressures, and evicts pods before the kernel kills any
//! process.
//!
//! ```text
//!   measure --> pressures (Node, admission)
//!      |
//!      +--> shortage --> a full disk: images and ended containers go --> measure again
//!                |
//!                +--> the first pod in the ranking is evicted --> it ends, its content goes --> measure again
//! ```
//!
//! A pod that takes more of the disk than its own limits allow is evicted before anything is short.
//!
//! | module | job |
//! |---|---|
//! | `limits` | whether a pod exceeds its own limits (pure) |
//! | `shortage` | whether a pod has to go (pure) |
//! | `ranking` | which one (pure) |
//! | `message` | the words (pure) |
//!
//! Without a runtime that measures its pods, the node only states its pressures.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_telemetry::error_chain;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::container::requests::pod_requests;
use crate::event::{Occurrence, Severity, Subject};
use crate::node::measurement::{is_one_disk, measure, of_images};
use crate::node::pressure::{PressureTracker, Pressures};
use crate::node::signal::{Measurement, Resource, Share, thresholds};
use crate::pod::{self, PodUid};
use crate::runtime::PodUsage;
use crate::worker::WorkerDependencies;
use limits::Excess;
use message::message;
use ranking::{Candidate, Usage};
use shortage::{Shortage, ShortageTracker};

mod limits;
mod message;
mod ranking;
mod shortage;

/// The interval of measurements while a pod leaves: its end is noticed soon.
const LEAVING_CHECK: Duration = Duration::from_millis(500);

/// A kubelet gives a pod a second where a hard threshold is met.
const HARD_GRACE: Duration = Duration::from_secs(1);

/// What pods are evicted for, as a kubelet's metric names it.
pub(crate) const EVICTION_SIGNALS: [&str; 10] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
    limits::EMPTY_DIR,
    limits::POD,
    limits::CONTAINER,
];

/// Requests to evict a pod that may wait for the supervisor: one is under way at a time.
pub(crate) const EVICTIONS_MAX: usize = 1;

/// Requests for room on the disk that may wait for the collector.
pub(crate) const RECLAIMS_MAX: usize = 1;

/// A pod has to go.
#[derive(Debug)]
pub(crate) struct Eviction {
    pub(crate) pod: PodUid,
    /// Why, in the words of its status.
    pub(crate) message: String,
    /// The time that it has to end, at most its own grace period.
    pub(crate) within: Duration,
    /// What it is for: one of [`EVICTION_SIGNALS`].
    pub(crate) signal: &'static str,
}

/// A request to remove every image and container that nothing needs, which is answered when they are removed.
pub(crate) type Reclaim = oneshot::Sender<()>;

/// The pods of the node, as the evictor reads them.
#[async_trait::async_trait]
pub(crate) trait PodList: Send + Sync {
    /// The desired pods with their statuses. None if the pod worker has ended.
    async fn list(&self) -> Vec<Pod>;
}

/// Measures the node. One task owns it.
pub(crate) struct Evictor {
    pub(crate) shared: Arc<WorkerDependencies>,
    /// The directory of the pod worker, on the file system of pods.
    pub(crate) dir: PathBuf,
    pub(crate) pods: Box<dyn PodList>,
    pub(crate) pressures: watch::Sender<Pressures>,
    pub(crate) tracker: PressureTracker,
    pub(crate) evictions: mpsc::Sender<Eviction>,
    pub(crate) reclaims: mpsc::Sender<Reclaim>,
    /// The pods that took more of the disk than their limits allow at the latest look. They leave.
    pub(crate) over_limits: BTreeSet<PodUid>,
}

impl Evictor {
    /// Works until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let settings = self.shared.settings.pressure;
        let mut shortages = ShortageTracker::new(thresholds(&settings));
        let mut last = None;
        let mut schedule = limits::Schedule::default();
        while !cancel.is_cancelled() {
            self.note_gone(&mut shortages);
            self.work(&mut shortages, &mut last, &mut schedule).await;
            let wait = if shortages.is_waiting() { LEAVING_CHECK } else { settings.check };
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(wait.min(settings.check)) => {}
            }
        }
    }

    /// Notes which of the pods that were evicted have gone: their volumes and logs, too.
    fn note_gone(&self, shortages: &mut ShortageTracker) {
        if shortages.is_waiting() {
            let here: BTreeSet<PodUid> = self.shared.runtime.pods().into_iter().collect();
            shortages.note_gone(|pod| here.contains(pod), Instant::now());
        }
    }

    /// Measures, and evicts a pod if one has to go.
    async fn work(
        &mut self,
        shortages: &mut ShortageTracker,
        last: &mut Option<Shortage>,
        schedule: &mut limits::Schedule,
    ) {
        let (mut measured, mut began, one_disk) = self.measure().await;
        let settings = self.shared.settings.pressure;
        if !settings.evicts || self.shared.runtime.usage().is_none() {
            return;
        }
        self.enforce_limits(one_disk, schedule, shortages).await;
        let Some(mut shortage) = shortages.observe(&measured, began, Instant::now()) else {
            if !shortages.is_waiting() {
                *last = None;
            }
            return;
        };
        if last.is_none_or(|last| last.signal != shortage.signal) {
            let Shortage { signal, least, available, .. } = shortage;
            let resource = signal.resource_name();
            tracing::warn!(resource, available, least, "the node lacks a resource");
            self.event(&shortage);
        }
        *last = Some(shortage);
        if shortage.signal.resource() == Resource::Disk && self.reclaim().await {
            (measured, began, _) = self.measure().await;
            match shortages.observe(&measured, began, Instant::now()) {
                Some(left) => shortage = left,
                None => return,
            }
        }
        self.evict(&shortage, one_disk, shortages).await;
    }

    /// Measures the node. Returns also when the measurement began, and whether images and pods are on one file system.
    async fn measure(&mut self) -> (Measurement, Instant, bool) {
        let began = Instant::now();
        let mut measured = measure(&self.dir);
        let runtime = &self.shared.runtime;
        if let Some(all) = runtime.usage().and_then(|usage| usage.memory_of_all()) {
            let free = all.limit.saturating_sub(all.used);
            measured.pods_memory = Some(Share { free, all: all.limit });
        }
        let mut one_disk = true;
        if let Some(images) = runtime.images() {
            match images.usage().await {
                Ok(usage) => {
                    let disk = usage.file_system;
                    (measured.image_bytes, measured.image_files) = of_images(&disk);
                    one_disk = is_one_disk(&self.dir, &disk.mount_point);
                }
                Err(error) => tracing::debug!(%error, "the disk of images is not measured"),
            }
        }
        let pressures =
            self.tracker.observe(&measured, &self.shared.settings.pressure, Instant::now());
        self.pressures.send_if_modified(|before| std::mem::replace(before, pressures) != pressures);
        (measured, began, one_disk)
    }

    /// Removes what nothing needs. Returns whether anything can have been removed.
    async fn reclaim(&self) -> bool {
        let (done, answered) = oneshot::channel();
        self.reclaims.send(done).await.is_ok() && answered.await.is_ok()
    }

    /// Evicts every pod that takes more of the disk than its limits allow. The room that it leaves may be enough. One that
    /// does not end keeps no other from being evicted. Only pods with limits are measured.
    async fn enforce_limits(
        &mut self,
        one_disk: bool,
        schedule: &mut limits::Schedule,
        shortages: &mut ShortageTracker,
    ) {
        let began = Instant::now();
        let Some(usage) = self.shared.runtime.usage().filter(|_| schedule.is_due(began)) else {
            return;
        };
        let mut found = Vec::new();
        for pod in self.pods.list().await {
            let uid = pod.metadata.uid.clone().and_then(|uid| PodUid::try_from(uid).ok());
            let Some(uid) = uid.filter(|_| can_be_evicted(&pod) && limits::has_any(&pod)) else {
                continue;
            };
            match usage.disk(&uid, &limits::limited_volumes(&pod)).await {
                Ok(disk) => {
                    let excess = disk.and_then(|disk| limits::excess(&pod, &disk, one_disk));
                    found.extend(excess.map(|excess| (uid, excess)));
                }
                Err(error) => {
                    let message = error_chain(&error);
                    tracing::warn!(pod = %uid, message, "the disk of a pod is not measured");
                }
            }
        }
        schedule.end(Instant::now(), began.elapsed());
        let before = std::mem::take(&mut self.over_limits);
        self.over_limits = found.iter().map(|(pod, _)| pod.clone()).collect();
        for (pod, Excess { message, signal }) in found {
            if !before.contains(&pod) {
                tracing::warn!(%pod, message, "a pod is evicted");
                shortages.evict(pod.clone(), HARD_GRACE, Instant::now());
            }
            let eviction = Eviction { pod, message, within: HARD_GRACE, signal };
            if self.evictions.send(eviction).await.is_err() {
                break;
            }
        }
    }

    async fn evict(&self, shortage: &Shortage, one_disk: bool, shortages: &mut ShortageTracker) {
        let Some(usage) = self.shared.runtime.usage() else { return };
        let used = match usage.pods().await {
            Ok(used) => used,
            Err(error) => {
                let message = error_chain(&error);
                return tracing::warn!(message, "no pod is evicted: the pods cannot be measured");
            }
        };
        let pods = self.pods.list().await;
        let mut found: Vec<(Candidate, &Pod, &PodUsage)> =
            pods.iter().filter_map(|pod| candidate(pod, &used, one_disk)).collect();
        // A pod that may have ended well is not evicted, and keeps no other from its eviction meanwhile.
        found.retain(|(it, ..)| !self.shared.runtime.pod(&it.pod).awaits_ends());
        let candidates: Vec<Candidate> = found.iter().map(|(it, ..)| it.clone()).collect();
        let Some(first) = ranking::first(shortage.signal, &candidates) else {
            return tracing::debug!(?shortage, "no pod can be evicted for it");
        };
        let Some((_, pod, own)) = found.iter().find(|(it, ..)| it.pod == first.pod) else { return };
        let within = match shortage.is_soft {
            true => self.shared.settings.pressure.soft.pod_grace,
            false => HARD_GRACE,
        };
        let eviction = Eviction {
            pod: first.pod.clone(),
            message: message(shortage, pod, own),
            within,
            signal: shortage.signal.name(),
        };
        tracing::warn!(pod = %eviction.pod, message = eviction.message, "a pod is evicted");
        if self.evictions.send(eviction).await.is_ok() {
            // It has its own grace period at most.
            shortages.evict(first.pod.clone(), within.min(pod::grace(pod)), Instant::now());
        }
    }

    fn event(&self, shortage: &Shortage) {
        self.shared.events.record(Occurrence {
            about: Subject::Node(self.shared.node.clone()),
            severity: Severity::Warning,
            reason: "EvictionThresholdMet".to_owned(),
            message: format!("Attempting to reclaim {}", shortage.signal.resource_name()),
        });
    }
}

/// Whether the pod neither ends nor has ended.
fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !pod::is_deleting(pod) && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the pod may go for a limit of its own: the node works without it.
fn can_be_evicted(pod: &Pod) -> bool {
    is_active(pod) && !pod::is_critical(pod)
}

/// The pod as one that could be evicted; `None` if it ends, has ended, or is not measured.
fn candidate<'p>(
    pod: &'p Pod,
    used: &'p [PodUsage],
    one_disk: bool,
) -> Option<(Candidate, &'p Pod, &'p PodUsage)> {
    let uid = pod.metadata.uid.as_deref()?;
    let own = used.iter().find(|it| it.pod.as_str() == uid)?;
    if !is_active(pod) {
        return None;
    }
    let candidate = Candidate {
        pod: own.pod.clone(),
        priority: pod::priority(pod),
        is_critical: pod::is_critical(pod),
        requests: pod_requests(pod),
        usage: Usage::of(own, one_disk),
    };
    Some((candidate, pod, own))
}
