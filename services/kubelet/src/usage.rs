//! What the machine and its pods use: `/metrics/resource`, `/metrics/cadvisor` and `/stats/summary`.

mod cadvisor;
mod machine;
mod resource;
mod summary;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_edged::NodePods;
use headwater_edged::runtime::{DiskUsage, PodUsage, RunState, RuntimeError, Usage};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

pub(crate) use self::cadvisor::cadvisor;
pub(crate) use self::resource::resource;
pub(crate) use self::summary::summary;
pub(crate) use self::volumes::{VolumeStatistics, VolumesByPod};

/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

/// The usage of one pod, with the names that the runtime does not know.
struct PodNumbers<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    pod: &'a Pod,
    usage: PodUsage,
    /// When each container that runs was started.
    started: BTreeMap<String, Timestamp>,
}

/// What measures the pods.
fn measuring(pods: &NodePods) -> Result<&Arc<dyn Usage>, RuntimeError> {
    pods.runtime().usage().ok_or(RuntimeError::Unsupported { verb: "measure pods" })
}

async fn measured<'a>(
    pods: &NodePods,
    listed: &'a [Pod],
) -> Result<Vec<PodNumbers<'a>>, RuntimeError> {
    let measured = measuring(pods)?.pods().await?;
    let mut by_uid: BTreeMap<String, PodUsage> =
        measured.into_iter().map(|usage| (usage.pod.to_string(), usage)).collect();
    let named = listed.iter().filter_map(|pod| {
        let uid = pod.metadata.uid.as_deref()?;
        let mut usage = by_uid.remove(uid)?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref()?;
        let histories = pods.runtime().pod(&usage.pod).containers.into_iter();
        let started = histories.filter_map(|(name, history)| match history.state {
            RunState::Running { started_at } => Some((name, started_at)),
            _ => None,
        });
        let started: BTreeMap<String, Timestamp> = started.collect();
        // As a kubelet's, the numbers are of what runs.
        if started.is_empty() {
            return None;
        }
        usage.containers.retain(|it| started.contains_key(&it.container));
        Some(PodNumbers { namespace, name, uid, pod, usage, started })
    });
    Ok(named.collect())
}

impl PodNumbers<'_> {
    /// What the pod's containers, logs and volumes take on the disk.
    fn disk(&self) -> DiskUsage {
        self.usage.containers.iter().fold(self.usage.volumes, |sum, container| {
            sum + container.logs + container.disk.unwrap_or_default()
        })
    }
}
