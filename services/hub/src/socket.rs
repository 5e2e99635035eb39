//! A connection as it is accepted: counted, its peer known, and closed when no hello comes.
//!
//! The hello's own deadline answers a stream on which nothing is said. This one ends what never
//! comes as far as a stream.

mod counted;

use std::future::ready;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt};
use headwater_identity::{Acceptor, HandshakeError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, timeout};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, TcpIncoming};

use self::counted::{Counted, counted, peer};
use crate::limits::HubLimits;
use crate::metrics::{Handshake, HandshakeMetrics, HubMetrics};
use crate::peer::Peer;

/// Deadlines for the hello that a connection is given: one for opening a stream, one for what
/// is said on it.
const HELLO_DEADLINES: u32 = 2;

/// What a connection has to pass.
#[derive(Clone)]
pub(crate) struct Door {
    /// `None`: there is no TLS.
    tls: Option<Acceptor>,
    handshake_within: Duration,
    hello_within: Duration,
    metrics: HandshakeMetrics,
}

/// A connection of an edge.
pub(crate) struct Socket {
    stream: Transport,
    peer: Peer,
    /// Until the hello.
    deadline: Option<Pin<Box<Sleep>>>,
    _slot: OwnedSemaphorePermit,
}

enum Transport {
    Plain(Counted),
    Tls(Box<TlsStream<Counted>>),
}

/// Why a connection came to nothing.
#[derive(Debug, thiserror::Error)]
enum Turned {
    #[error("no handshake in time")]
    Late,
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// The connections that come to `listener`. Those beyond the limit are closed at once; those that
/// shake hands share this task, so that they take no more than one processor, and hold a slot.
pub(crate) fn incoming(
    listener: TcpListener,
    limits: &HubLimits,
    tls: Option<Acceptor>,
    metrics: &HubMetrics,
) -> impl Stream<Item = io::Result<Socket>> + use<> {
    let slots = limits.connections_max.min(Semaphore::MAX_PERMITS);
    let slots = Arc::new(Semaphore::new(slots));
    let door = Door {
        tls,
        handshake_within: limits.handshake_within,
        hello_within: limits.hello_within.saturating_mul(HELLO_DEADLINES),
        metrics: metrics.handshakes.clone(),
    };
    let wire = metrics.wire.clone();
    TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .with_keepalive(Some(limits.tcp_keepalive))
        .filter_map(move |accepted| {
            ready(match (accepted, slots.clone().try_acquire_owned()) {
                (Ok(stream), Ok(slot)) => Some(Ok((counted(stream, &wire), slot))),
                (Ok(_), Err(_)) => {
                    tracing::debug!("a connection is closed: the hub has as many as it may have");
                    None
                }
                (Err(error), _) => Some(Err(error)),
            })
        })
        .map(move |accepted| {
            let door = door.clone();
            async move {
                match accepted {
                    Ok((stream, slot)) => door.pass(stream, slot).await.map(Ok),
                    Err(error) => Some(Err(error)),
                }
            }
        })
        .buffer_unordered(limits.handshakes_max.max(1))
        .filter_map(ready)
}

impl Door {
    async fn pass(self, stream: Counted, slot: OwnedSemaphorePermit) -> Option<Socket> {
        let from = peer(&stream);
        let (stream, peer) = match &self.tls {
            None => (Transport::Plain(stream), Peer::default()),
            Some(tls) => {
                let met = timeout(self.handshake_within, shake_hands(tls, stream)).await;
                match met.unwrap_or(Err(Turned::Late)) {
                    Ok(met) => {
                        self.metrics.count(Handshake::Done, tls.not_after());
                        met
                    }
                    Err(turned) => {
                        self.turned(tls, from, &turned);
                        return None;
                    }
                }
            }
        };
        let deadline = Some(Box::pin(tokio::time::sleep(self.hello_within)));
        Some(Socket { stream, peer, deadline, _slot: slot })
    }

    /// Who and why, for whoever looks for it: anybody may knock, and as often as they like.
    fn turned(&self, tls: &Acceptor, from: Option<SocketAddr>, turned: &Turned) {
        let from = from.map_or_else(|| "a peer that is gone".to_owned(), |from| from.to_string());
        tracing::debug!(from, error = turned as &dyn std::error::Error, "no handshake");
        let outcome = match turned {
            Turned::Late => Handshake::Late,
            Turned::Handshake(_) => Handshake::Failed,
        };
        self.metrics.count(outcome, tls.not_after());
    }
}

async fn shake_hands(tls: &Acceptor, stream: Counted) -> Result<(Transport, Peer), Turned> {
    let (stream, certificate) = tls.accept(stream).await?;
    let peer = Peer::of(certificate, |certificate| {
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
            Self::Plain(stream) => Pin::<&mut Counted>::new(stream),
            Self::Tls(stream) => Pin::<&mut TlsStream<Counted>>::new(stream),
        }
    }

    fn writer(&mut self) -> Pin<&mut dyn AsyncWrite> {
        match self {
            Self::Plain(stream) => Pin::<&mut Counted>::new(stream),
            Self::Tls(stream) => Pin::<&mut TlsStream<Counted>>::new(stream),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peer.is_greeted() {
            self.deadline = None;
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
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
