//! The workloads of the sources with the counts of their pods, as Kubernetes' controllers write them
//! into `status`.

use headwater_store::EngineError;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{Filter, Picture};
use crate::source::manifest::rollout::{DeploymentProgress, Phase, PodState};
use crate::source::workloads::{WorkloadPod, WorkloadState};

/// The counts of the pods of one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    existing: u64,
    current: u64,
    ready: u64,
    available: u64,
    active: u64,
    succeeded: u64,
    failed: u64,
    oldest: Option<Timestamp>,
    last_ended: Option<Timestamp>,
}

impl Picture {
    /// The workloads that `filter` selects, in the order of their files, as they are in their manifests
    /// with a status; `None` where no source has workloads. The age of a workload is that of its oldest
    /// pod. A pod on a node that is unreachable at `now_ms` is not ready.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn workloads(
        &self,
        filter: &Filter<'_>,
        now_ms: i64,
    ) -> Result<Option<Vec<Value>>, EngineError> {
        let Some(workloads) = self.workloads.get() else { return Ok(None) };
        let is_meant = |workload: &&WorkloadState| {
            workload.kind.to_lowercase() == filter.kind
                && (filter.name.is_empty() || filter.name == workload.name)
                && (filter.namespace.is_empty() || filter.namespace == workload.namespace)
        };
        let meant = workloads.iter().filter(is_meant);
        let counted = meant.map(|workload| Ok(object(workload, &self.count(workload, now_ms)?)));
        counted.collect::<Result<Vec<_>, _>>().map(Some)
    }

    fn count(&self, workload: &WorkloadState, now_ms: i64) -> Result<Counts, EngineError> {
        let mut counts = Counts::default();
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        for pod in &workload.pods {
            let Some(object) = self.merged_object(&pod.key, now_ms)? else { continue };
            let node = object["spec"]["nodeName"].as_str().and_then(|node| node.parse().ok());
            let is_reachable = match &node {
                Some(node) => self.is_reachable(node, now_ms)?,
                None => false,
            };
            let state = PodState::of(&object["status"], is_reachable);
            let created = object["metadata"]["creationTimestamp"].as_str();
            let created = created.and_then(|time| time.parse().ok());
            counts.add(pod, &state, created, workload.min_ready_seconds, now);
        }
        Ok(counts)
    }
}

impl Counts {
    fn add(
        &mut self,
        pod: &WorkloadPod,
        state: &PodState,
        created: Option<Timestamp>,
        min_ready_seconds: u64,
        now: Timestamp,
    ) {
        self.existing += 1;
        self.current += u64::from(pod.is_current);
        self.ready += u64::from(state.ready_since.is_some());
        let seconds = i64::try_from(min_ready_seconds).unwrap_or(i64::MAX);
        let wait = SignedDuration::from_secs(seconds);
        let is_available = |since: Timestamp| now.duration_since(since) >= wait || seconds == 0;
        self.available += u64::from(state.ready_since.is_some_and(is_available));
        match state.phase {
            Phase::Active => self.active += 1,
            Phase::Succeeded => self.succeeded += 1,
            Phase::Failed => self.failed += 1,
        }
        self.oldest = self.oldest.into_iter().chain(created).min();
        self.last_ended = self.last_ended.into_iter().chain(state.finished).max();
    }
}

/// The workload with its status.
fn object(workload: &WorkloadState, counts: &Counts) -> Value {
    let mut object = workload.manifest.clone();
    let text = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.insert("namespace".to_owned(), workload.namespace.as_str().into());
        // A manifest may be copied from a cluster.
        for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"]
        {
            metadata.remove(field);
        }
        if let Some(oldest) = counts.oldest {
            metadata.insert("creationTimestamp".to_owned(), text(oldest).into());
        }
    }
    let Counts { existing, current, ready, available, .. } = *counts;
    let missing = workload.wanted.saturating_sub(available);
    let status = match &*workload.kind {
        "DaemonSet" => json!({
            "desiredNumberScheduled": workload.wanted, "currentNumberScheduled": existing,
            "numberReady": ready, "updatedNumberScheduled": current, "numberAvailable": available,
            "numberUnavailable": missing, "numberMisscheduled": 0,
        }),
        "Job" => job_status(workload, counts, &text),
        "Deployment" => json!({
            "replicas": existing, "updatedReplicas": current, "readyReplicas": ready,
            "availableReplicas": available, "unavailableReplicas": missing,
            "conditions": [progressing(workload, counts)],
        }),
        "StatefulSet" => json!({
            "replicas": existing, "updatedReplicas": current, "readyReplicas": ready,
            "availableReplicas": available,
        }),
        _ => json!({
            "replicas": existing, "readyReplicas": ready, "availableReplicas": available,
        }),
    };
    match &*workload.kind {
        "DaemonSet" => {}
        "Job" => {
            if object["spec"]["completions"].is_null() && object["spec"]["parallelism"].is_null() {
                object["spec"]["completions"] = 1.into();
            }
        }
        _ => object["spec"]["replicas"] = workload.wanted.into(),
    }
    object["status"] = status;
    object
}

/// The condition Progressing of a Deployment.
fn progressing(workload: &WorkloadState, counts: &Counts) -> Value {
    let Counts { existing, current, available, .. } = *counts;
    let is_complete = current == existing && available >= workload.wanted;
    let (status, reason) = match workload.progress {
        Some(DeploymentProgress::Paused) => ("Unknown", "DeploymentPaused"),
        _ if is_complete => ("True", "NewReplicaSetAvailable"),
        Some(DeploymentProgress::Exceeded { .. }) => ("False", "ProgressDeadlineExceeded"),
        Some(DeploymentProgress::Progressing) | None => ("True", "ReplicaSetUpdated"),
    };
    json!({"type": "Progressing", "status": status, "reason": reason})
}

fn job_status(
    workload: &WorkloadState,
    counts: &Counts,
    text: &dyn Fn(Timestamp) -> String,
) -> Value {
    let mut status = Map::new();
    status.insert("active".to_owned(), counts.active.into());
    status.insert("succeeded".to_owned(), counts.succeeded.into());
    status.insert("failed".to_owned(), counts.failed.into());
    if let Some(oldest) = counts.oldest {
        status.insert("startTime".to_owned(), text(oldest).into());
    }
    if let Some((kind, reason)) = &workload.condition {
        let mut condition = json!({"type": kind, "status": "True"});
        if !reason.is_empty() {
            condition["reason"] = reason.as_str().into();
        }
        status.insert("conditions".to_owned(), json!([condition]));
        if let Some(ended) = counts.last_ended.filter(|_| *kind == "Complete") {
            status.insert("completionTime".to_owned(), text(ended).into());
        }
    }
    Value::Object(status)
}
