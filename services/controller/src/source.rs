//! Sources: where objects come from, behind one contract.
//!
//! A source first lists every object that it has, then sends what changes: `Init`, one `InitApply`
//! for each object, `InitDone`, then `Apply` and `Delete`. **A source lists once.** A source that
//! loses its place (a watch that expired, a folder that was unreadable) lists again on its own side
//! and sends the differences; [`KnownObjects`] computes them. The controller therefore never takes
//! an object that is absent from half a list for a deleted one.
//!
//! | module | what it owns |
//! |---|---|
//! | `events` | the events of a source, and the sender that holds it to the contract |
//! | `state` | whether each part of a source lists, follows or has failed |
//! | `trouble` | what is wrong with the documents of a source, as long as it is |
//! | `wanted` | which objects the nodes use, as a source sees it |
//! | `known` | the differences between two lists of one source |
//! | `set` | several sources that run as one |
//! | `error` | why a source stopped |
//! | `notice` | messages of a source to a person |
//! | `published` | what an earlier run of the controller published |
//! | `pod_reports` | what the nodes report of pods, as a source reads it |
//! | `workloads` | the workloads of the sources, to be read |
//! | `writer_role` | whether this controller writes the log, as a source sees it |
//! | `identity` | whether an object that is described again is the same object |
//! | [`manifest`] | the manifest folder |
//! | [`objects`] | the objects socket |

mod error;
mod events;
pub(crate) mod identity;
mod known;
pub mod manifest;
mod notice;
pub mod objects;
mod pod_reports;
mod published;
#[cfg(test)]
pub(crate) mod scripted;
mod set;
mod state;
mod trouble;
mod wanted;
pub(crate) mod workloads;
mod writer_role;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

pub use self::error::SourceError;
pub use self::events::{Cause, SourceEvent, SourceEventSender};
pub use self::identity::UidAssignment;
pub use self::known::KnownObjects;
pub use self::notice::{Notice, NoticeKind};
pub use self::pod_reports::{NoReports, PodReport, PodReports, ReportChanges};
pub(crate) use self::published::PublishedMap;
pub use self::published::{PublishedObject, PublishedObjects, PublishedReader, read_published};
pub(crate) use self::set::{SetContext, SourceSet};
pub use self::state::{SourcePart, SourceState, SourceStateSender, SourceStates};
pub use self::wanted::Wanted;
pub use self::workloads::SharedWorkloads;
pub use self::writer_role::{Takeover, WorkloadContext, WriterRole};

/// How many events a source may be ahead of the controller: enough to hide a group append, few
/// enough that the objects in the queue stay small beside those in the interest.
pub const SOURCE_QUEUE_EVENTS: usize = 1024;

/// The kind of a source, by its name in metrics, spans and states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKind(&'static str);

impl SourceKind {
    /// The manifest folder.
    pub const MANIFESTS: Self = Self("manifests");
    /// The objects socket.
    pub const OBJECTS: Self = Self("objects");
    /// A Kubernetes API.
    pub const KUBERNETES: Self = Self("kubernetes");
    /// A source that gives no kind.
    pub const OTHER: Self = Self("other");

    /// The kind of this name: lower case, one word.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl Default for SourceKind {
    fn default() -> Self {
        Self::OTHER
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A source of objects.
#[async_trait]
pub trait Source: Send {
    /// The kind of this source. A controller has at most one source of a kind.
    fn kind(&self) -> SourceKind;

    /// How this source assigns UIDs; `None` where its objects arrive with UIDs of their own.
    fn uid_assignment(&self) -> Option<Arc<dyn UidAssignment>> {
        None
    }

    /// Whether this source keeps a pod under deletion after its containers have stopped, so that the
    /// sink has to remove it. A Kubernetes API deletes the pod itself.
    fn wants_removals(&self) -> bool {
        false
    }

    /// Whether this source sends, besides roots and shared objects, only what [`Wanted`] names, and sends
    /// an object again that is [missing](Wanted::missing). The controller then forgets an object of it
    /// with the last use.
    fn sends_only_used(&self) -> bool {
        false
    }

    /// Whether the controller waits at a takeover for [`SourceEvent::TakenOver`] from this source: one that
    /// unfolds workloads decides anew by what is published, and one that follows another system may be
    /// behind what the controller before has seen there.
    fn answers_takeover(&self) -> bool {
        false
    }

    /// Lists every object once, then sends each change, until `context.stop`.
    ///
    /// Returns `Ok`, or the error of [`SourceEventSender::send`], once the source was stopped. Any
    /// other error ends the source: the objects that it sent stay as they are, and no object may be
    /// taken for deleted. A failure that may pass is no error but a [`SourceState::Failed`]: the
    /// source reports it and tries again.
    async fn run(self: Box<Self>, context: SourceContext) -> Result<(), SourceError>;
}

/// What a source gets from the controller.
pub struct SourceContext {
    /// What an earlier run published. Objects found there keep their UID and node, so that a
    /// restart changes nothing.
    pub published: Arc<dyn PublishedReader>,
    /// Which objects the nodes use. A source of many objects sends only those.
    pub wanted: Wanted,
    /// What a source needs that unfolds workloads.
    pub workloads: WorkloadContext,
    /// Takes the source's events.
    pub events: SourceEventSender,
    /// Takes the state of each part of the source.
    pub states: SourceStateSender,
    /// Cancelled when the source is to stop.
    pub stop: CancellationToken,
}
