//! A connection of a hub to a controller: with TLS, or on loopback.

use std::io;
use std::time::Duration;

use headwater_identity::{ConnectError, Connector, PeerTrust};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// How long a connection may take, with the DNS lookup: both ends are in one cloud.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After this much silence the transport pings the controller, which sends nothing by itself.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long the controller may take to answer a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of response headers; a controller sends a few hundred.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// Why there is no connection to a controller.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The address has no host and port.
    #[error("its address is not HOST:PORT")]
    Address,
    /// The name has no address.
    #[error("its name cannot be looked up")]
    Lookup(#[source] io::Error),
    /// The name resolves to other machines, and the hub has no TLS.
    #[error("without TLS a hub connects to loopback only, and its name is no loopback address")]
    NotLoopback,
    /// TCP failed.
    #[error("it does not respond")]
    Tcp(#[source] io::Error),
    /// The connection takes too long.
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Late,
    /// TLS failed: it is not the controller, or one of the certificates is invalid.
    #[error("TLS with it failed")]
    Tls(#[from] ConnectError),
    /// The certificate is not a controller's.
    #[error(
        "it shows no certificate of a controller: issue one with `headwater ca issue controller`"
    )]
    NoController,
    /// The peer does not use HTTP/2.
    #[error("it does not use HTTP/2")]
    Http2(#[from] tonic::transport::Error),
}

/// Connects to a controller at `address`, HOST:PORT; without TLS on loopback only. Returns also the
/// trust in its certificate.
pub(crate) async fn dial(
    address: &str,
    tls: Option<&Connector>,
) -> Result<(Channel, Option<PeerTrust>), DialError> {
    let connected = timeout(CONNECT_TIMEOUT, async {
        let (host, port) = split(address).ok_or(DialError::Address)?;
        let stream = reach(host, port, tls.is_some()).await?;
        match tls {
            None => Ok((http2(address, "http", stream).await?, None)),
            Some(tls) => {
                let (stream, server) = tls.connect_to(host, stream).await?;
                if !server.certificate.is_some_and(|certificate| certificate.is_of_controller()) {
                    return Err(DialError::NoController);
                }
                Ok((http2(address, "https", stream).await?, Some(server.trust)))
            }
        }
    });
    connected.await.unwrap_or(Err(DialError::Late))
}

/// Splits HOST:PORT; the host of an IPv6 address loses its brackets.
fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host, port.parse().ok()?)).filter(|_| !host.is_empty())
}

async fn reach(host: &str, port: u16, may_leave: bool) -> Result<TcpStream, DialError> {
    let found = lookup_host((host, port)).await.map_err(DialError::Lookup)?;
    let found: Vec<_> = found.filter(|at| may_leave || at.ip().is_loopback()).collect();
    if found.is_empty() {
        return Err(DialError::NotLoopback);
    }
    let stream = TcpStream::connect(&*found).await.map_err(DialError::Tcp)?;
    stream.set_nodelay(true).map_err(DialError::Tcp)?;
    Ok(stream)
}

async fn http2<S>(address: &str, scheme: &str, stream: S) -> Result<Channel, DialError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Some(TokioIo::new(stream));
    // The channel must not reconnect by itself: the next writer may be another.
    let once = service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async { stream }
    });
    // The stream already has its TLS, so tonic gets `http`. The requests carry the true scheme.
    let origin = Endpoint::from_shared(format!("{scheme}://{address}"))?.uri().clone();
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .origin(origin)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .http2_max_header_list_size(HEADERS_BYTES_MAX);
    Ok(endpoint.connect_with_connector(once).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_tls_a_hub_connects_to_loopback_only() {
        for address in ["192.0.2.1:7301", "[2001:db8::1]:7301"] {
            let outcome = dial(address, None).await;
            assert!(matches!(outcome, Err(DialError::NotLoopback)), "{address}: {outcome:?}");
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (address, found) in [
            ("controller-0:7301", Some(("controller-0", 7301))),
            ("[::1]:7301", Some(("::1", 7301))),
            ("127.0.0.1:1", Some(("127.0.0.1", 1))),
            (":7301", None),
            ("controller", None),
            ("controller:", None),
            ("controller:70000", None),
        ] {
            assert_eq!(split(address), found, "{address}");
        }
    }
}
