//! Requests of nodes on their way from the hub to the controller's [`Cloud`].
//!
//! The hub and the controller do not know each other. Each has a seam of its own; this is the one
//! place that translates between the two.

use std::sync::Arc;

use bytes::Bytes;
use headwater_controller::{Cloud, CloudError, CloudRequest, CloudVerb};
use headwater_hub::{NodeRequest, NodeRequestError, RequestHandler, Verb};
use tokio::time::Instant;

/// Hands the requests that a hub receives to a cloud.
pub(super) struct CloudRequestHandler(pub(super) Arc<dyn Cloud>);

#[tonic::async_trait]
impl RequestHandler for CloudRequestHandler {
    async fn handle(&self, request: &NodeRequest) -> Result<Bytes, NodeRequestError> {
        let verb = match request.verb {
            Verb::Get => CloudVerb::Get,
            verb => return Err(unsupported(verb)),
        };
        let forwarded = CloudRequest {
            node: request.node.clone(),
            timeout: request.deadline.saturating_duration_since(Instant::now()),
            verb,
            key: request.key.clone(),
            body: request.body.clone(),
        };
        self.0.respond(forwarded).await.map_err(|error| match error {
            CloudError::NotFound(_) => NodeRequestError::NotFound,
            CloudError::Unsupported => unsupported(request.verb),
            error => NodeRequestError::Unavailable(error.to_string()),
        })
    }
}

fn unsupported(verb: Verb) -> NodeRequestError {
    NodeRequestError::Invalid(format!("the verb {verb:?} is not supported"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    /// Responds with one outcome, and keeps the request.
    struct ScriptedCloud {
        outcome: Result<Bytes, CloudError>,
        request: Mutex<Option<CloudRequest>>,
    }

    #[tonic::async_trait]
    impl Cloud for ScriptedCloud {
        async fn respond(&self, request: CloudRequest) -> Result<Bytes, CloudError> {
            *self.request.lock().expect("whole") = Some(request);
            self.outcome.clone()
        }
    }

    fn request() -> NodeRequest {
        NodeRequest {
            node: "a".parse().expect("a name"),
            deadline: Instant::now() + Duration::from_secs(3),
            verb: Verb::Get,
            key: "d/configmap/app".parse().expect("a key"),
            body: Bytes::from_static(b"body"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_reaches_the_cloud_whole_with_the_time_that_is_left() {
        let outcome = Ok(Bytes::from_static(b"{}"));
        let cloud = Arc::new(ScriptedCloud { outcome: outcome.clone(), request: Mutex::default() });
        let response = CloudRequestHandler(cloud.clone()).handle(&request()).await;
        assert_eq!(response.ok(), outcome.ok());
        let expected = CloudRequest {
            node: "a".parse().expect("a name"),
            timeout: Duration::from_secs(3),
            verb: CloudVerb::Get,
            key: "d/configmap/app".parse().expect("a key"),
            body: Bytes::from_static(b"body"),
        };
        assert_eq!(*cloud.request.lock().expect("whole"), Some(expected));
    }

    #[tokio::test]
    async fn each_error_of_the_cloud_has_its_error_at_the_hub() {
        let away = || CloudError::Unavailable("the API server is away".to_owned());
        for (error, expected) in [
            (CloudError::NotFound(request().key), NodeRequestError::NotFound),
            (away(), NodeRequestError::Unavailable(away().to_string())),
            (
                CloudError::Unsupported,
                NodeRequestError::Invalid("the verb Get is not supported".to_owned()),
            ),
        ] {
            let cloud = ScriptedCloud { outcome: Err(error), request: Mutex::default() };
            let response = CloudRequestHandler(Arc::new(cloud)).handle(&request()).await;
            assert_eq!(response, Err(expected));
        }
    }
}
