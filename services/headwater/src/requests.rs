//! Requests of nodes on their way from the hub to the controller's [`Cloud`].
//!
//! The hub, the lane and the controller do not know each other. Each has a seam of its own; this is the
//! one place that connects them: in one process, or at the two ends of the lane.

use std::sync::Arc;

use headwater_controller::Cloud;
use headwater_event::{AnswerBody, NodeRequest, RequestError};
use headwater_hub::RequestHandler;
use headwater_lane::{AskHandler, LaneAsker};

/// Answers requests of nodes from a cloud in this process.
pub(crate) struct CloudRequestHandler(pub(crate) Arc<dyn Cloud>);

/// Hands the requests that a hub receives to the active controller.
pub(crate) struct LaneRequestHandler(pub(crate) LaneAsker);

#[tonic::async_trait]
impl RequestHandler for CloudRequestHandler {
    async fn handle(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        self.0.respond(request).await
    }
}

#[tonic::async_trait]
impl AskHandler for CloudRequestHandler {
    async fn respond(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        self.0.respond(request).await
    }
}

#[tonic::async_trait]
impl RequestHandler for LaneRequestHandler {
    async fn handle(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        self.0.ask(request).await
    }
}
