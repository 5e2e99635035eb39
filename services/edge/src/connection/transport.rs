//! How a connection to a hub is made: its name looked up, TCP, TLS, HTTP/2, within one deadline.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use headwater_identity::{ConnectError, Connector, PeerRefusalCell, RefusalDetector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::connection::address::HubAddress;

/// How long a hub may take to accept a connection, its name being looked up included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// TCP says the first packet of a connection again ever more rarely. Another connection is begun
/// each second while those before go on, so that a link which comes back is found by then.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);

/// A hub that says nothing for so long is asked: a little more than the 10 s after which each
/// speaks by itself, so that one that is well is never asked.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(12);

/// How long a hub may take to answer: a link over which that takes longer carries nothing.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Response headers of a hub are a few hundred bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// Why a hub gave no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// It has no address.
    #[error("its name cannot be looked up")]
    Lookup(#[source] io::Error),
    /// Its name means other machines, to whom nothing is said without TLS.
    #[error("its name means no address of this machine, and without TLS no other is spoken to")]
    NotLoopback,
    /// Nobody listens there, or nothing comes through.
    #[error("nobody answers there")]
    Tcp(#[source] io::Error),
    /// Nothing comes back, not even a refusal.
    #[error("nobody answers there within {} s", CONNECT_TIMEOUT.as_secs())]
    NoResponse,
    /// Somebody answers, and is too slow.
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Late,
    /// It is not the hub, or one of the certificates is not good.
    #[error(transparent)]
    Tls(#[from] ConnectError),
    /// What answers speaks something else.
    #[error("no HTTP/2 with it")]
    Http2(#[from] tonic::transport::Error),
}

impl DialError {
    /// Whether nobody answered at all, so that no hub was burdened.
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

/// Connects to a hub. Without TLS on loopback only. What the hub thinks of the node's certificate
/// becomes known with the first that is read.
pub(crate) async fn dial(
    hub: &HubAddress,
    tls: Option<&Connector>,
) -> Result<(Channel, PeerRefusalCell), DialError> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let reached = timeout_at(deadline, reach(hub, tls.is_some())).await;
    let stream = reached.unwrap_or(Err(DialError::NoResponse))?;
    let speaking = async {
        match tls {
            None => speak(hub, "http", stream).await,
            Some(tls) => speak(hub, "https", tls.connect(hub.host(), stream).await?).await,
        }
    };
    timeout_at(deadline, speaking).await.unwrap_or(Err(DialError::Late))
}

/// The first connection that comes about; the caller bounds the time.
async fn reach(hub: &HubAddress, may_leave: bool) -> Result<TcpStream, DialError> {
    let found = lookup_host((hub.host(), hub.port())).await.map_err(DialError::Lookup)?;
    let found: Vec<_> = found.filter(|at| may_leave || at.ip().is_loopback()).collect();
    if found.is_empty() {
        return Err(DialError::NotLoopback);
    }
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

async fn speak<S>(
    hub: &HubAddress,
    scheme: &str,
    stream: S,
) -> Result<(Channel, PeerRefusalCell), DialError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (stream, verdict) = RefusalDetector::new(stream);
    let mut stream = Some(TokioIo::new(stream));
    // For one connection: the next is dialed anew, for the hub may be another by then.
    let once = service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async { stream }
    });
    // The transport takes the stream as it is; to the hub it is what it is.
    let origin = Endpoint::from_shared(format!("{scheme}://{hub}"))?.uri().clone();
    let channel = Endpoint::from_shared(format!("http://{hub}"))?
        .origin(origin)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .connect_with_connector(once)
        .await?;
    Ok((channel, verdict))
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    async fn failed(hub: &str) -> DialError {
        let hub = hub.parse().expect("an address");
        dial(&hub, None).await.expect_err("nobody speaks there")
    }

    #[tokio::test]
    async fn who_refuses_is_heard() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        drop(listener);
        let refused = failed(&address).await;
        assert!(matches!(refused, DialError::Tcp(_)) && !refused.is_unreachable(), "{refused}");
    }

    #[tokio::test]
    async fn where_packets_are_lost_nobody_is_heard_until_they_are_not() {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        // With as many connections as it may hold, the system drops the first packet of others.
        let listener = socket.listen(1).expect("a listener");
        let address = listener.local_addr().expect("bound");
        let held = [TcpStream::connect(address).await, TcpStream::connect(address).await];
        let unheard = failed(&address.to_string()).await;
        assert!(matches!(unheard, DialError::NoResponse) && unheard.is_unreachable(), "{unheard}");
        drop(held);
    }
}
