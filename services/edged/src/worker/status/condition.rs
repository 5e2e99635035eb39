//! The conditions of a pod, each with the time of its last change.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusFacts;
use crate::pod::init_containers;
use crate::runtime::SandboxState;
use crate::worker::plan::Outcome;

/// Whether the runtime honours every field of the pod's spec. It is there only if it does not: one
/// field a kubelet would honour has no effect here, and the message names it.
const SPEC_HONOURED: &str = "headwater/SpecHonoured";

/// A condition without its time.
struct ConditionFact {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

/// Every condition that a kubelet reports, in a kubelet's order, then Headwater's own.
pub(super) fn all(
    facts: &StatusFacts<'_>,
    status: &PodStatus,
    initialized: bool,
    now: Timestamp,
) -> Vec<PodCondition> {
    let containers = containers_ready(facts, status);
    let ready = ready(facts, &containers);
    let has_sandbox = match facts.state.sandbox {
        SandboxState::Ready => true,
        SandboxState::Lost => false,
        SandboxState::None => !facts.state.containers.is_empty(),
    };
    let conditions = [
        holds("PodReadyToStartContainers", has_sandbox && facts.ended.is_none()),
        initialized_condition(facts, status, initialized),
        ready,
        containers,
        holds("PodScheduled", true),
    ];
    let own =
        facts.notes.map(|notes| fails(SPEC_HONOURED, "FieldsIgnored", Some(notes.to_owned())));
    conditions.into_iter().chain(own).map(|condition| timed(condition, facts, now)).collect()
}

fn holds(kind: &'static str, holds: bool) -> ConditionFact {
    ConditionFact { kind, holds, reason: None, message: None }
}

fn fails(kind: &'static str, reason: &'static str, message: Option<String>) -> ConditionFact {
    ConditionFact { kind, holds: false, reason: Some(reason), message }
}

fn initialized_condition(
    facts: &StatusFacts<'_>,
    status: &PodStatus,
    initialized: bool,
) -> ConditionFact {
    if facts.ended == Some(Outcome::Succeeded) && !init_containers(facts.pod).is_empty() {
        return ConditionFact { reason: Some("PodCompleted"), ..holds("Initialized", true) };
    }
    if initialized {
        return holds("Initialized", true);
    }
    let names = unready(status.init_container_statuses.as_deref());
    let message = format!("containers with incomplete status: [{names}]");
    fails("Initialized", "ContainersNotInitialized", Some(message))
}

fn containers_ready(facts: &StatusFacts<'_>, status: &PodStatus) -> ConditionFact {
    const KIND: &str = "ContainersReady";
    match facts.ended {
        Some(Outcome::Succeeded) => return fails(KIND, "PodCompleted", None),
        Some(Outcome::Failed) => return fails(KIND, "PodFailed", None),
        None => {}
    }
    let names = unready(status.container_statuses.as_deref());
    if names.is_empty() {
        return holds(KIND, true);
    }
    let message = format!("containers with unready status: [{names}]");
    fails(KIND, "ContainersNotReady", Some(message))
}

/// A pod is ready if its containers are ready and every readiness gate is open.
fn ready(facts: &StatusFacts<'_>, containers: &ConditionFact) -> ConditionFact {
    if !containers.holds {
        let message = containers.message.clone();
        return ConditionFact { kind: "Ready", holds: false, reason: containers.reason, message };
    }
    let gates = facts.pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref());
    let given = facts.pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    let is_open = |kind: &str| {
        given.unwrap_or_default().iter().any(|c| c.type_ == kind && c.status == "True")
    };
    let closed = gates.unwrap_or_default().iter().find(|gate| !is_open(&gate.condition_type));
    match closed {
        None => holds("Ready", true),
        Some(gate) => {
            let message = format!(
                "corresponding condition of pod readiness gate \"{}\" does not exist or is not True",
                gate.condition_type
            );
            fails("Ready", "ReadinessGatesNotReady", Some(message))
        }
    }
}

fn unready(statuses: Option<&[ContainerStatus]>) -> String {
    let names: Vec<_> =
        statuses.unwrap_or_default().iter().filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
    names.join(" ")
}

fn timed(fact: ConditionFact, facts: &StatusFacts<'_>, now: Timestamp) -> PodCondition {
    let status = if fact.holds { "True" } else { "False" };
    let before = facts
        .before
        .and_then(|before| before.conditions.as_ref())
        .and_then(|all| all.iter().find(|c| c.type_ == fact.kind && c.status == status))
        .and_then(|condition| condition.last_transition_time.clone());
    PodCondition {
        type_: fact.kind.to_owned(),
        status: status.to_owned(),
        reason: fact.reason.map(str::to_owned),
        message: fact.message,
        last_transition_time: Some(before.unwrap_or(Time(now))),
        ..PodCondition::default()
    }
}
