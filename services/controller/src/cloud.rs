//! The cloud's answers to the requests of nodes.
//!
//! A hub receives a request, checks it against the node's stream and sends it to the active controller. A
//! [`CheckedCloud`] checks it again, and a [`Cloud`] answers it: the picture, or a Kubernetes API. This
//! crate does not know hubs: the program connects the two.

mod checked;
mod rules;

use async_trait::async_trait;
use headwater_event::{AnswerBody, NodeRequest, RequestError, RequestVerb};
use headwater_object::payload::with_resource_version;

pub use self::checked::CheckedCloud;
use crate::picture::Picture;

/// Answers the requests of nodes.
#[async_trait]
pub trait Cloud: Send + Sync {
    /// Answers one request within its timeout.
    ///
    /// # Errors
    /// See [`RequestError`]. The request is not repeated here.
    async fn respond(&self, request: NodeRequest) -> Result<AnswerBody, RequestError>;
}

#[async_trait]
impl Cloud for Picture {
    async fn respond(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        match request.verb {
            RequestVerb::Get => match self.object(&request.key) {
                Some(object) => {
                    let version = object.resource_version();
                    Ok(with_resource_version(object.payload(), version).into())
                }
                None => Err(RequestError::NotFound),
            },
            verb @ (RequestVerb::Token | RequestVerb::Csr) => {
                let why =
                    format!("this controller follows no Kubernetes API, which answers a {verb}");
                Err(RequestError::Unavailable(why))
            }
        }
    }
}
