//! An edge: two threads that own a database each, one that syncs, a task that owns the session, a
//! server.
//!
//! ```text
//!   local API ---ask---> handler ---> session task <----> hub
//!                         |  |        |     ^
//!                         |  |        v     |
//!                         |  +---> replica thread (state database) <---> sync thread
//!                         |           | pods
//!                         |           v
//!                         +------> upstream thread (outbox database)
//! ```
//!
//! When one of them ends, all do, and the exit says why: whoever opened the engines closes them,
//! repairs what is to be repaired, and starts the edge again.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use headwater_identity::Principal;
use headwater_store::{Engine, EngineError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::api::handler::ApiHandler;
use crate::config::EdgeConfig;
use crate::connection::link::connect;
use crate::connection::session::SessionCommand;
use crate::dependencies::EdgeDependencies;
use crate::exit::{Database, EdgeExit, StartError};
use crate::parts::{EdgeParts, OwnerFuture};
use crate::replica::ReplicaCommand;
use crate::status::EdgeStatus;
use crate::upstream::UpstreamCommand;

/// How long calls under way may take to end when the edge stops.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Threads of an edge do shallow work: hundreds of edges fit one process.
const STACK_BYTES: usize = 1 << 20;

/// The edge of one node.
#[derive(Debug)]
pub struct Edge;

/// A running edge. Clones are handles of the same one; dropping them stops nothing.
#[derive(Clone, Debug)]
pub struct EdgeHandle {
    handler: ApiHandler,
    stop: CancellationToken,
    exit: watch::Receiver<Option<EdgeExit>>,
}

/// The edge is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the edge has stopped")]
pub struct EdgeStopped;

impl Edge {
    /// Starts an edge over its two databases. The local API answers when this returns, whether
    /// or not a hub can be reached.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then, and the engines are let go.
    pub async fn start(
        config: EdgeConfig,
        state: Arc<dyn Engine>,
        outbox: Arc<dyn Engine>,
        seams: EdgeDependencies,
    ) -> Result<EdgeHandle, StartError> {
        match &config.tls {
            Some(tls) => tls.check_owner(&Principal::Node(config.node.clone()))?,
            None => {
                if let Some(address) = config.hubs.iter().find(|hub| !hub.is_loopback()).cloned() {
                    return Err(StartError::NotLoopback { address });
                }
            }
        }
        let listener = api::bind(&config.socket)?;
        let opened = {
            let (config, tls) = (config.clone(), config.tls.clone());
            let dial = Arc::new(move |hub| Box::pin(connect(hub, tls.clone())) as _);
            // Opening reads and syncs.
            tokio::task::spawn_blocking(move || {
                EdgeParts::open(&config, state, outbox, seams, dial)
            })
        };
        let EdgeParts { replica, syncer, upstream, session, handler } =
            opened.await.unwrap_or_else(|panic| {
                let reason = format!("opening it broke: {panic}");
                let source = EngineError::Read { reason };
                Err(StartError::Engine { database: Database::State, source })
            })?;
        let (to_replica, to_upstream) = (handler.replica.clone(), handler.upstream.clone());
        let replica_ended = on_thread("replica", &config, Database::State, replica)?;
        let syncer_ended = on_thread("sync", &config, Database::State, syncer)?;
        let upstream_ended = on_thread("outbox", &config, Database::Outbox, upstream)?;
        let stop = CancellationToken::new();
        let (exit_sender, exit) = watch::channel(None);
        let parts = RunningEdge {
            replica_ended,
            syncer_ended,
            upstream_ended,
            session: tokio::spawn(session.run(stop.child_token())),
            server: tokio::spawn(api::serve(listener, handler.clone(), stop.child_token())),
            replica: to_replica,
            upstream: to_upstream,
            stop: stop.clone(),
        };
        tokio::spawn(async move {
            let exit = parts.end().await;
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
    /// Where the edge stands.
    ///
    /// # Errors
    /// When it has stopped.
    pub async fn status(&self) -> Result<EdgeStatus, EdgeStopped> {
        self.handler.status().await.map_err(|_| EdgeStopped)
    }

    /// Cuts the link to the cloud: a fault to try things with.
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

    /// Waits until the edge has ended, and says why. Both engines are let go then.
    pub async fn exited(&self) -> EdgeExit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(exit)) => exit.clone(),
            _ => EdgeExit::Defect { what: "nobody waited for the edge".to_owned() },
        }
    }

    /// Stops the edge and waits until it has. What is applied is made durable first; the pods
    /// of the node are not touched.
    pub async fn stop(&self) -> EdgeExit {
        self.stop.cancel();
        self.exited().await
    }
}

/// Runs `work` on a thread of its own; what it ended with comes through the channel.
fn on_thread(
    part: &str,
    config: &EdgeConfig,
    database: Database,
    work: OwnerFuture,
) -> Result<oneshot::Receiver<Result<(), EdgeExit>>, StartError> {
    let (ended, end) = oneshot::channel();
    thread::Builder::new()
        .name(format!("{part} {}", config.node))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let _ = ended.send(futures::executor::block_on(work));
        })
        .map_err(|source| StartError::Thread { database, source })?;
    Ok(end)
}

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Everything that runs.
struct RunningEdge {
    replica_ended: oneshot::Receiver<Result<(), EdgeExit>>,
    syncer_ended: oneshot::Receiver<Result<(), EdgeExit>>,
    upstream_ended: oneshot::Receiver<Result<(), EdgeExit>>,
    session: tokio::task::JoinHandle<()>,
    server: tokio::task::JoinHandle<Served>,
    replica: mpsc::Sender<ReplicaCommand>,
    upstream: mpsc::Sender<UpstreamCommand>,
    stop: CancellationToken,
}

impl RunningEdge {
    /// Waits for the first of them to end, or for the word to stop; then ends all.
    async fn end(mut self) -> EdgeExit {
        let (mut replica_exit, mut upstream_exit, mut server_ended) = (None, None, false);
        let first = tokio::select! {
            biased;
            // Told to stop, they all end; that is then the reason.
            () = self.stop.cancelled() => Some(EdgeExit::Stopped),
            end = &mut self.replica_ended => {
                replica_exit = Some(ended("the replica", end));
                None
            }
            end = &mut self.upstream_ended => {
                upstream_exit = Some(ended("the outbox", end));
                None
            }
            end = &mut self.session => {
                end.err().map(|panic| EdgeExit::Defect { what: format!("the session: {panic}") })
            }
            end = &mut self.server => {
                server_ended = true;
                let why = match end {
                    Ok(Ok(())) => "it ended".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(panic) => panic.to_string(),
                };
                Some(EdgeExit::Defect { what: format!("the local API: {why}") })
            }
        };
        self.stop.cancel();
        if replica_exit.is_none() {
            // It takes it, or is gone.
            let _ = self.replica.send(ReplicaCommand::Stop).await;
            replica_exit = Some(ended("the replica", (&mut self.replica_ended).await));
        }
        // It ends when the replica has; only then is the engine let go.
        let _ = self.syncer_ended.await;
        if upstream_exit.is_none() {
            let _ = self.upstream.send(UpstreamCommand::Stop).await;
            upstream_exit = Some(ended("the outbox", (&mut self.upstream_ended).await));
        }
        if !server_ended && tokio::time::timeout(DRAIN_MAX, &mut self.server).await.is_err() {
            self.server.abort();
        }
        // A database that failed on the way out is worth more than the word to stop.
        let failed = replica_exit.flatten().or(upstream_exit.flatten());
        failed.or(first).unwrap_or(EdgeExit::Stopped)
    }
}

/// Why a thread ended, unless it was told to.
fn ended(
    who: &str,
    end: Result<Result<(), EdgeExit>, oneshot::error::RecvError>,
) -> Option<EdgeExit> {
    match end {
        Ok(Ok(())) => None,
        Ok(Err(exit)) => Some(exit),
        Err(_) => Some(EdgeExit::Defect { what: format!("{who} panicked") }),
    }
}
