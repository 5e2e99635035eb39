//! Responses from the hub's own fold.

use std::sync::Arc;

use bytes::Bytes;
use headwater_telemetry::error_chain;

use super::{NodeRequest, NodeRequestError, RequestHandler, Verb};
use crate::fold::Fold;

/// Responds to a `Get` with an object of the hub's fold, and passes every other request on.
pub(crate) struct FoldRequestHandler {
    fold: Arc<Fold>,
    next: Arc<dyn RequestHandler>,
}

impl FoldRequestHandler {
    /// A handler that reads `fold` and passes the rest on to `next`.
    pub(crate) fn new(fold: Arc<Fold>, next: Arc<dyn RequestHandler>) -> Self {
        Self { fold, next }
    }
}

#[tonic::async_trait]
impl RequestHandler for FoldRequestHandler {
    async fn handle(&self, request: &NodeRequest) -> Result<Bytes, NodeRequestError> {
        if request.verb == Verb::Get {
            let object = self.fold.object(&request.node, &request.key);
            let object =
                object.map_err(|error| NodeRequestError::Unavailable(error_chain(&error)))?;
            if let Some(object) = object {
                return Ok(object);
            }
        }
        self.next.handle(request).await
    }
}
