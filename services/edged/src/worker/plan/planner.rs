//! The decisions about one pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

use super::super::go_duration::go_duration;
use super::facts::{ContainerFacts, ImageState, PodFacts, Run, Sandbox, Stopping};
use super::outcome::initialized;
use super::step::{Action, Fate, FinalStep, Plan};
use crate::container::WaitReason;
use crate::pod::{
    ImagePullPolicy, all_containers, ephemeral_containers, grace, init_containers, is_sidecar,
    main_containers, restarts,
};

/// A container that was asked to end has at least this long, as under a kubelet.
pub(crate) const TERMINATION_MIN: Duration = Duration::from_secs(2);

/// The time until a runtime that did not report on an image is asked again: as long as its socket is
/// away at a restart.
const INSPECT_AGAIN: Duration = Duration::from_secs(1);

/// A kill without effect is repeated after this.
const KILL_AGAIN: Duration = Duration::from_secs(5);

/// Plans the next steps of a pod.
pub fn plan(facts: &PodFacts<'_>) -> Plan {
    let mut planner = Planner { facts, plan: Plan::default() };
    match facts.fate {
        Fate::Run if facts.ended.is_some() => planner.stop_remains(),
        Fate::Run if facts.sandbox == Sandbox::Lost => planner.leave_sandbox(),
        Fate::Run => {
            if !planner.kill_superseded() {
                planner.run();
            }
        }
        Fate::End { deadline, then } => {
            if !planner.stop_all(deadline)
                && (then == FinalStep::Leave || !planner.close())
                && !planner.awaits_end(deadline, then)
            {
                planner.push(match then {
                    FinalStep::AskDelete if !facts.is_discarded => Action::Discard,
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
        self.resize();
        for container in all_containers(pod) {
            let facts = self.container(container);
            if !facts.is_running() {
                continue;
            }
            if let Some(deadline) = facts.unhealthy {
                self.stop(container, deadline);
            } else if facts.is_outdated {
                self.stop(container, self.own_deadline([&facts]));
            }
        }
        // They may start before the pod is initialized, to see why it is not.
        for container in ephemeral_containers(pod) {
            let facts = self.container(&container);
            if facts.run == Run::Never && self.facts.sandbox != Sandbox::None {
                self.start(&container, &facts);
            }
        }
        let (init, done) = (init_containers(pod), initialized(pod, self.facts.containers));
        // A sidecar that ended starts again, but no later container waits for it once more.
        for (index, container) in init.iter().enumerate().take(done + 1) {
            let facts = self.container(container);
            if !facts.is_running() && (index == done || is_sidecar(container)) {
                self.start(container, &facts);
            }
        }
        if done < init.len() {
            return;
        }
        for container in main_containers(pod) {
            let facts = self.container(container);
            let must_start = match facts.run {
                Run::Never => true,
                Run::Running | Run::EndPending => false,
                Run::Exited { code, interrupted } => {
                    interrupted || facts.is_superseded || restarts(pod, container, code)
                }
            };
            if must_start {
                self.start(container, &facts);
            }
        }
    }

    /// Changes the resources of a pod that runs. One without a sandbox gets them with its sandbox.
    fn resize(&mut self) {
        match self.facts.resize_at {
            _ if self.facts.sandbox != Sandbox::Ready => {}
            Some(at) if at > self.facts.now => self.wake(at),
            Some(_) => self.push(Action::Resize),
            None => {}
        }
    }

    /// Kills what runs from before a restart of all containers, and returns whether there is any. No container starts
    /// before the last one has ended. They have no time to end, as under a kubelet.
    fn kill_superseded(&mut self) -> bool {
        let mut found = false;
        for container in all_containers(self.facts.pod) {
            let facts = self.container(container);
            if facts.is_superseded && facts.is_running() {
                self.stop_named(&container.name, &facts, false, self.facts.now);
                found = true;
            }
        }
        found
    }

    /// Kills what runs in a lost sandbox, then closes it. The next plan opens another one.
    fn leave_sandbox(&mut self) {
        if !self.stop_all(self.facts.now) {
            self.close();
        }
    }

    /// Stops what still runs although the pod has ended, then closes the sandbox.
    fn stop_remains(&mut self) {
        let deadline = self.own_deadline(self.facts.containers.values());
        if !self.stop_all(deadline) {
            self.close();
        }
    }

    /// The deadline of containers that end within the pod's grace period. It counts from the first
    /// request to end, not from each plan.
    fn own_deadline<'f>(
        &self,
        containers: impl IntoIterator<Item = &'f ContainerFacts>,
    ) -> Instant {
        let requests = containers.into_iter().filter_map(|facts| match facts.stopping {
            Some(Stopping::Terminated { since }) if facts.is_running() => Some(since),
            _ => None,
        });
        requests.min().unwrap_or(self.facts.now) + grace(self.facts.pod)
    }

    /// Stops everything: main containers and ephemeral ones first, then sidecars in the reverse order of their starts,
    /// then containers that the spec does not name (any more). Returns whether anything still runs.
    fn stop_all(&mut self, deadline: Instant) -> bool {
        let pod = self.facts.pod;
        let is_running = |container: &&Container| self.container(container).is_running();
        let main: Vec<_> = main_containers(pod).iter().filter(is_running).collect();
        let mut init: Vec<_> = init_containers(pod).iter().rev().filter(is_running).collect();
        let first = if main.is_empty() { init.drain(..init.len().min(1)).collect() } else { main };
        for container in &first {
            self.stop(container, deadline);
        }
        let mut has_ephemeral = false;
        for container in ephemeral_containers(pod) {
            if self.container(&container).is_running() {
                self.stop(&container, deadline);
                has_ephemeral = true;
            }
        }
        for container in init {
            self.stop_in_turn(container, deadline);
        }
        if !first.is_empty() || has_ephemeral {
            return true;
        }
        let containers = self.facts.containers;
        let others: Vec<_> = containers.iter().filter(|(_, facts)| facts.is_running()).collect();
        for (name, facts) in &others {
            self.stop_named(name, facts, false, deadline);
        }
        !others.is_empty()
    }

    /// Prepares the end of a sidecar whose turn has not come. Its hook runs at once. When no time is
    /// left it waits for no other container, and has the shortest time to end.
    fn stop_in_turn(&mut self, container: &Container, deadline: Instant) {
        let facts = self.container(container);
        match facts.stopping {
            None if self.facts.now < deadline && has_pre_stop(container) => {
                self.push(Action::PreStop(container.name.clone()));
            }
            None | Some(Stopping::PreStop { .. }) if self.facts.now < deadline => {
                self.wake(deadline);
            }
            None => self.push(Action::Terminate(container.name.clone())),
            Some(_) => self.stop(container, deadline),
        }
    }

    /// Whether the last step waits until it is known how a container ended. What is removed has no code any more, so an object
    /// is deleted afterwards; without an object there is nothing to report to, and the code changes nothing about a pod whose last
    /// status was reported. The status of a pod that has failed still shows how its containers ended. A machine that stops does
    /// not wait for longer than for what runs: the next pod worker asks again. The runtime gives a pending end up, so no wait is
    /// without end.
    fn awaits_end(&mut self, deadline: Instant, then: FinalStep) -> bool {
        let is_pending = self.facts.containers.values().any(ContainerFacts::is_end_pending);
        if self.facts.is_final || !is_pending {
            return false;
        }
        match then {
            FinalStep::AskDelete => true,
            FinalStep::Leave if self.facts.now < deadline => {
                self.wake(deadline);
                true
            }
            FinalStep::CleanUp | FinalStep::Leave => false,
        }
    }

    /// Closes the sandbox if there is one, and returns whether there is.
    fn close(&mut self) -> bool {
        let is_open = matches!(self.facts.sandbox, Sandbox::Ready | Sandbox::Lost);
        if is_open {
            self.push(Action::Close);
        }
        is_open
    }

    /// Starts a container, or the step that comes before: sandbox, image. One of which it is not known how it ended waits: its
    /// code decides.
    fn start(&mut self, container: &Container, facts: &ContainerFacts) {
        if facts.is_end_pending() {
            return;
        }
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
                let message =
                    format!("Container image {image:?} is not present with pull policy of Never");
                self.wait(container, "ErrImageNeverPull", message);
            }
            ImageState::Absent => self.push(Action::Pull(name)),
            ImageState::Failed { until, .. } if *until <= self.facts.now => {
                self.push(Action::Pull(name));
            }
            ImageState::Failed { until, told_until, reason } => {
                self.wake(*until);
                if *told_until <= self.facts.now {
                    let WaitReason { reason, message } = reason;
                    let message = format!("Back-off pulling image {image:?}: {reason}: {message}");
                    return self.wait(container, "ImagePullBackOff", message);
                }
                self.wake(*told_until);
                self.plan.waiting.insert(name, reason.clone());
            }
            ImageState::Invalid { message } => {
                self.wait(container, "InvalidImageName", message.clone());
            }
            ImageState::Pulling => {
                self.wait(container, "ContainerCreating", format!("image {image:?} is pulled"));
            }
            ImageState::Unknown => {
                let message =
                    format!("Failed to inspect image {image:?}: the runtime does not report on it");
                self.wait(container, "ImageInspectError", message);
                // No news wakes the worker: a call failed, and the runtime may report now.
                self.wake(self.facts.now + INSPECT_AGAIN);
            }
        }
    }

    fn stop(&mut self, container: &Container, deadline: Instant) {
        let facts = self.container(container);
        self.stop_named(&container.name, &facts, has_pre_stop(container), deadline);
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

fn has_pre_stop(container: &Container) -> bool {
    container.lifecycle.as_ref().is_some_and(|hooks| hooks.pre_stop.is_some())
}
