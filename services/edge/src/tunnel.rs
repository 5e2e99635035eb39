//! Streams to the kubelet's server of the node, which the hub of the session asks for: a second connection
//! that exists while there are streams, and a while longer.
//!
//! ```text
//!   session --Dial--> TunnelTask --Tunnel.Stream--> hub
//!                         |
//!                         +--------- unix socket -> kubelet's server
//! ```
//!
//! The session has a connection of its own, so that it neither waits for the bytes of a stream nor shares
//! their windows.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::NodeName;
use headwater_identity::{Connector, PeerTrust};
use headwater_proto::replication as wire;
use headwater_proto::replication::tunnel_client::TunnelClient;
use headwater_session::message::Dial;
use headwater_tunnel::{End, FRAMES_MAX, RateLimiter, STREAMS_MAX, frame, relay};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::connection::transport::{DialError, HubRoute, redial};

/// How long the connection stays without streams: a person who types the next command does not wait for a
/// handshake.
pub const IDLE: Duration = Duration::from_secs(60);

/// Dials that wait while the edge connects. A hub bounds those of a node, too.
pub(crate) const DIALS_MAX: usize = 2 * STREAMS_MAX;

/// How long the node's own server may take to accept a connection.
const LOCAL_WITHIN: Duration = Duration::from_secs(2);

/// The bounds of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelSettings {
    /// Streams at a time; the next one is refused.
    pub streams_max: usize,
    /// See [`IDLE`].
    pub idle: Duration,
    /// The bytes a second that all streams together carry, each way; `None`: as many as there is room for.
    pub bytes_per_second: Option<NonZeroU64>,
}

/// What the session sends to the task.
#[derive(Debug)]
pub(crate) enum TunnelCommand {
    /// Open a stream at the hub of the session.
    Open { route: HubRoute, dial: Dial },
    /// Close everything: the link is cut.
    Close,
}

/// The task of the streams; see the module.
pub(crate) struct TunnelTask {
    pub(crate) node: NodeName,
    /// The socket of the kubelet's server.
    pub(crate) socket: PathBuf,
    pub(crate) tls: Option<Connector>,
    pub(crate) settings: TunnelSettings,
    pub(crate) commands: mpsc::Receiver<TunnelCommand>,
}

/// The second connection.
struct Connection {
    route: HubRoute,
    channel: Channel,
    trust: Option<PeerTrust>,
}

/// The streams and their connection.
struct Tunnel {
    task: Arc<StreamDependencies>,
    tls: Option<Connector>,
    settings: TunnelSettings,
    connection: Option<Connection>,
    streams: JoinSet<()>,
    /// When the connection closes, if no stream opens before.
    idle_at: Option<Instant>,
}

/// What each stream needs.
struct StreamDependencies {
    node: NodeName,
    socket: PathBuf,
    rate: Option<RateLimiter>,
}

impl Default for TunnelSettings {
    fn default() -> Self {
        Self { streams_max: STREAMS_MAX, idle: IDLE, bytes_per_second: None }
    }
}

impl TunnelTask {
    /// Opens streams until `stop`, or until the session has ended.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { node, socket, tls, settings, mut commands } = self;
        let rate = settings.bytes_per_second.map(RateLimiter::new);
        let mut tunnel = Tunnel {
            task: Arc::new(StreamDependencies { node, socket, rate }),
            tls,
            settings,
            connection: None,
            streams: JoinSet::new(),
            idle_at: None,
        };
        loop {
            let idle_at = tunnel.idle_at;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                command = commands.recv() => match command {
                    Some(TunnelCommand::Open { route, dial }) => tunnel.open(&route, dial).await,
                    Some(TunnelCommand::Close) => tunnel.close(),
                    None => return,
                },
                Some(_) = tunnel.streams.join_next() => tunnel.look_idle(),
                () = lost(tunnel.connection.as_mut()) => {
                    tracing::warn!("the streams of the node end: the hub's certificate is not trusted now");
                    tunnel.close();
                }
                () = sleep_until(idle_at.unwrap_or_else(Instant::now)), if idle_at.is_some() => {
                    tracing::debug!("the connection of streams closes: there are none");
                    tunnel.close();
                }
            }
        }
    }
}

impl Tunnel {
    /// Opens a stream, or refuses it at the hub.
    async fn open(&mut self, route: &HubRoute, dial: Dial) {
        let within = Duration::from_millis(dial.within_ms);
        let deadline = Instant::now() + within.min(IDLE);
        // Those that have ended make room.
        while self.streams.try_join_next().is_some() {}
        let (count, max) = (self.streams.len(), self.settings.streams_max);
        let refusal = (count >= max).then(|| wire::TunnelRefusal {
            reason: format!("it has {count} streams through the cloud open, which is its limit"),
            is_busy: true,
        });
        let called = tokio::time::timeout_at(deadline, self.call(route, dial, refusal)).await;
        match called {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(hub = %route.address, error, "no stream opens"),
            Err(_) => tracing::warn!(hub = %route.address, "no stream opens in time"),
        }
        self.look_idle();
    }

    /// Calls the hub of the session, and serves the stream in a task. A connection that the hub has closed
    /// meanwhile is made once more.
    async fn call(
        &mut self,
        route: &HubRoute,
        dial: Dial,
        refusal: Option<wire::TunnelRefusal>,
    ) -> Result<(), String> {
        let task = self.task.clone();
        // A node without a server says so at once.
        let (local, refusal) = match refusal {
            Some(refusal) => (None, Some(refusal)),
            None => match task.local().await {
                Ok(stream) => (Some(stream), None),
                Err(reason) => (None, Some(wire::TunnelRefusal { reason, is_busy: false })),
            },
        };
        let first = frame::open(dial.id.0, task.node.as_str(), refusal);
        let mut is_new = false;
        let (outgoing, incoming) = loop {
            let channel = match self.connection.as_ref().filter(|one| one.route == *route) {
                Some(connection) => connection.channel.clone(),
                None => {
                    is_new = true;
                    self.connect(route).await.map_err(|error| error.to_string())?
                }
            };
            let (outgoing, frames) = mpsc::channel(FRAMES_MAX);
            // There is room for the first.
            let _ = outgoing.try_send(first.clone());
            match open_call(channel, frames).await {
                Ok(response) => break (outgoing, response.into_inner()),
                Err(status) if is_new || !is_of_transport(&status) => {
                    return Err(status.message().to_owned());
                }
                Err(_) => self.connection = None,
            }
        };
        let Some(local) = local else { return Ok(()) };
        self.idle_at = None;
        self.streams.spawn(async move {
            let rate = task.rate.as_ref();
            if let Err(error) = relay(End::Edge, local, outgoing, incoming, rate).await {
                tracing::debug!(%error, "a stream broke off");
            }
        });
        Ok(())
    }

    async fn connect(&mut self, route: &HubRoute) -> Result<Channel, DialError> {
        let made = redial(route, self.tls.as_ref()).await?;
        let channel = made.channel.clone();
        let connection =
            Connection { route: route.clone(), channel: made.channel, trust: made.trust };
        self.connection = Some(connection);
        Ok(channel)
    }

    /// Sets when the connection closes.
    fn look_idle(&mut self) {
        let is_idle = self.connection.is_some() && self.streams.is_empty();
        self.idle_at = is_idle.then(|| self.idle_at.unwrap_or(Instant::now() + self.settings.idle));
    }

    fn close(&mut self) {
        self.streams.abort_all();
        self.connection = None;
        self.idle_at = None;
    }
}

impl StreamDependencies {
    /// Connects to the node's own server.
    async fn local(&self) -> Result<UnixStream, String> {
        match timeout(LOCAL_WITHIN, UnixStream::connect(&self.socket)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => {
                Err(format!("its pod worker serves no {}: {error}", self.socket.display()))
            }
            Err(_) => Err("its pod worker accepts no connection".to_owned()),
        }
    }
}

async fn open_call(
    channel: Channel,
    frames: mpsc::Receiver<wire::TunnelFrame>,
) -> Result<Response<Streaming<wire::TunnelFrame>>, Status> {
    TunnelClient::new(channel).stream(ReceiverStream::new(frames)).await
}

/// Whether a call failed because its connection did, and not by the hub's word.
fn is_of_transport(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// Waits until the hub of the connection is not trusted any more; without one, for ever.
async fn lost(connection: Option<&mut Connection>) {
    match connection.and_then(|connection| connection.trust.as_mut()) {
        Some(trust) => drop(trust.lost().await),
        None => std::future::pending().await,
    }
}
