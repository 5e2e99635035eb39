//! What a node forbids its pods, whatever the cloud sends.

use std::fmt;
use std::str::FromStr;

use headwater_edged::container::volume::{Volume, VolumeContent};
use headwater_edged::pod::all_containers;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::security::is_privileged;
use super::spec;

/// The rights that no pod gets on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forbidden {
    /// Privileged containers.
    pub privileged: bool,
    /// Volumes that are paths of the host, in the pod or behind a claim.
    pub host_path: bool,
    /// Pods in the host's network.
    pub host_network: bool,
    /// Pods that see the host's processes.
    pub host_pid: bool,
    /// Pods in the host's namespace of inter-process communication.
    pub host_ipc: bool,
}

/// The word is none that can be forbidden.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be forbidden: use privileged, hostPath, hostNetwork, hostPID or hostIPC")]
pub struct UnknownForbidden(String);

impl Forbidden {
    /// Why the node refuses a container of the pod; `None` if it does not. A sandbox is privileged if a container is, and
    /// so the pod as a whole is refused. An ephemeral container counts for itself: nothing takes it from a pod again.
    pub(super) fn refusal(&self, pod: &Pod, container: &Container) -> Option<String> {
        let spec = spec(pod);
        let volumes = || spec.volumes.iter().flatten();
        let found = [
            (self.host_network && spec.host_network == Some(true), "spec.hostNetwork"),
            (self.host_pid && spec.host_pid == Some(true), "spec.hostPID"),
            (self.host_ipc && spec.host_ipc == Some(true), "spec.hostIPC"),
            (
                self.host_path && volumes().any(|volume| volume.host_path.is_some()),
                "spec.volumes: hostPath",
            ),
            (
                self.privileged
                    && (is_privileged(container) || all_containers(pod).any(is_privileged)),
                "securityContext.privileged",
            ),
        ];
        let (_, field) = found.into_iter().find(|(is_found, _)| *is_found)?;
        Some(format!("{field}: the node forbids it"))
    }

    /// Why the node refuses a volume's content: a claim can be a path of the host, too.
    pub fn volume_refusal(&self, volume: &Volume) -> Option<String> {
        let is_host =
            matches!(volume.content, VolumeContent::Host { .. } | VolumeContent::Local { .. });
        (self.host_path && is_host)
            .then(|| format!("volume {:?} is a path of the host: the node forbids it", volume.name))
    }
}

impl FromStr for Forbidden {
    type Err = UnknownForbidden;

    /// Words with commas between them; none for an empty text.
    fn from_str(text: &str) -> Result<Self, UnknownForbidden> {
        let mut forbidden = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "privileged" => forbidden.privileged = true,
                "hostPath" => forbidden.host_path = true,
                "hostNetwork" => forbidden.host_network = true,
                "hostPID" => forbidden.host_pid = true,
                "hostIPC" => forbidden.host_ipc = true,
                other => return Err(UnknownForbidden(other.to_owned())),
            }
        }
        Ok(forbidden)
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.privileged, "privileged"),
            (self.host_path, "hostPath"),
            (self.host_network, "hostNetwork"),
            (self.host_pid, "hostPID"),
            (self.host_ipc, "hostIPC"),
        ];
        let words: Vec<&str> =
            words.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word).collect();
        f.write_str(&words.join(","))
    }
}
