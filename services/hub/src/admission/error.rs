//! Why a hub does not admit a session.

use headwater_event::NodeName;
use headwater_session::message::{Refusal, RefusalCode};

/// The reason that an edge receives when its hub stops.
pub(crate) const HUB_STOPS: &str = "the hub stops";

/// Why a hub does not admit a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// The operator cut the node's link.
    #[error("the operator has cut the link of node {0}")]
    LinkCut(NodeName),
    /// The hub stops.
    #[error("{HUB_STOPS}")]
    Stopping,
    /// The hub has as many sessions as its limit allows.
    #[error("the hub is at its limit of sessions")]
    Full,
    /// Too many edges connect at once.
    #[error("too many edges connect at once")]
    HubRate,
    /// The node itself connects too often.
    #[error("the node connects too often")]
    NodeRate,
}

impl AdmissionError {
    /// Its value in the metric of hellos.
    pub(crate) fn metric_name(&self) -> &'static str {
        match self {
            Self::LinkCut(_) => "link_cut",
            Self::Stopping => "stopping",
            Self::Full => "full",
            Self::HubRate => "pace",
            Self::NodeRate => "node_pace",
        }
    }

    /// The message to the edge, which comes back to this hub or another one.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal { code: RefusalCode::Unavailable, message: self.to_string() }
    }
}
