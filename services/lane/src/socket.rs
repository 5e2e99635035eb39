//! A connection as the controller accepts it: its TLS done, its peer known.

use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt};
use headwater_identity::{Acceptor, ClientPeer, PeerTrust, Principal};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::{Connected, TcpIncoming};

/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// TLS handshakes at once; further connections wait to be accepted.
const HANDSHAKES_MAX: usize = 64;

/// A connection of a hub.
pub(crate) struct LaneSocket {
    stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    peer: Peer,
    _slot: OwnedSemaphorePermit,
}

/// The peer of a connection, an extension of each request on it: the trust in its certificate, if it
/// has shown one, or why it is no hub.
#[derive(Clone, Debug)]
pub(crate) struct Peer(pub(crate) Result<Option<PeerTrust>, Arc<str>>);

/// The connections to `listener`, at most `connections_max` at a time; more are closed at once.
pub(crate) fn incoming(
    listener: TcpListener,
    tls: Option<Acceptor>,
    connections_max: usize,
) -> impl Stream<Item = io::Result<LaneSocket>> {
    let slots = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .map(move |accepted| {
            let (tls, slot) = (tls.clone(), slots.clone().try_acquire_owned().ok());
            async move {
                match (accepted, slot) {
                    (Ok(stream), Some(slot)) => accept(tls, stream, slot).await.map(Ok),
                    (Ok(_), None) => {
                        tracing::debug!("connection closed: too many hubs");
                        None
                    }
                    (Err(error), _) => Some(Err(error)),
                }
            }
        })
        .buffer_unordered(HANDSHAKES_MAX)
        .filter_map(ready)
}

/// Logs at debug level only: strangers can connect as often as they like.
async fn accept(
    tls: Option<Acceptor>,
    stream: TcpStream,
    slot: OwnedSemaphorePermit,
) -> Option<LaneSocket> {
    let Some(tls) = tls else {
        return Some(LaneSocket {
            stream: Either::Left(stream),
            peer: Peer(Ok(None)),
            _slot: slot,
        });
    };
    match timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
        Ok(Ok((stream, client))) => {
            let peer = Peer(check(client).map(Some));
            Some(LaneSocket { stream: Either::Right(Box::new(stream)), peer, _slot: slot })
        }
        Ok(Err(error)) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake failed: it takes too long");
            None
        }
    }
}

/// Checks that the certificate is of a hub.
fn check(client: Option<ClientPeer>) -> Result<PeerTrust, Arc<str>> {
    let Some(ClientPeer { certificate, trust }) = client else {
        return Err("the hub shows no certificate: give it one of a hub".into());
    };
    match certificate.principal {
        Ok(Principal::Hub(_)) => Ok(trust),
        Ok(other) => Err(format!("the certificate is of {other}: a hub shows one of a hub").into()),
        Err(fault) => Err(fault.to_string().into()),
    }
}

impl Connected for LaneSocket {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for LaneSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LaneSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
