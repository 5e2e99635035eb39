//! A connection as the hub accepts it: counted, its peer known, and closed when no hello comes.
//!
//! The service has its own deadline for the hello on a stream that an edge has opened. The
//! deadline here ends connections on which no stream is opened.

mod counted;
mod pending;
mod rejection_log;

use std::future::ready;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt};
use headwater_identity::{Acceptor, HandshakeError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, timeout};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, TcpIncoming};

use self::counted::{CountedStream, counted, peer};
use self::pending::{PendingConnection, PendingConnections};
use self::rejection_log::RejectionLog;
use super::Peer;
use crate::limits::HubLimits;
use crate::metrics::{
    ConnectionLimit, HandshakeMetrics, HandshakeOutcome, HubMetrics, LATE, WireMetrics,
};

/// The time for the hello in units of [`HubLimits::hello_within`]: one to open a stream, one to
/// send the hello on it.
const HELLO_DEADLINES: u32 = 2;

/// A connection of an edge.
pub(super) struct Socket {
    stream: Transport,
    peer: Peer,
    /// Until the hello.
    deadline: Option<HelloDeadline>,
    _slot: OwnedSemaphorePermit,
}

/// When a connection ends on which no hello came, and its share of its address.
struct HelloDeadline {
    at: Pin<Box<Sleep>>,
    _pending: PendingConnection,
}

/// Admits accepted connections within the limits of the hub.
struct ConnectionGate {
    slots: Arc<Semaphore>,
    pending: PendingConnections,
    wire: WireMetrics,
}

/// A connection that the gate has admitted.
struct AdmittedConnection {
    stream: CountedStream,
    slot: OwnedSemaphorePermit,
    pending: PendingConnection,
}

enum Transport {
    Plain(CountedStream),
    Tls(Box<TlsStream<CountedStream>>),
}

/// What an accepted stream passes before it is a [`Socket`].
#[derive(Clone)]
struct ConnectionAcceptor {
    /// `None`: no TLS.
    tls: Option<Acceptor>,
    handshake_within: Duration,
    hello_within: Duration,
    metrics: HandshakeMetrics,
    rejections: Arc<Mutex<RejectionLog>>,
    /// The start of the clock of `rejections`.
    start: Instant,
}

/// Why a TLS handshake fails.
#[derive(Debug, thiserror::Error)]
enum AcceptError {
    #[error("the handshake takes too long")]
    Late,
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// The connections to `listener`. A connection beyond a limit is closed at once. Handshakes share
/// this task, so that they use at most one processor, and count against the limits.
pub(super) fn incoming(
    listener: TcpListener,
    limits: &HubLimits,
    tls: Option<Acceptor>,
    metrics: &HubMetrics,
) -> impl Stream<Item = io::Result<Socket>> + use<> {
    let gate = ConnectionGate::new(limits, metrics.wire.clone());
    let acceptor = ConnectionAcceptor {
        tls,
        handshake_within: limits.handshake_within,
        hello_within: limits.hello_within.saturating_mul(HELLO_DEADLINES),
        metrics: metrics.handshakes.clone(),
        rejections: Arc::default(),
        start: Instant::now(),
    };
    TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .with_keepalive(Some(limits.tcp_keepalive))
        .filter_map(move |accepted| {
            ready(match accepted {
                Ok(stream) => gate.admit(stream).map(Ok),
                Err(error) => Some(Err(error)),
            })
        })
        .map(move |accepted| {
            let acceptor = acceptor.clone();
            async move {
                match accepted {
                    Ok(admitted) => acceptor.accept(admitted).await.map(Ok),
                    Err(error) => Some(Err(error)),
                }
            }
        })
        .buffer_unordered(limits.handshakes_max.max(1))
        .filter_map(ready)
}

impl ConnectionGate {
    fn new(limits: &HubLimits, wire: WireMetrics) -> Self {
        let slots = limits.connections_max.min(Semaphore::MAX_PERMITS);
        let pending = PendingConnections::new(limits.address_pending_max);
        Self { slots: Arc::new(Semaphore::new(slots)), pending, wire }
    }

    /// Admits an accepted stream, or drops it. Logs at debug level only: strangers can connect as
    /// often as they like.
    fn admit(&self, stream: TcpStream) -> Option<AdmittedConnection> {
        // A peer without an address has disconnected.
        let address = stream.peer_addr().ok()?.ip();
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            tracing::debug!("connection closed: the hub is at its limit of connections");
            self.wire.closed(ConnectionLimit::Hub);
            return None;
        };
        let Some(pending) = self.pending.add(address) else {
            tracing::debug!(%address, "connection closed: too many without a hello");
            self.wire.closed(ConnectionLimit::Address);
            return None;
        };
        Some(AdmittedConnection { stream: counted(stream, &self.wire), slot, pending })
    }
}

impl ConnectionAcceptor {
    async fn accept(self, admitted: AdmittedConnection) -> Option<Socket> {
        let AdmittedConnection { stream, slot, pending } = admitted;
        let from = peer(&stream);
        let (stream, peer) = match &self.tls {
            None => (Transport::Plain(stream), Peer::default()),
            Some(tls) => {
                let outcome = timeout(self.handshake_within, shake_hands(tls, stream)).await;
                match outcome.unwrap_or(Err(AcceptError::Late)) {
                    Ok(accepted) => {
                        self.metrics.count(HandshakeOutcome::Done, tls.not_after());
                        accepted
                    }
                    Err(error) => {
                        self.count_failure(tls, from, &error);
                        return None;
                    }
                }
            }
        };
        let at = Box::pin(tokio::time::sleep(self.hello_within));
        let deadline = Some(HelloDeadline { at, _pending: pending });
        Some(Socket { stream, peer, deadline, _slot: slot })
    }

    /// Counts a handshake that failed, and logs it with the peer's address as far as
    /// [`RejectionLog`] allows.
    fn count_failure(&self, tls: &Acceptor, from: Option<SocketAddr>, error: &AcceptError) {
        let from = from.map_or_else(|| "a disconnected peer".to_owned(), |from| from.to_string());
        let (outcome, reason) = match error {
            AcceptError::Late => (HandshakeOutcome::Late, LATE),
            AcceptError::Handshake(error) => (HandshakeOutcome::Failed, error.reason()),
        };
        self.metrics.count(outcome, tls.not_after());
        self.metrics.reject(reason);
        let error = error as &dyn std::error::Error;
        let noted = self
            .rejections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .note(self.start.elapsed());
        match noted {
            Some(omitted) => {
                tracing::warn!(from, reason, omitted, error, "a TLS handshake was rejected")
            }
            None => tracing::debug!(from, reason, error, "a TLS handshake was rejected"),
        }
    }
}

async fn shake_hands(
    tls: &Acceptor,
    stream: CountedStream,
) -> Result<(Transport, Peer), AcceptError> {
    let (stream, client) = tls.accept(stream).await?;
    let peer = Peer::of(client, |certificate| {
        certificate.not_after.duration_since(tls.now()).unwrap_or_default()
    });
    Ok((Transport::Tls(Box::new(stream)), peer))
}

impl Connected for Socket {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl Transport {
    fn reader(&mut self) -> Pin<&mut dyn AsyncRead> {
        match self {
            Self::Plain(stream) => Pin::<&mut CountedStream>::new(stream),
            Self::Tls(stream) => Pin::<&mut TlsStream<CountedStream>>::new(stream),
        }
    }

    fn writer(&mut self) -> Pin<&mut dyn AsyncWrite> {
        match self {
            Self::Plain(stream) => Pin::<&mut CountedStream>::new(stream),
            Self::Tls(stream) => Pin::<&mut TlsStream<CountedStream>>::new(stream),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peer.is_hello_received() {
            self.deadline = None;
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.at.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.stream.reader().poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.writer().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.writer().poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.writer().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.writer().poll_shutdown(context)
    }
}
