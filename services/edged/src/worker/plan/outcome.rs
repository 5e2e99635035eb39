//! How a pod ended, and whether its init containers have done their part.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::facts::{ContainerFacts, Containers, Outcome, Run};
use crate::pod::{init_containers, is_sidecar, main_containers, restarts};

/// How the pod ended for good, if it has.
pub fn outcome(pod: &Pod, containers: &Containers) -> Option<Outcome> {
    let exit = |container: &Container| match containers.get(&container.name)? {
        ContainerFacts {
            run: Run::Exited { code, interrupted: false },
            is_superseded: false,
            ..
        } => Some(*code),
        _ => None,
    };
    let has_given_up = |container: &Container| {
        let failed = exit(container).filter(|code| *code != 0);
        failed.is_some_and(|code| !restarts(pod, container, code))
    };
    if init_containers(pod).iter().any(|c| !is_sidecar(c) && has_given_up(c)) {
        return Some(Outcome::Failed);
    }
    let main = main_containers(pod);
    let exits: Option<Vec<i32>> = main.iter().map(exit).collect();
    let exits = exits.filter(|exits| !exits.is_empty())?;
    if main.iter().zip(&exits).any(|(container, code)| restarts(pod, container, *code)) {
        return None;
    }
    let succeeded = exits.iter().all(|code| *code == 0);
    Some(if succeeded { Outcome::Succeeded } else { Outcome::Failed })
}

/// The outcome that is reported of a pod that was stopped, once nothing of it runs and it is known how all of it ended.
pub fn stopped(pod: &Pod, containers: &Containers) -> Option<Outcome> {
    let is_open = |facts: &ContainerFacts| facts.is_running() || facts.is_end_pending();
    if containers.is_empty() || containers.values().any(is_open) {
        return None;
    }
    let succeeded = main_containers(pod).iter().all(|container| {
        let run = containers.get(&container.name).map(|facts| facts.run);
        matches!(run, Some(Run::Exited { code: 0, .. }))
    });
    Some(if succeeded { Outcome::Succeeded } else { Outcome::Failed })
}

/// Whether every init container has done its part in this sandbox, so that the main containers may
/// start.
pub fn is_initialized(pod: &Pod, containers: &Containers) -> bool {
    initialized(pod, containers) == init_containers(pod).len()
}

/// The number of init containers, from the first, that have done their part in this sandbox. A
/// container that has begun shows that all before it have.
pub(super) fn initialized(pod: &Pod, containers: &Containers) -> usize {
    let init = init_containers(pod);
    let has_begun = |container: &Container| {
        containers.get(&container.name).is_some_and(|facts| facts.run_here() != Run::Never)
    };
    if main_containers(pod).iter().any(has_begun) {
        return init.len();
    }
    let latest = init.iter().enumerate().rev().find(|(_, container)| has_begun(container));
    latest.map_or(0, |(index, container)| {
        index + usize::from(has_initialized(container, containers.get(&container.name)))
    })
}

/// Whether this init container has done its part in this sandbox.
fn has_initialized(container: &Container, facts: Option<&ContainerFacts>) -> bool {
    let Some(facts) = facts else { return false };
    match facts.run_here() {
        Run::Exited { code, interrupted } => !is_sidecar(container) && code == 0 && !interrupted,
        Run::Running => is_sidecar(container) && facts.started,
        Run::Never | Run::EndPending => false,
    }
}
