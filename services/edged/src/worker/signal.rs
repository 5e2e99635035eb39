//! What wakes a pod's worker: changes that the runtime, a probe or a hook found.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::sync::mpsc;

use crate::runtime::ImageError;

/// The sender of a worker's signals. They are boxed: the channel has room for dozens, and the
/// channels of most pods are empty.
pub(crate) type Signals = mpsc::Sender<Box<Signal>>;

/// Signals of one pod that may wait. The next resync finds what a lost one reported.
pub(crate) const SIGNALS_MAX: usize = 64;

/// A reason for a worker to observe its pod.
#[derive(Debug)]
pub(crate) enum Signal {
    /// The runtime found a change of the pod.
    Runtime,
    /// The verdict of a probe changed.
    Probe { container: String, attempt: u32, kind: ProbeKind, healthy: bool, message: String },
    /// A postStart hook ended.
    PostStart { container: String, attempt: u32, result: Result<(), String> },
    /// A preStop hook ended.
    PreStop { container: String, attempt: u32 },
    /// The pull of a container's image ended. The result is the image's id.
    Pull { container: String, result: Result<Arc<str>, ImageError> },
}

/// The question that a probe answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// Has the container started?
    Startup,
    /// Can it serve?
    Readiness,
    /// Must it be restarted?
    Liveness,
}

impl ProbeKind {
    /// The container's probe of this kind.
    pub(crate) fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
        }
    }
}
