//! Admission of requests and streams, each up to a bound.
//!
//! A request ends by itself, so it waits for a permit. A stream may stay open for ever, so a stream
//! above the bound is refused. Streams never block requests.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::{ResponseStream, brief};

/// The most concurrent requests: each may have a node's whole replica in memory, or read a log.
const REQUESTS_MAX: usize = 16;

/// The most open streams, of people and scripts that watch one process. Each may have the watched
/// objects in memory.
const STREAMS_MAX: usize = 64;

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

#[cfg(test)]
mod tests {
    use super::*;

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
