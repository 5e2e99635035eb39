//! What the hub's own fold decides: whether a node may send the body of a request, and the objects that the
//! fold has.

use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{AnswerBody, NodeName, NodeRequest, RequestError, RequestVerb, ResourceKey};
use headwater_object::payload::with_resource_version;
use headwater_object::{SigningRequest, TokenClaim};
use headwater_telemetry::error_chain;
use headwater_view::Entry;

use super::RequestHandler;
use crate::fold::{Fold, LookupError};

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

    /// The object at `key` in the streams of the node, as a claim is checked against it.
    fn object(&self, node: &NodeName, key: &ResourceKey) -> Result<Option<Bytes>, RequestError> {
        Ok(self.fold.entry(node, key)?.map(|entry| entry.object))
    }

    /// The object at `key` as a node gets it, with its resource version; `None` also while the log is not read: then the
    /// next handler decides.
    fn answer(&self, node: &NodeName, key: &ResourceKey) -> Result<Option<Bytes>, RequestError> {
        match self.fold.entry(node, key) {
            Ok(found) => Ok(found.map(|Entry { object, resource_version, .. }| {
                with_resource_version(&object, &resource_version)
            })),
            Err(LookupError::Folding) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<LookupError> for RequestError {
    fn from(error: LookupError) -> Self {
        Self::Unavailable(error_chain(&error))
    }
}

#[tonic::async_trait]
impl RequestHandler for FoldRequestHandler {
    async fn handle(&self, mut request: NodeRequest) -> Result<AnswerBody, RequestError> {
        match request.verb {
            RequestVerb::Get => {
                if let Some(object) = self.answer(&request.node, &request.key)? {
                    return Ok(object.into());
                }
                request.body = Bytes::new();
            }
            RequestVerb::Token => {
                let claim = TokenClaim::parse(&request.key, &request.body)?;
                claim.check(|key| self.object(&request.node, key))??;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headwater_event::LogId;
    use headwater_store::MemoryEngine;

    use super::*;

    /// Answers each request.
    struct Controller;

    #[tonic::async_trait]
    impl RequestHandler for Controller {
        async fn handle(&self, _: NodeRequest) -> Result<AnswerBody, RequestError> {
            Ok(Bytes::from_static(b"{}").into())
        }
    }

    #[tokio::test]
    async fn a_hub_that_still_reads_the_log_calls_no_pod_unknown() {
        let fold = Arc::new(Fold::new(Arc::new(MemoryEngine::new())));
        let handler = FoldRequestHandler::new(fold.clone(), Arc::new(Controller));
        let body = r#"{"spec":{"boundObjectRef":
            {"kind":"Pod","apiVersion":"v1","name":"web","uid":"u1"}}}"#;
        let request = |verb, key: &str| NodeRequest {
            node: "a".parse().expect("a name"),
            timeout: Duration::from_secs(1),
            verb,
            key: key.parse().expect("a key"),
            body: body.into(),
        };
        let token = || request(RequestVerb::Token, "d/serviceaccount/robot");
        let outcome = handler.handle(token()).await;
        assert_eq!(outcome, Err(RequestError::Unavailable(RequestError::LOG_NOT_READ.to_owned())));
        // The controller knows whether the node may have an object.
        let answer = handler.handle(request(RequestVerb::Get, "d/configmap/app")).await;
        assert_eq!(answer.as_deref(), Ok(&b"{}"[..]));

        fold.assume_log(LogId { number: 1, uuid: uuid::Uuid::from_u128(1) });
        let outcome = handler.handle(token()).await;
        let unknown = "this node has no pod d/pod/web".to_owned();
        assert_eq!(outcome, Err(RequestError::Forbidden(unknown)));
    }
}
