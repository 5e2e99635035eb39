//! Connections that do not move: clients that do not read, and streams on which nothing happens.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection whose client must read: a write that waits longer than its time fails.
#[derive(Debug)]
pub(crate) struct WriteLimit<S> {
    stream: S,
    time: WriteTime,
    waiting: Option<Pin<Box<Sleep>>>,
}

/// How long a client may leave a write waiting, in milliseconds; 0: for ever. The answer that is being
/// written decides it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct WriteTime(Arc<AtomicU64>);

/// A connection whose bytes are counted.
#[derive(Debug)]
pub(crate) struct ByteCounter<S> {
    stream: S,
    moved: Arc<AtomicU64>,
}

impl WriteTime {
    pub(crate) fn new(within: Duration) -> Self {
        let time = Self(Arc::default());
        time.set(within);
        time
    }

    /// Gives the client this long.
    pub(crate) fn set(&self, within: Duration) {
        let ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.0.store(ms, Ordering::Relaxed);
    }

    /// Gives the client any time: what it gets is watched elsewhere.
    pub(crate) fn lift(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        let ms = self.0.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }
}

impl<S> WriteLimit<S> {
    pub(crate) fn new(stream: S, time: WriteTime) -> Self {
        Self { stream, time, waiting: None }
    }

    /// The outcome of a write, or the end of the client's time.
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let time = self.time.get().filter(|_| outcome.is_pending());
        let Some(within) = time else {
            self.waiting = None;
            return outcome;
        };
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(within)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S> ByteCounter<S> {
    pub(crate) fn new(stream: S, moved: Arc<AtomicU64>) -> Self {
        Self { stream, moved }
    }

    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Returns once nothing was counted for `idle`, at the latest a quarter of it later.
pub(crate) async fn idle_for(moved: &AtomicU64, idle: Duration) {
    let (mut last, mut quiet) = (moved.load(Ordering::Relaxed), 0);
    while quiet < 5 {
        sleep(idle / 4).await;
        let now = moved.load(Ordering::Relaxed);
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.limited(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limited(context, outcome)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ByteCounter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.count(buffer.filled().len() - before);
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ByteCounter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        if let Ok(bytes) = &written {
            self.count(*bytes);
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_ends_unless_it_is_a_stream() {
        for is_exempt in [false, true] {
            let (near, _far) = tokio::io::duplex(8);
            let time = WriteTime::new(WITHIN);
            if is_exempt {
                time.lift();
            }
            let mut limited = WriteLimit::new(near, time);
            let writing = tokio::time::timeout(2 * WITHIN, limited.write_all(&[0; 9])).await;
            match writing {
                Ok(Err(error)) => {
                    assert_eq!((error.kind(), is_exempt), (io::ErrorKind::TimedOut, false))
                }
                Err(_) => assert!(is_exempt, "it waits for a client that does not read"),
                Ok(Ok(())) => panic!("there was room for it"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_idle_once_nothing_moves() {
        let moved = Arc::new(AtomicU64::new(0));
        let (near, _far) = tokio::io::duplex(64);
        let mut counted = ByteCounter::new(near, moved.clone());
        let began = tokio::time::Instant::now();
        let moving = async {
            for _ in 0..6 {
                counted.write_all(b"x").await.expect("there is room");
                sleep(WITHIN / 2).await;
            }
        };
        tokio::join!(moving, idle_for(&moved, WITHIN));
        let idle = began.elapsed().saturating_sub(WITHIN * 5 / 2);
        assert!(idle >= WITHIN && idle <= 2 * WITHIN, "{idle:?}");
    }
}
