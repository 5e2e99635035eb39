//! The devices of a pod: given before its first container starts, taken back when nothing of it runs.

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::Worker;
use super::plan::FailReason;
use crate::container::WaitReason;
use crate::container::devices::ContainerDevices;
use crate::devices::AssignError;
use crate::pod;
use headwater_telemetry::error_chain;

/// What a worker knows of the devices of its pod.
#[derive(Debug, Default)]
pub(super) struct DeviceState {
    /// The pod has all that it asks for.
    is_complete: bool,
    /// What it waits for.
    wait: Option<String>,
}

impl Worker {
    /// Gives the pod the devices that it asks for. If they are short, it fails, unless it has run already.
    pub(super) async fn assign_devices(&mut self, pod: &Pod) {
        let Some(devices) = self.shared.devices.clone() else { return };
        let ends = !self.assignment.is_desired || pod::is_deleting(pod);
        let is_over = self.ended.is_some() || self.failing.is_some();
        if self.devices.is_complete || ends || is_over || self.assignment.shutdown.is_some() {
            return;
        }
        let runs = self.containers.values().any(|tracker| tracker.is_running());
        let has_run = self.containers.values().any(|tracker| tracker.has_run());
        let assigning = devices.assign(&self.record.uid, pod, runs);
        // A plugin that hangs does not keep the pod worker from its end.
        let Some(assigned) = self.shared.cancel.run_until_cancelled(assigning).await else {
            return;
        };
        match assigned {
            Ok(()) => self.devices = DeviceState { is_complete: true, wait: None },
            Err(error @ AssignError::Failed(_)) if !has_run => {
                let message = format!("Pod was rejected: {error}");
                tracing::warn!(pod = %self.record.key, message, "a pod fails");
                self.rejection = Some(message.into());
                self.failing = Some((FailReason::UnexpectedAdmissionError, Instant::now()));
            }
            // The pod waits, and its containers say why.
            Err(error) => {
                let message = error_chain(&error);
                self.warn(None, "a pod has no devices yet", &message);
                self.devices.wait = Some(message);
            }
        }
    }

    /// What the container is given with its devices.
    pub(super) async fn prepare_devices(
        &self,
        container: &Container,
    ) -> Result<ContainerDevices, WaitReason> {
        let Some(devices) = &self.shared.devices else { return Ok(ContainerDevices::default()) };
        let preparing = devices.prepare(&self.record.uid, container);
        let prepared = self.shared.cancel.run_until_cancelled(preparing).await;
        let stops = || {
            let message = "the pod worker stops".to_owned();
            Err(WaitReason { reason: "CreateContainerConfigError", message })
        };
        prepared.unwrap_or_else(stops).map_err(|reason| {
            let message = self.devices.wait.clone().unwrap_or(reason.message);
            WaitReason { message, ..reason }
        })
    }

    /// Takes back the devices of a pod that has ended, and of which nothing runs.
    pub(super) async fn release_devices(&mut self) {
        if let Some(devices) = &self.shared.devices {
            devices.release(&self.record.uid).await;
            self.devices = DeviceState::default();
        }
    }
}
