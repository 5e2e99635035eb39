//! Whether this controller writes the log, as a source sees it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::{PodReports, PublishedReader, SharedWorkloads};

/// What a source needs that unfolds workloads.
#[derive(Clone)]
pub struct WorkloadContext {
    /// What the nodes report of pods.
    pub reports: Arc<dyn PodReports>,
    /// Takes the workloads, to be read.
    pub workloads: SharedWorkloads,
    /// The role of this controller.
    pub role: watch::Receiver<WriterRole>,
}

/// The role of this controller.
#[derive(Clone, Debug, Default)]
pub enum WriterRole {
    /// This controller claims the log once it can.
    #[default]
    Candidate,
    /// Another controller may write the log: what this one's sources decide has no effect.
    Standby,
    /// This controller writes the log.
    Writer {
        /// What another controller published meanwhile; `None` where none wrote since.
        takeover: Option<Takeover>,
    },
}

/// A takeover from another controller. A source that [answers](super::Source::answers_takeover) decides
/// anew by what is published, or catches up, and then sends
/// [`SourceEvent::TakenOver`](super::SourceEvent::TakenOver); nothing is compared before.
#[derive(Clone)]
pub struct Takeover {
    /// The epoch of this controller's claim.
    pub epoch: u64,
    /// What is published.
    pub published: Arc<dyn PublishedReader>,
    /// Whether the other controller may have written since the sources of this one listed.
    pub is_live: bool,
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}
