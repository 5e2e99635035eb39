//! The controller's end of the requests of nodes: the asks of one hub in flight, and their bounds.
//!
//! Every ask runs in a task of its own, so a slow one delays no other. A node may have only so many of
//! its hub's asks, so one that asks without end leaves room for the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::request::REQUEST_BODY_BYTES_MAX;
use headwater_event::{AnswerBody, NodeName, NodeRequest, RequestError};
use headwater_proto::cloud::ControllerMessage;
use headwater_proto::wire::Ask;
use headwater_session::message::Response;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Status;

/// Asks of one hub in flight, as many as a hub sends. Each may hold an answer of 2 MiB.
pub const HUB_ASKS_MAX: usize = 256;

/// Asks of one node of a hub in flight.
pub const NODE_ASKS_MAX: usize = 16;

/// Answers the requests of nodes.
#[tonic::async_trait]
pub trait AskHandler: Send + Sync {
    /// The answer to a request. It is dropped when the time of the request is over, or its hub has gone.
    ///
    /// # Errors
    /// See [`RequestError`].
    async fn respond(&self, request: NodeRequest) -> Result<AnswerBody, RequestError>;
}

/// The asks of one hub. They end with it.
pub(crate) struct HubAsks {
    handler: Arc<dyn AskHandler>,
    answers: mpsc::Sender<Result<ControllerMessage, Status>>,
    in_flight: Arc<Mutex<InFlight>>,
    tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct InFlight {
    all: usize,
    by_node: HashMap<NodeName, usize>,
}

/// An ask in flight; it counts until its answer is with the transport.
struct Slot {
    in_flight: Arc<Mutex<InFlight>>,
    node: NodeName,
}

impl HubAsks {
    pub(crate) fn new(
        handler: Arc<dyn AskHandler>,
        answers: mpsc::Sender<Result<ControllerMessage, Status>>,
    ) -> Self {
        Self { handler, answers, in_flight: Arc::default(), tasks: JoinSet::new() }
    }

    /// Begins an ask. Its answer, also that there are too many, goes down the stream.
    pub(crate) fn begin(&mut self, ask: Ask) {
        while self.tasks.try_join_next().is_some() {}
        let Ask { id, request } = ask;
        let slot = Slot::take(&self.in_flight, &request.node);
        if slot.is_err() && self.tasks.len() >= 2 * HUB_ASKS_MAX {
            // A hub that does not count, and reads no answers either: it gets none.
            return;
        }
        let (handler, answers) = (self.handler.clone(), self.answers.clone());
        self.tasks.spawn(async move {
            let (outcome, _slot) = match slot {
                Ok(slot) => (respond(&*handler, request).await, Some(slot)),
                Err(error) => (Err(error), None),
            };
            // A hub that has gone needs no answer.
            let _ = answers.send(Ok(Response { id, outcome }.into())).await;
        });
    }
}

/// The answer of the handler, or that it did not come in time.
async fn respond(
    handler: &dyn AskHandler,
    request: NodeRequest,
) -> Result<AnswerBody, RequestError> {
    let within = request.answer_within();
    let request = NodeRequest { timeout: within, ..request };
    let answer = timeout(within, handler.respond(request)).await.unwrap_or_else(|_| {
        let what = format!("the controller has no answer after {} ms", within.as_millis());
        Err(RequestError::Unavailable(what))
    })?;
    if answer.len() > REQUEST_BODY_BYTES_MAX {
        let what = format!("the answer has {} bytes; the lane takes 2 MiB", answer.len());
        return Err(RequestError::Unavailable(what));
    }
    Ok(answer)
}

impl Slot {
    fn take(in_flight: &Arc<Mutex<InFlight>>, node: &NodeName) -> Result<Self, RequestError> {
        let too_many = |whose: &str| Err(RequestError::TooMany(format!("of {whose} in flight")));
        let mut counted = lock(in_flight);
        if counted.all >= HUB_ASKS_MAX {
            return too_many("this hub");
        }
        if counted.by_node.get(node).is_some_and(|count| *count >= NODE_ASKS_MAX) {
            return too_many("this node");
        }
        counted.all += 1;
        *counted.by_node.entry(node.clone()).or_default() += 1;
        drop(counted);
        Ok(Self { in_flight: in_flight.clone(), node: node.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counted = lock(&self.in_flight);
        counted.all -= 1;
        if let Some(count) = counted.by_node.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                counted.by_node.remove(&self.node);
            }
        }
    }
}

fn lock(in_flight: &Mutex<InFlight>) -> MutexGuard<'_, InFlight> {
    // No code here panics while it holds the lock; a poisoned one is still whole.
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}
