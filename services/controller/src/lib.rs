//! The controller: from sources of objects to the downstream log, and from the upstream log to the
//! cloud's picture.
//!
//! ```text
//!  Source ──► SourceSet ──► publisher ──► downstream log ──► hubs
//!                             │  ▲
//!                       interest │ commands
//!                             │  │
//!  Sink ◄──── picture ◄───────┘  │
//!               ▲                │
//!               └── report fold ─┘◄─────── upstream log ◄─── hubs
//! ```
//!
//! Three tasks own the state: the publisher owns the interest and the fold of what is published, the
//! report fold owns the picture's tables, and each source owns its objects. Everything else reads.
//! Three traits are the doors to other systems: [`Source`], [`Sink`] and [`Cloud`]. The controller
//! implements each of them once for a cloud without Kubernetes.
//!
//! | module | what it owns |
//! |---|---|
//! | [`source`] | the contract of a source; the manifest folder and the objects socket |
//! | [`interest`] | which node needs which object |
//! | `publisher` | differences between interest and log, the writer, the standby |
//! | `report_fold` | reports of the nodes, in the order in which they count |
//! | `picture` | objects with their statuses, which nodes are connected, and what changes |
//! | [`sink`] | the contract of a sink; removing pods that have ended |
//! | [`cloud`] | answers to the requests of nodes |
//! | `controller` | starting and stopping all of it |
//! | `packed` | payloads kept in memory as patches to each other |
//! | `metrics`, `spans` | what is visible from outside |
//!
//! Uses point from the top to the bottom of this list of layers: `controller`; `sink`, `cloud`,
//! `report_fold`; `publisher`; `picture`; `source`; `interest`.

pub mod cloud;
mod controller;
pub mod interest;
mod metrics;
mod packed;
mod picture;
mod publisher;
mod report_fold;
pub mod sink;
pub mod source;
mod spans;

pub use cloud::{CheckedCloud, Cloud};
pub use controller::{
    Controller, ControllerDependencies, ControllerError, ControllerHandle, Readiness,
};
pub use interest::{ClusterStream, EntryId, Interest};
pub use metrics::ControllerMetrics;
pub use picture::{
    ChangeSubscription, Filter, NodeEvent, NodePresence, PageOutline, Picture, PictureChange,
    PicturePage, PresenceLink, PresenceReceiver, ReportedNode, ReportedPod, Termination,
    as_deleted,
};
pub use publisher::{
    GROUP_EVENTS, HEARTBEAT_INTERVAL, HEARTBEATS_MISSED, OpenError, Progress, SOURCE_LOSS_MAX,
    UuidGenerator, WriterTimings,
};
pub use sink::{ObjectRemovals, PodRemoval, Sink, SinkContext};
pub use source::{
    Cause, KnownObjects, Notice, NoticeKind, PublishedObject, PublishedObjects, PublishedReader,
    Source, SourceContext, SourceError, SourceEvent, SourceEventSender, SourceKind, SourcePart,
    SourceState, SourceStateSender, SourceStates, UidAssignment, Wanted, WriterRole,
    read_published,
};
