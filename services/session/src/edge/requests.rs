//! The questions of one session that have no answer yet.

use std::collections::BTreeMap;

use super::io::EdgeOutput;
use crate::message::{EdgeMessage, Request, RequestError, Response};

/// Questions under way, with the time at which each is given up.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    deadlines: BTreeMap<u64, u64>,
}

impl PendingRequests {
    /// Sends a question, or says why not.
    pub(super) fn ask(&mut self, request: Request, now_ms: u64, max: usize) -> EdgeOutput {
        if self.deadlines.contains_key(&request.id) {
            return unavailable(request.id, "its id is taken by another request");
        }
        if self.deadlines.len() >= max {
            return unavailable(request.id, "too many requests wait for an answer");
        }
        self.deadlines.insert(request.id, now_ms.saturating_add(request.timeout_ms));
        EdgeOutput::Send(EdgeMessage::Request(request))
    }

    /// An answer came; a late one is dropped.
    pub(super) fn answer(&mut self, response: Response) -> Option<EdgeOutput> {
        self.deadlines.remove(&response.id).map(|_| EdgeOutput::Answered(response))
    }

    /// Gives up what is past its time.
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
                unavailable(id, "no answer in time")
            })
            .collect()
    }

    /// The connection is gone: nothing under way is ever answered.
    pub(super) fn close(&mut self) -> Vec<EdgeOutput> {
        std::mem::take(&mut self.deadlines)
            .into_keys()
            .map(|id| unavailable(id, "the connection to the cloud was lost"))
            .collect()
    }
}

/// The answer to a question that cannot be asked.
pub(super) fn unavailable(id: u64, reason: &str) -> EdgeOutput {
    let outcome = Err(RequestError::Unavailable(reason.to_owned()));
    EdgeOutput::Answered(Response { id, outcome })
}
