//! The first half of a worker's round: it resolves what the pod needs, observes the runtime, and
//! turns both into the facts of a plan.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::Worker;
use super::container_tracker::ContainerTracker;
use super::dependencies::WorkerDependencies;
use super::plan::{self, Containers, Fate, FinalStep, Plan, PodFacts, Sandbox};
use crate::container::downward_api::FieldSource;
use crate::container::{LaunchSpec, WaitReason, environment, volume_content};
use crate::pod;
use crate::runtime::{PodState, SandboxState};

impl Worker {
    /// Resolves the content of the volumes, and which containers can be launched.
    pub(super) fn resolve(&mut self, pod: &Pod) {
        let volumes = volume_content::resolve(&self.fields(pod), &self.assignment.objects);
        self.missing = volumes.as_ref().err().cloned();
        if let Ok(volumes) = volumes
            && self.volumes != volumes
        {
            (self.volumes, self.volumes_written) = (volumes, false);
        }
        self.refused = pod::all_containers(pod)
            .filter_map(|container| {
                Some((container.name.clone(), self.launch(pod, container).err()?))
            })
            .collect();
        // The missing object may be here now.
        self.setup_error = None;
    }

    /// How the container is launched.
    pub(super) fn launch(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<LaunchSpec, WaitReason> {
        let runtime = &self.shared.runtime;
        runtime.check(pod, container)?;
        let mut base = runtime.environment(&self.record.uid, pod, &container.name);
        base.insert("HOSTNAME".to_owned(), hostname(pod));
        environment::launch(container, &base, &self.fields(pod), &self.assignment.objects)
    }

    fn fields<'a>(&'a self, pod: &'a Pod) -> FieldSource<'a> {
        let WorkerDependencies { node, address, .. } = &*self.shared;
        FieldSource {
            pod,
            node: node.as_str(),
            node_address: *address,
            pod_address: self.pod_address(),
        }
    }

    /// The pod's own address, else the node's.
    pub(super) fn pod_address(&self) -> IpAddr {
        let WorkerDependencies { runtime, address, .. } = &*self.shared;
        if !runtime.features().sandboxes {
            return *address;
        }
        runtime.pod(&self.record.uid).addresses.first().copied().unwrap_or(*address)
    }

    /// Reads the pod's state from the runtime, and brings the trackers up to date with it.
    pub(super) async fn observe(&mut self, pod: &Pod) -> PodState {
        let now = Instant::now();
        let state = self.shared.runtime.pod(&self.record.uid);
        for (name, runs) in &state.containers {
            let settings = &self.shared.settings;
            let new = || Box::new(ContainerTracker::new(settings));
            self.containers.entry(name.clone()).or_insert_with(new).observe(runs.clone(), now);
        }
        if let (Some(images), Some(tracker)) = (self.shared.runtime.images(), &mut self.images) {
            tracker.observe(&**images, pod, &state).await;
        }
        self.start_probes(pod);
        state
    }

    /// The facts of the containers that ever ran.
    pub(super) fn container_facts(&self, state: &PodState, now: Instant) -> Containers {
        let facts = self.containers.iter().map(|(name, tracker)| {
            let mut facts = tracker.facts(now);
            facts.in_earlier_sandbox = state
                .containers
                .get(name)
                .is_some_and(|runs| runs.sandbox_attempt != state.sandbox_attempt);
            (name.clone(), facts)
        });
        facts.collect()
    }

    /// Plans the next steps from the facts.
    pub(super) fn plan(&mut self, pod: &Pod, state: &PodState, fate: Fate, now: Instant) -> Plan {
        let mut containers = self.container_facts(state, now);
        for container in pod::all_containers(pod) {
            let name = &container.name;
            let facts = containers.entry(name.clone()).or_default();
            let missing = match self.missing.as_ref().or(self.refused.get(name)) {
                Some(reason) => Some((reason.clone(), None)),
                None => self.setup_error.clone().map(|(reason, at)| (reason, Some(at))),
            };
            if let Some((reason, retry_at)) = missing {
                facts.refused = Some(reason);
                facts.retry_at = retry_at.filter(|at| *at > now);
            }
            if let Some(images) = &self.images {
                facts.image = images.state(name);
            }
        }
        // A pod that is being stopped has not ended by itself.
        if fate == Fate::Run && self.ended.is_none() {
            self.ended = plan::outcome(pod, &containers);
        }
        let sandbox = match state.sandbox {
            _ if !self.shared.runtime.features().sandboxes => Sandbox::Unneeded,
            SandboxState::None => Sandbox::None,
            SandboxState::Ready => Sandbox::Ready,
            SandboxState::Lost => Sandbox::Lost,
        };
        let containers = &containers;
        plan::plan(&PodFacts { pod, fate, ended: self.ended, sandbox, containers, now })
    }

    /// The pod's goal.
    pub(super) fn fate(&mut self, pod: &Pod, now: Instant) -> Fate {
        if let Some(deadline) = self.assignment.shutdown {
            return Fate::End { deadline, then: FinalStep::Leave };
        }
        let then = if !self.assignment.is_desired {
            FinalStep::CleanUp
        } else if pod::is_deleting(pod) {
            FinalStep::AskDelete
        } else {
            return Fate::Run;
        };
        let since = *self.end_since.get_or_insert(now);
        Fate::End { deadline: since + pod::grace(pod), then }
    }
}

/// The hostname that the pod's containers see.
fn hostname(pod: &Pod) -> String {
    let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    hostname.or_else(|| pod.metadata.name.clone()).unwrap_or_default()
}
