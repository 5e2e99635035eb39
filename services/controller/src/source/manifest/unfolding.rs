//! Unfolding: from a workload and its published pods to the objects that it is unfolded to next.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{NodeName, ResourceKey};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::description::{Past, RolloutInputs, workload_of};
use super::fit::NodeTraits;
use super::origin::remove_origin;
use super::rollout::{
    JobCondition, LivePod, PodContent, PodState, Rollout, RolloutClock, RolloutContext, RolloutPod,
};
use super::workload::{JOB_FAILED_ANNOTATION, Workload};
use crate::source::workloads::{WorkloadPod, WorkloadState};

/// `activeDeadlineSeconds` of a pod that its node is to end: the smallest that a pod may have.
const END_NOW_SECONDS: u64 = 1;

/// The objects of a workload, and when they are decided anew.
#[derive(Debug)]
pub(super) struct Unfolding {
    /// Its claims and pods, each claim before its pod.
    pub(super) objects: Vec<Value>,
    /// The pods whose reports decide what comes after it.
    pub(super) waiting: BTreeSet<ResourceKey>,
    /// When something else may follow although no report came.
    pub(super) next: Option<Timestamp>,
    pub(super) state: WorkloadState,
}

/// The published pods of a workload, by name.
type PublishedPods = BTreeMap<String, (ResourceKey, Value)>;

/// Unfolds `workload`.
pub(super) fn unfold(
    workload: &Workload,
    nodes: &BTreeMap<NodeName, NodeTraits>,
    past: &Past<'_>,
    inputs: &RolloutInputs<'_>,
) -> Unfolding {
    let fitting: Vec<NodeName> = if workload.names_nodes() {
        let sample = workload.sample();
        let fits = nodes.values().filter(|node| node.fits_daemon(&sample));
        fits.map(|node| node.name.clone()).collect()
    } else {
        Vec::new()
    };
    let published = published(workload, &fitting, past, inputs);
    let live: Vec<LivePod> = published
        .iter()
        .map(|(name, (key, pod))| live_pod(workload, name, key, pod, inputs))
        // A pod of an earlier template cannot move: it is gone with its node.
        .filter(|pod| {
            pod.is_current || pod.node.as_ref().is_none_or(|node| nodes.contains_key(node))
        })
        .collect();
    let leaving = RefCell::new(BTreeSet::new());
    let is_leaving = || {
        let is_gone = |pod: &ResourceKey, node: &NodeName| {
            workload.may_have_made(pod.name())
                // A pod that left its node with the node is gone.
                && nodes.contains_key(node)
                && !published.contains_key(pod.name())
                && past(pod).is_none()
        };
        let of = (workload.namespace(), workload.name());
        leaving.replace(inputs.reports.reported(of.0, of.1, &is_gone));
        !leaving.borrow().is_empty()
    };
    let mut clock = RolloutClock::new(inputs.now);
    let rollout = workload.rule().roll(RolloutContext {
        pods: &live,
        is_leaving: &is_leaving,
        nodes: &fitting,
        names: &mut workload.pod_names(&fitting),
        clock: &mut clock,
    });
    let key = |name: &str| ResourceKey::new(Some(workload.namespace()), "pod", name).ok();
    let mut waiting = BTreeSet::new();
    if !rollout.is_settled {
        waiting = leaving.take();
        waiting.extend(rollout.pods.iter().filter_map(|pod| key(&pod.name)));
        waiting.extend(live.iter().filter_map(|pod| key(&pod.name)));
    }
    let mut objects = Vec::new();
    for pod in &rollout.pods {
        objects.extend(workload.claims(&pod.name));
        objects.extend(object(workload, pod, &published));
    }
    let state = state(workload, &rollout, &live, fitting.len(), &key);
    Unfolding { objects, waiting, next: clock.next(), state }
}

/// The published pods of `workload`. Those of a version of this program that did not mark them have
/// the names that the workload gives.
fn published(
    workload: &Workload,
    fitting: &[NodeName],
    past: &Past<'_>,
    inputs: &RolloutInputs<'_>,
) -> PublishedPods {
    let owner = workload.owner();
    let members = inputs.members.get(&owner);
    let found = |key: ResourceKey| {
        let pod = past(&key)?;
        Some((key.name().to_owned(), (key, pod)))
    };
    if let Some(members) = members.filter(|members| !members.is_empty()) {
        return members.iter().cloned().filter_map(found).collect();
    }
    let count = workload.rule().wanted().unwrap_or(fitting.len() as u64);
    let names = workload.pod_names(fitting).take(usize::try_from(count).unwrap_or(0));
    let keys =
        names.filter_map(|name| ResourceKey::new(Some(workload.namespace()), "pod", &name).ok());
    let is_unmarked = |(_, (_, pod)): &(String, (ResourceKey, Value))| workload_of(pod).is_none();
    keys.filter_map(found).filter(is_unmarked).collect()
}

fn live_pod(
    workload: &Workload,
    name: &str,
    key: &ResourceKey,
    pod: &Value,
    inputs: &RolloutInputs<'_>,
) -> LivePod {
    let report = inputs.reports.report(key, pod);
    let state = report
        .map(|report| PodState::of(&report.status, report.is_node_reachable))
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    LivePod {
        name: name.to_owned(),
        node: pod["spec"]["nodeName"].as_str().and_then(|node| node.parse().ok()),
        is_current: workload.is_current(pod),
        created: pod["metadata"]["creationTimestamp"].as_str().and_then(|time| time.parse().ok()),
        ended: text(&pod["metadata"]["annotations"][JOB_FAILED_ANNOTATION]),
        state,
    }
}

/// The object of a pod of a rollout.
fn object(workload: &Workload, pod: &RolloutPod, published: &PublishedPods) -> Option<Value> {
    let reason = match pod.content {
        PodContent::Template => return Some(workload.pod(&pod.name, pod.node.as_ref())),
        PodContent::Published => None,
        PodContent::Ended(reason) => Some(reason),
    };
    let mut object = published.get(&pod.name)?.1.clone();
    remove_origin(&mut object);
    let metadata = object["metadata"].as_object_mut()?;
    metadata.remove("uid");
    metadata.remove("creationTimestamp");
    if !workload.names_nodes() {
        object["spec"].as_object_mut()?.remove("nodeName");
    }
    if let Some(reason) = reason {
        object["spec"]["activeDeadlineSeconds"] = END_NOW_SECONDS.into();
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = json!({});
        }
        object["metadata"]["annotations"][JOB_FAILED_ANNOTATION] = reason.into();
    }
    Some(object)
}

/// A workload that is not unfolded, as people read it: its pods are those that are published.
pub(super) fn held_state(
    workload: &Workload,
    past: &Past<'_>,
    inputs: &RolloutInputs<'_>,
) -> WorkloadState {
    let members = inputs.members.get(&workload.owner()).into_iter().flatten();
    let pods: Vec<WorkloadPod> = members
        .filter_map(|key| {
            let is_current = workload.is_current(&past(key)?);
            Some(WorkloadPod { key: key.clone(), is_current })
        })
        .collect();
    let count = pods.len();
    summary(workload, pods, count)
}

/// The workload with `pods`, as people read it; `fitting` are wanted if it names no number.
fn summary(workload: &Workload, pods: Vec<WorkloadPod>, fitting: usize) -> WorkloadState {
    WorkloadState {
        kind: workload.kind().to_owned(),
        namespace: workload.namespace().to_owned(),
        name: workload.name().to_owned(),
        manifest: workload.manifest().clone(),
        wanted: workload.rule().wanted().unwrap_or(fitting as u64),
        min_ready_seconds: workload.rule().min_ready_seconds(),
        pods,
        condition: None,
        progress: None,
    }
}

/// The workload as people read it.
fn state(
    workload: &Workload,
    rollout: &Rollout,
    live: &[LivePod],
    fitting: usize,
    key: &dyn Fn(&str) -> Option<ResourceKey>,
) -> WorkloadState {
    let is_current = |pod: &RolloutPod| {
        let live = live.iter().find(|live| live.name == pod.name);
        pod.content == PodContent::Template || live.is_some_and(|live| live.is_current)
    };
    let pods = rollout
        .pods
        .iter()
        .filter_map(|pod| Some(WorkloadPod { key: key(&pod.name)?, is_current: is_current(pod) }));
    WorkloadState {
        condition: rollout.condition.as_ref().map(|condition| match condition {
            JobCondition::Complete => ("Complete", String::new()),
            JobCondition::Suspended => ("Suspended", String::new()),
            JobCondition::Failed(reason) => ("Failed", reason.clone()),
        }),
        progress: rollout.progress,
        ..summary(workload, pods.collect(), fitting)
    }
}
