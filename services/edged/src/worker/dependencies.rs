//! What a worker receives: its dependencies when it starts, and its assignments.

use std::net::IpAddr;
use std::sync::Arc;

use headwater_event::NodeName;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Places, ProbeTotals};
use crate::api::client::EdgeClient;
use crate::api::event_recorder::EventRecorder;
use crate::api::pod_reporter::PodReporter;
use crate::config::Settings;
use crate::container::requests::Amounts;
use crate::cpus::CpuManager;
use crate::desired::compressed_object::CompressedObject;
use crate::desired::objects::Objects;
use crate::devices::Devices;
use crate::disk::pod_store::PodStore;
use crate::metrics::EdgedCounts;
use crate::pod_fields::PodFindings;
use crate::runtime::NodeRuntime;
use crate::worker::plan::FailReason;

/// The pod that a worker brings about; the latest one counts.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// The pod's latest object, with the resources that the node has given to its containers.
    pub(crate) pod: CompressedObject<Pod>,
    /// What the runtime does not do for it.
    pub(crate) findings: Arc<PodFindings>,
    /// The objects that it may name.
    pub(crate) objects: Objects,
    /// Why the node does not run the pod. It is decided once, and before anything of the pod runs.
    pub(crate) failure: Option<AdmissionFailure>,
    /// Why its containers have other resources than its spec asks for, if they do.
    pub(crate) resize: Option<PendingResize>,
    /// Whether the edge's view still has the pod.
    pub(crate) is_desired: bool,
    /// Set when the machine stops: the time by which the pod must have ended.
    pub(crate) shutdown: Option<Instant>,
    /// The trace context of the pod's last change, if it is in a trace.
    pub(crate) trace: Option<String>,
}

/// Why a pod keeps the resources that it has, and not those of its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingResize {
    /// One word: `Deferred` or `Infeasible`.
    pub(crate) reason: &'static str,
    /// The resource, and its figures.
    pub(crate) message: Arc<str>,
}

/// Why a node does not run a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionFailure {
    /// One word.
    pub(crate) reason: FailReason,
    /// The resource, and its figures.
    pub(crate) message: Arc<str>,
}

impl AdmissionFailure {
    /// The failure that was reported of a pod: it is final, whatever room there is now.
    pub(crate) fn of_status(status: &PodStatus) -> Option<Self> {
        let reason = FailReason::of_node(status.reason.as_deref()?)?;
        let has_failed = status.phase.as_deref() == Some("Failed");
        let message = status.message.clone().unwrap_or_default().into();
        has_failed.then_some(Self { reason, message })
    }
}

/// What all workers need from outside.
pub(crate) struct WorkerDependencies {
    pub(crate) node: NodeName,
    pub(crate) address: IpAddr,
    pub(crate) allocatable: Amounts,
    /// The processors of containers, if the runtime lets them choose.
    pub(crate) cpus: Option<Arc<CpuManager>>,
    /// The devices of containers, if device plugins can register.
    pub(crate) devices: Option<Devices>,
    pub(crate) settings: Settings,
    pub(crate) runtime: NodeRuntime,
    pub(crate) store: PodStore,
    pub(crate) edge: EdgeClient,
    pub(crate) reporter: PodReporter,
    pub(crate) events: EventRecorder,
    pub(crate) metrics: EdgedCounts,
    pub(crate) probes: ProbeTotals,
    /// A place for each pod that is being started.
    pub(crate) adding: Places,
    /// A place for each pod that is being taken down or cleaned up.
    pub(crate) removing: Places,
    /// One permit for each token that is being requested.
    pub(crate) requesting_tokens: Semaphore,
    pub(crate) cancel: CancellationToken,
}
