//! The seam to what responds to nodes beyond the hub's own fold.

use headwater_event::{AnswerBody, NodeRequest, RequestError};

/// Responds to requests of nodes.
///
/// The hub drops a call at the request's deadline, so `handle` must be cancel safe: a dropped call
/// leaves nothing half done. Calls run concurrently, as many as
/// [`requests_max`](crate::HubLimits::requests_max).
#[tonic::async_trait]
pub trait RequestHandler: Send + Sync {
    /// The answer to `request`. The hub has checked that the node may ask for it.
    ///
    /// # Errors
    /// See [`RequestError`].
    async fn handle(&self, request: NodeRequest) -> Result<AnswerBody, RequestError>;
}

/// The handler of a hub that has its fold and nothing beyond it.
#[derive(Clone, Copy, Debug)]
pub struct NoRequestHandler;

#[tonic::async_trait]
impl RequestHandler for NoRequestHandler {
    async fn handle(&self, _: NodeRequest) -> Result<AnswerBody, RequestError> {
        let why = "the log does not hold the object, and this hub has no controller to ask";
        Err(RequestError::Unavailable(why.to_owned()))
    }
}
