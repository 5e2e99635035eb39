//! The workloads of the sources: they are not replicated, but their counts can be read.

use std::sync::{Arc, PoisonError, RwLock};

use headwater_event::ResourceKey;
use serde_json::Value;

use super::manifest::rollout::DeploymentProgress;

/// A workload as its source last unfolded it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkloadState {
    /// The kind, as in manifests.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The document.
    pub(crate) manifest: Value,
    /// How many pods it asks for: of a DaemonSet, how many nodes fit.
    pub(crate) wanted: u64,
    /// How many seconds a pod is Ready before it counts as available.
    pub(crate) min_ready_seconds: u64,
    /// Its pods.
    pub(crate) pods: Vec<WorkloadPod>,
    /// The condition of a Job that has ended or is suspended, with its reason.
    pub(crate) condition: Option<(&'static str, String)>,
    /// How far the rollout of a Deployment is.
    pub(crate) progress: Option<DeploymentProgress>,
}

/// A pod of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadPod {
    pub(crate) key: ResourceKey,
    /// Whether it is made of the present template.
    pub(crate) is_current: bool,
}

/// The workloads of all sources; `None` while no source unfolds any. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SharedWorkloads(Arc<RwLock<Option<Arc<Vec<WorkloadState>>>>>);

impl SharedWorkloads {
    /// Replaces the workloads.
    pub(crate) fn replace(&self, workloads: Arc<Vec<WorkloadState>>) {
        // A writer that panicked has replaced the whole value, or nothing of it.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(workloads);
    }

    /// The workloads, in the order of their files. Those of files that do not read come last.
    pub(crate) fn get(&self) -> Option<Arc<Vec<WorkloadState>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
