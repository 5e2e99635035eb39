//! What the volumes of pods use. It is measured beside the requests, at most once a minute: a volume can have many files,
//! and a driver can hang.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_edged::NodePods;
use headwater_edged::pod::{PodUid, claim_name};
use headwater_edged::runtime::FileSystemUsage;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use tokio::time::Instant;

/// How long a measurement is the latest one, as a kubelet's (`volumeStatsAggPeriod`).
const MEASURED_EVERY: Duration = Duration::from_mins(1);

/// The volumes of each pod, by its UID.
pub(crate) type VolumesByPod = BTreeMap<String, Vec<VolumeNumbers>>;

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

/// The latest measurement. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeStatistics(Arc<Mutex<Latest>>);

#[derive(Debug, Default)]
struct Latest {
    volumes: Arc<VolumesByPod>,
    /// When the next measurement is due; `None`: at once.
    due: Option<Instant>,
    is_measuring: bool,
}

impl VolumeStatistics {
    /// The latest measurement; empty before the first one. Begins the next one if it is due.
    pub(crate) fn latest(&self, pods: &NodePods, listed: &[Pod]) -> Arc<VolumesByPod> {
        let mut latest = self.lock();
        let is_due = latest.due.is_none_or(|due| due <= Instant::now());
        if is_due && !latest.is_measuring {
            latest.is_measuring = true;
            let (this, pods, listed) = (self.clone(), pods.clone(), listed.to_vec());
            tokio::spawn(async move {
                let volumes = Arc::new(measure(&pods, &listed).await);
                let due = Some(Instant::now() + MEASURED_EVERY);
                *this.lock() = Latest { volumes, due, is_measuring: false };
            });
        }
        latest.volumes.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn measure(pods: &NodePods, listed: &[Pod]) -> VolumesByPod {
    let mut measured = VolumesByPod::new();
    for pod in listed {
        let Some(uid) = pod.metadata.uid.clone() else { continue };
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        // A kubelet does not measure what is not the pod's.
        let own: Vec<&Volume> = volumes.filter(|volume| volume.host_path.is_none()).collect();
        let Ok(pod_uid) = PodUid::try_from(uid.clone()) else { continue };
        let names: Vec<String> = own.iter().map(|volume| volume.name.clone()).collect();
        let mut usages = pods.runtime().volume_usage(&pod_uid, &names).await;
        let at = Timestamp::now();
        let numbers = own.into_iter().filter_map(|volume| {
            let system = usages.remove(&volume.name)?;
            let claim = claim_name(pod, volume).map(|name| name.into_owned());
            Some(VolumeNumbers { name: volume.name.clone(), claim, system, at })
        });
        measured.insert(uid, numbers.collect());
    }
    measured
}
