//! The Events of a node: what the pod worker did with a pod, or why it could not, as a kubelet names it.
//!
//! ```text
//!  worker ──Occurrence──► EventRecorder ──► EventAggregator ──► the edge's outbox
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `aggregator` | equal occurrences as one Event with a count, and the rate (pure) |
//! | `status_change` | the occurrences that follow from the change of a pod's status (pure) |

pub(crate) mod aggregator;
pub(crate) mod status_change;

use headwater_event::{NodeName, ResourceKey};

use crate::pod::PodUid;

/// Which Events a node sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventLevel {
    /// None.
    None,
    /// Warnings.
    #[default]
    Warnings,
    /// Warnings, and what goes as it should.
    All,
}

/// The `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

/// Something that happened to a pod or to the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Occurrence {
    pub(crate) about: Subject,
    pub(crate) severity: Severity,
    /// A word for programs.
    pub(crate) reason: String,
    /// A sentence for people.
    pub(crate) message: String,
}

/// The object to which something happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// A pod, or one of its containers.
    Pod {
        /// `<namespace>/pod/<name>`.
        key: ResourceKey,
        uid: PodUid,
        container: Option<String>,
    },
    /// The node itself.
    Node(NodeName),
}

impl Occurrence {
    /// The same for a reader who does not know the pod: it happened on the node, and the message names the pod.
    pub(crate) fn on_node(self, node: NodeName) -> Self {
        let message = match &self.about {
            Subject::Pod { key, .. } => format!("{key}: {}", self.message),
            Subject::Node(_) => return self,
        };
        Self { about: Subject::Node(node), message, ..self }
    }
}

impl EventLevel {
    pub(crate) fn has(self, severity: Severity) -> bool {
        match self {
            Self::None => false,
            Self::Warnings => severity == Severity::Warning,
            Self::All => true,
        }
    }
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
