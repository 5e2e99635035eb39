//! Bytes on the wire: a TCP stream that counts what passes through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpStream;
use tokio_util::io::{InspectReader, InspectWriter};

/// What passed through all sockets that share it, framing included.
#[derive(Debug, Default)]
pub struct WireCount {
    sent: AtomicU64,
    received: AtomicU64,
    connects: AtomicU64,
}

impl WireCount {
    /// Bytes that were written to the sockets.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes that were read from the sockets.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Connections that were made.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }
}

/// A TCP stream that counts.
pub(super) type CountingStream = InspectReader<InspectWriter<TcpStream, Tap>, Tap>;

/// Is shown what passes one way.
type Tap = Box<dyn FnMut(&[u8]) + Send>;

/// Counts what passes through `stream`.
pub(super) fn counted(stream: TcpStream, count: &Arc<WireCount>) -> CountingStream {
    count.connects.fetch_add(1, Ordering::Relaxed);
    let tap = |of: fn(&WireCount) -> &AtomicU64| -> Tap {
        let count = count.clone();
        Box::new(move |bytes| {
            of(&count).fetch_add(bytes.len() as u64, Ordering::Relaxed);
        })
    };
    let (sent, received) = (tap(|count| &count.sent), tap(|count| &count.received));
    InspectReader::new(InspectWriter::new(stream, sent), received)
}
