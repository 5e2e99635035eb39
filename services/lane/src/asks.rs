//! The hub's end of the requests of nodes: hands each to the present stream, or answers in words why
//! there is none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_event::{AnswerBody, NodeRequest, RequestError, RequestVerb};
use headwater_proto::wire::Ask;
use headwater_session::message::Response;
use tokio::sync::{mpsc, oneshot, watch};

/// Asks that wait for the stream; a hub has no more in flight.
const QUEUED_MAX: usize = 256;

/// The outcome of an ask.
type Outcome = Result<AnswerBody, RequestError>;

/// Asks the active controller for nodes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LaneAsker(watch::Receiver<Way>);

/// The other end of a [`LaneAsker`], for the client that holds the stream.
#[derive(Debug)]
pub struct AskIntake(watch::Sender<Way>);

/// The way to the controller.
#[derive(Clone, Debug)]
enum Way {
    /// There is none, for this reason.
    Closed(String),
    /// A stream is up; the controller takes these verbs.
    Open { verbs: Vec<RequestVerb>, asks: mpsc::Sender<PendingAsk> },
}

/// An ask on its way, and the receiver of its answer.
#[derive(Debug)]
pub(crate) struct PendingAsk {
    request: NodeRequest,
    reply: oneshot::Sender<Outcome>,
}

/// The asks of one stream without an answer.
#[derive(Debug, Default)]
pub(crate) struct PendingAsks(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    replies: HashMap<u64, oneshot::Sender<Outcome>>,
}

impl LaneAsker {
    /// An asker, and its end for the client of the lane.
    pub fn new() -> (Self, AskIntake) {
        let none = "the hub has not found the active controller yet".to_owned();
        let (sender, receiver) = watch::channel(Way::Closed(none));
        (Self(receiver), AskIntake(sender))
    }

    /// Asks the active controller. The caller bounds the time; a dropped call leaves nothing behind.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when there is no way to the controller, or it ends before the
    /// answer; else as the controller.
    pub async fn ask(&self, request: NodeRequest) -> Outcome {
        let unavailable = |why: String| Err(RequestError::Unavailable(why));
        let asks = match &*self.0.borrow() {
            Way::Closed(reason) => return unavailable(reason.clone()),
            Way::Open { verbs, .. } if !verbs.contains(&request.verb) => {
                let verb = request.verb;
                let why = format!("the controller is of an earlier version and answers no {verb}");
                return unavailable(why);
            }
            Way::Open { asks, .. } => asks.clone(),
        };
        let (reply, outcome) = oneshot::channel();
        if let Err(error) = asks.try_send(PendingAsk { request, reply }) {
            return match error {
                mpsc::error::TrySendError::Full(_) => {
                    Err(RequestError::TooMany("wait for the controller".to_owned()))
                }
                mpsc::error::TrySendError::Closed(_) => unavailable(lost()),
            };
        }
        outcome.await.unwrap_or_else(|_| unavailable(lost()))
    }
}

/// The reason of an ask whose stream ended.
fn lost() -> String {
    "the lane to the controller ended before the answer; ask again".to_owned()
}

impl AskIntake {
    /// There is no stream, for this reason.
    pub(crate) fn close(&self, reason: String) {
        self.0.send_replace(Way::Closed(reason));
    }

    /// A stream is up, and takes asks.
    pub(crate) fn open(&self, verbs: Vec<RequestVerb>) -> mpsc::Receiver<PendingAsk> {
        let (asks, taken) = mpsc::channel(QUEUED_MAX);
        self.0.send_replace(Way::Open { verbs, asks });
        taken
    }
}

impl PendingAsks {
    /// Numbers an ask. `None`: its caller has given up.
    pub(crate) fn begin(&self, ask: PendingAsk) -> Option<Ask> {
        let PendingAsk { request, reply } = ask;
        let mut table = self.table();
        if table.replies.len() >= QUEUED_MAX {
            table.replies.retain(|_, reply| !reply.is_closed());
        }
        if reply.is_closed() {
            return None;
        }
        table.last_id += 1;
        let id = table.last_id;
        table.replies.insert(id, reply);
        Some(Ask { id, request })
    }

    /// Hands an answer to its caller, if it still waits.
    pub(crate) fn complete(&self, answer: Response) {
        let reply = self.table().replies.remove(&answer.id);
        if let Some(reply) = reply {
            let _ = reply.send(answer.outcome);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
