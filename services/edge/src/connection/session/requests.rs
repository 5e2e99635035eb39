//! Requests to the cloud that wait for their response.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{AnswerBody, ResourceKey};
use headwater_session::message::{Request, RequestError, RequestVerb, Response};
use tokio::sync::oneshot;

/// The response of the cloud: the answer, or why there is none.
pub(crate) type CloudResponse = Result<AnswerBody, RequestError>;

/// What a caller asks of the cloud.
#[derive(Clone, Debug)]
pub(crate) struct CloudAsk {
    pub(crate) verb: RequestVerb,
    pub(crate) key: ResourceKey,
    /// The input of the verb; empty for a get.
    pub(crate) body: Bytes,
}

/// The open requests, by id.
#[derive(Debug, Default)]
pub(super) struct CloudRequests {
    last_id: u64,
    open: HashMap<u64, oneshot::Sender<CloudResponse>>,
}

impl CloudRequests {
    /// Registers a request; the protocol sends it.
    pub(super) fn open(
        &mut self,
        ask: CloudAsk,
        timeout: Duration,
        reply: oneshot::Sender<CloudResponse>,
    ) -> Request {
        self.open.retain(|_, reply| !reply.is_closed());
        self.last_id += 1;
        self.open.insert(self.last_id, reply);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let CloudAsk { verb, key, body } = ask;
        Request { id: self.last_id, timeout_ms, verb: Some(verb), key, body }
    }

    /// Answers the caller of a request.
    pub(super) fn complete(&mut self, response: Response) {
        if let Some(reply) = self.open.remove(&response.id) {
            // A caller that is gone needs no answer.
            let _ = reply.send(response.outcome);
        }
    }
}
