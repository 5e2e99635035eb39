//! Upgraded connections: the upgrade request goes on to the runtime, then bytes go both ways. What the
//! client and the runtime agree on, SPDY or WebSocket, is not read here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use headwater_edged::runtime::StreamAddress;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::response::{Body, text, whole};
use crate::stall::{ByteCounter, WriteTime, idle_for};

/// How long the runtime's server may take to accept a connection and to answer the upgrade. It is on
/// this machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The most bytes of a refusal of the runtime that are handed on.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// A stream could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// The runtime offers an address that other machines reach, or none.
    #[error("the runtime offers streams at {0:?}, which is no address of this machine alone")]
    NotLocal(String),
    /// The runtime's server does not accept the connection.
    #[error("the runtime's server of streams cannot be reached at {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    /// It accepted, and does not answer.
    #[error("the runtime's server of streams did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Slow,
    /// It breaks off.
    #[error("the runtime's server of streams broke off: {0}")]
    Broken(#[from] hyper::Error),
}

/// Whether a client asks for another protocol.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let mut tokens = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    headers.contains_key(UPGRADE)
        && tokens.any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
}

/// Hands the request on to the address, and copies bytes once both sides are upgraded, until one side
/// ends, nothing moved for `idle`, or `stop`. `slot` is held that long.
pub(crate) async fn hand_on(
    request: Request<Incoming>,
    address: &StreamAddress,
    slot: OwnedSemaphorePermit,
    time: &WriteTime,
    idle: Duration,
    stop: CancellationToken,
) -> Result<Response<Body>, StreamError> {
    let (target, uri) = target(&address.url)?;
    let connect = timeout(ANSWER_WITHIN, TcpStream::connect(target)).await;
    let stream = connect
        .map_err(|_| StreamError::Slow)?
        .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
        .map_err(|source| StreamError::Connect { address: target, source })?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with either end.
    tokio::spawn(connection.with_upgrades());
    let mut outgoing = outgoing(&request);
    *outgoing.uri_mut() = uri;
    if let Ok(host) = target.to_string().parse() {
        outgoing.headers_mut().insert(HOST, host);
    }
    upgrade(request, outgoing, sender, slot, time, idle, stop).await
}

/// Sends the `outgoing` form of an upgrade request, and copies bytes once both sides are upgraded.
pub(crate) async fn upgrade(
    mut request: Request<Incoming>,
    outgoing: Request<Empty<Bytes>>,
    mut sender: http1::SendRequest<Empty<Bytes>>,
    slot: OwnedSemaphorePermit,
    time: &WriteTime,
    idle: Duration,
    stop: CancellationToken,
) -> Result<Response<Body>, StreamError> {
    let client = hyper::upgrade::on(&mut request);
    let answered = timeout(ANSWER_WITHIN, sender.send_request(outgoing)).await;
    let mut answer = answered.map_err(|_| StreamError::Slow)??;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(refusal(answer).await);
    }
    let runtime = hyper::upgrade::on(&mut answer);
    time.lift();
    tokio::spawn(async move {
        tokio::select! {
            () = copy(client, runtime, idle) => {}
            () = stop.cancelled() => {}
        }
        drop(slot);
    });
    let mut response = Response::new(whole(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

/// Copies bytes both ways. The end of one direction is handed on, and the other one continues.
async fn copy(client: OnUpgrade, runtime: OnUpgrade, idle: Duration) {
    let (Ok(client), Ok(runtime)) = tokio::join!(client, runtime) else {
        tracing::debug!("a connection was not upgraded after all");
        return;
    };
    let moved = Arc::new(AtomicU64::new(0));
    let mut client = TokioIo::new(client);
    let mut runtime = ByteCounter::new(TokioIo::new(runtime), moved.clone());
    tokio::select! {
        copied = copy_bidirectional(&mut client, &mut runtime) => match copied {
            Ok((to_runtime, to_client)) => {
                tracing::debug!(to_runtime, to_client, "a stream has ended");
            }
            Err(error) => tracing::debug!(%error, "a stream broke off"),
        },
        () = idle_for(&moved, idle) => tracing::info!("a stream ends: nothing moved on it"),
    }
}

/// The address of a URL, which is of this machine alone, and its path and query.
fn target(url: &str) -> Result<(SocketAddr, Uri), StreamError> {
    let not_local = || StreamError::NotLocal(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| not_local())?;
    let host = uri.host().ok_or_else(not_local)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().map_err(|_| not_local())?,
    };
    if !ip.is_loopback() || uri.scheme_str() != Some("http") {
        return Err(not_local());
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse().map_err(|_| not_local())?;
    Ok((SocketAddr::new(ip, uri.port_u16().unwrap_or(80)), path))
}

/// The request as the next server gets it: the client's own, less what is for this server.
pub(crate) fn outgoing(request: &Request<Incoming>) -> Request<Empty<Bytes>> {
    let mut outgoing = Request::new(Empty::new());
    *outgoing.method_mut() = request.method().clone();
    *outgoing.uri_mut() = request.uri().clone();
    *outgoing.headers_mut() = request.headers().clone();
    for header in [AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        outgoing.headers_mut().remove(header);
    }
    outgoing
}

/// What the runtime says instead of an upgrade.
async fn refusal(answer: Response<Incoming>) -> Response<Body> {
    let status = answer.status();
    let body =
        timeout(ANSWER_WITHIN, Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect()).await;
    let words = match body {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        _ => "the runtime refused the stream".to_owned(),
    };
    text(status, words)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_an_address_of_this_machine_is_dialled() {
        let (address, uri) = target("http://127.0.0.1:1234/exec/t?x=1").expect("local");
        assert_eq!(address.to_string(), "127.0.0.1:1234");
        assert_eq!(uri.to_string(), "/exec/t?x=1");
        assert_eq!(target("http://[::1]:1/x").expect("local").0.to_string(), "[::1]:1");
        for url in ["http://10.0.0.1:1/x", "http://0.0.0.0:1/", "https://127.0.0.1:1/", "", "/x"] {
            assert!(target(url).is_err(), "{url}");
        }
    }

    #[test]
    fn an_upgrade_is_asked_for_by_two_headers() {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        assert!(!is_upgrade(&headers));
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        assert!(is_upgrade(&headers));
    }
}
