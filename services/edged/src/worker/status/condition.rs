//! The conditions of a pod, each with the time of its last change.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{RESIZE_IN_PROGRESS, RESIZE_PENDING, ResourceFacts, StatusFacts, has_begun};
use crate::pod::{all_containers, can_restart_all, init_containers, is_sidecar, main_containers};
use crate::runtime::SandboxState;
use crate::worker::PendingResize;
use crate::worker::plan::{FailReason, Outcome};
use crate::worker::probe_failure::PROBE_FAILING;

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

/// A condition of our own: a running container has another image than the spec, and the runtime uses
/// no images. It is absent while it does not hold.
const RESTART_NEEDED: &str = "headwater/RestartNeeded";

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
    let noted =
        facts.notes.map(|notes| fails(SPEC_HONOURED, "FieldsIgnored", Some(notes.to_owned())));
    let own = evicted(facts)
        .into_iter()
        .chain(noted)
        .chain(resize_pending(facts))
        .chain(resize_in_progress(facts))
        .chain(all_restarting(facts))
        .chain(restart_needed(facts))
        .chain(probe_failing(facts));
    let conditions = conditions.into_iter().chain(own);
    conditions.map(|condition| timed(condition, facts, now)).collect()
}

/// The words of a kubelet for a pod that leaves its place.
const PREEMPTED: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// The pod ends for the node's sake, and not by itself (KEP-3329).
fn evicted(facts: &StatusFacts<'_>) -> Option<ConditionFact> {
    let message = match facts.fail_reason? {
        FailReason::Evicted => facts.rejection.map(str::to_owned),
        FailReason::Preempted => Some(PREEMPTED.to_owned()),
        _ => return None,
    };
    let reason = Some("TerminationByKubelet");
    Some(ConditionFact { reason, message, ..holds("DisruptionTarget", true) })
}

/// The spec asks for resources that the node does not give (KEP-1287).
fn resize_pending(facts: &StatusFacts<'_>) -> Option<ConditionFact> {
    let PendingResize { reason, message } = facts.resources.pending?;
    let (reason, message) = (Some(*reason), Some(message.to_string()));
    let fact = ConditionFact { reason, message, ..holds(RESIZE_PENDING, true) };
    facts.ended.is_none().then_some(fact)
}

/// The pod is about to have the resources that its spec asks for.
fn resize_in_progress(facts: &StatusFacts<'_>) -> Option<ConditionFact> {
    let ResourceFacts { is_in_progress, failure, .. } = facts.resources;
    let (reason, message) = (failure.map(|_| "Error"), failure.map(str::to_owned));
    let fact = ConditionFact { reason, message, ..holds(RESIZE_IN_PROGRESS, true) };
    (is_in_progress && facts.ended.is_none()).then_some(fact)
}

/// All containers of the pod restart, because one of them has ended (KEP-5532). A pod without a rule that asks for it has
/// no such condition.
fn all_restarting(facts: &StatusFacts<'_>) -> Option<ConditionFact> {
    const KIND: &str = "AllContainersRestarting";
    let condition = match facts.ended {
        Some(Outcome::Succeeded) => fails(KIND, "PodCompleted", None),
        Some(Outcome::Failed) => fails(KIND, "PodFailed", None),
        None if !facts.containers.values().any(|it| it.is_superseded) => holds(KIND, false),
        None => ConditionFact {
            reason: Some("RestartAllContainersStarted"),
            message: Some("container exited with restart policy rule".to_owned()),
            ..holds(KIND, true)
        },
    };
    can_restart_all(facts.pod).then_some(condition)
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
    // A pod that was initialized before a boot of the machine stays so while it starts anew.
    if initialized || main_containers(facts.pod).iter().any(|c| has_begun(facts, c)) {
        return holds("Initialized", true);
    }
    let names = names(facts, status, |container, status| {
        let is_init = init_containers(facts.pod).contains(container);
        let is_done =
            if is_sidecar(container) { status.started == Some(true) } else { status.ready };
        is_init && !is_done
    });
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
    let names = names(facts, status, |container, status| {
        let is_step = init_containers(facts.pod).contains(container) && !is_sidecar(container);
        !is_step && !status.ready
    });
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
    let given = given.unwrap_or_default();
    let closed = gates.unwrap_or_default().iter().filter_map(|gate| {
        let kind = &gate.condition_type;
        match given.iter().find(|condition| condition.type_ == *kind) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {kind:?} does not exist."
            )),
            Some(condition) if condition.status == "True" => None,
            Some(PodCondition { status, .. }) => Some(format!(
                "the status of pod readiness gate {kind:?} is not \"True\", but {status}"
            )),
        }
    });
    let closed: Vec<_> = closed.collect();
    if closed.is_empty() {
        return holds("Ready", true);
    }
    fails("Ready", "ReadinessGatesNotReady", Some(closed.join(", ")))
}

fn restart_needed(facts: &StatusFacts<'_>) -> Option<ConditionFact> {
    let changes = all_containers(facts.pod).filter_map(|container| {
        let now = facts.containers.get(&container.name).filter(|now| now.is_running())?;
        let (runs, image) = (now.run_image.as_deref()?, container.image.as_deref().unwrap_or(""));
        let is_changed = runs != image && !now.is_outdated;
        let name = &container.name;
        is_changed.then(|| {
            format!("container {name} was started with image {runs:?} and its spec has {image:?}")
        })
    });
    let changes: Vec<_> = changes.collect();
    let message = format!("{}: recreate the pod for the change to count", changes.join("; "));
    let fact = || ConditionFact {
        reason: Some("ImageChanged"),
        message: Some(message),
        ..holds(RESTART_NEEDED, true)
    };
    (!changes.is_empty()).then(fact)
}

fn probe_failing(facts: &StatusFacts<'_>) -> Option<ConditionFact> {
    let fact = || ConditionFact {
        reason: Some("ProbeFailed"),
        message: Some(facts.failing_probes.join("\n")),
        ..holds(PROBE_FAILING, true)
    };
    (facts.ended.is_none() && !facts.failing_probes.is_empty()).then(fact)
}

/// The names of the containers for which `counts` is true, in the form of a kubelet.
fn names(
    facts: &StatusFacts<'_>,
    status: &PodStatus,
    counts: impl Fn(&Container, &ContainerStatus) -> bool,
) -> String {
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let statuses = statuses.into_iter().flatten().flatten();
    let counted = all_containers(facts.pod).zip(statuses).filter(|(c, status)| counts(c, status));
    counted.map(|(container, _)| container.name.as_str()).collect::<Vec<_>>().join(" ")
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
