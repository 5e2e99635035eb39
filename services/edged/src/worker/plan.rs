//! What to do next for one pod: pure, and the same answer for the same facts.
//!
//! [`plan`] looks at what should be ([`Fate`] and the pod's spec) and what is ([`ContainerFacts`])
//! and names the next steps; it never waits, it says when to ask again.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use crate::container::WaitReason;
use crate::pod::{RestartPolicy, all_containers, init_containers, is_sidecar, main_containers};

/// A container that was asked to end has at least this long, as under a kubelet.
const TERMINATION_MIN: Duration = Duration::from_secs(2);

/// A kill that showed no effect is repeated after this.
const KILL_AGAIN: Duration = Duration::from_secs(5);

/// What is to become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It should run.
    Run,
    /// It should end.
    End {
        /// What still runs then is killed.
        deadline: Instant,
        /// What follows once nothing runs.
        then: FinalStep,
    },
}

/// What follows when none of a pod's containers runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalStep {
    /// The cloud is asked to delete the object.
    AskDelete,
    /// The pod is wanted no more: what it left is removed.
    CleanUp,
    /// The machine stops: everything stays for the next start.
    Leave,
}

/// One container as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its latest run.
    pub run: Run,
    /// Whether that run is past its startup probe and postStart hook.
    pub started: bool,
    /// Set when that run has to end, by this time, for its own sake: a probe or hook failed.
    pub unhealthy: Option<Instant>,
    /// How far its ending has come.
    pub stopping: Option<Stopping>,
    /// Until when it must not start again, and how long that wait is.
    pub blocked: Option<(Instant, Duration)>,
    /// Why it cannot start: what it needs is not there.
    pub refused: Option<WaitReason>,
    /// When a start that failed is tried again.
    pub retry_at: Option<Instant>,
}

/// A container's latest run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// There was none.
    Never,
    /// It runs.
    Running,
    /// It ended.
    Exited {
        /// With exit code zero.
        succeeded: bool,
        /// For the machine's sake.
        interrupted: bool,
    },
}

/// How far a container's ending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// Its preStop hook was started.
    PreStop {
        /// And has ended.
        done: bool,
    },
    /// It was asked to end.
    Terminated {
        /// When.
        since: Instant,
    },
    /// It was killed.
    Killed {
        /// When.
        since: Instant,
    },
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the container once more.
    Start(String),
    /// Run its preStop hook.
    PreStop(String),
    /// Ask it to end.
    Terminate(String),
    /// End it.
    Kill(String),
    /// Ask the cloud to delete the pod's object.
    AskDelete,
    /// Remove what the pod left, and forget it.
    CleanUp,
    /// Forget the pod, leave everything.
    Leave,
}

/// What to do, and when to ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps; independent of each other.
    pub actions: Vec<Action>,
    /// Why containers wait that could otherwise start.
    pub waiting: BTreeMap<String, WaitReason>,
    /// When to plan again though nothing happened.
    pub wake_at: Option<Instant>,
}

/// How a pod ended for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every container ended well.
    Succeeded,
    /// One did not.
    Failed,
}

/// What is known of each container, by name. One that is missing never ran.
pub type Containers = BTreeMap<String, ContainerFacts>;

impl Default for ContainerFacts {
    fn default() -> Self {
        Self {
            run: Run::Never,
            started: false,
            unhealthy: None,
            stopping: None,
            blocked: None,
            refused: None,
            retry_at: None,
        }
    }
}

impl ContainerFacts {
    fn runs(&self) -> bool {
        self.run == Run::Running
    }
}

/// Plans the next steps of a pod. `ended` is how it ended for good, once it has: it is never
/// taken back.
pub fn plan(
    pod: &Pod,
    fate: Fate,
    ended: Option<Outcome>,
    containers: &Containers,
    now: Instant,
) -> Plan {
    let mut planner = Planner { pod, containers, now, plan: Plan::default() };
    match fate {
        Fate::Run if ended.is_some() => planner.stop_remains(),
        Fate::Run => planner.run(),
        Fate::End { deadline, then } => planner.end(deadline, then),
    }
    planner.plan
}

/// How the pod ended for good, if it has.
pub fn outcome(pod: &Pod, containers: &Containers) -> Option<Outcome> {
    let policy = RestartPolicy::of(pod);
    let exit = |container: &Container| match containers.get(&container.name)?.run {
        Run::Exited { succeeded, interrupted: false } => Some(succeeded),
        _ => None,
    };
    let gave_up = init_containers(pod)
        .iter()
        .any(|c| !is_sidecar(c) && exit(c) == Some(false) && policy == RestartPolicy::Never);
    if gave_up {
        return Some(Outcome::Failed);
    }
    let exits: Option<Vec<bool>> = main_containers(pod).iter().map(exit).collect();
    let exits = exits.filter(|exits| !exits.is_empty())?;
    if exits.iter().any(|succeeded| policy.restarts(*succeeded)) {
        return None;
    }
    let succeeded = exits.iter().all(|succeeded| *succeeded);
    Some(if succeeded { Outcome::Succeeded } else { Outcome::Failed })
}

/// How a pod that was stopped is said to have ended, once nothing of it runs.
pub fn stopped(pod: &Pod, containers: &Containers) -> Option<Outcome> {
    if containers.is_empty() || containers.values().any(ContainerFacts::runs) {
        return None;
    }
    let succeeded = main_containers(pod).iter().all(|container| {
        let run = containers.get(&container.name).map(|now| now.run);
        matches!(run, Some(Run::Exited { succeeded: true, .. }))
    });
    Some(if succeeded { Outcome::Succeeded } else { Outcome::Failed })
}

/// Whether every init container has done its part, so that the main containers may start.
pub fn is_initialized(pod: &Pod, containers: &Containers) -> bool {
    let begun = main_containers(pod)
        .iter()
        .any(|c| containers.get(&c.name).is_some_and(|now| now.run != Run::Never));
    begun || init_containers(pod).iter().all(|c| has_initialized(c, containers.get(&c.name)))
}

fn has_initialized(container: &Container, now: Option<&ContainerFacts>) -> bool {
    let Some(now) = now else { return false };
    match now.run {
        Run::Exited { succeeded, interrupted } => {
            !is_sidecar(container) && succeeded && !interrupted
        }
        Run::Running => is_sidecar(container) && now.started,
        Run::Never => false,
    }
}

struct Planner<'a> {
    pod: &'a Pod,
    containers: &'a Containers,
    now: Instant,
    plan: Plan,
}

impl Planner<'_> {
    fn run(&mut self) {
        for container in all_containers(self.pod) {
            let now = self.now_of(container);
            if let (true, Some(deadline)) = (now.runs(), now.unhealthy) {
                self.stop(container, deadline);
            }
        }
        let initialized = is_initialized(self.pod, self.containers);
        for container in init_containers(self.pod) {
            let now = self.now_of(container);
            let must_start = match now.run {
                Run::Never => true,
                Run::Running => false,
                Run::Exited { .. } => is_sidecar(container) || !initialized,
            };
            if has_initialized(container, Some(&now)) {
                continue;
            }
            if must_start && (!initialized || is_sidecar(container)) {
                self.start(container, &now);
            }
            if !initialized {
                return;
            }
        }
        let policy = RestartPolicy::of(self.pod);
        for container in main_containers(self.pod) {
            let now = self.now_of(container);
            let must_start = match now.run {
                Run::Never => true,
                Run::Running => false,
                Run::Exited { succeeded, interrupted } => interrupted || policy.restarts(succeeded),
            };
            if must_start {
                self.start(container, &now);
            }
        }
    }

    /// The pod has ended; sidecars may still run.
    fn stop_remains(&mut self) {
        let deadline = self.now + crate::pod::grace(self.pod);
        for container in all_containers(self.pod) {
            let now = self.now_of(container);
            if now.runs() {
                // The deadline counts from the first step, not from each look.
                let since = match now.stopping {
                    Some(Stopping::Terminated { since }) => since + crate::pod::grace(self.pod),
                    _ => deadline,
                };
                self.stop(container, since);
            }
        }
    }

    /// Main containers first, then those they lean on.
    fn end(&mut self, deadline: Instant, then: FinalStep) {
        let running = |c: &&Container| self.now_of(c).runs();
        let main: Vec<_> = main_containers(self.pod).iter().filter(running).collect();
        let init: Vec<_> = init_containers(self.pod).iter().filter(running).collect();
        let first = if main.is_empty() { init } else { main };
        for container in &first {
            self.stop(container, deadline);
        }
        if !first.is_empty() {
            return;
        }
        // What runs under a name that the spec does not have (any more) ends too.
        let others: Vec<_> = self.containers.iter().filter(|(_, now)| now.runs()).collect();
        for (name, now) in &others {
            self.stop_named(name, now, false, deadline);
        }
        if others.is_empty() {
            self.plan.actions.push(match then {
                FinalStep::AskDelete => Action::AskDelete,
                FinalStep::CleanUp => Action::CleanUp,
                FinalStep::Leave => Action::Leave,
            });
        }
    }

    fn start(&mut self, container: &Container, now: &ContainerFacts) {
        let name = container.name.clone();
        if let Some((until, wait)) = now.blocked {
            self.wake(until);
            let pod = self.pod.metadata.name.as_deref().unwrap_or_default();
            let message =
                format!("back-off {} restarting failed container={name} pod={pod}", words(wait));
            self.plan.waiting.insert(name, WaitReason { reason: "CrashLoopBackOff", message });
            return;
        }
        if let Some(refused) = &now.refused {
            let retry = now.retry_at;
            self.plan.waiting.insert(name.clone(), refused.clone());
            match retry {
                Some(at) if at <= self.now => self.plan.actions.push(Action::Start(name)),
                Some(at) => self.wake(at),
                None => {}
            }
            return;
        }
        self.plan.actions.push(Action::Start(name));
    }

    fn stop(&mut self, container: &Container, deadline: Instant) {
        let now = self.now_of(container);
        let has_hook = container.lifecycle.as_ref().is_some_and(|l| l.pre_stop.is_some());
        self.stop_named(&container.name, &now, has_hook, deadline);
    }

    fn stop_named(&mut self, name: &str, now: &ContainerFacts, has_hook: bool, deadline: Instant) {
        let late = self.now >= deadline;
        let action = match now.stopping {
            None if late => Action::Kill(name.to_owned()),
            None if has_hook => Action::PreStop(name.to_owned()),
            None => Action::Terminate(name.to_owned()),
            Some(Stopping::PreStop { done }) if done || late => Action::Terminate(name.to_owned()),
            Some(Stopping::PreStop { .. }) => return self.wake(deadline),
            Some(Stopping::Terminated { since }) => {
                let kill_at = deadline.max(since + TERMINATION_MIN);
                if self.now < kill_at {
                    return self.wake(kill_at);
                }
                Action::Kill(name.to_owned())
            }
            Some(Stopping::Killed { since }) => {
                if self.now < since + KILL_AGAIN {
                    return self.wake(since + KILL_AGAIN);
                }
                Action::Kill(name.to_owned())
            }
        };
        self.plan.actions.push(action);
    }

    fn now_of(&self, container: &Container) -> ContainerFacts {
        self.containers.get(&container.name).cloned().unwrap_or_default()
    }

    fn wake(&mut self, at: Instant) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |before| before.min(at)));
    }
}

/// As Go writes a duration: `10s`, `2m40s`.
fn words(duration: Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    match minutes {
        0 if seconds == 0 => format!("{}ms", duration.as_millis()),
        0 => format!("{seconds}s"),
        _ => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests;
