//! What wakes a pod's worker: changes that the runtime, a probe or a hook found.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use headwater_object::TokenClaim;
use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::sync::mpsc;

use super::plan::FailReason;
use super::probe_failure::ProbeFailure;
use crate::api::client::EdgeError;
use crate::container::token::Token;
use crate::runtime::{ImageError, RuntimeError};

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
    /// The node lacks a resource, and the pod has to leave it to others.
    Evict {
        /// The reason of its status.
        reason: FailReason,
        /// Why, in the words of its status.
        message: String,
        /// The time that it has.
        within: Duration,
        /// What it is evicted for, as a kubelet's metric names it.
        signal: Option<&'static str>,
    },
    /// A probe found something new.
    Probe { container: String, attempt: u32, kind: ProbeKind, finding: ProbeFinding },
    /// A probe succeeded with a warning.
    ProbeWarning { container: String, kind: ProbeKind, message: String },
    /// A postStart hook ended.
    PostStart { container: String, attempt: u32, result: Result<(), String> },
    /// A preStop hook ended.
    PreStop { container: String, attempt: u32, result: Result<(), String> },
    /// The edge answered a request for a token.
    Token { claim: TokenClaim, result: Result<Token, EdgeError> },
    /// The pull of a container's image ended.
    Pull { container: String, result: Result<PullOutcome, ImageError> },
    /// The storage drivers published the pod's volumes, or one did not.
    Published { result: Result<BTreeMap<String, PathBuf>, RuntimeError> },
}

/// An image that the next start can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PullOutcome {
    /// The registry sent what was missing.
    New {
        /// The time of the pull, without the wait for its turn.
        took: Duration,
        /// The time with the wait.
        took_with_wait: Duration,
        /// The size of the image.
        bytes: u64,
    },
    /// The registry cannot be reached, and the image with which the container ran before is here.
    AsBefore {
        /// Why the registry cannot be reached.
        cause: ImageError,
    },
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeFinding {
    /// The verdict changed: the container is healthy.
    Healthy,
    /// The verdict changed: the container is not healthy.
    Unhealthy(ProbeFailure),
    /// The container is not healthy yet, or still not, and this is the answer now.
    StillFailing(ProbeFailure),
}

/// The question that a probe answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    /// Has the container started?
    Startup,
    /// Can it serve?
    Readiness,
    /// Must it be restarted?
    Liveness,
}

impl ProbeKind {
    /// Every kind.
    pub(crate) const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// The name of the kind in a status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    /// The name of the kind in Events and metrics.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }

    /// The container's probe of this kind.
    pub(crate) fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
        }
    }
}
