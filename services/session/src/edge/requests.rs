//! The requests of one session without a response.

use std::collections::BTreeMap;

use super::io::EdgeOutput;
use crate::message::{EdgeMessage, Request, RequestError, Response};

/// Pending requests, each with its deadline.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    deadlines: BTreeMap<u64, u64>,
}

impl PendingRequests {
    /// Sends a request, or responds with the reason why it cannot be sent.
    pub(super) fn send(&mut self, request: Request, now_ms: u64, max: usize) -> EdgeOutput {
        if self.deadlines.contains_key(&request.id) {
            return unavailable(request.id, "another pending request has the same id");
        }
        if self.deadlines.len() >= max {
            return unavailable(request.id, "too many requests are pending");
        }
        self.deadlines.insert(request.id, now_ms.saturating_add(request.timeout_ms));
        EdgeOutput::Send(EdgeMessage::Request(request))
    }

    /// A response arrived; a late one is discarded.
    pub(super) fn answer(&mut self, response: Response) -> Option<EdgeOutput> {
        self.deadlines.remove(&response.id).map(|_| EdgeOutput::Answered(response))
    }

    /// Ends the requests whose deadline has passed.
    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<EdgeOutput> {
        let late: Vec<u64> = self
            .deadlines
            .iter()
            .filter(|(_, deadline)| **deadline <= now_ms)
            .map(|(id, _)| *id)
            .collect();
        late.into_iter()
            .map(|id| {
                self.deadlines.remove(&id);
                unavailable(id, "no response in time")
            })
            .collect()
    }

    /// Ends all requests: the connection is gone.
    pub(super) fn close(&mut self) -> Vec<EdgeOutput> {
        std::mem::take(&mut self.deadlines)
            .into_keys()
            .map(|id| unavailable(id, "the connection to the cloud was lost"))
            .collect()
    }
}

/// The response to a request that cannot be answered.
pub(super) fn unavailable(id: u64, reason: &str) -> EdgeOutput {
    let outcome = Err(RequestError::Unavailable(reason.to_owned()));
    EdgeOutput::Answered(Response { id, outcome })
}
