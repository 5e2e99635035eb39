//! The resources of a pod that runs: what its containers have, and the change to what the spec asks for.
//!
//! The node has admitted what the assigned pod asks for. The pod's own place and its containers get it in one step
//! ([`Runtime::resize`](crate::runtime::Runtime::resize)); a container whose `resizePolicy` demands it is started again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_telemetry::error_chain;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use tokio::time::Instant;

use super::Worker;
use super::executor::StepOutcome;
use super::status::{RESIZE_IN_PROGRESS, ResourceFacts};
use crate::container::compute_resources::{self, ComputeResources, ResizeMode};
use crate::desired::compressed_object::CompressedObject;
use crate::event::Severity;
use crate::metrics::RuntimeAction;
use crate::pod::all_containers;

/// The wait after a change that failed. A container that uses more memory than it is to have may use less by then.
const RESIZE_AGAIN: Duration = Duration::from_secs(10);

/// The progress of a change.
#[derive(Debug, Default)]
pub(super) struct Resizing {
    /// The pod's own place may have other resources than the pod.
    is_due: bool,
    /// Why the last change failed, and when it is tried again.
    failure: Option<(Arc<str>, Instant)>,
}

impl Resizing {
    /// Continues from the status that an earlier worker reported.
    pub(super) fn of_status(status: Option<&PodStatus>) -> Self {
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let mut conditions = conditions.unwrap_or_default().iter();
        Self { is_due: conditions.any(|it| it.type_ == RESIZE_IN_PROGRESS), failure: None }
    }

    /// A sandbox was opened, with the resources of the pod.
    pub(super) fn sandbox_opened(&mut self) {
        *self = Self::default();
    }
}

impl Worker {
    fn can_resize(&self) -> bool {
        self.shared.runtime.features().resize
    }

    /// Notes whether the newly assigned pod has other resources than the one before.
    pub(super) fn note_resize(&mut self, before: &CompressedObject<Pod>, pod: &Pod) {
        if self.can_resize() && compute_resources::is_resized(&before.decode(), pod) {
            self.resizing = Resizing { is_due: true, failure: None };
        }
    }

    /// How a running container gets the resources of its spec; `None`: it has them.
    pub(super) fn resize_mode(&self, container: &Container) -> Option<ResizeMode> {
        let tracker = self.containers.get(&container.name)?;
        let has = tracker.resources().filter(|_| tracker.is_running() && self.can_resize())?;
        compute_resources::resize_mode(container, has)
    }

    /// The containers that get other resources while they run.
    fn resized_in_place(&self, pod: &Pod) -> Vec<String> {
        let containers = all_containers(pod);
        let own = containers.filter(|it| self.resize_mode(it) == Some(ResizeMode::InPlace));
        own.map(|container| container.name.clone()).collect()
    }

    /// The time from which the pod's resources can be changed; `None`: they are those of the spec.
    pub(super) fn resize_at(&self, pod: &Pod, now: Instant) -> Option<Instant> {
        let is_due = self.resizing.is_due || !self.resized_in_place(pod).is_empty();
        let retry_at = self.resizing.failure.as_ref().map(|(_, at)| *at);
        is_due.then(|| retry_at.unwrap_or(now))
    }

    /// Gives the pod, and those of its containers that run on, the resources of the spec.
    pub(super) async fn resize(&mut self, pod: &Pod) -> StepOutcome {
        let names = self.resized_in_place(pod);
        let began = Instant::now();
        let resized = self.shared.runtime.resize(&self.record, pod, &names).await;
        self.count(RuntimeAction::Resize, began, &resized);
        match resized {
            Ok(()) => {
                self.resizing = Resizing::default();
                for container in all_containers(pod).filter(|it| names.contains(&it.name)) {
                    if let Some(tracker) = self.containers.get_mut(&container.name) {
                        tracker.set_resources(ComputeResources::of(container));
                    }
                }
            }
            Err(error) => {
                let message = error_chain(&error);
                self.warn(None, "the resources of a pod are not changed", &message);
                self.event(None, Severity::Warning, "ResizeError", message.clone());
                self.resizing.failure = Some((message.into(), Instant::now() + RESIZE_AGAIN));
            }
        }
        // The status states the resources, or the error.
        StepOutcome::Changed
    }

    /// The resources for the pod's status.
    pub(super) fn resource_facts(&self, pod: &Pod) -> ResourceFacts<'_> {
        if !self.can_resize() {
            return ResourceFacts::default();
        }
        let runs = |container: &Container| {
            let has = self.containers.get(&container.name)?.resources()?;
            Some((container.name.clone(), has))
        };
        let is_changing = |container: &Container| self.resize_mode(container).is_some();
        ResourceFacts {
            are_stated: true,
            of_runs: all_containers(pod).filter_map(runs).collect::<BTreeMap<_, _>>(),
            pending: self.assignment.resize.as_ref(),
            is_in_progress: self.resizing.is_due || all_containers(pod).any(is_changing),
            failure: self.resizing.failure.as_ref().map(|(message, _)| &**message),
        }
    }
}
