//! The runtimes of a pod worker.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The runtime of the pods of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// Run each container's command as a process of this host; images are not used
    Process,
    /// Run containers of images in a container runtime, over its CRI socket
    Cri,
    /// Report pods as running without running them: for load
    Hollow,
}
