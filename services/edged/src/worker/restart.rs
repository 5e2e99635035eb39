//! The restart of all containers of a pod in its sandbox, which the end of one of them brings about (KEP-5532).
//!
//! The numbers of the latest runs at that moment are durable before the first of these runs is killed: a pod worker that
//! ends meanwhile neither forgets the restart nor restarts what has started since.

use headwater_telemetry::error_chain;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::Worker;
use super::plan::Run;
use crate::pod;

impl Worker {
    /// Notes the end of a container after which all containers start again.
    pub(super) async fn note_restart(&mut self, pod: &Pod) {
        if !pod::can_restart_all(pod) {
            return;
        }
        if self.restart.is_none() {
            self.restart = Some(self.shared.store.restart(&self.record.uid));
        }
        let ends = !self.assignment.is_desired || pod::is_deleting(pod);
        if ends || self.ended.is_some() || self.failing.is_some() || !self.restarts_all(pod) {
            return;
        }
        let attempt = |container: &Container| {
            let name = &container.name;
            Some((name.clone(), self.containers.get(name)?.attempt()?))
        };
        let runs = pod::all_containers(pod).filter_map(attempt).collect();
        tracing::info!(pod = %self.record.key, "all containers of a pod restart");
        if let Err(error) = self.shared.store.write_restart(&self.record.uid, &runs).await {
            // The end of the container is still there for the next pod worker.
            let message = error_chain(&error);
            tracing::warn!(pod = %self.record.key, message, "the restart of a pod is not written");
        }
        self.restart = Some(runs);
    }

    /// Whether the container's latest run is one from before the last restart of all containers.
    pub(super) fn is_superseded(&self, container: &str) -> bool {
        let before = self.restart.as_ref().and_then(|runs| runs.get(container).copied());
        let attempt = self.containers.get(container).and_then(|tracker| tracker.attempt());
        attempt.zip(before).is_some_and(|(attempt, before)| attempt <= before)
    }

    /// Whether a run that no restart has superseded has ended with a code after which all containers start again.
    fn restarts_all(&self, pod: &Pod) -> bool {
        let now = Instant::now();
        pod::all_containers(pod).any(|container| {
            let tracker = self.containers.get(&container.name);
            match tracker.map(|tracker| tracker.facts(now).run) {
                Some(Run::Exited { code, interrupted: false }) => {
                    pod::restarts_all(container, code) && !self.is_superseded(&container.name)
                }
                _ => false,
            }
        })
    }
}
