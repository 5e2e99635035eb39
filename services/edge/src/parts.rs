//! The parts of an edge, opened over its databases and wired together; nothing runs yet.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use headwater_event::{Assignment, EntryKey, StreamId};
use headwater_session::EdgeState;
use headwater_session::message::ReplicaPosition;
use headwater_store::{Engine, schema};
use headwater_view::StreamReader;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::api::handler::ApiHandler;
use crate::config::EdgeConfig;
use crate::connection::session::{LinkDialer, Session, SessionDependencies};
use crate::dependencies::EdgeDependencies;
use crate::exit::{Database, EdgeExit, StartError};
use crate::replica::integrity;
use crate::replica::{EdgeReplica, ReplicaError, Syncer};
use crate::upstream::{EdgeUpstream, OpenError, UpstreamDependencies};

/// Questions that wait for an owner. Each asker waits for its answer, so this is no backlog.
const QUESTIONS_MAX: usize = 1_024;

/// What an owner may say before the session has heard it.
const ANSWERS_MAX: usize = 1_024;

/// The work of the owner of a database, to its end. It blocks.
pub(crate) type OwnerFuture = BoxFuture<'static, Result<(), EdgeExit>>;

/// See the module.
pub(crate) struct EdgeParts {
    /// Owns the state database.
    pub(crate) replica: OwnerFuture,
    /// Syncs the state database for its owner; ends with it.
    pub(crate) syncer: OwnerFuture,
    /// Owns the outbox.
    pub(crate) upstream: OwnerFuture,
    /// Holds the session.
    pub(crate) session: Session,
    /// The ways to all three.
    pub(crate) handler: ApiHandler,
}

impl EdgeParts {
    /// Opens an edge; reads both databases and syncs the outbox.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn open(
        config: &EdgeConfig,
        state: Arc<dyn Engine>,
        outbox: Arc<dyn Engine>,
        seams: EdgeDependencies,
        dial: LinkDialer,
    ) -> Result<Self, StartError> {
        let of_state = |source| StartError::Engine { database: Database::State, source };
        let of_outbox = |source| StartError::Engine { database: Database::Outbox, source };
        schema::NODE_STATE.check(&*state).map_err(of_state)?;
        schema::OUTBOX.check(&*outbox).map_err(of_outbox)?;
        integrity::check(&*state).map_err(of_state)?;
        let (to_replica, replica_commands) = mpsc::channel(QUESTIONS_MAX);
        let (to_upstream, upstream_commands) = mpsc::channel(QUESTIONS_MAX);
        let (to_session, commands) = mpsc::channel(QUESTIONS_MAX);
        let (answer, answers) = mpsc::channel(ANSWERS_MAX);
        let (event, events) = mpsc::channel(ANSWERS_MAX);

        let private = StreamId::node(&config.node);
        let settings = config.settings.replica;
        let (replica, syncer) = EdgeReplica::open(
            Arc::clone(&state),
            private.clone(),
            settings,
            answer,
            to_upstream.clone(),
        )
        .map_err(of_state)?;
        let replica = replica.counting(seams.metrics.clone(), seams.clock.clone());
        let assignment = StreamReader::new(&*state)
            .entry(&private, &EntryKey::Streams)
            .map_err(of_state)?
            .and_then(|entry| Assignment::decode(&config.node, &entry.object).ok());
        let around = UpstreamDependencies {
            engine: outbox,
            clock: seams.clock.clone(),
            chance: seams.chance.clone(),
            session: event,
            metrics: seams.metrics.clone(),
        };
        let (upstream, upstream_status) = EdgeUpstream::open(
            config.node.clone(),
            config.incarnation,
            config.settings.upstream,
            around,
        )
        .map_err(|error| match error {
            OpenError::Engine(source) => of_outbox(source),
            OpenError::Older(older) => older.into(),
        })?;
        let positions = replica.positions().iter().map(|(stream, (checkpoint, hash))| {
            ReplicaPosition { stream: stream.clone(), checkpoint: *checkpoint, hash: *hash }
        });
        let state =
            EdgeState { identity: upstream.identity(), positions: positions.collect(), assignment };
        let (connected_sender, connected) = watch::channel(false);
        let wires = SessionDependencies {
            commands,
            replica: to_replica.clone(),
            answers,
            upstream: to_upstream.clone(),
            events,
            upstream_status: upstream_status.clone(),
            connected: connected_sender,
            metrics: seams.metrics,
        };
        let EdgeDependencies { clock, chance, .. } = seams;
        let hubs = config.hubs.clone();
        let settings = config.settings.session.clone();
        let session = Session::new(settings, state, hubs, dial, clock, chance, wires);
        let handler = ApiHandler {
            node: config.node.clone(),
            query_timeout: config.settings.local.query_timeout,
            room: Arc::new(Semaphore::new(config.settings.local.operations_max)),
            session: to_session,
            replica: to_replica,
            upstream: to_upstream,
            connected,
            upstream_status,
        };
        Ok(Self {
            replica: replica.run(replica_commands).map(replica_end).boxed(),
            syncer: Syncer::run(syncer).map(Ok).boxed(),
            upstream: upstream
                .run(upstream_commands)
                .map(|end| {
                    end.map_err(|error| EdgeExit::Engine { database: Database::Outbox, error })
                })
                .boxed(),
            session,
            handler,
        })
    }
}

fn replica_end(end: Result<(), ReplicaError>) -> Result<(), EdgeExit> {
    end.map_err(|error| match error {
        ReplicaError::Engine(error) => EdgeExit::Engine { database: Database::State, error },
        ReplicaError::Defect(refusal) => {
            EdgeExit::Defect { what: format!("an accepted push was refused: {refusal}") }
        }
        error @ ReplicaError::NobodySyncs => EdgeExit::Defect { what: error.to_string() },
    })
}
