//! A pod's status, as a kubelet reports it. Pure: derived from the spec and the pod's state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::dependencies::PendingResize;
use super::plan::{self, ContainerFacts, Containers, FailReason, Outcome, Run};
use crate::container::WaitReason;
use crate::container::compute_resources::ComputeResources;
use crate::container::qos::QosClass;
use crate::pod::{
    PodUid, container_statuses, ephemeral_containers, every_container, init_containers, is_sidecar,
    main_containers, restarts,
};
use crate::runtime::{Exit, PodState, RunState};

mod condition;

/// The termination messages of all containers of a pod, as under a kubelet.
const MESSAGES_BYTES_MAX: usize = 12 << 10;

/// The facts from which a status is derived.
pub(crate) struct StatusFacts<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// Its UID.
    pub(crate) uid: &'a PodUid,
    /// Its state in the runtime.
    pub(crate) state: &'a PodState,
    /// Its containers, as the planner sees them.
    pub(crate) containers: &'a Containers,
    /// The containers that are ready.
    pub(crate) ready: &'a BTreeSet<&'a str>,
    /// Why containers wait.
    pub(crate) waiting: &'a BTreeMap<String, WaitReason>,
    /// The probes that keep containers from being ready, a line each.
    pub(crate) failing_probes: &'a [String],
    /// How the pod ended for good.
    pub(crate) ended: Option<Outcome>,
    /// Why it failed although its containers did not.
    pub(crate) fail_reason: Option<FailReason>,
    /// The words with which the runtime did not admit it.
    pub(crate) rejection: Option<&'a str>,
    /// The fields that the runtime does not honour although nothing is lost, a reason a line.
    pub(crate) notes: Option<&'a str>,
    /// The resources of its containers.
    pub(crate) resources: ResourceFacts<'a>,
    /// The time at which this node first saw it.
    pub(crate) start_time: Timestamp,
    /// The node's address: also the pod's, if the runtime gives it none.
    pub(crate) node_address: IpAddr,
    /// The status before: a condition that did not change keeps its time.
    pub(crate) before: Option<&'a PodStatus>,
}

/// The CPU and the memory of a pod's containers, where the runtime can change them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResourceFacts<'a> {
    /// The status states them, as a kubelet does also for a pod that asks for none.
    pub(crate) are_stated: bool,
    /// What the latest runs have, by container. One that never ran has what its spec asks for.
    pub(crate) of_runs: BTreeMap<String, ComputeResources>,
    /// Why the pod keeps what it has, if its spec asks for more than the node gives.
    pub(crate) pending: Option<&'a PendingResize>,
    /// The pod is about to have what its spec asks for.
    pub(crate) is_in_progress: bool,
    /// Why it does not have that yet.
    pub(crate) failure: Option<&'a str>,
}

/// The condition of a pod that keeps the resources that it has.
pub(crate) const RESIZE_PENDING: &str = "PodResizePending";

/// The condition of a pod whose resources are being changed.
pub(crate) const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";

/// The reasons of a container that waits for nothing of its own, as a kubelet's.
const CREATING: &str = "ContainerCreating";
const INITIALIZING: &str = "PodInitializing";

/// Derives the pod's status at `now`.
pub(crate) fn derive(facts: &StatusFacts<'_>, now: Timestamp) -> PodStatus {
    let initialized = plan::is_initialized(facts.pod, facts.containers);
    let phase = phase(facts);
    let of = |containers: &[Container], waits: &'static str| {
        let statuses: Vec<_> =
            containers.iter().map(|container| container_status(facts, container, waits)).collect();
        Some(statuses).filter(|statuses| !statuses.is_empty())
    };
    let ephemeral: Vec<Container> = ephemeral_containers(facts.pod).collect();
    let main_waits = if initialized { CREATING } else { INITIALIZING };
    let node_address = facts.node_address.to_string();
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        init_container_statuses: of(init_containers(facts.pod), INITIALIZING),
        container_statuses: of(main_containers(facts.pod), main_waits),
        ephemeral_container_statuses: of(&ephemeral, CREATING),
        host_ip: Some(node_address.clone()),
        host_ips: Some(vec![HostIP { ip: node_address.clone() }]),
        start_time: Some(Time(facts.start_time)),
        reason: facts.fail_reason.map(|reason| reason.as_str().to_owned()),
        message: facts
            .fail_reason
            .and_then(|reason| reason.message().or(facts.rejection))
            .map(str::to_owned),
        qos_class: Some(QosClass::of(facts.pod).as_str().to_owned()),
        observed_generation: facts.pod.metadata.generation,
        ..PodStatus::default()
    };
    let addresses: Vec<String> = match &*facts.state.addresses {
        [] if facts.state.containers.is_empty() => Vec::new(),
        [] => vec![node_address],
        addresses => addresses.iter().map(IpAddr::to_string).collect(),
    };
    if let Some(first) = addresses.first() {
        status.pod_ip = Some(first.clone());
        status.pod_ips = Some(addresses.into_iter().map(|ip| PodIP { ip }).collect());
    }
    status.conditions = Some(condition::all(facts, &status, initialized, now));
    status
}

/// How the pod ended for good, if this status reports an end.
pub(crate) fn outcome(status: &PodStatus) -> Option<Outcome> {
    match status.phase.as_deref() {
        Some("Succeeded") => Some(Outcome::Succeeded),
        Some("Failed") => Some(Outcome::Failed),
        _ => None,
    }
}

/// Whether the pod had ended, and nothing of it ran any more, when this was reported.
pub(super) fn is_last(status: &PodStatus) -> bool {
    let is_running =
        |it: &ContainerStatus| it.state.as_ref().is_some_and(|state| state.running.is_some());
    let runs = container_statuses(status).any(is_running);
    !runs && outcome(status).is_some()
}

/// The id of a container's run, as the status names it.
pub(super) fn container_id(pod: &PodUid, container: &str, attempt: u32) -> String {
    format!("headwater://{pod}/{container}/{attempt}")
}

fn phase(facts: &StatusFacts<'_>) -> &'static str {
    match facts.ended {
        Some(Outcome::Succeeded) => "Succeeded",
        Some(Outcome::Failed) => "Failed",
        None if main_containers(facts.pod).iter().all(|c| has_begun(facts, c)) => "Running",
        None => "Pending",
    }
}

/// Whether the container ever ran, in this sandbox or in an earlier one.
fn has_begun(facts: &StatusFacts<'_>, container: &Container) -> bool {
    facts.containers.get(&container.name).is_some_and(|now| now.run != Run::Never)
}

fn container_status(
    facts: &StatusFacts<'_>,
    container: &Container,
    waits: &'static str,
) -> ContainerStatus {
    let runs = facts.state.containers.get(&container.name);
    let now = facts.containers.get(&container.name);
    let waiting = facts.waiting.get(&container.name);
    let id = |attempt: u32| container_id(facts.uid, &container.name, attempt);
    let message_bytes_max = MESSAGES_BYTES_MAX / every_container(facts.pod).count().max(1);
    let terminated = |exit: &Exit, attempt| ContainerState {
        terminated: Some(terminated(exit, id(attempt), message_bytes_max)),
        ..ContainerState::default()
    };
    let wait = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    };
    let running = |started_at: Option<Timestamp>| ContainerState {
        running: Some(ContainerStateRunning { started_at: started_at.map(Time) }),
        ..ContainerState::default()
    };
    let waits_for = |waiting: &WaitReason| {
        let message = Some(waiting.message.clone()).filter(|message| !message.is_empty());
        // A container of a pod that is not initialized waits for that, whatever the pod itself waits for.
        let reason = if waiting.reason == CREATING { waits } else { waiting.reason };
        wait(reason, message)
    };
    let pending = runs.filter(|runs| runs.is_end_pending());
    let reported = pending.and_then(|runs| reported_end(facts.before?, &id(runs.attempt)));
    let (state, last) = match (runs, waiting) {
        (None, Some(waiting)) => (waits_for(waiting), None),
        (None, None) => (wait(waits, None), None),
        (Some(runs), waiting) => {
            let previous =
                runs.previous.as_ref().map(|exit| terminated(exit, runs.attempt.wrapping_sub(1)));
            match (&runs.state, waiting) {
                (RunState::Running { started_at }, _) => (running(Some(*started_at)), previous),
                // The state that was reported last stays, as under a kubelet: an end is never taken back.
                (RunState::EndPending { started_at }, _) => match reported {
                    Some(reported) => {
                        (reported.state.clone().unwrap_or_default(), reported.last_state.clone())
                    }
                    None if is_given_back(facts) => (lost(id(runs.attempt)), previous),
                    // The container is not ready.
                    None => (running(*started_at), previous),
                },
                (RunState::Exited(exit), Some(waiting)) => {
                    (waits_for(waiting), Some(terminated(exit, runs.attempt)))
                }
                (RunState::Exited(exit), None) if starts_anew(facts, container, exit) => {
                    (wait(waits, None), Some(terminated(exit, runs.attempt)))
                }
                (RunState::Exited(exit), None) => (terminated(exit, runs.attempt), previous),
            }
        }
    };
    let is_step = is_step(facts.pod, container);
    let is_done =
        |now: &ContainerFacts| now.is_current() && matches!(now.run, Run::Exited { code: 0, .. });
    let done = now.is_some_and(is_done) || reported.is_some_and(|status| status.ready);
    let run_image =
        now.and_then(|now| now.run_image.as_deref()).filter(|_| state.running.is_some());
    let stated =
        facts.resources.are_stated.then(|| container.resources.clone().unwrap_or_default());
    let own = facts.resources.of_runs.get(&container.name);
    let runs_with = own.copied().unwrap_or_else(|| ComputeResources::of(container));
    let image = run_image.or(container.image.as_deref()).unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image: image.to_owned(),
        image_id: runs.and_then(|runs| runs.image_id.as_deref()).unwrap_or_default().to_owned(),
        container_id: runs.map(|runs| id(runs.attempt)),
        ready: if is_step { done } else { facts.ready.contains(container.name.as_str()) },
        started: Some(now.is_some_and(|now| now.started) && state.running.is_some()),
        restart_count: runs.map_or(0, |runs| i32::try_from(runs.attempt).unwrap_or(i32::MAX)),
        stop_signal: runs
            .filter(|_| state.running.is_some() && has_stop_signal(container))
            .map(|runs| runs.stop_signal.to_string()),
        state: Some(state),
        last_state: last,
        allocated_resources: stated.as_ref().and_then(|stated| stated.requests.clone()),
        resources: stated.map(|stated| runs_with.within(&stated)),
        ..ContainerStatus::default()
    }
}

/// What was reported of the run with this id, if that was its end.
fn reported_end<'s>(before: &'s PodStatus, id: &str) -> Option<&'s ContainerStatus> {
    let is_end = |status: &&ContainerStatus| {
        let has_ended = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
        // It waits for its next run.
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let waits = last.is_some_and(|end| end.container_id.as_deref() == Some(id));
        status.container_id.as_deref() == Some(id) && (has_ended || waits)
    };
    container_statuses(before).find(is_end)
}

/// The end that was reported of the run with this id, unless it was made up without a time.
pub(super) fn reported_exit(before: &PodStatus, id: &str) -> Option<Exit> {
    let status = reported_end(before, id)?;
    let states = [status.state.as_ref(), status.last_state.as_ref()];
    let mut ends = states.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    let end = ends.find(|end| end.container_id.as_deref() == Some(id))?;
    Some(Exit {
        code: end.exit_code,
        signal: end.signal,
        started_at: end.started_at.as_ref().map(|time| time.0),
        finished_at: end.finished_at.as_ref()?.0,
        reason: end.reason.clone().unwrap_or_default(),
        message: end.message.clone(),
        interrupted: false,
    })
}

/// Whether the pod has left the node to others: its containers are removed at once, and nothing says any more how they ended.
fn is_given_back(facts: &StatusFacts<'_>) -> bool {
    facts.ended.is_some() && facts.fail_reason.is_some_and(FailReason::is_of_others)
}

/// The end of a run that nothing saw, as a kubelet reports it: without a time.
fn lost(container_id: String) -> ContainerState {
    let end = terminated(&Exit::unobserved(None), container_id, MESSAGES_BYTES_MAX);
    let end = ContainerStateTerminated { finished_at: None, ..end };
    ContainerState { terminated: Some(end), ..ContainerState::default() }
}

fn has_stop_signal(container: &Container) -> bool {
    container.lifecycle.as_ref().is_some_and(|hooks| hooks.stop_signal.is_some())
}

/// Whether the container is an init container that ends before the next container starts.
fn is_step(pod: &Pod, container: &Container) -> bool {
    !is_sidecar(container) && init_containers(pod).iter().any(|init| init.name == container.name)
}

/// Whether a container runs again whose run ended in an earlier sandbox, or before a restart of all containers.
fn starts_anew(facts: &StatusFacts<'_>, container: &Container, exit: &Exit) -> bool {
    let now = facts.containers.get(&container.name);
    let is_init = init_containers(facts.pod).iter().any(|init| init.name == container.name);
    let runs_again = |now: &ContainerFacts| {
        let is_due = || is_init || exit.interrupted || restarts(facts.pod, container, exit.code);
        now.is_superseded || (now.in_earlier_sandbox && is_due())
    };
    facts.ended.is_none() && now.is_some_and(runs_again)
}

fn terminated(
    exit: &Exit,
    container_id: String,
    message_bytes_max: usize,
) -> ContainerStateTerminated {
    let message = exit.message.as_deref();
    ContainerStateTerminated {
        container_id: Some(container_id),
        exit_code: exit.code,
        signal: exit.signal,
        started_at: exit.started_at.map(Time),
        finished_at: Some(Time(exit.finished_at)),
        reason: Some(exit.reason.clone()),
        message: message.map(|text| text[..text.floor_char_boundary(message_bytes_max)].to_owned()),
    }
}

#[cfg(test)]
mod tests;
