//! What a container is given: command, environment and volumes. Pure: decided from the pod's spec
//! and the objects at hand, before anything is started.

use std::collections::BTreeMap;
use std::path::PathBuf;

use block_device::BlockDevice;
use cpu_set::CpuSet;
use credentials::Credentials;
use devices::ContainerDevices;
use serde::{Deserialize, Serialize};

mod argument_space;
pub mod block_device;
pub mod claim;
pub mod compute_resources;
pub mod cpu_set;
pub mod credentials;
pub mod devices;
pub(crate) mod downward_api;
pub mod driver_volume;
pub(crate) mod environment;
pub(crate) mod image_name;
pub(crate) mod pull_credentials;
pub mod qos;
pub mod quantity;
pub mod requests;
pub mod termination;
pub(crate) mod token;
pub(crate) mod variable_file;
pub mod volume;
pub(crate) mod volume_content;
mod volume_files;

use termination::{StopSignal, TerminationMessage};

/// Everything that a runtime needs to start a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The container's name.
    pub container: String,
    /// The image's name, for a runtime that has images.
    pub image: Option<String>,
    /// True for an init container that must end before the next container starts.
    pub is_step: bool,
    /// `command`, expanded: it takes the place of the image's entrypoint. Empty if the spec names none.
    pub command: Vec<String>,
    /// `args`, expanded: they take the place of the image's default command. Empty if the spec names
    /// none.
    pub args: Vec<String>,
    /// The environment that the pod gives.
    pub env: BTreeMap<String, String>,
    /// The working directory, below the container's root.
    pub working_dir: Option<String>,
    /// The volumes that the container mounts.
    pub mounts: Vec<Mount>,
    /// The volumes that are block devices of the container.
    pub block_devices: Vec<BlockDevice>,
    /// The signal that asks the container to end.
    pub stop_signal: StopSignal,
    /// Where the container leaves its termination message.
    pub termination_message: TerminationMessage,
    /// The user, the groups and the rights that the spec asks for.
    pub credentials: Credentials,
    /// The processors on which it runs; `None`: those of its pod.
    pub cpus: Option<ContainerCpus>,
    /// What it is given with its devices.
    pub devices: ContainerDevices,
}

/// The processors of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerCpus {
    /// The processors.
    pub cpus: CpuSet,
    /// No other container runs on them.
    pub is_exclusive: bool,
}

impl LaunchSpec {
    /// The launch with these devices. A variable of the pod comes before one of the devices, as under a kubelet.
    pub(crate) fn with_devices(mut self, devices: ContainerDevices) -> Self {
        for (name, value) in &devices.env {
            self.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Self { devices, ..self }
    }

    /// Command and arguments as one list, for a runtime without images.
    pub fn argv(&self) -> Vec<String> {
        self.command.iter().chain(&self.args).cloned().collect()
    }
}

/// A volume at its place in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The volume's name.
    pub volume: String,
    /// The mount's path, below the container's root.
    pub path: PathBuf,
    /// The spec names an absolute path, where the container sees the volume, too.
    #[serde(default)]
    pub is_absolute: bool,
    /// The part of the volume that is mounted; `None` for all of it.
    pub sub_path: Option<PathBuf>,
    /// The container cannot write to it.
    pub read_only: bool,
    /// The pod worker writes the files of the volume, and containers cannot. It follows from the volume's kind: what lies
    /// in a volume may be of a container.
    #[serde(default)]
    pub is_written_here: bool,
    /// What of a read-only volume is read-only.
    #[serde(default)]
    pub recursive_read_only: RecursiveReadOnly,
    /// Which later mounts go from the host to the container and back.
    #[serde(default)]
    pub propagation: Propagation,
}

/// `recursiveReadOnly`: whether the mounts below a read-only volume are read-only, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecursiveReadOnly {
    /// They stay as they are.
    #[default]
    Disabled,
    /// They are, if the runtime can do it.
    IfPossible,
    /// They are, or the container does not start.
    Enabled,
}

/// `mountPropagation`: whether mounts that are made later are seen on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// No.
    #[default]
    None,
    /// The container sees those of the host.
    HostToContainer,
    /// The host sees those of the container, too.
    Bidirectional,
}

/// Why a container waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    /// One word, as a kubelet reports it.
    pub reason: &'static str,
    /// What is missing, and what to do; empty while that is not known.
    pub message: String,
}
