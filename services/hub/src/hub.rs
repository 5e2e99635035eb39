//! The hub as a whole: its tasks, and the handle on them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::{Checkpoint, NodeName, NodeStanding, Seq, StreamId};
use headwater_log::{Log, ReadError};
use headwater_proto::replication::replication_server::ReplicationServer;
use headwater_session::{HubSettings, Source, SourceError};
use headwater_store::{Engine, EngineError, schema};
use headwater_view::{StreamReader, Verification};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Server;

use crate::fold::Fold;
use crate::following::Following;
use crate::known::{Known, meet_identities};
use crate::reports::Upstream;
use crate::service::Service;
use crate::shared::{Answers, Parts, Shared, WallClock};
use crate::wakers::Wakers;

/// The largest message an edge may send: a full frame of reports with one object of the largest
/// size (1.5 MiB) and room for framing.
const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// The largest message sent to an edge: a frame of the session's own bound, or one object of the
/// largest size, with room for framing.
const SEND_BYTES_MAX: usize = 4 << 20;

/// Streams of one connection: a session, and room for one that replaces it.
const STREAMS_PER_CONNECTION: u32 = 4;

/// HTTP/2 pings on a silent connection, and how long an answer may take (half-open links are
/// noticed within 30 s).
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest header list that is read (CONTINUATION floods).
const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;

/// How long a connection may take to say hello (slowloris).
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// How long sessions, and then the tasks of the hub, may take to end when it stops. Whatever is
/// left is dropped: edges resume from what they have.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// What a hub is told.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Its name, as position records say it.
    pub name: String,
    /// Where it listens. Loopback only: without TLS a hello is believed.
    pub listen: SocketAddr,
    /// The bounds of its sessions.
    pub settings: HubSettings,
}

/// What a hub is given.
pub struct HubSeams {
    /// The log that it folds and serves.
    pub downstream: Arc<dyn Log>,
    /// The log that it appends reports to.
    pub upstream: Arc<dyn Log>,
    /// Where its fold lies; a cache.
    pub engine: Arc<dyn Engine>,
    /// Who answers what nodes ask of the cloud.
    pub answers: Arc<dyn Answers>,
    /// Milliseconds since the Unix epoch.
    pub wall_clock: WallClock,
}

/// Why a hub does not start.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The address is not loopback.
    #[error("{listen} is not loopback: without TLS a hub serves this machine alone")]
    NotLoopback {
        /// The address.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("the hub cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Its store cannot be used.
    #[error("the hub's store cannot be used")]
    Engine(#[from] EngineError),
    /// The upstream log cannot be used.
    #[error("the upstream log cannot be used")]
    Upstream(#[from] ReadError),
}

/// A running hub.
pub struct HubHandle {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// A handle that is dropped stops the hub too, but waits for nothing.
    stop: DropGuard,
    upstream_stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// Starts hubs.
#[derive(Debug)]
pub struct Hub;

impl Hub {
    /// Starts a hub; when this returns it listens, and serves each stream once its fold is
    /// complete.
    ///
    /// # Errors
    /// See [`HubError`].
    pub async fn start(config: HubConfig, seams: HubSeams) -> Result<HubHandle, HubError> {
        Self::start_with(config, seams, HELLO_WITHIN).await
    }

    async fn start_with(
        config: HubConfig,
        seams: HubSeams,
        hello_within: Duration,
    ) -> Result<HubHandle, HubError> {
        let listen = config.listen;
        if !listen.ip().is_loopback() {
            return Err(HubError::NotLoopback { listen });
        }
        schema::HUB.check(&*seams.engine)?;
        let listening = |source| HubError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let partitions = seams.upstream.describe().await?.partitions;

        let stop = CancellationToken::new();
        let known = Arc::new(Known::default());
        let wakers = Arc::new(Wakers::default());
        let fold = Arc::new(Fold::new(seams.engine.clone(), known.clone()));
        // Stopped last, when the sessions have said where their nodes stand.
        let upstream_stop = CancellationToken::new();
        let (upstream, appending) =
            Upstream::start(seams.upstream.clone(), partitions, upstream_stop.clone());
        let shared = Arc::new(Shared::new(Parts {
            name: config.name,
            settings: config.settings,
            fold: fold.clone(),
            wakers: wakers.clone(),
            known: known.clone(),
            upstream,
            answers: seams.answers,
            wall_clock: seams.wall_clock.clone(),
            stop: stop.clone(),
        }));
        let following = Following {
            log: seams.downstream,
            engine: seams.engine,
            clock: seams.wall_clock,
            fold: fold.clone(),
            wakers: wakers.clone(),
        };
        let tasks = vec![
            on_its_own_thread(until(stop.clone(), following.run())),
            tokio::spawn(until(stop.clone(), meet_identities(seams.upstream, known, fold, wakers))),
            tokio::spawn(serve(listener, Service::new(shared.clone(), hello_within), stop.clone())),
            appending,
        ];
        Ok(HubHandle { address, shared, stop: stop.drop_guard(), upstream_stop, tasks })
    }
}

/// What others see of a hub while it runs. Cheap to clone.
#[derive(Clone)]
pub struct HubView {
    shared: Arc<Shared>,
}

/// How far a replica is behind in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The end of the stream in the hub's fold.
    pub tail: Checkpoint,
    /// When the first event that the replica lacks was appended, as far as the hub still knows,
    /// milliseconds since the Unix epoch; `None` when it lacks none.
    pub since_ms: Option<i64>,
}

impl HubView {
    /// Where each node stands that has been connected to this hub.
    pub fn standings(&self) -> BTreeMap<NodeName, NodeStanding> {
        self.shared.standings()
    }

    /// The streams of a node.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn streams(&self, node: &NodeName) -> Result<BTreeSet<StreamId>, SourceError> {
        self.shared.fold.source().streams(node)
    }

    /// How far a replica that has applied `applied` is behind in `stream`.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn lag(&self, stream: &StreamId, applied: Seq) -> Result<Lag, SourceError> {
        let source = self.shared.fold.source();
        let standing = source.standing(stream)?;
        let tail = standing.checkpoint;
        let since_ms = if tail.seq > applied {
            let from = applied.max(standing.raw_from);
            let first = source.events(stream, from, from.next(), 1)?;
            first.first().map(|envelope| envelope.time_ms)
        } else {
            None
        };
        Ok(Lag { tail, since_ms })
    }

    /// Recomputes the state hash of a stream from the objects in the hub's store.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn verify(&self, stream: &StreamId) -> Result<Option<Verification>, EngineError> {
        StreamReader::new(&*self.shared.fold.snapshot()).verify(stream)
    }

    /// Whether the fold is complete and past the newest writer's `Reconciled`.
    pub fn is_reconciled(&self) -> bool {
        let facts = self.shared.fold.facts();
        facts.folded && facts.reconciled && facts.knows_identities
    }

    /// Cuts or restores the link of a node.
    pub fn set_link(&self, node: &NodeName, cut: bool) {
        self.shared.set_link(node, cut);
    }
}

impl HubHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What others see of it.
    pub fn view(&self) -> HubView {
        HubView { shared: self.shared.clone() }
    }

    /// Ends every session, so that edges connect elsewhere or again, and then the hub itself.
    /// Everything that was answered is in the log. Takes a few seconds at most.
    pub async fn stop(self) {
        let Self { shared, stop, upstream_stop, tasks, .. } = self;
        shared.close();
        drop(stop);
        if timeout(STOP_WITHIN, shared.connections.wait()).await.is_err() {
            tracing::warn!("sessions that do not end are dropped");
        }
        upstream_stop.cancel();
        for mut task in tasks {
            match timeout(STOP_WITHIN, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a task of the hub ended by itself"),
                // A peer that does not read keeps its connection: the pings end that.
                Err(_) => task.abort(),
            }
        }
    }
}

async fn serve(listener: TcpListener, service: Service, stop: CancellationToken) {
    let service = ReplicationServer::new(service)
        .max_decoding_message_size(RECEIVE_BYTES_MAX)
        .max_encoding_message_size(SEND_BYTES_MAX);
    let served = Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.cancelled());
    if let Err(error) = served.await {
        tracing::error!(%error, "the hub no longer listens");
    }
}

/// Runs `task` where it may block: a long fold reads and writes the store without a pause, and
/// must not keep sessions from running.
fn on_its_own_thread(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(task))
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = task => {}
    }
}

#[cfg(test)]
mod tests;
