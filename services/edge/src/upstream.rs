//! Upstream: what the node reports to the cloud. One thread owns the outbox database, and with it
//! the identity, the reports, the pods' statuses and MetaSync. Every write is synced; commands
//! that are queued together share one.
//!
//! ```text
//!  pod worker --status--> statuses --MetaSync--> outbox --read--> session --> hub
//!  replica ----pods-----> orphans go               ^                            |
//!                                                  +-- forget <-- acknowledged -+
//! ```
//!
//! | module | job |
//! |---|---|
//! | `owner` | runs the commands, writes each group once, then sends the replies |
//! | `report_writer` | gives a report its id and its row in the open batch |
//! | `meta_sync` | derives the pod status snapshot and reports the difference |
//! | `pod_view`, `pod_statuses` | the node's pods; their statuses, and those that were reported |
//! | [`outbox`], [`identity`] | the rows: reports without acknowledgement; boot and report ids |
//! | `tokens` | the tokens of ServiceAccounts |
//! | `report_cause` | the trace of a report |
//! | [`contents`] | reads an outbox database on which no edge runs |
//!
//! A caller receives its reply when the write that its command caused is on disk.

pub mod contents;
pub mod identity;
mod meta_sync;
pub mod outbox;
mod owner;
pub(crate) mod pod_statuses;
mod pod_view;
mod report_cause;
mod report_writer;
pub(crate) mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::{AnswerBody, Identity, ReportBody, ReportId, ResourceKey};
use headwater_object::TokenClaim;
use headwater_session::message::RefusedReport;
use headwater_store::{Engine, EngineError};
use tokio::sync::{mpsc, oneshot};

use self::identity::OlderIncarnation;
use self::outbox::{OutboxPage, OutboxSettings, PageRequest};
pub(crate) use self::owner::EdgeUpstream;
use self::pod_statuses::PodStatus;
use self::tokens::TokenStanding;
use crate::dependencies::{Chance, Clock};
use crate::meta::object::Object;
use crate::meta::operation::OperationError;
use crate::metrics::EdgeCounts;

/// How often the edge derives the pod status snapshot without a change: KubeEdge's
/// PodStatusSyncInterval.
pub const META_SYNC_INTERVAL: Duration = Duration::from_secs(60);

/// How long a full snapshot waits for pods without a status. A pod worker that has just started
/// reports all its pods within moments; the cloud need not see them go and come.
pub const META_SYNC_SETTLE: Duration = Duration::from_secs(2);

/// How long the status of a pod that left the node waits for Headwater's pod worker, which may be
/// away itself. Until then the cloud shows that the node still has the pod.
pub const POD_END_WAIT: Duration = Duration::from_secs(600);

/// The bounds of upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The bounds of the outbox.
    pub outbox: OutboxSettings,
    /// See [`META_SYNC_INTERVAL`].
    pub sync_interval: Duration,
    /// See [`META_SYNC_SETTLE`].
    pub settle: Duration,
    /// How long the status of a pod that left the node waits for the pod worker to end the pod and to
    /// remove the status. Zero, without a pod worker that does: it is removed at once.
    pub end_wait: Duration,
}

/// What other tasks ask of upstream.
#[derive(Debug)]
pub(crate) enum UpstreamCommand {
    /// The durable view of the node's pods has changed.
    View(Vec<ViewChange>),
    /// Store a pod's status. The reply: whether the status changed.
    SetStatus {
        pod: ResourceKey,
        status: PodStatus,
        /// The trace context of the change.
        cause: Option<String>,
        reply: oneshot::Sender<Result<bool, OperationError>>,
    },
    /// Remove a pod's status, if it is of the pod with this UID. The reply: whether there was one.
    RemoveStatus {
        pod: ResourceKey,
        /// `None`: of any pod of the name.
        uid: Option<String>,
        reply: oneshot::Sender<Result<bool, OperationError>>,
    },
    /// Report to the cloud. The reply is true.
    Report { body: ReportBody, reply: oneshot::Sender<Result<bool, OperationError>> },
    /// Report that a pod has terminated. The reply: whether the node still had it.
    Terminate {
        pod: ResourceKey,
        uid: String,
        /// The trace context of the termination.
        cause: Option<String>,
        reply: oneshot::Sender<Result<bool, OperationError>>,
    },
    /// Look up statuses.
    Statuses { of: StatusesOf, reply: oneshot::Sender<Vec<Object>> },
    /// Derive the snapshot now. The reply: whether there was a difference to report.
    MetaSync { reply: oneshot::Sender<Result<bool, OperationError>> },
    /// Look up the token of a claim.
    FindToken { claim: TokenClaim, reply: oneshot::Sender<TokenStanding> },
    /// Keep the token that the cloud issued for a claim. The reply: whether the answer has one.
    KeepToken {
        claim: TokenClaim,
        answer: AnswerBody,
        reply: oneshot::Sender<Result<bool, OperationError>>,
    },
    /// Remove the token of a claim: its pod or its account is gone.
    RevokeToken(TokenClaim),
    /// The monotonic clock, in milliseconds.
    Tick(u64),
    /// Read a page of the outbox.
    Read(PageRequest),
    /// The cloud never takes this report; `Forget` follows.
    Refused(RefusedReport),
    /// Remove every report up to this one: the cloud has them.
    Forget(ReportId),
    /// Move the boot number past another start of this node.
    Raise { known: Identity },
    /// End.
    Stop,
}

/// Which statuses to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusesOf {
    /// The status of one pod.
    Pod(ResourceKey),
    /// The statuses of a namespace; `None`: of every namespace.
    Namespace(Option<String>),
}

/// A change of the durable view of the node's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ViewChange {
    /// The whole list of pods, with their UIDs. `complete`: the node has its whole private stream.
    Listed { pods: BTreeMap<ResourceKey, String>, complete: bool },
    /// A pod was added or changed.
    Pod { pod: ResourceKey, uid: String },
    /// A pod was removed.
    PodGone { pod: ResourceKey, uid: String },
    /// The cloud requests a full snapshot; the requests are numbered.
    SnapshotRequested(u64),
}

/// What upstream sends to the session.
#[derive(Debug)]
pub(crate) enum UpstreamEvent {
    /// The outbox has a new report.
    Reported,
    /// The reply to [`UpstreamCommand::Read`].
    Read(OutboxPage),
    /// The reply to [`UpstreamCommand::Raise`].
    Raised(Identity),
}

/// The state of upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamStatus {
    pub(crate) identity: Identity,
    /// Reports without acknowledgement.
    pub(crate) depth: usize,
    /// Wall clock in milliseconds; 0: never.
    pub(crate) last_meta_sync_ms: i64,
    /// Why a report could not be stored, or which the cloud refused.
    pub(crate) trouble: Option<String>,
}

/// Why upstream does not start.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The engine failed.
    #[error("the outbox engine failed")]
    Engine(#[from] EngineError),
    /// The configured incarnation is older than the stored one.
    #[error(transparent)]
    Older(#[from] OlderIncarnation),
}

/// What upstream needs from outside.
#[derive(Debug)]
pub(crate) struct UpstreamDependencies {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<dyn Chance>,
    pub(crate) session: mpsc::Sender<UpstreamEvent>,
    pub(crate) metrics: EdgeCounts,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            outbox: OutboxSettings::default(),
            sync_interval: META_SYNC_INTERVAL,
            settle: META_SYNC_SETTLE,
            end_wait: Duration::ZERO,
        }
    }
}
