//! The first half of a worker's round: it resolves what the pod needs, observes the runtime, and
//! turns both into the facts of a plan.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use headwater_object::TokenClaim;
use headwater_telemetry::error_chain;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};
use tokio::time::Instant;

use super::container_tracker::ContainerTracker;
use super::crash_loop::CrashRecord;
use super::dependencies::WorkerDependencies;
use super::plan::{self, Containers, FailReason, Fate, FinalStep, Plan, PodFacts, Sandbox};
use super::probe_failure::ProbeFailure;
use super::status::{container_id, reported_exit};
use super::token_tracker::TokenTracker;
use super::{Worker, container_of};
use crate::container::compute_resources::{ComputeResources, ResizeMode};
use crate::container::downward_api::FieldSource;
use crate::container::environment::VariableSources;
use crate::container::token::{self, TokenFile};
use crate::container::variable_file::VariableFiles;
use crate::container::{LaunchSpec, WaitReason, environment, volume_content};
use crate::desired::compressed_object::CompressedObject;
use crate::pod;
use crate::runtime::{Exit, PodState, Rejection, RunHistory, RunState, SandboxState};

/// Why the last launch of a container was refused.
#[derive(Clone, Debug)]
pub(super) struct LaunchError {
    /// Why the container waits.
    pub(super) reason: WaitReason,
    /// When the launch is tried again; `None`: when an object changes.
    pub(super) retry_at: Option<Instant>,
}

impl Worker {
    /// Resolves the content of the volumes, and which containers can be launched.
    pub(super) fn resolve(&mut self, pod: &Pod) {
        self.name_tokens(pod);
        self.resolve_volumes(pod);
        self.refused = pod::every_container(pod)
            .filter_map(|container| {
                Some((container.name.clone(), self.check_launch(pod, &container).err()?))
            })
            .collect();
        self.renew_pulls(pod);
        for container in pod::all_containers(pod) {
            if let Some(tracker) = self.containers.get_mut(&container.name) {
                tracker
                    .forget_failures_of_other_image(container.image.as_deref().unwrap_or_default());
            }
        }
        let now = Instant::now();
        self.launch_errors.retain(|name, error| {
            error.retry_at = Some(now);
            container_of(pod, name).is_some()
        });
        // The missing object may be here now.
        if let Some(setup) = &mut self.setup {
            setup.make_due(now);
        }
    }

    /// Notes the tokens that the volumes name.
    fn name_tokens(&mut self, pod: &Pod) {
        let runtime = &self.shared.runtime;
        // Containers read tokens in files, and drivers get theirs with the volume.
        let uses_tokens = runtime.features().files || runtime.drivers().is_some();
        let objects = &self.assignment.objects;
        let claims = if uses_tokens { token::claims(pod, objects) } else { BTreeSet::new() };
        if claims.is_empty() {
            self.tokens = None;
            return;
        }
        let new = || Box::new(TokenTracker::new(&self.record.uid, &self.shared.settings));
        self.tokens.get_or_insert_with(new).want(claims, Instant::now());
    }

    /// Resolves the content of the volumes.
    pub(super) fn resolve_volumes(&mut self, pod: &Pod) {
        let has_run = !self.containers.is_empty();
        let tokens = self.tokens.as_ref();
        let token = |claim: &TokenClaim| match tokens {
            Some(tokens) => tokens.file(claim, has_run),
            None => Ok(TokenFile::Absent),
        };
        let volumes = volume_content::resolve(&self.fields(pod), &self.assignment.objects, &token);
        let is_awaited = tokens.is_some_and(|tokens| tokens.is_awaited());
        // An answer comes within milliseconds: the status has no word of it until then.
        let awaited = || WaitReason { reason: "ContainerCreating", message: String::new() };
        self.missing = match &volumes {
            Err(reason) => Some(reason.clone()),
            Ok(_) => is_awaited.then(awaited),
        };
        if let Ok(volumes) = volumes
            && self.missing.is_none()
            && self.volumes != volumes
        {
            (self.volumes, self.volumes_written) = (volumes, false);
        }
    }

    /// Whether the container can be launched, as far as this is known before its launch.
    fn check_launch(&self, pod: &Pod, container: &Container) -> Result<(), WaitReason> {
        self.check_fields(pod, container)?;
        environment::check(container, &self.fields(pod), &self.assignment.objects)
    }

    /// Whether the runtime can run the container at all.
    fn check_fields(&self, pod: &Pod, container: &Container) -> Result<(), WaitReason> {
        match self.assignment.findings.refusal(&container.name) {
            Some(reason) => Err(reason.clone()),
            None => self.shared.runtime.check(pod, container),
        }
    }

    /// How the container is launched. Its environment is expanded here, once a launch.
    pub(super) fn launch(
        &self,
        pod: &Pod,
        container: &Container,
        files: &VariableFiles,
    ) -> Result<LaunchSpec, WaitReason> {
        self.check_fields(pod, container)?;
        let mut base = self.shared.runtime.environment(&self.record.uid, pod, &container.name);
        // A sandbox has a hostname, which its runtime writes into the environment.
        if !self.shared.runtime.features().sandboxes {
            base.insert("HOSTNAME".to_owned(), hostname(pod));
        }
        let (fields, objects) = (&self.fields(pod), &self.assignment.objects);
        let sources = VariableSources { fields, objects, files: Some(files) };
        environment::launch(container, &base, sources)
    }

    fn fields<'a>(&'a self, pod: &'a Pod) -> FieldSource<'a> {
        let WorkerDependencies { node, address, allocatable, .. } = &*self.shared;
        FieldSource {
            pod,
            node: node.as_str(),
            node_address: *address,
            pod_addresses: self.pod_addresses(),
            allocatable: *allocatable,
        }
    }

    /// The first of the pod's addresses.
    pub(super) fn pod_address(&self) -> IpAddr {
        self.pod_addresses().first().copied().unwrap_or(self.shared.address)
    }

    /// The pod's own addresses, else the node's.
    fn pod_addresses(&self) -> Vec<IpAddr> {
        let WorkerDependencies { runtime, address, .. } = &*self.shared;
        let mut addresses = Vec::new();
        if runtime.features().sandboxes {
            addresses = runtime.pod(&self.record.uid).addresses;
        }
        if addresses.is_empty() {
            addresses.push(*address);
        }
        addresses
    }

    /// Reads the pod's state from the runtime, and brings the trackers up to date with it.
    pub(super) async fn observe(&mut self, pod: &Pod) -> PodState {
        let (now, time) = (Instant::now(), Timestamp::now());
        let mut state = self.shared.runtime.pod(&self.record.uid);
        self.forget_superseded_runs(&state).await;
        self.add_former_runs(pod, &mut state);
        self.add_lost_runs(&mut state);
        self.keep_reported_ends(&mut state);
        let (mut reported, mut waits) = (None, None);
        for (name, runs) in &state.containers {
            if let Some(tracker) = self.containers.get_mut(name) {
                tracker.observe(runs.clone(), now);
                continue;
            }
            // An earlier worker started it.
            let mut tracker = Box::new(ContainerTracker::new(&self.shared.settings));
            let waits = waits.get_or_insert_with(|| self.shared.store.waits(&self.record.uid));
            match waits.get(name) {
                Some(record) => tracker.resume(record, runs.clone(), now, time),
                None => tracker.observe(runs.clone(), now),
            }
            let decode = || self.reported.as_ref().map(CompressedObject::decode);
            let reported = reported.get_or_insert_with(decode).as_ref();
            let id = container_id(&self.record.uid, name, runs.attempt);
            let run = reported.and_then(|pod| Some((pod, status_of(pod, &id, runs)?)));
            let stated = run.and_then(|(_, status)| status.resources.as_ref());
            let of_spec = || container_of(pod, name).map(|it| ComputeResources::of(&it));
            let has = stated.map(ComputeResources::of_requirements).or_else(of_spec);
            tracker.set_resources(has.unwrap_or_default());
            if let Some((pod, status)) = run {
                tracker.adopt(status, ProbeFailure::of_status(pod, name));
            }
            self.containers.insert(name.clone(), tracker);
        }
        if let (Some(images), Some(tracker)) = (self.shared.runtime.images(), &mut self.images) {
            tracker.observe(&**images, pod, &state).await;
        }
        if let Some(waits) = waits {
            self.waits = waits;
        }
        self.keep_waits().await;
        self.note_restart(pod).await;
        self.start_probes(pod);
        state
    }

    /// Adds the runs that the runtime does not have any more: the state is younger than what is known of them, because the
    /// runtime forgets a run only by a list that began after its latest news. All runs of a sandbox that is lost stay, so its
    /// init containers run again in the next one. A pod that has ended runs in no other one.
    fn add_lost_runs(&mut self, state: &mut PodState) {
        let is_over = self.ended.is_some() || self.is_discarded;
        let runs_in_sandboxes = self.shared.runtime.features().sandboxes;
        let is_sandbox_lost = runs_in_sandboxes && !is_over && state.sandbox == SandboxState::None;
        for (name, tracker) in &mut self.containers {
            // A runtime that lost the latest run may have the one before it.
            let shown = state.containers.get(name).map(|runs| runs.attempt);
            if shown.is_some() && shown >= tracker.attempt() {
                continue;
            }
            if let Some(runs) = tracker.lost_runs(is_sandbox_lost, shown.is_some()) {
                state.containers.insert(name.clone(), runs);
            }
        }
    }

    /// Puts the ends that an earlier worker knew and reported in the place of those that were made up since.
    fn keep_reported_ends(&self, state: &mut PodState) {
        let made_up =
            state.containers.iter_mut().filter_map(|(name, runs)| match &mut runs.state {
                RunState::Exited(exit) if exit.is_unobserved() => Some((name, runs.attempt, exit)),
                _ => None,
            });
        let mut before = None;
        for (name, attempt, exit) in made_up {
            let decode = || self.reported.as_ref().map(CompressedObject::decode);
            let id = container_id(&self.record.uid, name, attempt);
            let before: Option<&PodStatus> = before.get_or_insert_with(decode).as_ref();
            let reported = before.and_then(|before| reported_exit(before, &id));
            // This worker may have reported the one that was made up.
            if let Some(reported) = reported.filter(|end| !end.is_unobserved()) {
                *exit = Exit { interrupted: exit.interrupted, ..reported };
            }
        }
    }

    /// Writes down the waits of failing containers: they go on in the next worker.
    async fn keep_waits(&mut self) {
        let waits = self.containers.iter();
        let waits = waits.filter_map(|(name, it)| Some((name.clone(), it.crash_record()?)));
        let waits: BTreeMap<String, CrashRecord> = waits.collect();
        if waits == self.waits {
            return;
        }
        if let Err(error) = self.shared.store.write_waits(&self.record.uid, &waits).await {
            let message = error_chain(&error);
            tracing::warn!(pod = %self.record.key, message, "the back-off of a pod is not written");
        }
        self.waits = waits;
    }

    /// The facts of the containers that ever ran.
    pub(super) fn container_facts(&self, pod: &Pod, state: &PodState, now: Instant) -> Containers {
        let facts = self.containers.iter().map(|(name, tracker)| {
            let mut facts = tracker.facts(now);
            facts.in_earlier_sandbox |= state
                .containers
                .get(name)
                .is_some_and(|runs| runs.sandbox_attempt != state.sandbox_attempt);
            facts.is_superseded = self.is_superseded(name);
            (name.clone(), facts)
        });
        let mut facts: Containers = facts.collect();
        for container in pod::all_containers(pod) {
            if let Some(facts) = facts.get_mut(&container.name) {
                facts.is_outdated = self.is_outdated(container);
            }
        }
        facts
    }

    /// Plans the next steps from the facts.
    pub(super) fn plan(&mut self, pod: &Pod, state: &PodState, fate: Fate, now: Instant) -> Plan {
        let mut containers = self.container_facts(pod, state, now);
        for container in pod::every_container(pod) {
            let name = &container.name;
            let facts = containers.entry(name.clone()).or_default();
            if let Some((reason, retry_at)) = self.obstacle(name) {
                (facts.refused, facts.retry_at) = (Some(reason.clone()), retry_at);
            }
            if let Some(images) = &self.images {
                facts.image = images.state(name);
            }
        }
        let sandbox = match state.sandbox {
            _ if !self.shared.runtime.features().sandboxes => Sandbox::Unneeded,
            SandboxState::None => Sandbox::None,
            SandboxState::Ready => Sandbox::Ready,
            SandboxState::Lost => Sandbox::Lost,
        };
        let containers = &containers;
        let (ended, is_discarded) = (self.ended, self.is_discarded);
        // A pod that leaves the node to others is given back at once, and its status waits for nothing.
        let is_final = self.is_final || self.fail_reason.is_some_and(FailReason::is_of_others);
        let resize_at = self.resize_at(pod, now);
        plan::plan(&PodFacts {
            pod,
            fate,
            ended,
            sandbox,
            containers,
            is_discarded,
            is_final,
            resize_at,
            now,
        })
    }

    /// Why the container cannot start, and the time of the next attempt. Without a time, something
    /// has to change first.
    fn obstacle(&self, container: &str) -> Option<(&WaitReason, Option<Instant>)> {
        // Without the fields that are refused it would be another pod, whatever else is missing.
        let of_pod = self.missing.as_ref().filter(|_| !self.assignment.findings.refuses_pod());
        if let Some(reason) = of_pod.or(self.refused.get(container)) {
            return Some((reason, None));
        }
        if let Some(reason) = self.awaited_drivers() {
            return Some((reason, None));
        }
        if let Some(setup) = &self.setup {
            return Some((setup.reason(), Some(setup.retry_at())));
        }
        let error = self.launch_errors.get(container)?;
        Some((&error.reason, error.retry_at))
    }

    /// Whether the container runs with another image than the spec names, or with resources that demand a restart, and has
    /// to be replaced.
    pub(super) fn is_outdated(&self, container: &Container) -> bool {
        let tracker = self.containers.get(&container.name).filter(|it| it.is_running());
        let image = container.image.as_deref().unwrap_or_default();
        let has_other_image =
            |tracker: &ContainerTracker| self.images.is_some() && tracker.has_other_image(image);
        tracker.is_some_and(|tracker| {
            has_other_image(tracker) || self.resize_mode(container) == Some(ResizeMode::Restart)
        })
    }

    /// The pod's goal.
    pub(super) fn fate(&mut self, pod: &Pod, state: &PodState, now: Instant) -> Fate {
        if let Some(deadline) = self.assignment.shutdown {
            return Fate::End { deadline, then: FinalStep::Leave };
        }
        let then = if !self.assignment.is_desired {
            FinalStep::CleanUp
        } else if pod::is_deleting(pod) {
            FinalStep::AskDelete
        } else {
            return self.run_or_fail(pod, state, now);
        };
        let since = *self.end_since.get_or_insert(now);
        Fate::End { deadline: since + pod::grace(pod), then }
    }

    /// The goal of a pod that should run, unless it has been active for too long.
    fn run_or_fail(&mut self, pod: &Pod, state: &PodState, now: Instant) -> Fate {
        if let Some((reason, deadline)) = self.failing {
            return Fate::Fail { reason, deadline };
        }
        if self.ended.is_none()
            && self.containers.is_empty()
            && let Err(Rejection { reason, message }) = self.shared.runtime.admit(pod)
        {
            tracing::info!(pod = %self.record.key, reason, message, "a pod is not admitted");
            self.rejection = Some(message.into());
            self.failing = Some((FailReason::Rejected(reason), now));
            return Fate::Fail { reason: FailReason::Rejected(reason), deadline: now };
        }
        // A pod that is being stopped has not ended by itself.
        if self.ended.is_none() {
            self.ended = plan::outcome(pod, &self.container_facts(pod, state, now));
        }
        if self.ended.is_none()
            && let Some(Rejection { reason, message }) = self.forbidden(pod, state)
        {
            tracing::warn!(pod = %self.record.key, reason, message, "a pod is forbidden, and ends");
            self.rejection = Some(message.into());
            let (reason, deadline) = (FailReason::Rejected(reason), now + pod::grace(pod));
            self.failing = Some((reason, deadline));
            return Fate::Fail { reason, deadline };
        }
        let has_time = self.active_for(pod, now) != Some(Duration::ZERO);
        if self.ended.is_some() || has_time || state.awaits_ends() {
            return Fate::Run;
        }
        let (reason, deadline) = (FailReason::DeadlineExceeded, now + pod::grace(pod));
        tracing::info!(pod = %self.record.key, "a pod has reached its active deadline");
        self.failing = Some((reason, deadline));
        Fate::Fail { reason, deadline }
    }

    /// Why a pod that has begun may not go on, if the node forbids what it is. A pod of which nothing was begun waits.
    /// A static pod goes on: it is the node's own, and no cloud would make another one.
    /// An ephemeral container that was refused never runs, and nothing takes it from its pod again: it counts while it runs.
    fn forbidden(&self, pod: &Pod, state: &PodState) -> Option<Rejection> {
        if self.record.is_static || state.awaits_ends() {
            return None;
        }
        let runs = |name: &str| state.containers.get(name).is_some_and(RunHistory::is_running);
        let is_ready = state.sandbox == SandboxState::Ready;
        if !is_ready && !state.containers.values().any(RunHistory::is_running) {
            return None;
        }
        let lasting = pod::all_containers(pod).map(Cow::Borrowed);
        let ephemeral = pod::ephemeral_containers(pod).filter(|it| runs(&it.name)).map(Cow::Owned);
        let mut all = lasting.chain(ephemeral);
        all.find_map(|it| self.shared.runtime.allow(pod, &it, &self.volumes).err())
    }

    /// The time that the pod may still be active, if it has a deadline and has not ended.
    pub(super) fn active_for(&self, pod: &Pod, now: Instant) -> Option<Duration> {
        let limit = pod::active_deadline(pod).filter(|_| self.ended.is_none())?;
        Some(limit.saturating_sub(self.active.at(now)))
    }
}

/// The status of this very run in a pod's status.
fn status_of<'s>(pod: &'s PodStatus, id: &str, runs: &RunHistory) -> Option<&'s ContainerStatus> {
    let RunState::Running { started_at } = runs.state else { return None };
    let statuses = [&pod.init_container_statuses, &pod.container_statuses];
    let is_run = |status: &&ContainerStatus| {
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let reported = running.and_then(|running| running.started_at.as_ref());
        // A status has whole seconds.
        let is_same = reported.is_some_and(|time| time.0.as_second() == started_at.as_second());
        is_same && status.container_id.as_deref() == Some(id)
    };
    statuses.into_iter().flatten().flatten().find(is_run)
}

/// The hostname that the pod's containers see.
fn hostname(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let own = spec.and_then(|spec| spec.hostname_override.clone().or(spec.hostname.clone()));
    own.or_else(|| pod.metadata.name.clone()).unwrap_or_default()
}
