//! What the peer thought of our certificate, which it says only after the handshake.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connector::{RefusedByPeer, refused_by_peer};

/// Whether the peer ended a connection for what it thinks of our certificate. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Verdict(Arc<OnceLock<RefusedByPeer>>);

impl Verdict {
    /// Why it did, if it did.
    pub fn refusal(&self) -> Option<RefusedByPeer> {
        self.0.get().cloned()
    }
}

/// A connection whose end is looked at before those above it make something else of it: HTTP/2
/// keeps of an error its text only.
#[derive(Debug)]
pub struct Judged<S> {
    stream: S,
    verdict: Verdict,
}

impl<S> Judged<S> {
    /// A connection over `stream`, and what becomes known of its end.
    pub fn new(stream: S) -> (Self, Verdict) {
        let verdict = Verdict::default();
        (Self { stream, verdict: verdict.clone() }, verdict)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Judged<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if let Err(error) = &read
            && let Some(refused) = refused_by_peer(error)
        {
            // The first is the reason, should there be a second.
            let _ = self.verdict.0.set(refused);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Judged<S> {
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
