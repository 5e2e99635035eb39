//! A pod's status, as a kubelet reports it. Pure: derived from the spec and the pod's state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{self, Containers, FailReason, Outcome, Run};
use crate::container::WaitReason;
use crate::pod::{PodUid, init_containers, is_sidecar, main_containers};
use crate::runtime::{Exit, PodState, RunState};

mod condition;

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
    /// How the pod ended for good.
    pub(crate) ended: Option<Outcome>,
    /// Why it failed although its containers did not.
    pub(crate) fail_reason: Option<FailReason>,
    /// The fields that the runtime does not honour although nothing is lost, a reason a line.
    pub(crate) notes: Option<&'a str>,
    /// The time at which this node first saw it.
    pub(crate) start_time: Timestamp,
    /// The node's address: also the pod's, if the runtime gives it none.
    pub(crate) node_address: IpAddr,
    /// The status before: a condition that did not change keeps its time.
    pub(crate) before: Option<&'a PodStatus>,
}

/// Derives the pod's status at `now`.
pub(crate) fn derive(facts: &StatusFacts<'_>, now: Timestamp) -> PodStatus {
    let initialized = plan::is_initialized(facts.pod, facts.containers);
    let phase = phase(facts, initialized);
    let of = |containers: &[Container], waits: &'static str| {
        let statuses: Vec<_> =
            containers.iter().map(|container| container_status(facts, container, waits)).collect();
        Some(statuses).filter(|statuses| !statuses.is_empty())
    };
    let main_waits = if initialized { "ContainerCreating" } else { "PodInitializing" };
    let node_address = facts.node_address.to_string();
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        init_container_statuses: of(init_containers(facts.pod), "PodInitializing"),
        container_statuses: of(main_containers(facts.pod), main_waits),
        host_ip: Some(node_address.clone()),
        host_ips: Some(vec![HostIP { ip: node_address.clone() }]),
        start_time: Some(Time(facts.start_time)),
        reason: facts.fail_reason.map(|reason| reason.as_str().to_owned()),
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

fn phase(facts: &StatusFacts<'_>, initialized: bool) -> &'static str {
    match facts.ended {
        Some(Outcome::Succeeded) => return "Succeeded",
        Some(Outcome::Failed) => return "Failed",
        None => {}
    }
    let all_began = main_containers(facts.pod)
        .iter()
        .all(|c| facts.containers.get(&c.name).is_some_and(|now| now.run != Run::Never));
    if initialized && all_began { "Running" } else { "Pending" }
}

fn container_status(
    facts: &StatusFacts<'_>,
    container: &Container,
    waits: &'static str,
) -> ContainerStatus {
    let runs = facts.state.containers.get(&container.name);
    let waiting = facts.waiting.get(&container.name);
    let id = |attempt: u32| format!("headwater://{}/{}/{attempt}", facts.uid, container.name);
    let terminated = |exit: &Exit, attempt| ContainerState {
        terminated: Some(terminated(exit, id(attempt))),
        ..ContainerState::default()
    };
    let wait = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    };
    let (state, last) = match (runs, waiting) {
        (None, Some(waiting)) => (wait(waiting.reason, Some(waiting.message.clone())), None),
        (None, None) => (wait(waits, None), None),
        (Some(runs), waiting) => {
            let previous =
                runs.previous.as_ref().map(|exit| terminated(exit, runs.attempt.wrapping_sub(1)));
            match (&runs.state, waiting) {
                (RunState::Running { started_at }, _) => {
                    let running = ContainerStateRunning { started_at: Some(Time(*started_at)) };
                    let state =
                        ContainerState { running: Some(running), ..ContainerState::default() };
                    (state, previous)
                }
                (RunState::Exited(exit), Some(waiting)) => (
                    wait(waiting.reason, Some(waiting.message.clone())),
                    Some(terminated(exit, runs.attempt)),
                ),
                (RunState::Exited(exit), None) => (terminated(exit, runs.attempt), previous),
            }
        }
    };
    let started = facts.containers.get(&container.name).map(|now| now.started);
    let is_init = init_containers(facts.pod).iter().any(|c| c.name == container.name);
    let done = matches!(
        facts.containers.get(&container.name).map(|now| now.run),
        Some(Run::Exited { succeeded: true, .. })
    );
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: runs.and_then(|runs| runs.image_id.as_deref()).unwrap_or_default().to_owned(),
        container_id: runs.map(|runs| id(runs.attempt)),
        ready: if is_init && !is_sidecar(container) {
            done
        } else {
            facts.ready.contains(container.name.as_str())
        },
        started: Some(started.unwrap_or(false) && state.running.is_some()),
        restart_count: runs.map_or(0, |runs| i32::try_from(runs.attempt).unwrap_or(i32::MAX)),
        state: Some(state),
        last_state: last,
        ..ContainerStatus::default()
    }
}

fn terminated(exit: &Exit, container_id: String) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(container_id),
        exit_code: exit.code,
        signal: exit.signal,
        started_at: exit.started_at.map(Time),
        finished_at: Some(Time(exit.finished_at)),
        reason: Some(exit.reason.clone()),
        message: exit.message.clone(),
    }
}

#[cfg(test)]
mod tests;
