//! Detects that the peer refused our certificate: in TLS 1.3 its alert arrives after the handshake.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connector::{PeerRefusal, peer_refusal};

/// Holds the peer's refusal of our certificate, once it has arrived. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PeerRefusalCell(Arc<OnceLock<PeerRefusal>>);

impl PeerRefusalCell {
    /// The refusal; `None` while there is none.
    pub fn refusal(&self) -> Option<PeerRefusal> {
        self.0.get().cloned()
    }
}

/// A connection whose read errors are searched for a refusal. HTTP/2 keeps only the text of an
/// error, so the search must happen below it.
#[derive(Debug)]
pub struct RefusalDetector<S> {
    stream: S,
    refusal: PeerRefusalCell,
}

impl<S> RefusalDetector<S> {
    /// Wraps `stream`; returns the wrapper and the cell for its refusal.
    pub fn new(stream: S) -> (Self, PeerRefusalCell) {
        let refusal = PeerRefusalCell::default();
        (Self { stream, refusal: refusal.clone() }, refusal)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RefusalDetector<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if let Err(error) = &read
            && let Some(refused) = peer_refusal(error)
        {
            // The first refusal is the cause; later ones are ignored.
            let _ = self.refusal.0.set(refused);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RefusalDetector<S> {
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
