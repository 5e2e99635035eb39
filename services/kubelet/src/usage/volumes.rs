//! What the volumes of pods use. It is measured beside the requests, at most once a minute: a volume can have many files,
//! and a driver can hang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use headwater_edged::NodePods;
use headwater_edged::pod::{PodUid, claim_name};
use headwater_edged::runtime::FileSystemUsage;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long a measurement is the latest one, as a kubelet's (`volumeStatsAggPeriod`).
const MEASURED_EVERY: Duration = Duration::from_mins(1);

/// Pods that are measured at a time: one whose driver does not answer delays few others.
const PODS_AT_ONCE: usize = 8;

/// How long the measurement of a pod may take: longer than that of some drivers that do not answer.
const MEASURED_WITHIN: Duration = Duration::from_mins(1);

/// The volumes of each pod, by its UID.
pub(crate) type VolumesByPod = BTreeMap<String, Arc<[VolumeNumbers]>>;

/// What a volume uses.
#[derive(Clone, Debug)]
pub(crate) struct VolumeNumbers {
    /// Its name in the pod.
    pub(crate) name: String,
    /// Its claim.
    pub(crate) claim: Option<String>,
    pub(crate) system: FileSystemUsage,
    /// When it was measured.
    pub(crate) at: Timestamp,
}

/// The latest measurements. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeStatistics(Arc<Mutex<Latest>>);

#[derive(Debug, Default)]
struct Latest {
    volumes: VolumesByPod,
    /// When the next measurement is due; `None`: at once.
    due: Option<Instant>,
    measuring: Option<JoinHandle<()>>,
    /// The pods whose measurement did not end: a file system of theirs does not answer, and each measurement would hold
    /// one more thread.
    stuck: BTreeSet<String>,
}

impl VolumeStatistics {
    /// The latest measurements; none before the first one. Begins the next one if it is due.
    pub(crate) fn latest(&self, pods: &NodePods, listed: &[Pod]) -> VolumesByPod {
        let now = Instant::now();
        let mut latest = self.lock();
        let is_due = latest.due.is_none_or(|due| due <= now);
        let is_measuring = latest.measuring.as_ref().is_some_and(|it| !it.is_finished());
        if is_due && !is_measuring {
            latest.due = Some(now + MEASURED_EVERY);
            let (this, pods, listed) = (self.clone(), pods.clone(), listed.to_vec());
            latest.measuring =
                Some(tokio::spawn(async move { this.measure(&pods, &listed).await }));
        }
        latest.volumes.clone()
    }

    /// Measures the volumes of all pods. Those of a pod are known as soon as they are measured.
    async fn measure(&self, pods: &NodePods, listed: &[Pod]) {
        let uids: BTreeSet<&str> =
            listed.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        let wanted = {
            let mut latest = self.lock();
            latest.volumes.retain(|uid, _| uids.contains(uid.as_str()));
            latest.stuck.retain(|uid| uids.contains(uid.as_str()));
            let is_stuck = |pod: &&Pod| {
                pod.metadata.uid.as_ref().is_some_and(|uid| latest.stuck.contains(uid))
            };
            listed.iter().filter(|pod| !is_stuck(pod)).collect::<Vec<_>>()
        };
        let measured = stream::iter(wanted).for_each_concurrent(PODS_AT_ONCE, async |pod| {
            let Some(uid) = pod.metadata.uid.clone() else { return };
            match timeout(MEASURED_WITHIN, numbers(pods, pod)).await {
                Ok(numbers) => drop(self.lock().volumes.insert(uid, numbers)),
                Err(_) => {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    tracing::warn!(
                        pod = name,
                        uid,
                        "its volumes are not measured: one does not answer"
                    );
                    self.lock().stuck.insert(uid);
                }
            }
        });
        measured.await;
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers of the volumes of a pod.
async fn numbers(pods: &NodePods, pod: &Pod) -> Arc<[VolumeNumbers]> {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let Ok(uid) = PodUid::try_from(uid) else { return Arc::default() };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    // A kubelet does not measure what is not the pod's.
    let own: Vec<&Volume> = volumes.filter(|volume| volume.host_path.is_none()).collect();
    let names: Vec<String> = own.iter().map(|volume| volume.name.clone()).collect();
    let mut usages = pods.runtime().volume_usage(&uid, &names).await;
    let at = Timestamp::now();
    let numbers = own.into_iter().filter_map(|volume| {
        let system = usages.remove(&volume.name)?;
        let claim = claim_name(pod, volume).map(|name| name.into_owned());
        Some(VolumeNumbers { name: volume.name.clone(), claim, system, at })
    });
    numbers.collect()
}
