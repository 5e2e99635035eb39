//! The facts from which a pod is planned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::step::Fate;
use crate::container::WaitReason;

/// Everything that decides the next steps of a pod.
#[derive(Clone, Copy, Debug)]
pub struct PodFacts<'a> {
    /// The pod's spec.
    pub pod: &'a Pod,
    /// The pod's goal.
    pub fate: Fate,
    /// How the pod ended for good, once it has. It is never taken back.
    pub ended: Option<Outcome>,
    /// The pod's sandbox.
    pub sandbox: Sandbox,
    /// The pod's containers.
    pub containers: &'a Containers,
    /// Nothing of the pod is on the machine any more but its record.
    pub is_discarded: bool,
    /// The reported status is final: nothing that becomes known changes it.
    pub is_final: bool,
    /// The time from which its resources can be changed; `None`: they are those of the spec.
    pub resize_at: Option<Instant>,
    /// The time of the plan.
    pub now: Instant,
}

/// The facts of each container, by name. One that is missing never ran.
pub type Containers = BTreeMap<String, ContainerFacts>;

/// How a pod ended for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every container succeeded.
    Succeeded,
    /// A container failed.
    Failed,
}

/// The pod's sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// The runtime has no sandboxes: containers can always start.
    Unneeded,
    /// There is none: it must be opened before a container starts.
    None,
    /// Containers can start in it.
    Ready,
    /// It ended by itself: its containers end, and all of them start again in the next one.
    Lost,
}

/// The facts of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its latest run.
    pub run: Run,
    /// The latest run is past its startup probe and postStart hook.
    pub started: bool,
    /// The latest run was in an earlier sandbox: an init container has to run again.
    pub in_earlier_sandbox: bool,
    /// The latest run was before a restart of all containers of the pod: it ends, and the container runs again.
    pub is_superseded: bool,
    /// The time by which the latest run has to end, because a probe or hook failed.
    pub unhealthy: Option<Instant>,
    /// The progress of its end.
    pub stopping: Option<Stopping>,
    /// The time before which it must not start again, and the length of that wait.
    pub blocked: Option<(Instant, Duration)>,
    /// Why it cannot start: something that it needs is missing.
    pub refused: Option<WaitReason>,
    /// The time at which a start that failed is tried again.
    pub retry_at: Option<Instant>,
    /// Its image.
    pub image: ImageState,
    /// The image that the spec named when the latest run started; `None` if it is unknown.
    pub run_image: Option<Arc<str>>,
    /// The latest run has to be replaced: the spec names another image, and the runtime uses it, or resources that demand
    /// a restart.
    pub is_outdated: bool,
}

/// A container's latest run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// There was none.
    Never,
    /// It runs.
    Running,
    /// It ended, and it is not known yet how.
    EndPending,
    /// It ended.
    Exited {
        /// With this exit code.
        code: i32,
        /// For the machine's sake: it starts again under any restart policy.
        interrupted: bool,
    },
}

/// The progress of a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// Its preStop hook was started.
    PreStop {
        /// The hook has ended.
        done: bool,
    },
    /// It was asked to end.
    Terminated {
        /// The time of the request.
        since: Instant,
    },
    /// It was killed.
    Killed {
        /// The time of the kill.
        since: Instant,
    },
}

/// The image of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageState {
    /// The runtime has not reported yet whether the image is on the node.
    Unknown,
    /// It is not on the node.
    Absent,
    /// It is being pulled.
    Pulling,
    /// The last pull failed.
    Failed {
        /// The time of the next pull.
        until: Instant,
        /// The time up to which the container waits because of the failure; then it waits for the next pull.
        told_until: Instant,
        /// Why it failed.
        reason: WaitReason,
    },
    /// Its name names no image.
    Invalid {
        /// Why it does not.
        message: String,
    },
    /// It is on the node, or the runtime needs no images.
    Present {
        /// It was pulled for the next start, which the pull policy `Always` demands.
        pulled: bool,
    },
}

impl Default for ContainerFacts {
    /// A container that never ran and lacks nothing.
    fn default() -> Self {
        Self {
            run: Run::Never,
            started: false,
            in_earlier_sandbox: false,
            is_superseded: false,
            unhealthy: None,
            stopping: None,
            blocked: None,
            refused: None,
            retry_at: None,
            image: ImageState::Present { pulled: true },
            run_image: None,
            is_outdated: false,
        }
    }
}

impl ContainerFacts {
    /// Whether the latest run, if there is one, counts for the pod: it was in this sandbox, and after the last restart of
    /// all containers.
    pub(crate) fn is_current(&self) -> bool {
        !self.in_earlier_sandbox && !self.is_superseded
    }

    /// The latest run that counts for the pod.
    pub(super) fn run_here(&self) -> Run {
        if self.is_current() { self.run } else { Run::Never }
    }

    /// Whether its latest run runs.
    pub(crate) fn is_running(&self) -> bool {
        self.run == Run::Running
    }

    /// Whether its latest run has ended, and it is not known yet how.
    pub(crate) fn is_end_pending(&self) -> bool {
        self.run == Run::EndPending
    }
}
