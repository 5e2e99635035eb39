//! Metrics and health over HTTP, at one address: `/metrics`, `/livez`, `/readyz`, `/healthz`.
//!
//! The endpoint has no authentication: responses hold no secrets, beyond loopback no names of nodes
//! unless a setting permits it, and connections, requests and scrapes are bounded.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus::{Registry, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::health::{CheckKind, Health, HealthQuery};
use super::node_names::NodeNames;

/// The most connections at a time: a few scrapers and probes. The next one waits.
const CONNECTIONS_MAX: usize = 32;

/// The most bytes of a request's head: a scraper's is a few hundred.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// How long a request's head may take, and how long a connection may idle between two: longer
/// than a usual scrape interval, so that connections are kept.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);

/// How long a connection lives before the server closes it between two requests, so that no client
/// holds one of the few connections for good.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(600);

/// How long a client may take to read its response once the connection is to close.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// The most scrapes at a time: each reads the statistics of every database.
const SCRAPES_MAX: usize = 2;

/// How long to wait after a connection could not be accepted: the process has too many files open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The media type of the text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be served at {address}: name another address with --metrics, or `off`")]
pub struct ListenError {
    /// The configured address.
    address: SocketAddr,
    /// The reason.
    source: io::Error,
}

#[derive(Clone)]
struct ServerState {
    registry: Registry,
    node_names: NodeNames,
    health: Health,
    scrapes: Arc<Semaphore>,
}

/// Listens at `address`; port 0 is any free one.
///
/// # Errors
/// See [`ListenError`].
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, source })
}

/// Serves until stopped.
pub async fn serve(
    listener: TcpListener,
    registry: Registry,
    node_names: NodeNames,
    health: Health,
    stop: CancellationToken,
) {
    let scrapes = Arc::new(Semaphore::new(SCRAPES_MAX));
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        // Deprecated in Kubernetes; many liveness probes still request it.
        .route("/healthz", get(livez))
        .with_state(ServerState { registry, node_names, health, scrapes });
    let (slots, connections) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), TaskTracker::new());
    loop {
        let accepted = async {
            let slot = slots.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    serve_connection(stream, router, stop).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

/// Serves one connection until the client closes it, its time is over, or the server stops.
async fn serve_connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        // A client that disconnects or sends malformed requests is not an error.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
        () = tokio::time::sleep(CONNECTION_TIME_MAX) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, connection).await;
}

async fn metrics(State(state): State<ServerState>) -> Response {
    let Ok(_permit) = state.scrapes.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let (registry, node_names) = (state.registry.clone(), state.node_names);
    // Collectors read databases and directories: blocking.
    let text = tokio::task::spawn_blocking(move || {
        let mut families = registry.gather();
        node_names.apply(&mut families);
        TextEncoder::new().encode_to_string(&families)
    });
    match text.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Response {
    tracing::error!(error, "metrics could not be gathered");
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}

async fn livez(State(state): State<ServerState>, RawQuery(query): RawQuery) -> Response {
    health(&state, CheckKind::Live, query)
}

async fn readyz(State(state): State<ServerState>, RawQuery(query): RawQuery) -> Response {
    health(&state, CheckKind::Ready, query)
}

fn health(state: &ServerState, kind: CheckKind, query: Option<String>) -> Response {
    let query = HealthQuery::parse(&query.unwrap_or_default());
    let report = state.health.report(kind, &query);
    let status = if report.passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, report.text).into_response()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use prometheus::IntCounter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(10);

    struct TestServer {
        address: SocketAddr,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    async fn serving() -> TestServer {
        let registry = Registry::new();
        let counter = IntCounter::new("headwater_test_total", "A counter.").expect("a name");
        registry.register(Box::new(counter)).expect("registers");
        let mut health = Health::default();
        health.check(CheckKind::Ready, "log", || Err("it is read".to_owned()));
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await.expect("listens");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, registry, NodeNames::Served, health, stop.clone()));
        TestServer { address, stop, task }
    }

    async fn send(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        // The server may close the connection before it has read the whole request.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(WAIT_MAX, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("an answer in time");
        String::from_utf8(answer).expect("text")
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        send(address, &head).await
    }

    #[tokio::test]
    async fn metrics_and_health_are_served() {
        let TestServer { address, stop, task } = serving().await;
        let metrics = get(address, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
        assert!(metrics.contains(CONTENT_TYPE), "{metrics}");
        assert!(metrics.contains("# TYPE headwater_test_total counter\nheadwater_test_total 0\n"));
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let unready = get(address, "/readyz").await;
        assert!(unready.starts_with("HTTP/1.1 500"), "{unready}");
        assert!(unready.contains("[-]log failed: it is read\n"), "{unready}");
        assert!(get(address, "/readyz?exclude=log").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/").await.starts_with("HTTP/1.1 404"));
        stop.cancel();
        tokio::time::timeout(WAIT_MAX, task).await.expect("it ends").expect("well");
    }

    #[tokio::test]
    async fn a_malformed_request_is_refused_and_the_next_is_served() {
        let TestServer { address, .. } = serving().await;
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
        let refused = send(address, &long).await;
        assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 4"), "{refused}");
        let nonsense = send(address, "\u{1}\u{2}\r\n\r\n").await;
        assert!(nonsense.is_empty() || nonsense.starts_with("HTTP/1.1 400"), "{nonsense}");
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn connections_are_bounded_and_a_closed_one_frees_its_slot() {
        let TestServer { address, .. } = serving().await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.expect("connects"));
        }
        let waiting = tokio::spawn(async move { get(address, "/livez").await });
        assert!(!waiting.is_finished());
        drop(idle);
        let answer = tokio::time::timeout(WAIT_MAX, waiting).await.expect("in time");
        assert!(answer.expect("answered").starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let TestServer { address, .. } = serving().await;
        let error = listen(address).await.expect_err("in use");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
