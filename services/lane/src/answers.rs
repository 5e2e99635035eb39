//! The controller's end of the requests of nodes: the asks in flight, and their bounds.
//!
//! Every ask runs in a task of its own, so a slow one delays no other. A node has a bounded number of asks, through
//! whichever hubs they come, so one that asks without end leaves room for the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::request::REQUEST_BODY_BYTES_MAX;
use headwater_event::{AnswerBody, NodeName, NodeRequest, RequestError};
use headwater_proto::cloud::ControllerMessage;
use headwater_proto::wire::Ask;
use headwater_session::message::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Status;

/// Asks of one hub in flight, as many as a hub sends. Each may hold an answer of 2 MiB.
pub const HUB_ASKS_MAX: usize = 256;

/// Asks of one node in flight, through all hubs together: as many as a hub sends of it. A node with sessions at
/// several hubs has no more.
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
    nodes: NodeAsks,
    /// The places of the asks of this hub.
    places: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

/// The number of asks of each node in flight, of all hubs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeAsks(Arc<Mutex<HashMap<NodeName, usize>>>);

/// An ask in flight; it counts until its answer is with the transport.
struct Slot {
    of_hub: OwnedSemaphorePermit,
    of_node: NodeSlot,
}

/// An ask of a node in flight.
struct NodeSlot {
    nodes: NodeAsks,
    node: NodeName,
}

impl HubAsks {
    pub(crate) fn new(
        handler: Arc<dyn AskHandler>,
        nodes: NodeAsks,
        answers: mpsc::Sender<Result<ControllerMessage, Status>>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(HUB_ASKS_MAX));
        Self { handler, answers, nodes, places, tasks: JoinSet::new() }
    }

    /// Begins an ask. Its answer, also that there are too many, goes down the stream.
    pub(crate) fn begin(&mut self, ask: Ask) {
        let Ask { id, request } = ask;
        let slot = match self.slot(&request.node) {
            Ok(slot) => slot,
            Err(error) => return self.refuse(id, error),
        };
        while self.tasks.try_join_next().is_some() {}
        let (handler, answers) = (self.handler.clone(), self.answers.clone());
        self.tasks.spawn(async move {
            let Slot { of_hub, of_node } = slot;
            let outcome = respond(&*handler, request).await;
            // A hub that reads no answers does not keep its nodes from asking through others.
            drop(of_node);
            send(&answers, id, outcome).await;
            drop(of_hub);
        });
    }

    /// Answers an ask that does not begin.
    pub(crate) fn refuse(&mut self, id: u64, error: RequestError) {
        while self.tasks.try_join_next().is_some() {}
        if self.tasks.len() >= 2 * HUB_ASKS_MAX {
            // A hub that does not count, and reads no answers either: it gets none.
            return;
        }
        let answers = self.answers.clone();
        self.tasks.spawn(async move { send(&answers, id, Err(error)).await });
    }

    fn slot(&self, node: &NodeName) -> Result<Slot, RequestError> {
        let too_many = |whose: &str| RequestError::TooMany(format!("of {whose} in flight"));
        let of_hub = self.places.clone().try_acquire_owned().map_err(|_| too_many("this hub"))?;
        let of_node = self.nodes.slot(node).ok_or_else(|| too_many("this node"))?;
        Ok(Slot { of_hub, of_node })
    }
}

/// Sends an answer. A hub that has gone needs none.
async fn send(
    answers: &mpsc::Sender<Result<ControllerMessage, Status>>,
    id: u64,
    outcome: Result<AnswerBody, RequestError>,
) {
    let _ = answers.send(Ok(Response { id, outcome }.into())).await;
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

impl NodeAsks {
    /// A place for an ask of `node`; `None`: it has as many as it may have.
    fn slot(&self, node: &NodeName) -> Option<NodeSlot> {
        let mut counts = self.lock();
        let count = counts.entry(node.clone()).or_default();
        if *count >= NODE_ASKS_MAX {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(NodeSlot { nodes: self.clone(), node: node.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, usize>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NodeSlot {
    fn drop(&mut self) {
        let mut counts = self.nodes.lock();
        if let Some(count) = counts.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.node);
            }
        }
    }
}
