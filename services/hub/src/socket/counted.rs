//! A TCP stream whose bytes are counted as they pass: what is framed, and where there is TLS, sealed.

use tokio::net::TcpStream;
use tokio_util::io::{InspectReader, InspectWriter};

use crate::metrics::WireMetrics;

/// See the module.
pub(super) type Counted = InspectReader<InspectWriter<TcpStream, Tap>, Tap>;

/// Is shown what passes one way.
type Tap = Box<dyn FnMut(&[u8]) + Send>;

/// A stream that was taken up.
pub(super) fn counted(stream: TcpStream, metrics: &WireMetrics) -> Counted {
    metrics.connected();
    let (sent, received) = (metrics.sent.clone(), metrics.received.clone());
    let sent: Tap = Box::new(move |bytes| sent.inc_by(bytes.len() as u64));
    let received: Tap = Box::new(move |bytes| received.inc_by(bytes.len() as u64));
    InspectReader::new(InspectWriter::new(stream, sent), received)
}

/// Where the peer is; `None`: it is gone.
pub(super) fn peer(stream: &Counted) -> Option<std::net::SocketAddr> {
    stream.get_ref().get_ref().peer_addr().ok()
}
