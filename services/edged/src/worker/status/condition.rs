//! The conditions of a pod, each with the time of its last change.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusFacts;
use crate::pod::init_containers;
use crate::worker::plan::Outcome;

/// A condition before it has its time.
struct ConditionFact {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

/// Every condition a kubelet reports, in its order.
pub(super) fn all(
    facts: &StatusFacts<'_>,
    status: &PodStatus,
    initialized: bool,
    now: Timestamp,
) -> Vec<PodCondition> {
    let containers = containers_ready(facts, status);
    let ready = ready(facts, &containers);
    let began = !facts.runs.is_empty();
    let findings = [
        holds("PodReadyToStartContainers", began && facts.ended.is_none()),
        initialized_finding(facts, status, initialized),
        ready,
        containers,
        holds("PodScheduled", true),
    ];
    findings.into_iter().map(|finding| timed(finding, facts, now)).collect()
}

fn holds(kind: &'static str, holds: bool) -> ConditionFact {
    ConditionFact { kind, holds, reason: None, message: None }
}

fn fails(kind: &'static str, reason: &'static str, message: Option<String>) -> ConditionFact {
    ConditionFact { kind, holds: false, reason: Some(reason), message }
}

fn initialized_finding(
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

/// Ready is containers ready, and every readiness gate open.
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

fn timed(finding: ConditionFact, facts: &StatusFacts<'_>, now: Timestamp) -> PodCondition {
    let status = if finding.holds { "True" } else { "False" };
    let before = facts
        .before
        .and_then(|before| before.conditions.as_ref())
        .and_then(|all| all.iter().find(|c| c.type_ == finding.kind && c.status == status))
        .and_then(|condition| condition.last_transition_time.clone());
    PodCondition {
        type_: finding.kind.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.map(str::to_owned),
        message: finding.message,
        last_transition_time: Some(before.unwrap_or(Time(now))),
        ..PodCondition::default()
    }
}
