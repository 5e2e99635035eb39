//! The objects socket: a source that takes objects as JSON lines on a unix socket.
//!
//! The interface for load tests and for programs that know their objects better than a folder does.
//! The socket has mode 0600; a program that may open it may send any object.
//!
//! Each line is one JSON map:
//!
//! ```json
//! {"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {}},
//!  "intended_time": "2026-01-31T12:00:00.000123Z", "traceparent": "00-...-01"}
//! {"delete": "default/pod/web", "uid": "1b9d..."}
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `object` | an object of a replicated kind that came or changed, whole. A Pod names its node: nothing is placed here. Without `metadata.uid` it keeps the one it had, or gets one |
//! | `delete` | the key of an object that is gone, as `<namespace>/<type>/<name>` (`null` for no namespace) |
//! | `uid` | with `delete`, optional: only the object with this UID is meant |
//! | `intended_time` | optional, RFC 3339: when the change was meant to happen |
//! | `traceparent` | optional, W3C trace context of the change |
//!
//! A line that is not accepted is answered by `{"line": 7, "error": "..."}` and changes nothing;
//! the next line is read as usual. When the writing end is shut down, the answer is
//! `{"lines": 9, "accepted": 8, "refused": 1}`: everything accepted is then with the controller.
//! Lines of one connection take effect in their order. A slow controller makes the socket slow.
//!
//! An object stays until it is deleted, over restarts too: the first list is what an earlier
//! run published and no manifest described.

mod connection;
mod line;
mod socket;
mod state;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_object::OBJECT_BYTES_MAX;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::serve;
use self::socket::SocketListener;
use self::state::State;
use super::published::read_result;
use super::{
    PublishedReader, SOURCE_QUEUE_EVENTS, Source, SourceContext, SourceError, SourceEvent,
    SourceEventSender, SourceKind,
};

pub use self::line::{Request, read_line};

/// The longest line in bytes: the largest object, and room for the fields around it and for
/// white space.
pub const LINE_BYTES_MAX: usize = OBJECT_BYTES_MAX + 256 * 1024;

/// How many connections there may be at once: each may hold a line and an object in memory.
pub const CONNECTIONS_MAX: usize = 64;

/// How long to wait after a connection could not be accepted, as when no more files may be opened.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many requests may wait for the one task that keeps the state.
const REQUESTS_MAX: usize = 64;

/// A source that listens on a unix socket.
#[derive(Debug)]
pub struct ObjectsSocket {
    socket: PathBuf,
}

/// A request of a connection that waits for the state, and where its response goes.
struct PendingRequest {
    request: Request,
    response: oneshot::Sender<Result<(), String>>,
}

impl ObjectsSocket {
    /// A source that listens at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }
}

#[async_trait]
impl Source for ObjectsSocket {
    fn kind(&self) -> SourceKind {
        SourceKind::OBJECTS
    }

    fn wants_removals(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, mut context: SourceContext) -> Result<(), SourceError> {
        let listener = SocketListener::bind(&self.socket)?;
        // Connections end with this call, however it ends.
        let stop = context.stop.child_token();
        let _ends_connections = stop.clone().drop_guard();
        context.events.send(SourceEvent::Init).await?;
        let mut state = restore(context.published, &mut context.events).await?;
        context.events.send(SourceEvent::InitDone).await?;
        let (requests, mut pending) = mpsc::channel(REQUESTS_MAX);
        let connections = TaskTracker::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                accepted = listener.accept() => match accepted {
                    Ok(stream) => open(stream, &connections, &requests, &stop),
                    Err(error) => {
                        tracing::warn!(%error, "the objects socket cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(PendingRequest { request, response }) = pending.recv() => {
                    let outcome = state.apply(request, &mut new_uid);
                    if let Ok(events) = &outcome {
                        context.events.send_all(events.clone()).await?;
                    }
                    // A connection that has ended needs no response.
                    let _ = response.send(outcome.map(drop));
                }
            }
        }
    }
}

/// Why the objects socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The system refused.
    #[error("the objects socket {socket} cannot be opened")]
    Open {
        /// Its path.
        socket: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another process listens on the socket.
    #[error(
        "another process listens on the objects socket {socket}: stop it, or give another path"
    )]
    InUse {
        /// Its path.
        socket: String,
    },
}

impl From<SocketError> for SourceError {
    fn from(error: SocketError) -> Self {
        let reason = match &error {
            SocketError::Open { .. } => "socket",
            SocketError::InUse { .. } => "socket_in_use",
        };
        Self::new(reason, error)
    }
}

/// Sends the objects that an earlier run published, and returns the state that they make.
async fn restore(
    published: Arc<dyn PublishedReader>,
    events: &mut SourceEventSender,
) -> Result<State, SourceError> {
    let (objects, mut restored) = mpsc::channel(SOURCE_QUEUE_EVENTS);
    // It waits for room, so it has a thread of its own.
    let reading = spawn_blocking(move || {
        let mut state = State::default();
        published.read(&mut |key, object| {
            let object = state.restore(key, &object);
            let is_taken = object.is_none_or(|object| objects.blocking_send(object).is_ok());
            if is_taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(state)
    });
    let read = async { read_result(reading.await) };
    // When it fails, it takes no more objects, and the reader stops at the next one.
    let send = async move {
        while let Some(object) = restored.recv().await {
            events.send(SourceEvent::InitApply(object)).await?;
        }
        Ok::<_, SourceError>(())
    };
    let (state, sent) = tokio::join!(read, send);
    sent?;
    state
}

fn open(
    stream: UnixStream,
    connections: &TaskTracker,
    requests: &mpsc::Sender<PendingRequest>,
    stop: &CancellationToken,
) {
    let is_full = connections.len() >= CONNECTIONS_MAX;
    let (requests, stop) = (requests.clone(), stop.clone());
    connections.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            ended = serve(stream, requests, is_full) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "objects connection ended");
                }
            }
        }
    });
}

fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests;
