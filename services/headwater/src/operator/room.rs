//! Room for answers: however many ask, so many are answered at a time.
//!
//! A question that ends by itself waits its turn. A stream ends when its reader wants, or never:
//! one too many is refused, and questions go on beside those that are open.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::{Answers, brief};

/// The most questions answered at a time: each may hold a node's whole replica, or read a log.
const QUESTIONS_MAX: usize = 16;

/// The most streams open at a time: people and scripts that watch one process. Each may hold the
/// objects that it watches.
const STREAMS_MAX: usize = 64;

/// Room for questions and for streams.
pub(super) struct Room {
    questions: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Room {
    pub(super) fn new() -> Self {
        let questions = Arc::new(Semaphore::new(QUESTIONS_MAX));
        Self { questions, streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }

    /// Waits for a question's turn; it is over when what is returned is dropped.
    pub(super) async fn question(&self) -> Result<OwnedSemaphorePermit, Status> {
        let turn = self.questions.clone().acquire_owned().await;
        turn.map_err(|_| Status::unavailable("it is stopping"))
    }

    /// Room for a stream, for as long as what is returned is there.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{STREAMS_MAX} watches, followed logs and histories are open, and no more may be: \
                 end one first"
            ))
        })
    }
}

/// A stream that takes its room for as long as it is there.
pub(super) fn in_room<T: 'static>(
    room: OwnedSemaphorePermit,
    stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> Answers<T> {
    Box::pin(stream.map(move |item| {
        let _in = &room;
        item.map_err(brief)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn streams_are_bounded_and_questions_go_on_beside_them() {
        let room = Room::new();
        let open = || {
            let endless = tokio_stream::pending::<Result<(), Status>>();
            room.stream().map(|room| in_room(room, endless))
        };
        let mut streams: Vec<_> = (0..STREAMS_MAX).map(|_| open().expect("room")).collect();
        let refused = open().err().expect("no room");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        drop(room.question().await.expect("its turn"));
        streams.pop();
        drop(open().expect("room again"));
    }
}
