//! The goal of a pod, and the steps towards it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::container::WaitReason;

/// The goal of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It should run.
    Run,
    /// It should end.
    End {
        /// A container that still runs at this time is killed.
        deadline: Instant,
        /// The step that follows when nothing runs.
        then: FinalStep,
    },
    /// It fails for good, whatever its containers do.
    Fail {
        /// The reason.
        reason: FailReason,
        /// A container that still runs at this time is killed.
        deadline: Instant,
    },
}

/// The step that follows when none of a pod's containers runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalStep {
    /// Remove what the pod has on the machine, then ask the cloud to delete the object.
    AskDelete,
    /// Remove everything of the pod: it is not desired any more.
    CleanUp,
    /// Leave everything for the next start: the machine stops.
    Leave,
}

/// Why a pod fails although its containers did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// It ran longer than `activeDeadlineSeconds`.
    DeadlineExceeded,
    /// The node lacks a resource, and the pod uses too much of it.
    Evicted,
    /// It leaves its place to a pod without which the node does not work.
    Preempted,
    /// The node has too little CPU for the pod's request.
    OutOfCpu,
    /// The node has too little memory for the pod's request.
    OutOfMemory,
    /// The node has too little room on its disk for the pod's request.
    OutOfStorage,
    /// The node runs as many pods as it has room for.
    OutOfPods,
    /// Another pod has a port of the machine that the pod asks for.
    NodePorts,
    /// The node cannot admit the pod.
    UnexpectedAdmissionError,
    /// The runtime does not admit the pod, for this reason.
    Rejected(&'static str),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the pod's sandbox.
    Open,
    /// Close the pod's sandbox, in which nothing runs.
    Close,
    /// Pull the image of this container.
    Pull(String),
    /// Start this container once more.
    Start(String),
    /// Give the pod, and those of its containers that run on, the resources of the spec.
    Resize,
    /// Run the preStop hook of this container.
    PreStop(String),
    /// Ask this container to end.
    Terminate(String),
    /// Kill this container.
    Kill(String),
    /// Fail the pod for good: none of its containers starts any more.
    Refuse(FailReason),
    /// Remove everything of the pod but its record and its last status: containers, volumes, logs, cgroup.
    Discard,
    /// Ask the cloud to delete the pod's object.
    AskDelete,
    /// Remove everything of the pod, and forget it.
    CleanUp,
    /// Forget the pod, and leave everything.
    Leave,
}

/// The next steps of a pod, and the time of the next plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps. They are independent of each other.
    pub actions: Vec<Action>,
    /// Why containers wait that would start otherwise.
    pub waiting: BTreeMap<String, WaitReason>,
    /// When to plan again although nothing happened.
    pub wake_at: Option<Instant>,
}

impl Plan {
    /// Whether containers start now, and nothing else is done or waited for.
    pub(crate) fn only_starts(&self) -> bool {
        let starts = |action: &Action| matches!(action, Action::Start(_));
        self.waiting.is_empty() && !self.actions.is_empty() && self.actions.iter().all(starts)
    }
}

impl FailReason {
    /// The reason as a kubelet reports it in a pod's status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::Evicted => "Evicted",
            Self::Preempted => "Preempting",
            Self::OutOfCpu => "OutOfcpu",
            Self::OutOfMemory => "OutOfmemory",
            Self::OutOfStorage => "OutOfephemeral-storage",
            Self::OutOfPods => "OutOfpods",
            Self::NodePorts => "NodePorts",
            Self::UnexpectedAdmissionError => "UnexpectedAdmissionError",
            Self::Rejected(reason) => reason,
        }
    }

    /// The reason of this name, if the node failed the pod for lack of something: that is final.
    pub(crate) fn of_node(name: &str) -> Option<Self> {
        let reasons = [
            Self::Evicted,
            Self::Preempted,
            Self::OutOfCpu,
            Self::OutOfMemory,
            Self::OutOfStorage,
            Self::OutOfPods,
            Self::NodePorts,
            Self::UnexpectedAdmissionError,
        ];
        reasons.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Whether the node has no room for what the pod requests.
    pub(crate) fn is_of_room(self) -> bool {
        matches!(self, Self::OutOfCpu | Self::OutOfMemory | Self::OutOfStorage | Self::OutOfPods)
    }

    /// Whether the pod was admitted, and has to leave the node to others.
    pub(crate) fn is_of_others(self) -> bool {
        matches!(self, Self::Evicted | Self::Preempted)
    }

    /// The message as a kubelet reports it, for a reason whose message has no figures.
    pub fn message(self) -> Option<&'static str> {
        match self {
            Self::DeadlineExceeded => {
                Some("Pod was active on the node longer than the specified deadline")
            }
            Self::Evicted
            | Self::Preempted
            | Self::OutOfCpu
            | Self::OutOfMemory
            | Self::OutOfStorage
            | Self::OutOfPods
            | Self::NodePorts
            | Self::UnexpectedAdmissionError
            | Self::Rejected(_) => None,
        }
    }
}
