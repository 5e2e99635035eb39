//! The events of one subscription.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{broadcast, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Core;
use super::faults::EventFault;

/// What happens to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// CRI created it.
    Created(String),
    /// It runs.
    Started(String),
    /// The kernel killed it for memory.
    Oom(String),
    /// Its process ended.
    Exit { container: String, code: i32 },
    /// CRI knows that its process ended.
    Stopped(String),
    /// CRI removed it.
    Deleted(String),
}

/// A stream of messages.
pub(super) type Reply<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A subscription.
pub(super) struct Feed {
    shared: Arc<Core>,
    happenings: broadcast::Receiver<Happening>,
    ready: VecDeque<Happening>,
    late: VecDeque<Happening>,
}

impl Feed {
    pub(super) fn new(shared: &Arc<Core>) -> Self {
        let happenings = shared.happenings.subscribe();
        let shared = Arc::clone(shared);
        Self { shared, happenings, ready: VecDeque::new(), late: VecDeque::new() }
    }

    /// The next event that the faults leave.
    pub(super) async fn next(&mut self) -> Option<Happening> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let happening = match self.happenings.recv().await {
                Ok(happening) => happening,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            match self.shared.faults().draw_event() {
                Some(EventFault::Lost) => continue,
                Some(EventFault::Late) => {
                    self.late.push_back(happening);
                    continue;
                }
                Some(EventFault::Doubled) => {
                    self.ready.extend([happening.clone(), happening]);
                }
                None => self.ready.push_back(happening),
            }
            self.ready.append(&mut self.late);
        }
    }
}

/// The events on the wire: those that `message` has a message for.
pub(super) fn stream<T: Send + 'static>(
    feed: Feed,
    message: impl Fn(&Happening) -> Option<T> + Send + 'static,
) -> Reply<T> {
    let (messages, stream) = mpsc::channel(1);
    tokio::spawn(relay(feed, message, messages));
    Box::pin(ReceiverStream::new(stream))
}

async fn relay<T>(
    mut feed: Feed,
    message: impl Fn(&Happening) -> Option<T>,
    messages: mpsc::Sender<Result<T, Status>>,
) {
    loop {
        let happening = tokio::select! {
            happening = feed.next() => happening,
            () = messages.closed() => None,
        };
        let Some(happening) = happening else { return };
        if let Some(message) = message(&happening)
            && messages.send(Ok(message)).await.is_err()
        {
            return;
        }
    }
}
