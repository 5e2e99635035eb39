//! A Kubernetes API that answers the requests of nodes.
//!
//! A request is sent as the node that it is from, so the API server checks it by its own rules for nodes:
//! the third check, after those of hub and controller. Nothing is sent twice. A certificate that was
//! requested before is looked up instead, so that a node may ask until it is issued.

use async_trait::async_trait;
use headwater_controller::Cloud;
use headwater_event::{AnswerBody, NodeName, NodeRequest, RequestError, RequestVerb, ResourceKey};
use headwater_object::SigningRequest;
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::access::Connection;
use crate::act_as::ActAs;
use crate::failure::{self, send};
use crate::kind::Kind;
use crate::request::{object, signing_request, signing_requests, tokens};

/// Requests at the API server at a time: four times what one node may have in flight, through whichever hubs, so that
/// no node holds up another. Each may be a connection of its own.
const REQUESTS_MAX: usize = 64;

const CONFLICT: u16 = 409;

/// Answers the requests of nodes by a Kubernetes API.
pub struct KubernetesCloud {
    client: Client,
    server: String,
    act_as: ActAs,
    room: Semaphore,
}

impl KubernetesCloud {
    /// The answers of the API at `connection`.
    pub fn new(connection: Connection, act_as: ActAs) -> Self {
        let Connection { client, server } = connection;
        Self { client, server, act_as, room: Semaphore::new(REQUESTS_MAX) }
    }

    async fn answer(&self, request: NodeRequest) -> Result<Value, RequestError> {
        let _room = self.room.acquire().await;
        let NodeRequest { node, verb, key, body, .. } = request;
        let body = body.to_vec();
        match verb {
            RequestVerb::Get => {
                let Some(kind) = Kind::of_key(key.kind()) else {
                    return Err(RequestError::NotFound);
                };
                let mut found = self.send(&node, built(object(kind, &key))?).await?;
                // More than the object itself, often, and of no use to a node.
                if let Some(metadata) = found["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                Ok(found)
            }
            RequestVerb::Token => self.send(&node, built(tokens(&key, body))?).await,
            RequestVerb::Csr => self.sign(&node, &key, body).await,
        }
    }

    /// Requests a certificate, or returns the request that is there if it is the same one.
    async fn sign(
        &self,
        node: &NodeName,
        key: &ResourceKey,
        body: Vec<u8>,
    ) -> Result<Value, RequestError> {
        let signing = SigningRequest::parse(node, key, &body)?;
        if self.act_as == ActAs::Controller {
            // The signers of kubelets issue a certificate of a node to that node alone.
            let why =
                "the controller acts as itself: a certificate of a node needs act_as = \"node\"";
            return Err(RequestError::Unavailable(why.to_owned()));
        }
        let created = self.try_send(node, built(signing_requests(signing.body().into()))?).await;
        match created {
            Err(error) if error.code() == Some(CONFLICT) => {}
            outcome => return outcome.map_err(|error| self.refusal(&error)),
        }
        let found = self.send(node, built(signing_request(key))?).await?;
        let is_same = found["spec"]["request"].as_str() == Some(&signing.request)
            && found["spec"]["signerName"].as_str() == Some(&signing.signer);
        if is_same {
            Ok(found)
        } else {
            let why = format!("another request has the name {}", key.name());
            Err(RequestError::Conflict(why))
        }
    }

    async fn send(
        &self,
        node: &NodeName,
        request: http::Request<Vec<u8>>,
    ) -> Result<Value, RequestError> {
        self.try_send(node, request).await.map_err(|error| self.refusal(&error))
    }

    async fn try_send(
        &self,
        node: &NodeName,
        request: http::Request<Vec<u8>>,
    ) -> Result<Value, failure::RequestError> {
        send(&self.client, self.act_as.about(node, request)).await
    }

    /// What a failed request means to the node.
    fn refusal(&self, error: &failure::RequestError) -> RequestError {
        let text = error.describe(&self.server);
        match error.code() {
            Some(404) => RequestError::NotFound,
            Some(403) => RequestError::Forbidden(text),
            Some(CONFLICT) => RequestError::Conflict(text),
            Some(400 | 405 | 413 | 422) => RequestError::Invalid(text),
            Some(429) => RequestError::TooMany(text),
            _ => RequestError::Unavailable(text),
        }
    }
}

#[async_trait]
impl Cloud for KubernetesCloud {
    async fn respond(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        let within = request.answer_within();
        let answer = timeout(within, self.answer(request)).await.unwrap_or_else(|_| {
            let (server, waited) = (&self.server, within.as_millis());
            let what = format!("the API server at {server} did not answer within {waited} ms");
            Err(RequestError::Unavailable(what))
        })?;
        Ok(bytes::Bytes::from(answer.to_string()).into())
    }
}

fn built(
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<http::Request<Vec<u8>>, RequestError> {
    request.map_err(|error| RequestError::Invalid(error.to_string()))
}
