//! One edge node in this process: its databases, its edge, its pod worker unless that is another
//! process, and the task that restarts the edge.

pub(crate) mod cuts;
pub(crate) mod pod_server;
mod reserve;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use headwater_edge::upstream::POD_END_WAIT;
use headwater_edge::{
    Database, Edge, EdgeConfig, EdgeCounts, EdgeDependencies, EdgeExit, EdgeMetrics, HubAddress,
    LocalUser, StartError,
};
use headwater_edged::{Edged, EdgedConfig, EdgedError, EdgedMetrics, Handle};
use headwater_event::NodeName;
use headwater_identity::Connector;
use headwater_operator::{EdgeFailure, EdgeState, NodeView, RunningEdge};
use headwater_rocks::{DatabaseMemory, Role, create_durably};
use headwater_store::schema;
use headwater_telemetry::health::{CheckKind, Health};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::{self, EdgeClock};
use crate::data_dir::{DataDir, DataDirError};
use crate::database;
use crate::metrics::Metrics;
use crate::node::pod_server::{PodDoors, PodServer, PodServerError};
use crate::node::reserve::{DiskReserve, NO_RESERVE, RESERVE_INTERVAL};
use crate::pod_runtime::{PodRuntime, PodRuntimeError};
use crate::settings::kubelet::Listen;
use crate::settings::pods::PodBounds;
use crate::settings::streams::Streams;
use crate::stores::Stores;

/// The first and the last wait before a restart of the edge; each wait doubles.
const RESTART_FIRST: Duration = Duration::from_millis(200);
const RESTART_LAST: Duration = Duration::from_secs(15);

/// The settings of a node.
pub(crate) struct NodeSettings {
    /// The addresses of hubs.
    pub(crate) hubs: Vec<HubAddress>,
    /// The certificates for hubs; `None`: no TLS, on loopback.
    pub(crate) tls: Option<Connector>,
    /// The interval of the pod status snapshots besides those on change.
    pub(crate) sync_interval: Duration,
    /// The runtime of its pods; `None`: the pod worker is another process.
    pub(crate) runtime: Option<PodRuntime>,
    /// The bounds of its pods.
    pub(crate) pod_bounds: PodBounds,
    /// The door for API servers.
    pub(crate) kubelet: Listen,
    /// The streams of API servers through a hub.
    pub(crate) streams: Streams,
    /// Whether to reserve room for its databases on the disk.
    pub(crate) has_reserve: bool,
    /// The user that the local API serves besides the edge's own and root.
    pub(crate) local_user: Option<LocalUser>,
    /// The socket of the local API; `None`: in the node's directory.
    pub(crate) local_socket: Option<PathBuf>,
}

/// The configuration of each start of the edge.
#[derive(Clone)]
struct NodeConfig {
    edge: EdgeConfig,
    dir: PathBuf,
    metrics: EdgeCounts,
    stores: Stores,
    reserve: Option<DiskReserve>,
}

/// The metrics of the nodes of this process, each under its name.
pub(crate) struct NodeMetrics {
    edge: EdgeMetrics,
    edged: EdgedMetrics,
    stores: Stores,
}

impl NodeMetrics {
    /// # Errors
    /// When a name is registered twice: a defect.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            edge: EdgeMetrics::new(&metrics.registry)?,
            edged: EdgedMetrics::new(&metrics.registry)?,
            stores: metrics.stores.clone(),
        })
    }
}

/// A node of this process.
pub(crate) struct Node {
    name: NodeName,
    view: NodeView,
    edged: Option<Handle>,
    pod_server: Option<PodServer>,
    stop: CancellationToken,
    supervising: JoinHandle<()>,
}

/// The reason why a node does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Dir(#[from] DataDirError),
    /// Its directory cannot be created.
    #[error("the directory {} cannot be created", dir.display())]
    Make {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The pods have no runtime.
    #[error(transparent)]
    Runtime(#[from] PodRuntimeError),
    /// The kubelet's server does not listen.
    #[error(transparent)]
    PodServer(#[from] PodServerError),
    /// The pod worker does not start.
    #[error("the pod worker of node {node} does not start")]
    Edged {
        /// The node.
        node: NodeName,
        /// The cause.
        source: EdgedError,
    },
}

impl Node {
    /// Starts a node's edge and pod worker. The supervisor restarts the edge whenever it ends.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub(crate) async fn start(
        name: &NodeName,
        settings: NodeSettings,
        data: &DataDir,
        memory: &DatabaseMemory,
        metrics: &NodeMetrics,
    ) -> Result<Self, NodeError> {
        let dir = data.node(name);
        let socket = match settings.local_socket {
            Some(socket) => socket,
            None => data.edge_socket(name)?,
        };
        create_durably(&dir).map_err(|source| NodeError::Make { dir: dir.clone(), source })?;
        let mut edge = EdgeConfig::new(name.clone(), settings.hubs, socket.clone());
        edge.tls = settings.tls;
        edge.local_user = settings.local_user;
        edge.settings.tunnel = settings.streams.bounds();
        edge.pod_socket = match settings.runtime {
            Some(_) => Some(data.pod_socket(name)?),
            None => settings.streams.socket,
        };
        edge.settings.upstream.sync_interval = settings.sync_interval;
        edge.settings.upstream.end_wait = POD_END_WAIT;

        let view = NodeView::new(socket.clone());
        let stop = CancellationToken::new();
        let supervising = tokio::spawn(supervise(
            NodeConfig {
                edge,
                dir: dir.clone(),
                metrics: metrics.edge.of(name),
                stores: metrics.stores.clone(),
                reserve: settings.has_reserve.then(|| DiskReserve::new(&dir)),
            },
            memory.clone(),
            view.clone(),
            stop.clone(),
        ));
        let node =
            Self { name: name.clone(), view, edged: None, pod_server: None, stop, supervising };
        let Some(runtime) = settings.runtime else { return Ok(node) };
        let edged_dir = dir.join("edged");
        let runtime = match runtime.open(name, &edged_dir).await {
            Ok(runtime) => runtime,
            Err(error) => {
                node.end_edge().await;
                return Err(error.into());
            }
        };
        let mut edged = EdgedConfig::new(name.clone(), socket, edged_dir, runtime);
        edged.metrics = metrics.edged.of(name);
        settings.pod_bounds.set(&mut edged);
        let doors = match PodDoors::open(data.pod_socket(name)?, &settings.kubelet, None).await {
            Ok(doors) => doors,
            Err(error) => {
                node.end_edge().await;
                return Err(error.into());
            }
        };
        edged.kubelet_port = doors.port;
        match Edged::spawn(edged).await {
            Ok(edged) => {
                node.view.set_logs(edged.logs());
                let pod_server = Some(doors.serve(edged.pods()));
                Ok(Self { edged: Some(edged), pod_server, ..node })
            }
            Err(source) => {
                node.end_edge().await;
                Err(NodeError::Edged { node: name.clone(), source })
            }
        }
    }

    /// Returns the node as the operator API sees it.
    pub(crate) fn view(&self) -> NodeView {
        self.view.clone()
    }

    /// Adds the checks of liveness and readiness, with `prefix` before each name. A node without a
    /// hub is ready: it serves its replica.
    pub(crate) fn check(&self, prefix: &str, health: &mut Health) {
        let supervisor = self.supervising.abort_handle();
        health.check(CheckKind::Live, format!("{prefix}supervisor"), move || {
            let runs = !supervisor.is_finished();
            if runs { Ok(()) } else { Err("the supervisor of the edge has ended".to_owned()) }
        });
        let view = self.view();
        health.check(CheckKind::Ready, format!("{prefix}edge"), move || match view.edge() {
            Some(_) => Ok(()),
            None => Err(view
                .failure()
                .map_or_else(|| "its databases are not open".to_owned(), |failure| failure.reason)),
        });
    }

    /// Stops the node's pods, each within its grace period but at most `grace`, then its parts.
    /// Returns the number of pods that had not ended.
    pub(crate) async fn stop(mut self, grace: Duration) -> usize {
        let remaining = match self.edged.take() {
            Some(edged) => edged.stop_pods(grace).await,
            None => 0,
        };
        self.end_edge().await;
        remaining
    }

    /// Stops the node's parts and leaves its pods running; the next start adopts them.
    pub(crate) async fn leave(mut self) {
        if let Some(edged) = self.edged.take() {
            edged.stop().await;
        }
        self.end_edge().await;
    }

    async fn end_edge(self) {
        if let Some(server) = self.pod_server {
            server.end().await;
        }
        self.stop.cancel();
        if let Err(error) = self.supervising.await {
            tracing::error!(node = %self.name, %error, "the supervisor of the edge has failed");
        }
    }
}

/// Runs the edge, and restarts it when it ends, until `stop`.
async fn supervise(
    config: NodeConfig,
    memory: DatabaseMemory,
    view: NodeView,
    stop: CancellationToken,
) {
    let retry = ExponentialBuilder::new()
        .with_min_delay(RESTART_FIRST)
        .with_max_delay(RESTART_LAST)
        .without_max_times();
    let (mut waits, mut since_ms) = (retry.build(), None);
    loop {
        let began = Instant::now();
        let (is_full, reason) = match open_and_start(&config, &memory).await {
            Err(error) => (error.is_disk_full(), headwater_telemetry::error_chain(&error)),
            Ok(running) => {
                let edge = running.edge.clone();
                // Otherwise it would connect to a hub in another process, which knows of no cut.
                if cuts::is_cut(&config.dir) && edge.cut_link().await.is_err() {
                    tracing::debug!(node = %config.edge.node, "the edge ended at once");
                }
                let exit = tokio::select! {
                    exit = edge.exited() => exit,
                    () = stop.cancelled() => edge.stop().await,
                    never = watch_reserve(config.reserve.as_ref(), &view, running) => match never {},
                };
                view.set(EdgeState::Stopped);
                // Where a disk is full an edge may start well, and fail at its first write.
                if began.elapsed() > RESTART_LAST {
                    (waits, since_ms) = (retry.build(), None);
                }
                match exit {
                    EdgeExit::Stopped => return,
                    exit => {
                        if let Some(database) = exit.damaged() {
                            set_aside(&config, database);
                        }
                        (exit.is_disk_full(), headwater_telemetry::error_chain(&exit))
                    }
                }
            }
        };
        tracing::error!(node = %config.edge.node, trouble = %reason, "the edge ended; it restarts");
        if is_full && config.reserve.as_ref().is_some_and(DiskReserve::release) {
            tracing::error!(
                node = %config.edge.node,
                "the disk is full, and the node continues on its reserve: make room"
            );
            continue;
        }
        let since_ms = *since_ms.get_or_insert_with(clock::wall_ms);
        view.set(EdgeState::Failed(EdgeFailure { reason, since_ms }));
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(waits.next().unwrap_or(RESTART_LAST)) => {}
        }
    }
}

/// Shows a running edge, in trouble while there is no room for its reserve.
async fn watch_reserve(
    reserve: Option<&DiskReserve>,
    view: &NodeView,
    mut running: RunningEdge,
) -> Infallible {
    view.set(EdgeState::Running(running.clone()));
    let Some(reserve) = reserve else { return std::future::pending().await };
    loop {
        let restoring = reserve.clone();
        // Allocation and sync block.
        let restored = tokio::task::spawn_blocking(move || restoring.restore()).await;
        let is_held = restored.unwrap_or(false);
        if is_held != running.trouble.is_none() {
            running.trouble = (!is_held)
                .then(|| EdgeFailure { reason: NO_RESERVE.to_owned(), since_ms: clock::wall_ms() });
            view.set(EdgeState::Running(running.clone()));
        }
        tokio::time::sleep(RESERVE_INTERVAL).await;
    }
}

async fn open_and_start(
    config: &NodeConfig,
    memory: &DatabaseMemory,
) -> Result<RunningEdge, StartError> {
    let open = |database, role, schema| {
        let path = path(config, database);
        // The hub rebuilds a state. After the loss of an outbox, the next boot of the node reports
        // everything.
        database::open(&path, role, memory, schema)
            .map_err(|source| StartError::Engine { database, source })
    };
    let state = open(Database::State, Role::State, schema::NODE_STATE)?;
    config.stores.opened("state", Some(&config.edge.node), &state);
    let outbox = open(Database::Outbox, Role::Outbox, schema::OUTBOX)?;
    config.stores.opened("outbox", Some(&config.edge.node), &outbox);
    let seams = EdgeDependencies {
        clock: Arc::new(EdgeClock::default()),
        metrics: config.metrics.clone(),
        ..EdgeDependencies::default()
    };
    match Edge::start(config.edge.clone(), state.clone(), outbox, seams).await {
        Ok(edge) => Ok(RunningEdge { edge, replica: state, trouble: None }),
        Err(error) => {
            if let Some(database) = error.damaged() {
                drop(state);
                set_aside(config, database);
            }
            Err(error)
        }
    }
}

fn set_aside(config: &NodeConfig, database: Database) {
    if let Err(error) = database::set_aside(&path(config, database), "found while it was in use") {
        tracing::error!(%error, ?database, "a damaged database could not be moved aside");
    }
}

fn path(config: &NodeConfig, database: Database) -> PathBuf {
    config.dir.join(match database {
        Database::State => "state",
        Database::Outbox => "outbox",
    })
}
