//! The decisions about one pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

use super::facts::{ContainerFacts, ImageState, PodFacts, Run, Sandbox, Stopping};
use super::outcome::{has_initialized, is_initialized};
use super::step::{Action, Fate, FinalStep, Plan};
use crate::container::WaitReason;
use crate::pod::{
    ImagePullPolicy, RestartPolicy, all_containers, grace, init_containers, is_sidecar,
    main_containers,
};

/// A container that was asked to end has at least this long, as under a kubelet.
pub(crate) const TERMINATION_MIN: Duration = Duration::from_secs(2);

/// A kill without effect is repeated after this.
const KILL_AGAIN: Duration = Duration::from_secs(5);

/// Plans the next steps of a pod.
pub fn plan(facts: &PodFacts<'_>) -> Plan {
    let mut planner = Planner { facts, plan: Plan::default() };
    match facts.fate {
        Fate::Run if facts.ended.is_some() => planner.stop_remains(),
        Fate::Run if facts.sandbox == Sandbox::Lost => planner.leave_sandbox(),
        Fate::Run => planner.run(),
        Fate::End { deadline, then } => {
            if !planner.stop_all(deadline) && (then == FinalStep::Leave || !planner.close()) {
                planner.push(match then {
                    FinalStep::AskDelete => Action::AskDelete,
                    FinalStep::CleanUp => Action::CleanUp,
                    FinalStep::Leave => Action::Leave,
                });
            }
        }
        Fate::Fail { reason, deadline } => {
            if !planner.stop_all(deadline) && !planner.close() && facts.ended.is_none() {
                planner.push(Action::Refuse(reason));
            }
        }
    }
    planner.plan
}

struct Planner<'a> {
    facts: &'a PodFacts<'a>,
    plan: Plan,
}

impl Planner<'_> {
    /// Starts every container that should run: init containers one by one, then the others.
    fn run(&mut self) {
        let pod = self.facts.pod;
        for container in all_containers(pod) {
            let facts = self.container(container);
            if let (true, Some(deadline)) = (facts.is_running(), facts.unhealthy) {
                self.stop(container, deadline);
            }
        }
        let initialized = is_initialized(pod, self.facts.containers);
        for container in init_containers(pod) {
            let facts = self.container(container);
            if has_initialized(container, Some(&facts)) {
                continue;
            }
            let must_start = match facts.run {
                Run::Never => true,
                Run::Running => false,
                Run::Exited { .. } => is_sidecar(container) || !initialized,
            };
            if must_start && (!initialized || is_sidecar(container)) {
                self.start(container, &facts);
            }
            if !initialized {
                return;
            }
        }
        let policy = RestartPolicy::of(pod);
        for container in main_containers(pod) {
            let facts = self.container(container);
            let must_start = match facts.run {
                Run::Never => true,
                Run::Running => false,
                Run::Exited { succeeded, interrupted } => interrupted || policy.restarts(succeeded),
            };
            if must_start {
                self.start(container, &facts);
            }
        }
    }

    /// Kills what runs in a lost sandbox, then closes it. The next plan opens another one.
    fn leave_sandbox(&mut self) {
        if !self.stop_all(self.facts.now) {
            self.close();
        }
    }

    /// Stops sidecars that still run although the pod has ended, then closes the sandbox.
    fn stop_remains(&mut self) {
        let (grace, mut runs) = (grace(self.facts.pod), false);
        for container in all_containers(self.facts.pod) {
            let facts = self.container(container);
            if facts.is_running() {
                // The deadline counts from the first request, not from each plan.
                let since = match facts.stopping {
                    Some(Stopping::Terminated { since }) => since,
                    _ => self.facts.now,
                };
                self.stop(container, since + grace);
                runs = true;
            }
        }
        if !runs {
            self.close();
        }
    }

    /// Stops everything: main containers first, then init containers and sidecars, then containers
    /// that the spec does not name (any more). Returns whether anything still runs.
    fn stop_all(&mut self, deadline: Instant) -> bool {
        let pod = self.facts.pod;
        let is_running = |container: &&Container| self.container(container).is_running();
        let main: Vec<_> = main_containers(pod).iter().filter(is_running).collect();
        let init: Vec<_> = init_containers(pod).iter().filter(is_running).collect();
        let first = if main.is_empty() { init } else { main };
        for container in &first {
            self.stop(container, deadline);
        }
        if !first.is_empty() {
            return true;
        }
        let containers = self.facts.containers;
        let others: Vec<_> = containers.iter().filter(|(_, facts)| facts.is_running()).collect();
        for (name, facts) in &others {
            self.stop_named(name, facts, false, deadline);
        }
        !others.is_empty()
    }

    /// Closes the sandbox if there is one, and returns whether there is.
    fn close(&mut self) -> bool {
        let is_open = matches!(self.facts.sandbox, Sandbox::Ready | Sandbox::Lost);
        if is_open {
            self.push(Action::Close);
        }
        is_open
    }

    /// Starts a container, or the step that comes before: sandbox, image.
    fn start(&mut self, container: &Container, facts: &ContainerFacts) {
        if let Some((until, wait)) = facts.blocked {
            self.wake(until);
            let pod = self.facts.pod.metadata.name.as_deref().unwrap_or_default();
            let name = &container.name;
            let wait = go_duration(wait);
            let message = format!("back-off {wait} restarting failed container={name} pod={pod}");
            return self.wait(container, "CrashLoopBackOff", message);
        }
        if let Some(refused) = &facts.refused {
            self.plan.waiting.insert(container.name.clone(), refused.clone());
            match facts.retry_at {
                Some(at) if at <= self.facts.now => {}
                Some(at) => return self.wake(at),
                None => return,
            }
        }
        match self.facts.sandbox {
            Sandbox::Unneeded | Sandbox::Ready => self.start_with_image(container, facts),
            Sandbox::None => self.push_once(Action::Open),
            Sandbox::Lost => {}
        }
    }

    /// Starts a container whose sandbox is ready, or pulls its image.
    fn start_with_image(&mut self, container: &Container, facts: &ContainerFacts) {
        let name = container.name.clone();
        let policy = ImagePullPolicy::of(container);
        let image = container.image.as_deref().unwrap_or_default();
        match &facts.image {
            ImageState::Present { pulled: false } if policy == ImagePullPolicy::Always => {
                self.push(Action::Pull(name));
            }
            ImageState::Present { .. } => self.push(Action::Start(name)),
            ImageState::Absent if policy == ImagePullPolicy::Never => {
                let message = format!(
                    "image {image:?} is not on the node and the pull policy is Never: put it there, \
                     or change imagePullPolicy"
                );
                self.wait(container, "ErrImageNeverPull", message);
            }
            ImageState::Absent => self.push(Action::Pull(name)),
            ImageState::Failed { until, .. } if *until <= self.facts.now => {
                self.push(Action::Pull(name));
            }
            ImageState::Failed { until, reason } => {
                self.wake(*until);
                self.plan.waiting.insert(name, reason.clone());
            }
            ImageState::Pulling => {
                self.wait(container, "ContainerCreating", format!("image {image:?} is pulled"));
            }
            ImageState::Unknown => {
                let message = format!("the runtime does not report on image {image:?}");
                self.wait(container, "ImageInspectError", message);
            }
        }
    }

    fn stop(&mut self, container: &Container, deadline: Instant) {
        let facts = self.container(container);
        let has_hook = container.lifecycle.as_ref().is_some_and(|l| l.pre_stop.is_some());
        self.stop_named(&container.name, &facts, has_hook, deadline);
    }

    /// The next step of a container's end: hook, request, kill.
    fn stop_named(
        &mut self,
        name: &str,
        facts: &ContainerFacts,
        has_hook: bool,
        deadline: Instant,
    ) {
        let now = self.facts.now;
        let is_late = now >= deadline;
        let name = name.to_owned();
        let action = match facts.stopping {
            None if is_late => Action::Kill(name),
            None if has_hook => Action::PreStop(name),
            None => Action::Terminate(name),
            Some(Stopping::PreStop { done }) if done || is_late => Action::Terminate(name),
            Some(Stopping::PreStop { .. }) => return self.wake(deadline),
            Some(Stopping::Terminated { since }) => {
                let kill_at = deadline.max(since + TERMINATION_MIN);
                if now < kill_at {
                    return self.wake(kill_at);
                }
                Action::Kill(name)
            }
            Some(Stopping::Killed { since }) => {
                if now < since + KILL_AGAIN {
                    return self.wake(since + KILL_AGAIN);
                }
                Action::Kill(name)
            }
        };
        self.push(action);
    }

    fn container(&self, container: &Container) -> ContainerFacts {
        self.facts.containers.get(&container.name).cloned().unwrap_or_default()
    }

    fn push(&mut self, action: Action) {
        self.plan.actions.push(action);
    }

    fn push_once(&mut self, action: Action) {
        if !self.plan.actions.contains(&action) {
            self.push(action);
        }
    }

    fn wait(&mut self, container: &Container, reason: &'static str, message: String) {
        self.plan.waiting.insert(container.name.clone(), WaitReason { reason, message });
    }

    fn wake(&mut self, at: Instant) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |before| before.min(at)));
    }
}

/// A duration as Go writes it: `10s`, `2m40s`.
fn go_duration(duration: Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    match minutes {
        0 if seconds == 0 => format!("{}ms", duration.as_millis()),
        0 => format!("{seconds}s"),
        _ => format!("{minutes}m{seconds}s"),
    }
}
