//! Why a request of a node fails at this hub.

use headwater_event::RequestError;

/// Whose requests are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooManyOf {
    /// The node's own.
    Node,
    /// All nodes of the hub together.
    Hub,
}

impl From<TooManyOf> for RequestError {
    fn from(whose: TooManyOf) -> Self {
        Self::TooMany(
            match whose {
                TooManyOf::Node => "of this node are in flight",
                TooManyOf::Hub => "of this hub are in flight",
            }
            .to_owned(),
        )
    }
}
