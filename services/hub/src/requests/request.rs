//! A request of a node, and why it fails.

use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use headwater_session::message::RequestError;
use tokio::time::Instant;

/// A request of a node. The hub has checked that the node may ask for the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequest {
    /// The node, as its certificate names it.
    pub node: NodeName,
    /// When the edge stops waiting for the response.
    pub deadline: Instant,
    /// What the node asks.
    pub verb: Verb,
    /// The object that the request is about.
    pub key: ResourceKey,
    /// The input of the verb; empty for a `Get`.
    pub body: Bytes,
}

/// What a node asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// The object's JSON.
    Get,
}

/// Why a request fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeRequestError {
    /// There is no such object.
    #[error("not found")]
    NotFound,
    /// The node may not do this.
    #[error("forbidden")]
    Forbidden,
    /// The handler has no answer at present; the text is the reason.
    #[error("{0}")]
    Unavailable(String),
    /// The deadline passed; whether the request had an effect is unknown.
    #[error("no response before the deadline")]
    DeadlineExceeded,
    /// The object's current state does not permit the request; nothing was done.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The request is malformed; asking again is useless.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// Too many requests are in flight; nothing was done.
    #[error("too many requests of {0} are in flight")]
    TooMany(TooManyOf),
}

/// Whose requests are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooManyOf {
    /// The node's own.
    Node,
    /// All nodes of the hub together.
    Hub,
}

impl std::fmt::Display for TooManyOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Node => "this node",
            Self::Hub => "this hub",
        })
    }
}

impl From<NodeRequestError> for RequestError {
    /// The wire has three codes: an error that has none of its own is sent as unavailable, with
    /// its text.
    fn from(error: NodeRequestError) -> Self {
        match error {
            NodeRequestError::NotFound => Self::NotFound,
            NodeRequestError::Forbidden => Self::Forbidden,
            error @ (NodeRequestError::Unavailable(_)
            | NodeRequestError::DeadlineExceeded
            | NodeRequestError::Conflict(_)
            | NodeRequestError::Invalid(_)
            | NodeRequestError::TooMany(_)) => Self::Unavailable(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_reaches_the_edge_with_its_code_or_its_text() {
        let unavailable = |text: &str| RequestError::Unavailable(text.to_owned());
        let text = || "why".to_owned();
        for (error, expected) in [
            (NodeRequestError::NotFound, RequestError::NotFound),
            (NodeRequestError::Forbidden, RequestError::Forbidden),
            (NodeRequestError::Unavailable(text()), unavailable("why")),
            (NodeRequestError::DeadlineExceeded, unavailable("no response before the deadline")),
            (NodeRequestError::Conflict(text()), unavailable("conflict: why")),
            (NodeRequestError::Invalid(text()), unavailable("invalid request: why")),
            (
                NodeRequestError::TooMany(TooManyOf::Node),
                unavailable("too many requests of this node are in flight"),
            ),
            (
                NodeRequestError::TooMany(TooManyOf::Hub),
                unavailable("too many requests of this hub are in flight"),
            ),
        ] {
            assert_eq!(RequestError::from(error), expected);
        }
    }
}
