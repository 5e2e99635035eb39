//! Admission of requests and streams, each up to a bound.
//!
//! A request ends by itself, so it waits for a permit. A stream may stay open for ever, so a stream
//! above the bound is refused. Streams never block requests, and neither does a client that does not
//! read the parts of its response.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::{ResponseStream, brief};

/// The most concurrent requests: each may have a node's whole replica in memory, or read a log.
const REQUESTS_MAX: usize = 16;

/// The most open streams, of people and scripts that watch one process. Each may have the watched
/// objects in memory.
const STREAMS_MAX: usize = 64;

/// How long a client may take to read a part of a response: far longer than a terminal that scrolls.
const PART_READ_WITHIN: Duration = Duration::from_secs(30);

/// Permits for requests and for streams.
pub(super) struct Admission {
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Admission {
    pub(super) fn new() -> Self {
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        Self { requests, streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }

    /// Waits for a permit for a request.
    pub(super) async fn request(&self) -> Result<OwnedSemaphorePermit, Status> {
        let turn = self.requests.clone().acquire_owned().await;
        turn.map_err(|_| Status::unavailable("the process is stopping"))
    }

    /// Returns a permit for a stream, or refuses it.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{STREAMS_MAX} watches, followed logs and histories are open, which is the most: \
                 end one first"
            ))
        })
    }
}

/// A stream with its permit, which it releases when it is dropped.
pub(super) fn hold_permit<T: 'static>(
    permit: OwnedSemaphorePermit,
    stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> ResponseStream<T> {
    Box::pin(stream.map(move |item| {
        let _held = &permit;
        item.map_err(brief)
    }))
}

/// Sends the parts of a response to a request while the client reads them. The permit is released
/// after the last part, or when the client does not read one in time.
pub(super) fn send_parts<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    parts: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> ResponseStream<T> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let _held = permit;
        let mut parts = pin!(parts.map(Some));
        while let Some(part) = parts.next().await {
            if sender.send_timeout(part, PART_READ_WITHIN).await.is_err() {
                return;
            }
        }
        let _ = sender.send_timeout(None, PART_READ_WITHIN).await;
    });
    Box::pin(stream::unfold(Some(receiver), |receiver| async {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(Ok(part))) => Some((Ok(part), Some(receiver))),
            Some(Some(Err(status))) => Some((Err(brief(status)), None)),
            Some(None) => None,
            None => {
                let seconds = PART_READ_WITHIN.as_secs();
                let why = format!("the client read nothing for {seconds} s: the list is not whole");
                Some((Err(Status::deadline_exceeded(why)), None))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_keeps_no_permit_and_takes_no_part_for_the_whole() {
        let admission = Admission::new();
        let parts = || tokio_stream::iter((0..5).map(Ok));
        let send = async |count| send_parts(admission.request().await.expect("a permit"), count);
        let whole: Vec<_> = send(parts()).await.collect().await;
        assert!(whole.len() == 5 && whole.iter().all(Result::is_ok), "{whole:?}");
        let mut stopped = Vec::new();
        for _ in 0..REQUESTS_MAX {
            stopped.push(send(parts()).await);
        }
        // The next request waits until the others have lost their permits.
        drop(admission.request().await.expect("a permit"));
        let rest: Vec<_> = stopped.remove(0).collect().await;
        let last = rest.last().expect("a part").as_ref();
        assert_eq!(last.expect_err("cut off").code(), tonic::Code::DeadlineExceeded);
        assert!(rest.len() < 5, "{rest:?}");
    }

    #[tokio::test]
    async fn streams_are_bounded_and_requests_go_on_beside_them() {
        let admission = Admission::new();
        let open = || {
            let endless = tokio_stream::pending::<Result<(), Status>>();
            admission.stream().map(|permit| hold_permit(permit, endless))
        };
        let mut streams: Vec<_> = (0..STREAMS_MAX).map(|_| open().expect("room")).collect();
        let refused = open().err().expect("no room");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        drop(admission.request().await.expect("its turn"));
        streams.pop();
        drop(open().expect("room again"));
    }
}
