//! The parts of an edge, opened over its databases and connected by channels. None of them runs yet.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use headwater_event::StreamId;
use headwater_session::EdgeState;
use headwater_session::message::ReplicaPosition;
use headwater_store::{Engine, EngineError, schema};
use headwater_view::StreamReader;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::api::handler::ApiHandler;
use crate::config::EdgeConfig;
use crate::connection::dialer::LinkDialer;
use crate::connection::session::{Session, SessionDependencies};
use crate::dependencies::EdgeDependencies;
use crate::exit::{Database, EdgeExit, StartError};
use crate::meta::cluster_consumers::ClusterConsumers;
use crate::meta::worker::WorkerWatches;
use crate::replica::{EdgeReplica, ReplicaError, Syncer};
use crate::tunnel::TunnelCommand;
use crate::upstream::{EdgeUpstream, OpenError, UpstreamDependencies};

/// Commands that wait for an owner. Each caller waits for its reply, so this is no backlog.
const COMMANDS_MAX: usize = 1_024;

/// Events of an owner that wait for the session.
const EVENTS_MAX: usize = 1_024;

/// The whole work of the owner of a database. It blocks on the disk.
pub(crate) type OwnerFuture = BoxFuture<'static, Result<(), EdgeExit>>;

/// See the module.
pub(crate) struct EdgeParts {
    /// The owner of the state database.
    pub(crate) replica: OwnerFuture,
    /// Syncs the state database; ends with its owner.
    pub(crate) syncer: OwnerFuture,
    /// The owner of the outbox database.
    pub(crate) upstream: OwnerFuture,
    /// The session with a hub.
    pub(crate) session: Session,
    /// The local API; has the channels to the other parts.
    pub(crate) handler: ApiHandler,
}

impl EdgeParts {
    /// Opens an edge: checks and reads both databases, and syncs the outbox.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn open(
        config: &EdgeConfig,
        state: Arc<dyn Engine>,
        outbox: Arc<dyn Engine>,
        dependencies: EdgeDependencies,
        dial: LinkDialer,
        tunnel: Option<mpsc::Sender<TunnelCommand>>,
    ) -> Result<Self, StartError> {
        let EdgeDependencies { clock, chance, metrics } = dependencies;
        let of_state = |source| StartError::Engine { database: Database::State, source };
        let of_outbox = |source| StartError::Engine { database: Database::Outbox, source };
        schema::NODE_STATE.check(&*state).map_err(of_state)?;
        schema::OUTBOX.check(&*outbox).map_err(of_outbox)?;
        check_intact(&*state).map_err(of_state)?;

        let (session_commands, session_inbox) = mpsc::channel(COMMANDS_MAX);
        let (replica_commands, replica_inbox) = mpsc::channel(COMMANDS_MAX);
        let (upstream_commands, upstream_inbox) = mpsc::channel(COMMANDS_MAX);
        let (replica_event_sender, replica_events) = mpsc::channel(EVENTS_MAX);
        let (upstream_event_sender, upstream_events) = mpsc::channel(EVENTS_MAX);
        let (connected_sender, connected) = watch::channel(false);

        let (replica, syncer) = EdgeReplica::open(
            state,
            StreamId::node(&config.node),
            config.settings.replica,
            replica_event_sender,
            upstream_commands.clone(),
        )
        .map_err(of_state)?;
        let assignment = replica.assignment(&config.node).map_err(of_state)?;
        let replica = replica.counting(metrics.clone(), clock.clone());
        let (upstream, upstream_status) = EdgeUpstream::open(
            config.node.clone(),
            config.incarnation,
            config.settings.upstream,
            UpstreamDependencies {
                engine: outbox,
                clock: clock.clone(),
                chance: chance.clone(),
                session: upstream_event_sender,
                metrics: metrics.clone(),
            },
        )
        .map_err(|error| match error {
            OpenError::Engine(source) => of_outbox(source),
            OpenError::Older(older) => older.into(),
        })?;
        let positions = replica.positions().iter().map(|(stream, (checkpoint, hash))| {
            ReplicaPosition { stream: stream.clone(), checkpoint: *checkpoint, hash: *hash }
        });
        let cluster_consumers = ClusterConsumers::default();
        let worker_watches = WorkerWatches::default();
        let session = Session::new(
            config.settings.session.clone(),
            EdgeState { identity: upstream.identity(), positions: positions.collect(), assignment },
            config.hubs.clone(),
            SessionDependencies {
                dial,
                clock,
                chance,
                metrics,
                commands: session_inbox,
                replica: replica_commands.clone(),
                replica_events,
                upstream: upstream_commands.clone(),
                upstream_events,
                upstream_status: upstream_status.clone(),
                cluster_consumers: cluster_consumers.clone(),
                worker_watches: worker_watches.subscribe(),
                connected: connected_sender,
                tunnel,
            },
        );
        let handler = ApiHandler {
            node: config.node.clone(),
            query_timeout: config.settings.local.query_timeout,
            room: Arc::new(Semaphore::new(config.settings.local.operations_max)),
            session: session_commands,
            replica: replica_commands,
            upstream: upstream_commands,
            cluster_consumers,
            worker_watches,
            connected,
            upstream_status,
        };
        Ok(Self {
            replica: replica.run(replica_inbox).map(|end| end.map_err(EdgeExit::from)).boxed(),
            syncer: Syncer::run(syncer).map(Ok).boxed(),
            upstream: upstream
                .run(upstream_inbox)
                .map(|end| {
                    end.map_err(|error| EdgeExit::Engine { database: Database::Outbox, error })
                })
                .boxed(),
            session,
            handler,
        })
    }
}

/// Checks that the objects of every stream are the folded ones.
///
/// # Errors
/// [`EngineError::Corrupt`] when they are not; else as the engine.
fn check_intact(engine: &dyn Engine) -> Result<(), EngineError> {
    let snapshot = engine.snapshot();
    let Some((stream, found)) = StreamReader::new(&*snapshot).find_damage()? else { return Ok(()) };
    let (seq, kept, recomputed) = (found.checkpoint.seq, found.kept, found.recomputed);
    let reason = format!("{stream} {seq}: the objects hash to {recomputed}, not to {kept}");
    Err(EngineError::Corrupt { reason })
}

impl From<ReplicaError> for EdgeExit {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Engine(error) => Self::Engine { database: Database::State, error },
            ReplicaError::Defect(refusal) => {
                Self::Defect { what: format!("an accepted push was refused: {refusal}") }
            }
            error @ ReplicaError::SyncerEnded => Self::Defect { what: error.to_string() },
        }
    }
}
