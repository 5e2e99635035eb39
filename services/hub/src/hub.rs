//! The hub as a whole: its tasks, and the handle on them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_event::{Checkpoint, NodeName, NodeStanding, Seq, StreamId};
use headwater_identity::Acceptor;
use headwater_log::{Log, ReadError};
use headwater_owner::spawn_owner;
use headwater_proto::replication;
use headwater_proto::replication::replication_server::ReplicationServer;
use headwater_session::{HubSettings, SourceError, StreamSource};
use headwater_store::{Engine, EngineError, schema};
use headwater_view::{StreamReader, Verification};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::transport::Server;

use crate::fold::{Fold, FoldSource};
use crate::following::Following;
use crate::known::{Known, meet_identities};
use crate::limits::HubLimits;
use crate::metrics::HubMetrics;
use crate::peer::Peer;
use crate::reports::Upstream;
use crate::said;
use crate::service::{Service, converse};
use crate::shared::{Answers, Sessions, Shared, WallClock};
use crate::socket;
use crate::turns::Turns;
use crate::wakers::Wakers;

/// Rapid resets: streams that a peer reset before the hub took them up, and streams that the
/// hub reset for a peer's faults; beyond them the connection ends. h2's own defaults, said here
/// so that they stay.
const PENDING_RESETS_MAX: usize = 20;
const LOCAL_RESETS_MAX: usize = 1024;

/// How long sessions, and then the tasks of the hub, may take to end when it stops. Whatever is
/// left is dropped: edges resume from what they have.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// What a hub is told.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Its name, as position records say it.
    pub name: String,
    /// Where it listens. Without TLS on loopback only, for a hello is believed then.
    pub listen: SocketAddr,
    /// How it knows its edges, and they it.
    pub tls: Option<Acceptor>,
    /// The bounds of its sessions.
    pub settings: HubSettings,
    /// The bounds of all of them together.
    pub limits: HubLimits,
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
    /// What it counts.
    pub metrics: HubMetrics,
}

/// Why a hub does not start.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The address is not loopback, and there is no TLS.
    #[error(
        "{listen} is not loopback: without TLS a hub serves this machine alone; give it a \
         certificate"
    )]
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
        let (listen, tls) = (config.listen, config.tls.clone());
        if tls.is_none() && !listen.ip().is_loopback() {
            return Err(HubError::NotLoopback { listen });
        }
        let listening = |source| HubError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let mut hub = Self::start_unheard(config, seams).await?;
        hub.address = address;
        let (shared, stop) = (hub.shared.clone(), hub.shared.stop.clone());
        hub.tasks.push(tokio::spawn(serve(listener, tls, shared, stop)));
        Ok(hub)
    }

    /// Starts a hub that does not listen: what edges say is handed to it
    /// ([`HubHandle::converse`]), as a simulation does that is its own network.
    ///
    /// # Errors
    /// See [`HubError`].
    pub async fn start_unheard(config: HubConfig, seams: HubSeams) -> Result<HubHandle, HubError> {
        schema::HUB.check(&*seams.engine)?;
        said::wipe(&*seams.engine)?;
        let address = config.listen;
        let partitions = seams.upstream.describe().await?.partitions;

        let stop = CancellationToken::new();
        // Sessions end before the fold does that they are served from.
        let leaving = stop.child_token();
        let known = Arc::new(Known::default());
        let wakers = Arc::new(Wakers::default());
        let fold = Arc::new(Fold::new(seams.engine.clone(), known.clone()));
        // Stopped last, when the sessions have said where their nodes stand.
        let upstream_stop = CancellationToken::new();
        let (upstream, appending) =
            Upstream::start(seams.upstream.clone(), partitions, &seams.metrics, &upstream_stop);
        let metrics = seams.metrics;
        let limits = config.limits;
        let shared = Arc::new(Shared {
            name: config.name,
            settings: config.settings,
            fold: fold.clone(),
            wakers: wakers.clone(),
            known: known.clone(),
            upstream,
            answers: seams.answers,
            wall_clock: seams.wall_clock.clone(),
            metrics: metrics.clone(),
            stop: leaving,
            connections: TaskTracker::new(),
            turns: Turns::new(limits.catch_ups_max, limits.catch_up_turn),
            sessions: Sessions::new(&limits),
            limits,
        });
        metrics.scrape.look_at(&shared);
        let following = Following {
            log: seams.downstream,
            engine: seams.engine,
            clock: seams.wall_clock,
            fold: fold.clone(),
            wakers: wakers.clone(),
            metrics: metrics.fold.clone(),
        };
        let identities = meet_identities(seams.upstream, known, fold, wakers, metrics.fold);
        let tasks = vec![
            spawn_owner(stop.clone(), following.run()),
            spawn_owner(stop.clone(), identities),
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
        lag(&self.shared.fold.source(), stream, applied)
    }

    /// The nodes whose private streams the hub holds.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn nodes(&self) -> Result<Vec<NodeName>, EngineError> {
        let positions = StreamReader::new(&*self.shared.fold.snapshot()).streams()?;
        Ok(positions
            .into_iter()
            .filter_map(|position| match position.stream {
                StreamId::Node(node) => Some(node),
                StreamId::Cluster => None,
            })
            .collect())
    }

    /// Recomputes the state hash of a stream from the objects in the hub's store.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn verify(&self, stream: &StreamId) -> Result<Option<Verification>, EngineError> {
        StreamReader::new(&*self.shared.fold.snapshot()).verify(stream)
    }

    /// Where the fold lies, to be read.
    pub fn store(&self) -> Arc<dyn Engine> {
        self.shared.fold.engine().clone()
    }

    /// Whether the fold is complete and past the newest writer's `Reconciled`.
    pub fn is_reconciled(&self) -> bool {
        let facts = self.shared.fold.facts();
        facts.folded && facts.reconciled && facts.knows_identities
    }

    /// Why the log is not followed just now, if it is not.
    pub fn trouble(&self) -> Option<String> {
        self.shared.fold.facts().trouble.clone()
    }

    /// Cuts or restores the link of a node.
    pub fn set_link(&self, node: &NodeName, cut: bool) {
        self.shared.set_link(node, cut);
    }
}

/// See [`HubView::lag`].
pub(crate) fn lag(
    source: &FoldSource<'_>,
    stream: &StreamId,
    applied: Seq,
) -> Result<Lag, SourceError> {
    let tail = source.status(stream)?.checkpoint;
    let since_ms = if tail.seq > applied { source.changed_ms(stream, applied)? } else { None };
    Ok(Lag { tail, since_ms })
}

impl HubHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes up the conversation of an edge over another way than the listener: `said` is what
    /// the edge says, what comes back is for the edge.
    pub fn converse(
        &self,
        said: BoxStream<'static, Result<replication::EdgeMessage, Status>>,
    ) -> BoxStream<'static, Result<replication::HubMessage, Status>> {
        converse(&self.shared, said, Peer::default()).boxed()
    }

    /// What others see of it.
    pub fn view(&self) -> HubView {
        HubView { shared: self.shared.clone() }
    }

    /// Asks every edge to go on elsewhere, as fast as other hubs take them
    /// ([`HubLimits::handover_within`]), and then ends the hub itself. It is served until it is
    /// asked, and everything that was answered is in the log.
    pub async fn stop(self) {
        let Self { shared, stop, upstream_stop, tasks, .. } = self;
        shared.close();
        hand_over(&shared).await;
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

/// Says goodbye to one edge after the other. Who is left when the time is up is dropped with the
/// hub, and finds another one by itself.
async fn hand_over(shared: &Shared) {
    let limits = &shared.limits;
    let began = Instant::now();
    let sessions = shared.live();
    let due = (0_u32..).map(|n| limits.between_goodbyes().saturating_mul(n));
    for (n, (session, due)) in sessions.iter().zip(due).enumerate() {
        if due > limits.handover_within {
            let left = sessions.len() - n;
            tracing::warn!(left, "edges could not be told in time that the hub stops");
            return;
        }
        sleep_until(began + due).await;
        shared.say_goodbye(*session);
    }
    tracing::info!(edges = sessions.len(), "every edge is asked to go on elsewhere");
}

async fn serve(
    listener: TcpListener,
    tls: Option<Acceptor>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let limits = shared.limits.clone();
    let metrics = shared.metrics.clone();
    if let Some(tls) = &tls {
        metrics.handshakes.until(tls.not_after());
    }
    let incoming = socket::incoming(listener, &limits, tls, &metrics);
    let service = ReplicationServer::new(Service::new(shared))
        .max_decoding_message_size(limits.receive_bytes_max)
        .max_encoding_message_size(limits.send_bytes_max);
    let served = Server::builder()
        .http2_keepalive_interval(Some(limits.keepalive_interval))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout))
        .http2_max_header_list_size(limits.header_list_bytes_max)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(LOCAL_RESETS_MAX))
        .max_concurrent_streams(limits.streams_per_connection)
        // Sessions end by themselves at their age, with a word; this ends what is left.
        .max_connection_age(limits.oldest())
        .max_connection_age_grace(limits.connection_age_grace)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stop.cancelled());
    if let Err(error) = served.await {
        tracing::error!(%error, "the hub no longer listens");
    }
}

#[cfg(test)]
mod tests;
