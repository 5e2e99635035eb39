//! A connection as it is accepted: counted, and closed when no hello comes.
//!
//! The hello's own deadline answers a stream on which nothing is said. This one ends what never
//! comes as far as a stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::{Connected, TcpIncoming};

use crate::limits::HubLimits;

/// Deadlines for the hello that a connection is given: one for opening a stream, one for what
/// is said on it.
const HELLO_DEADLINES: u32 = 2;

/// Whether a hello came on a connection. Part of each of its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeted(Arc<AtomicBool>);

impl Greeted {
    /// A hello came.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection of an edge.
pub(crate) struct Socket {
    stream: TcpStream,
    greeted: Greeted,
    /// Until the hello.
    deadline: Option<Pin<Box<Sleep>>>,
    _slot: OwnedSemaphorePermit,
}

/// The connections that come to `listener`. Those beyond the limit are closed at once.
pub(crate) fn incoming(
    listener: TcpListener,
    limits: &HubLimits,
) -> impl Stream<Item = io::Result<Socket>> + use<> {
    let slots = limits.connections_max.min(Semaphore::MAX_PERMITS);
    let slots = Arc::new(Semaphore::new(slots));
    let deadline = limits.hello_within.saturating_mul(HELLO_DEADLINES);
    TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .with_keepalive(Some(limits.tcp_keepalive))
        .filter_map(move |accepted| match (accepted, slots.clone().try_acquire_owned()) {
            (Ok(stream), Ok(slot)) => Some(Ok(Socket {
                stream,
                greeted: Greeted::default(),
                deadline: Some(Box::pin(tokio::time::sleep(deadline))),
                _slot: slot,
            })),
            (Ok(_), Err(_)) => {
                tracing::debug!("a connection is closed: the hub has as many as it may have");
                None
            }
            (Err(error), _) => Some(Err(error)),
        })
}

impl Connected for Socket {
    type ConnectInfo = Greeted;

    fn connect_info(&self) -> Greeted {
        self.greeted.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.greeted.0.load(Ordering::Relaxed) {
            self.deadline = None;
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
