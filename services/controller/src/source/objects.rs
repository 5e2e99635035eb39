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
//! run published and no manifest described. The log has no object that no node needs, so such an
//! object ends with the process that accepted it.
//!
//! A line that comes while another controller writes the log is refused: each controller has a socket
//! of its own, and that of the writer counts. A controller that takes the log over continues with what
//! is published; an object that it knows itself and that no node needs stays. A line that a controller
//! has accepted and not yet published is lost when another one takes the log over, as with a crash.

mod connection;
mod line;
mod restoration;
mod socket;
mod state;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_object::OBJECT_BYTES_MAX;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::connection::serve;
use self::socket::SocketListener;
use self::state::State;
use super::{
    Source, SourceContext, SourceError, SourceEvent, SourceEventSender, SourceKind, WriterRole,
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

/// The refusal of a line while another controller writes the log.
const STANDBY: &str = "another controller writes the log, or did until just now: send this to its \
                       socket, or here again once this controller writes";

/// A source that listens on a unix socket.
#[derive(Debug)]
pub struct ObjectsSocket {
    socket: PathBuf,
}

/// The one task that keeps the state.
struct StateOwner {
    state: State,
    events: SourceEventSender,
    role: watch::Receiver<WriterRole>,
    /// The epoch of the last takeover that was answered.
    answered: u64,
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

    fn answers_takeover(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, context: SourceContext) -> Result<(), SourceError> {
        let SourceContext { published, workloads, mut events, stop, .. } = context;
        let listener = SocketListener::bind(&self.socket)?;
        // Connections end with this call, however it ends.
        let stop = stop.child_token();
        let _ends_connections = stop.clone().drop_guard();
        let serving = async {
            events.send(SourceEvent::Init).await?;
            let state = restoration::list(published, &mut events).await?;
            events.send(SourceEvent::InitDone).await?;
            let owner = StateOwner { state, events, role: workloads.role, answered: 0 };
            let (requests, pending) = mpsc::channel(REQUESTS_MAX);
            // Connections are accepted, and refused, also while the owner waits for the controller.
            tokio::select! {
                ended = owner.serve(pending) => ended,
                never = accept_connections(&listener, &requests, &stop) => match never {},
            }
        };
        stop.run_until_cancelled(serving).await.unwrap_or(Ok(()))
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
        source: io::Error,
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

impl StateOwner {
    /// Applies requests and answers takeovers, one after the other, until nothing can come any more.
    async fn serve(
        mut self,
        mut pending: mpsc::Receiver<PendingRequest>,
    ) -> Result<(), SourceError> {
        // The role may be known already.
        self.role.mark_changed();
        loop {
            tokio::select! {
                Ok(()) = self.role.changed() => {
                    self.note_role().await?;
                }
                Some(PendingRequest { request, response }) = pending.recv() => {
                    let outcome = self.apply(request).await?;
                    // A connection that has ended needs no response.
                    let _ = response.send(outcome);
                }
                else => return Ok(()),
            }
        }
    }

    /// Applies a request. When this returns `Ok`, the controller has what follows from it; the inner error is why
    /// it was refused.
    async fn apply(&mut self, request: Request) -> Result<Result<(), String>, SourceError> {
        // A takeover that began just now comes before the request.
        if matches!(self.note_role().await?, WriterRole::Standby) {
            return Ok(Err(STANDBY.to_owned()));
        }
        match self.state.apply(request, &mut new_uid) {
            Ok(events) => self.events.send_all(events).await.map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Answers a takeover that was not answered yet. Returns the role.
    async fn note_role(&mut self) -> Result<WriterRole, SourceError> {
        let role = self.role.borrow_and_update().clone();
        let WriterRole::Writer { takeover: Some(takeover) } = role else { return Ok(role) };
        if takeover.epoch <= self.answered {
            return Ok(WriterRole::Writer { takeover: None });
        }
        let epoch = takeover.epoch;
        let state = std::mem::take(&mut self.state);
        self.state = restoration::take_over(state, takeover.published, &mut self.events).await?;
        self.answered = epoch;
        self.events.send(SourceEvent::TakenOver { epoch }).await?;
        Ok(WriterRole::Writer { takeover: None })
    }
}

/// Accepts connections for ever. Each has a place, or is refused.
async fn accept_connections(
    listener: &SocketListener,
    requests: &mpsc::Sender<PendingRequest>,
    stop: &CancellationToken,
) -> Infallible {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let place = places.clone().try_acquire_owned().ok();
                open(serve(stream, requests.clone(), place), stop.clone());
            }
            Err(error) => {
                tracing::warn!(%error, "the objects socket cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn open(
    connection: impl Future<Output = io::Result<()>> + Send + 'static,
    stop: CancellationToken,
) {
    tokio::spawn(async move {
        if let Some(Err(error)) = stop.run_until_cancelled(connection).await {
            tracing::debug!(%error, "objects connection ended");
        }
    });
}

fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests;
