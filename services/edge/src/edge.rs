//! A running edge: two threads that own a database each, one that syncs, a task that owns the
//! session, a server.
//!
//! ```text
//!   local API --request--> handler ---> session task <----> hub
//!                           |  |           |     ^
//!                           |  |           v     |
//!                           |  +---> replica thread (state database) <---> sync thread
//!                           |              | pods
//!                           |              v
//!                           +-------> outbox thread (outbox database)
//! ```
//!
//! When one of them ends, all end, and the exit has the reason. The caller that opened the engines
//! closes them, repairs what is damaged, and starts the edge again.

use std::sync::Arc;
use std::time::Duration;

use headwater_identity::Principal;
use headwater_store::{Engine, EngineError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::api;
use crate::api::handler::ApiHandler;
use crate::config::EdgeConfig;
use crate::connection::link::connect;
use crate::connection::session::SessionCommand;
use crate::database_thread::DatabaseThread;
use crate::dependencies::EdgeDependencies;
use crate::exit::{Database, EdgeExit, StartError};
use crate::parts::EdgeParts;
use crate::replica::ReplicaCommand;
use crate::status::EdgeStatus;
use crate::tunnel::{DIALS_MAX, TunnelCommand, TunnelTask};
use crate::upstream::UpstreamCommand;

/// How long calls in progress may take to end when the edge stops.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// The edge of one node.
#[derive(Debug)]
pub struct Edge;

/// A handle of a running edge. Cheap to clone. The edge runs on when its handles are dropped.
#[derive(Clone, Debug)]
pub struct EdgeHandle {
    handler: ApiHandler,
    stop: CancellationToken,
    exit: watch::Receiver<Option<EdgeExit>>,
}

/// The edge has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the edge has stopped")]
pub struct EdgeStopped;

impl Edge {
    /// Starts an edge over its two databases. When this returns, the local API serves, with or
    /// without a hub.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing runs then, and the engines are released.
    pub async fn start(
        config: EdgeConfig,
        state: Arc<dyn Engine>,
        outbox: Arc<dyn Engine>,
        dependencies: EdgeDependencies,
    ) -> Result<EdgeHandle, StartError> {
        check_tls(&config)?;
        let socket = api::bind(&config.socket, config.local_user)?;
        let (tunnel, streams) = tunnel(&config).unzip();
        let EdgeParts { replica, syncer, upstream, session, handler } =
            open(&config, state, outbox, dependencies, tunnel).await?;
        let (commands, node) = ((handler.replica.clone(), handler.upstream.clone()), &config.node);
        let stop = CancellationToken::new();
        let running = RunningEdge {
            replica: DatabaseThread::start("replica", node, Database::State, replica)?,
            syncer: DatabaseThread::start("sync", node, Database::State, syncer)?,
            upstream: DatabaseThread::start("outbox", node, Database::Outbox, upstream)?,
            session: tokio::spawn(session.run(stop.child_token())),
            _streams: streams.map(|streams| {
                AbortOnDropHandle::new(tokio::spawn(streams.run(stop.child_token())))
            }),
            server: tokio::spawn(api::serve(socket, handler.clone(), stop.child_token())),
            replica_commands: commands.0,
            upstream_commands: commands.1,
            stop: stop.clone(),
        };
        let (exit_sender, exit) = watch::channel(None);
        tokio::spawn(async move {
            let exit = running.end().await;
            match &exit {
                EdgeExit::Stopped => tracing::info!("the edge stopped"),
                exit => tracing::error!(error = exit as &dyn std::error::Error, "the edge ended"),
            }
            exit_sender.send_replace(Some(exit));
        });
        Ok(EdgeHandle { handler, stop, exit })
    }
}

impl EdgeHandle {
    /// Returns the status of the edge.
    ///
    /// # Errors
    /// When it has stopped.
    pub async fn status(&self) -> Result<EdgeStatus, EdgeStopped> {
        self.handler.status().await.map_err(|_| EdgeStopped)
    }

    /// Cuts the link to the cloud, to try an outage.
    ///
    /// # Errors
    /// When the edge has stopped.
    pub async fn cut_link(&self) -> Result<(), EdgeStopped> {
        self.handler.session.send(SessionCommand::Cut(true)).await.map_err(|_| EdgeStopped)
    }

    /// Restores the link.
    ///
    /// # Errors
    /// When the edge has stopped.
    pub async fn restore_link(&self) -> Result<(), EdgeStopped> {
        self.handler.session.send(SessionCommand::Cut(false)).await.map_err(|_| EdgeStopped)
    }

    /// Waits until the edge has ended, and returns the reason. Both engines are released then.
    pub async fn exited(&self) -> EdgeExit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(exit)) => exit.clone(),
            _ => EdgeExit::Defect { what: "the runtime dropped the edge".to_owned() },
        }
    }

    /// Stops the edge and waits until it has ended. What is applied is made durable first. The pods
    /// of the node run on.
    pub async fn stop(&self) -> EdgeExit {
        self.stop.cancel();
        self.exited().await
    }
}

/// Refuses a certificate of another node, and a remote hub without TLS.
fn check_tls(config: &EdgeConfig) -> Result<(), StartError> {
    match &config.tls {
        Some(tls) => tls.check_owner(&Principal::Node(config.node.clone()))?,
        None => {
            if let Some(address) = config.hubs.iter().find(|hub| !hub.is_loopback()).cloned() {
                return Err(StartError::NotLoopback { address });
            }
        }
    }
    Ok(())
}

/// The task of streams, and the way to it; `None`: the edge takes no dials.
fn tunnel(config: &EdgeConfig) -> Option<(mpsc::Sender<TunnelCommand>, TunnelTask)> {
    let (node, settings) = (config.node.clone(), config.settings.tunnel.clone());
    let socket = config.pod_socket.clone().filter(|_| settings.streams_max > 0)?;
    let (dials, commands) = mpsc::channel(DIALS_MAX);
    Some((dials, TunnelTask { node, socket, tls: config.tls.clone(), settings, commands }))
}

/// Opens the parts of an edge on a thread that may block: opening reads and syncs.
async fn open(
    config: &EdgeConfig,
    state: Arc<dyn Engine>,
    outbox: Arc<dyn Engine>,
    dependencies: EdgeDependencies,
    tunnel: Option<mpsc::Sender<TunnelCommand>>,
) -> Result<EdgeParts, StartError> {
    let (config, tls) = (config.clone(), config.tls.clone());
    let dial = Arc::new(move |hub| Box::pin(connect(hub, tls.clone())) as _);
    let opening = tokio::task::spawn_blocking(move || {
        EdgeParts::open(&config, state, outbox, dependencies, dial, tunnel)
    });
    opening.await.unwrap_or_else(|panic| {
        let reason = format!("opening it panicked: {panic}");
        let source = EngineError::Read { reason };
        Err(StartError::Engine { database: Database::State, source })
    })
}

type ServerResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The threads and tasks of a running edge.
struct RunningEdge {
    replica: DatabaseThread,
    syncer: DatabaseThread,
    upstream: DatabaseThread,
    session: JoinHandle<()>,
    /// Ends with the edge.
    _streams: Option<AbortOnDropHandle<()>>,
    server: JoinHandle<ServerResult>,
    replica_commands: mpsc::Sender<ReplicaCommand>,
    upstream_commands: mpsc::Sender<UpstreamCommand>,
    stop: CancellationToken,
}

impl RunningEdge {
    /// Waits until one of them ends, or the edge is stopped; then ends all.
    async fn end(mut self) -> EdgeExit {
        let mut is_serving = true;
        let first = tokio::select! {
            biased;
            // A stopped edge ends in all its parts, so the stop is the reason.
            () = self.stop.cancelled() => Some(EdgeExit::Stopped),
            () = self.replica.ended() => None,
            () = self.upstream.ended() => None,
            end = &mut self.session => end.err().map(|panic| defect("the session", &panic)),
            end = &mut self.server => {
                is_serving = false;
                Some(server_end(end))
            }
        };
        self.stop.cancel();
        // An owner that has ended takes no command.
        let _ = self.replica_commands.send(ReplicaCommand::Stop).await;
        self.replica.ended().await;
        // The syncer ends with the replica, and releases the engine.
        self.syncer.ended().await;
        let _ = self.upstream_commands.send(UpstreamCommand::Stop).await;
        self.upstream.ended().await;
        if is_serving && tokio::time::timeout(DRAIN_MAX, &mut self.server).await.is_err() {
            self.server.abort();
        }
        // The failure of a database matters more than the stop.
        let failure = self.replica.into_failure().or(self.upstream.into_failure());
        failure.or(first).unwrap_or(EdgeExit::Stopped)
    }
}

fn server_end(end: Result<ServerResult, tokio::task::JoinError>) -> EdgeExit {
    match end {
        Ok(Ok(())) => defect("the local API", &"it ended"),
        Ok(Err(error)) => defect("the local API", &error),
        Err(panic) => defect("the local API", &panic),
    }
}

fn defect(part: &str, what: &dyn std::fmt::Display) -> EdgeExit {
    EdgeExit::Defect { what: format!("{part}: {what}") }
}
