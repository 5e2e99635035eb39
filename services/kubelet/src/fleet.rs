//! The server of many nodes on one port, for API servers that reach none of them: a hub offers it.
//!
//! ```text
//!   API server --TLS, certificate--> access --> route --> which node? --> its own server, by a stream
//! ```
//!
//! A path with a pod names its node, because the hub knows which node has the pod. Every other path goes by
//! the server name of TLS, or the host of the request: `NODE.edges.example.org`. The request goes on as it
//! came, less what is for this server, and so does the answer; of an upgraded connection the bytes are
//! copied.

mod names;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONNECTION, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::handler::{Answer, Client, KubeletLimits, Refusal, bad};
use crate::response::text;
use crate::route::{ContainerPath, Route};
use crate::server::{Door, Server, serve};
use crate::stall::WriteTime;
use crate::streams::{self, is_upgrade};
use names::node_names;

/// How long a node may take to answer: its own bound for its pod worker, and a slow link.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What the server knows of its nodes.
pub trait Fleet: Send + Sync + 'static {
    /// The node that has a pod; `None`: no node has. `uid`: that very pod.
    fn node_of_pod<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Unreachable>>;

    /// Whether there is a node of this name.
    fn has_node<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<bool, Unreachable>>;

    /// Connects to the server of a node.
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<DuplexStream, Unreachable>>;
}

/// A node's server cannot be reached now: 503, or 429 if a bound is reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unreachable {
    /// The reason, for people.
    pub reason: String,
    /// Whether a bound is reached, so that the client may come again soon.
    pub is_busy: bool,
}

/// The server of many nodes. Cheap to clone.
#[derive(Clone)]
pub struct FleetServer(Arc<FleetState>);

struct FleetState {
    fleet: Box<dyn Fleet>,
    limits: KubeletLimits,
    requests: Arc<Semaphore>,
}

impl fmt::Debug for FleetServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetServer").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

/// The bounds of a server of many nodes: some thousand edges, of which people look at a few, and a scraper
/// at all in turn.
pub const FLEET_LIMITS: KubeletLimits = KubeletLimits {
    connections: 2_048,
    streams: 1_024,
    logs: 1_024,
    head_within: Duration::from_secs(75),
    write_within: Duration::from_secs(60),
    stream_idle: Duration::from_hours(4),
};

impl FleetServer {
    /// The server of these nodes; `streams` of the limits bounds the requests in flight.
    pub fn new(fleet: impl Fleet, limits: KubeletLimits) -> Self {
        let requests = Arc::new(Semaphore::new(limits.streams));
        Self(Arc::new(FleetState { fleet: Box::new(fleet), limits, requests }))
    }

    /// Serves the clients of one door until `stop`. Streams end with it.
    pub async fn serve(self, door: Door, stop: CancellationToken) {
        serve(self, door, stop).await;
    }

    /// Hands a request on to its node.
    async fn hand_on(
        &self,
        request: Request<Incoming>,
        client: &Client,
        time: &WriteTime,
        stop: CancellationToken,
    ) -> Answer {
        let route = Route::parse(request.method(), request.uri().path());
        client.check(request.headers(), &route)?;
        let route = route?;
        if matches!(route, Route::Health(_)) {
            return Ok(text(StatusCode::OK, "ok"));
        }
        let is_stream = matches!(route, Route::Exec(_) | Route::Attach(_) | Route::PortForward(_));
        if is_stream && !is_upgrade(request.headers()) {
            return Err(bad("Upgrade request required"));
        }
        let slot = self.0.requests.clone().try_acquire_owned().map_err(|_| {
            let max = self.0.limits.streams;
            Refusal::Busy(format!("{max} requests are in flight here, which is the limit"))
        })?;
        let node = self.node(&route, &request, client).await?;
        let stream = self.0.fleet.connect(&node).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // It ends with either end.
        tokio::spawn(connection.with_upgrades());
        if is_stream {
            let idle = self.0.limits.stream_idle;
            let outgoing = for_node(&request);
            return streams::upgrade(request, outgoing, sender, slot, time, idle, stop)
                .await
                .map_err(broken);
        }
        if matches!(route, Route::ContainerLogs(_)) {
            // A person may stop a pager.
            time.set(self.0.limits.stream_idle);
        }
        answer(request, sender, slot).await
    }

    /// The node that a request names.
    async fn node(
        &self,
        route: &Route,
        request: &Request<Incoming>,
        client: &Client,
    ) -> Result<String, Refusal> {
        let fleet = &self.0.fleet;
        if let Some(ContainerPath { namespace, pod, uid, .. }) = route.pod() {
            let found = fleet.node_of_pod(namespace, pod, uid.as_deref()).await?;
            return found.ok_or_else(|| {
                let words = format!("pod {pod:?} does not exist on a node of this hub");
                Refusal::Status(StatusCode::NOT_FOUND, words)
            });
        }
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        for name in client.server_name().into_iter().chain(host) {
            for node in node_names(name) {
                if fleet.has_node(node).await? {
                    return Ok(node.to_owned());
                }
            }
        }
        let words = "this server is that of many nodes: name one as the first label of the server's \
                     name, such as NODE.edges.example.org";
        Err(Refusal::Status(StatusCode::NOT_FOUND, words.to_owned()))
    }
}

impl Server for FleetServer {
    fn limits(&self) -> &KubeletLimits {
        &self.0.limits
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        client: Client,
        time: WriteTime,
        stop: CancellationToken,
    ) -> Answer {
        self.hand_on(request, &client, &time, stop).await
    }
}

impl From<Unreachable> for Refusal {
    fn from(unreachable: Unreachable) -> Self {
        let Unreachable { reason, is_busy } = unreachable;
        if is_busy {
            Self::Busy(reason)
        } else {
            Self::Status(StatusCode::SERVICE_UNAVAILABLE, reason)
        }
    }
}

/// Sends a request without a body to the node, and hands its answer on as it comes. `slot` is held that
/// long.
async fn answer(
    request: Request<Incoming>,
    mut sender: http1::SendRequest<Empty<Bytes>>,
    slot: OwnedSemaphorePermit,
) -> Answer {
    let mut outgoing = for_node(&request);
    // A stream carries one request.
    outgoing.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let answered = timeout(ANSWER_WITHIN, sender.send_request(outgoing)).await;
    let answered = answered.map_err(|_| {
        let words = format!("the node did not answer within {} s", ANSWER_WITHIN.as_secs());
        Refusal::Status(StatusCode::GATEWAY_TIMEOUT, words)
    })?;
    let (mut head, body) = answered.map_err(broken)?.into_parts();
    for hop in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        head.headers.remove(hop);
    }
    let body = body.map_err(io::Error::other).map_frame(move |frame| {
        let _held = &slot;
        frame
    });
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// The request as the node gets it. Its own server refuses the pages of browsers, which come without a
/// certificate and name their origin or another host; this client has shown a certificate.
fn for_node(request: &Request<Incoming>) -> Request<Empty<Bytes>> {
    let mut outgoing = streams::outgoing(request);
    outgoing.headers_mut().remove(ORIGIN);
    outgoing.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    outgoing
}

fn broken(error: impl fmt::Display) -> Refusal {
    Refusal::Status(StatusCode::BAD_GATEWAY, format!("the stream to the node broke: {error}"))
}
