//! What the hub's own fold decides: whether a node may send the body of a request, and the objects that the
//! fold has.

use std::sync::Arc;

use headwater_event::{AnswerBody, NodeRequest, RequestError, RequestVerb, ResourceKey};
use headwater_object::{SigningRequest, TokenClaim};
use headwater_telemetry::error_chain;

use super::RequestHandler;
use crate::fold::Fold;

/// Answers a get with an object of the hub's fold. Checks the bodies of the others against the fold, and
/// passes them on with what it has checked.
pub(crate) struct FoldRequestHandler {
    fold: Arc<Fold>,
    next: Arc<dyn RequestHandler>,
}

impl FoldRequestHandler {
    /// A handler that reads `fold` and passes the rest on to `next`.
    pub(crate) fn new(fold: Arc<Fold>, next: Arc<dyn RequestHandler>) -> Self {
        Self { fold, next }
    }

    /// The object at `key` in the streams of the node.
    fn object(
        &self,
        request: &NodeRequest,
        key: &ResourceKey,
    ) -> Result<Option<bytes::Bytes>, RequestError> {
        let object = self.fold.object(&request.node, key);
        object.map_err(|error| RequestError::Unavailable(error_chain(&error)))
    }
}

#[tonic::async_trait]
impl RequestHandler for FoldRequestHandler {
    async fn handle(&self, mut request: NodeRequest) -> Result<AnswerBody, RequestError> {
        match request.verb {
            RequestVerb::Get => {
                if let Some(object) = self.object(&request, &request.key)? {
                    return Ok(object.into());
                }
                request.body = bytes::Bytes::new();
            }
            RequestVerb::Token => {
                let claim = TokenClaim::parse(&request.key, &request.body)?;
                claim.check(|key| self.object(&request, key))??;
                request.body = claim.body();
            }
            RequestVerb::Csr => {
                let signing = SigningRequest::parse(&request.node, &request.key, &request.body)?;
                request.body = signing.body();
            }
        }
        request.verb.check_body(&request.body)?;
        self.next.handle(request).await
    }
}
