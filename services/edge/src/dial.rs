//! How a connection to a hub is made: its name looked up, TCP, TLS, HTTP/2, within one deadline.

use std::io;
use std::time::Duration;

use headwater_identity::{ConnectError, Connector, Judged, Verdict};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::address::HubAddress;

/// How long a hub may take to accept a connection, its name being looked up included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A half-open connection is noticed within this and the next: well below the 45 s of silence
/// after which either end gives up.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// How long a hub may take to answer a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Too slow.
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Late,
    /// It is not the hub, or one of the certificates is not good.
    #[error(transparent)]
    Tls(#[from] ConnectError),
    /// What answers speaks something else.
    #[error("no HTTP/2 with it")]
    Http2(#[from] tonic::transport::Error),
}

/// Connects to a hub. Without TLS on loopback only. What the hub thinks of the node's certificate
/// becomes known with the first that is read.
pub(crate) async fn dial(
    hub: &HubAddress,
    tls: Option<&Connector>,
) -> Result<(Channel, Verdict), DialError> {
    timeout(CONNECT_TIMEOUT, connect(hub, tls)).await.unwrap_or(Err(DialError::Late))
}

async fn connect(
    hub: &HubAddress,
    tls: Option<&Connector>,
) -> Result<(Channel, Verdict), DialError> {
    let found = lookup_host((hub.host(), hub.port())).await.map_err(DialError::Lookup)?;
    let found: Vec<_> = found.filter(|at| tls.is_some() || at.ip().is_loopback()).collect();
    if found.is_empty() {
        return Err(DialError::NotLoopback);
    }
    let stream = TcpStream::connect(&*found).await.map_err(DialError::Tcp)?;
    stream.set_nodelay(true).map_err(DialError::Tcp)?;
    match tls {
        None => speak(hub, "http", stream).await,
        Some(tls) => speak(hub, "https", tls.connect(hub.host(), stream).await?).await,
    }
}

async fn speak<S>(
    hub: &HubAddress,
    scheme: &str,
    stream: S,
) -> Result<(Channel, Verdict), DialError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (stream, verdict) = Judged::new(stream);
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
