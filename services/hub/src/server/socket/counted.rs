//! A TCP stream that counts its bytes, framing and TLS included.

use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio_util::io::{InspectReader, InspectWriter};

use crate::metrics::WireMetrics;

/// A TCP stream that counts its bytes.
pub(super) type CountedStream = InspectReader<InspectWriter<TcpStream, ByteCounter>, ByteCounter>;

/// Receives the bytes of one direction.
type ByteCounter = Box<dyn FnMut(&[u8]) + Send>;

/// Counts the bytes of an accepted stream.
pub(super) fn counted(stream: TcpStream, metrics: &WireMetrics) -> CountedStream {
    metrics.connected();
    let (sent, received) = (metrics.sent.clone(), metrics.received.clone());
    let sent: ByteCounter = Box::new(move |bytes| sent.inc_by(bytes.len() as u64));
    let received: ByteCounter = Box::new(move |bytes| received.inc_by(bytes.len() as u64));
    InspectReader::new(InspectWriter::new(stream, sent), received)
}

/// The address of the peer; `None`: it has disconnected.
pub(super) fn peer(stream: &CountedStream) -> Option<SocketAddr> {
    stream.get_ref().get_ref().peer_addr().ok()
}
