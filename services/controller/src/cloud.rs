//! The cloud's answers to the requests of nodes.
//!
//! A node requests an object that its streams do not contain yet. A hub receives the request and
//! checks that the node's stream names the object; a [`Cloud`] answers it. The picture is the first
//! implementation. This crate does not know hubs: the program connects the two.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use headwater_object::payload::with_resource_version;

use crate::picture::Picture;

/// A request of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudRequest {
    /// The node.
    pub node: NodeName,
    /// How long the node waits for the answer.
    pub timeout: Duration,
    /// What the node asks for.
    pub verb: CloudVerb,
    /// The object.
    pub key: ResourceKey,
    /// What the verb needs; empty for [`CloudVerb::Get`].
    pub body: Bytes,
}

/// What a node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloudVerb {
    /// The object's JSON.
    Get,
}

/// Why a request has no answer. A node that still needs the object requests it again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloudError {
    /// The cloud has no such object.
    #[error("the cloud has no object {0}")]
    NotFound(ResourceKey),
    /// This cloud does not answer the verb.
    #[error("the cloud does not answer this verb")]
    Unsupported,
    /// The cloud cannot be reached just now.
    #[error("the cloud cannot answer: {0}")]
    Unavailable(String),
}

/// Answers the requests of nodes.
#[async_trait]
pub trait Cloud: Send + Sync {
    /// Answers one request within its timeout.
    ///
    /// # Errors
    /// See [`CloudError`]. Nothing was changed; the request is not repeated here.
    async fn respond(&self, request: CloudRequest) -> Result<Bytes, CloudError>;
}

#[async_trait]
impl Cloud for Picture {
    async fn respond(&self, request: CloudRequest) -> Result<Bytes, CloudError> {
        match request.verb {
            CloudVerb::Get => match self.object(&request.key) {
                Some(object) => {
                    Ok(with_resource_version(object.payload(), object.resource_version()))
                }
                None => Err(CloudError::NotFound(request.key)),
            },
        }
    }
}
