//! The transport to a hub: DNS, TCP, TLS and HTTP/2, within one deadline.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use headwater_identity::{ConnectError, Connector, PeerRefusalCell, PeerTrust, RefusalDetector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::address::HubAddress;

/// How long a hub may take to accept a connection, with the DNS lookup.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// TCP retransmits the first packet of a connection at growing intervals. The edge starts another
/// attempt each second beside the earlier ones, so that it finds a repaired link within a second.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);

/// After this much silence the transport pings the hub. A healthy hub sends a heartbeat every 10 s
/// and is never pinged.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(12);

/// How long a hub may take to answer a ping. A slower link is of no use.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of response headers; a hub sends a few hundred.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// Why there is no connection to a hub.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The name has no address.
    #[error("its name cannot be looked up")]
    Lookup(#[source] io::Error),
    /// The name resolves to other machines, and the edge has no TLS.
    #[error("without TLS an edge connects to loopback only, and its name is no loopback address")]
    NotLoopback,
    /// TCP failed: the port is closed, or there is no route.
    #[error("it does not respond")]
    Tcp(#[source] io::Error),
    /// No packet came back, not even a refusal.
    #[error("it does not respond within {} s", CONNECT_TIMEOUT.as_secs())]
    NoResponse,
    /// The hub responds too slowly.
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Late,
    /// TLS failed: it is not the hub, or one of the certificates is invalid.
    #[error(transparent)]
    Tls(#[from] ConnectError),
    /// The peer does not use HTTP/2.
    #[error("it does not use HTTP/2")]
    Http2(#[from] tonic::transport::Error),
}

impl DialError {
    /// Whether no machine responded, so that the attempt put no load on a hub.
    pub(crate) fn is_unreachable(&self) -> bool {
        use io::ErrorKind as Kind;
        match self {
            Self::NoResponse | Self::Lookup(_) => true,
            Self::Tcp(error) => matches!(
                error.kind(),
                Kind::TimedOut
                    | Kind::HostUnreachable
                    | Kind::NetworkUnreachable
                    | Kind::NetworkDown
            ),
            Self::NotLoopback | Self::Late | Self::Tls(_) | Self::Http2(_) => false,
        }
    }
}

/// Where a hub was reached: of several machines behind one name, this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubRoute {
    /// The hub, as it is configured.
    pub(crate) address: HubAddress,
    /// The machine that accepted the connection.
    pub(crate) machine: SocketAddr,
}

/// A connection to a hub.
pub(crate) struct HubConnection {
    pub(crate) route: HubRoute,
    pub(crate) channel: Channel,
    /// TLS 1.3 delivers a refusal of the node's certificate with the first bytes that are read.
    pub(crate) refusal: PeerRefusalCell,
    /// The trust in the hub's certificate; `None`: no TLS.
    pub(crate) trust: Option<PeerTrust>,
}

/// Connects to a hub; without TLS on loopback only.
pub(crate) async fn dial(
    hub: &HubAddress,
    tls: Option<&Connector>,
) -> Result<HubConnection, DialError> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let reached = timeout_at(deadline, reach(hub, tls.is_some())).await;
    let stream = reached.unwrap_or(Err(DialError::NoResponse))?;
    shake_hands(hub, stream, tls, deadline).await
}

/// Connects once more to a machine that accepted a connection.
pub(crate) async fn redial(
    route: &HubRoute,
    tls: Option<&Connector>,
) -> Result<HubConnection, DialError> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let reached = timeout_at(deadline, connect_one(vec![route.machine])).await;
    let stream = reached.unwrap_or(Err(DialError::NoResponse))?;
    shake_hands(&route.address, stream, tls, deadline).await
}

/// TLS and HTTP/2 over a connected stream.
async fn shake_hands(
    hub: &HubAddress,
    stream: TcpStream,
    tls: Option<&Connector>,
    deadline: Instant,
) -> Result<HubConnection, DialError> {
    let machine = stream.peer_addr().map_err(DialError::Tcp)?;
    let route = HubRoute { address: hub.clone(), machine };
    let handshake = async {
        match tls {
            None => http2(route, "http", stream, None).await,
            Some(tls) => {
                let (stream, server) = tls.connect_to(hub.host(), stream).await?;
                http2(route, "https", stream, Some(server.trust)).await
            }
        }
    };
    timeout_at(deadline, handshake).await.unwrap_or(Err(DialError::Late))
}

/// Opens TCP connections until one is accepted. The caller bounds the time.
async fn reach(hub: &HubAddress, may_leave: bool) -> Result<TcpStream, DialError> {
    let found = lookup_host((hub.host(), hub.port())).await.map_err(DialError::Lookup)?;
    let found: Vec<_> = found.filter(|at| may_leave || at.ip().is_loopback()).collect();
    if found.is_empty() {
        return Err(DialError::NotLoopback);
    }
    connect_one(found).await
}

/// Opens TCP connections to these addresses until one is accepted.
async fn connect_one(found: Vec<SocketAddr>) -> Result<TcpStream, DialError> {
    let mut attempts = FuturesUnordered::new();
    let mut due = tokio::time::interval(ATTEMPT_INTERVAL);
    let reached: io::Result<TcpStream> = loop {
        tokio::select! {
            Some(reached) = attempts.next() => break reached,
            _ = due.tick() => attempts.push(TcpStream::connect(&*found)),
        }
    };
    let stream = reached.map_err(DialError::Tcp)?;
    stream.set_nodelay(true).map_err(DialError::Tcp)?;
    Ok(stream)
}

/// Opens HTTP/2 over a connected stream.
async fn http2<S>(
    route: HubRoute,
    scheme: &str,
    stream: S,
    trust: Option<PeerTrust>,
) -> Result<HubConnection, DialError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let hub = &route.address;
    let (stream, refusal) = RefusalDetector::new(stream);
    let mut stream = Some(TokioIo::new(stream));
    // The channel must not reconnect by itself: the next hub may be another.
    let once = service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async { stream }
    });
    // The stream already has its TLS, so tonic gets `http`. The requests carry the true scheme.
    let origin = Endpoint::from_shared(format!("{scheme}://{hub}"))?.uri().clone();
    let channel = Endpoint::from_shared(format!("http://{hub}"))?
        .origin(origin)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .connect_with_connector(once)
        .await?;
    Ok(HubConnection { route, channel, refusal, trust })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    async fn failed(hub: &str) -> DialError {
        let hub = hub.parse().expect("an address");
        dial(&hub, None).await.err().expect("no connection")
    }

    #[tokio::test]
    async fn a_refused_connection_is_a_response() {
        // It is bound and does not listen, so no other test gets its port meanwhile.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = socket.local_addr().expect("bound").to_string();
        let refused = failed(&address).await;
        assert!(matches!(refused, DialError::Tcp(_)) && !refused.is_unreachable(), "{refused}");
    }

    #[tokio::test]
    async fn lost_packets_are_no_response() {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        // A full accept queue makes the system drop the first packet of further connections.
        let listener = socket.listen(1).expect("a listener");
        let address = listener.local_addr().expect("bound");
        let queued = [TcpStream::connect(address).await, TcpStream::connect(address).await];
        let error = failed(&address.to_string()).await;
        assert!(matches!(error, DialError::NoResponse) && error.is_unreachable(), "{error}");
        drop(queued);
    }
}
