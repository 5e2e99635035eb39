//! A hub as a whole: its tasks, their start and their end.
//!
//! ```text
//!  start:  fold the logs ──► listen ──► serve each stream once its fold is complete
//!  stop:   admit no session ──► ask one edge after the other to continue at another hub
//!          ──► end what is left ──► append the last positions ──► end
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `config` | what a hub is started with |
//! | `view` | the hub as other parts read it |
//! | `pod_nodes` | which node has a pod |
//! | `lag` | how far replicas are behind |

mod config;
mod lag;
mod pod_nodes;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_owner::spawn_owner;
use headwater_proto::replication as wire;
use headwater_proto::wire::HubFrame;
use headwater_store::schema;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::Status;
use uuid::{Builder, Uuid};

pub use config::{HubConfig, HubDependencies, HubError};
pub use lag::Lag;
pub use view::HubView;

use crate::admission::{ReportLimiter, Sessions, TransferLimiter};
use crate::fold::{DownstreamFollower, Fold, IdentityFollower};
use crate::metrics::GaugeSource;
use crate::requests::{FoldRequestHandler, RequestDispatcher};
use crate::server::{IncomingMessage, Peer, open_session, serve};
use crate::session::SessionDependencies;
use crate::tunnels::PendingDials;
use crate::upstream::{PositionAppender, UpstreamAppender, wipe_bases};

/// How long sessions, and after them the tasks of the hub, may take to end when it stops. Those
/// that are left are dropped: edges resume from what they have.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// Starts hubs.
#[derive(Debug)]
pub struct Hub;

/// A running hub. Dropping the handle stops the hub too, but waits for nothing.
pub struct HubHandle {
    address: SocketAddr,
    hub: Arc<SessionDependencies>,
    stop: DropGuard,
    upstream_stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Hub {
    /// Starts a hub. When this returns, it listens; it serves each stream once its fold is
    /// complete.
    ///
    /// # Errors
    /// See [`HubError`].
    pub async fn start(
        config: HubConfig,
        dependencies: HubDependencies,
    ) -> Result<HubHandle, HubError> {
        let (listen, tls) = (config.listen, config.tls.clone());
        if tls.is_none() && !listen.ip().is_loopback() {
            return Err(HubError::NotLoopback { listen });
        }
        let listening = |source| HubError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let mut handle = Self::start_without_listener(config, dependencies, rand::random).await?;
        handle.address = address;
        let (hub, stop) = (handle.hub.clone(), handle.hub.stop.clone());
        handle.tasks.push(tokio::spawn(serve(listener, tls, hub, stop)));
        Ok(handle)
    }

    /// Starts a hub that does not listen. The caller opens its sessions
    /// ([`HubHandle::open_session`]), as a simulation does that is its own network. `chance` draws
    /// from `[0, 1)`.
    ///
    /// # Errors
    /// See [`HubError`].
    pub async fn start_without_listener(
        config: HubConfig,
        dependencies: HubDependencies,
        chance: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<HubHandle, HubError> {
        let HubConfig { name, listen, settings, limits, .. } = config;
        let HubDependencies { downstream, upstream, engine, requests, wall_clock, metrics } =
            dependencies;
        schema::HUB.check(&*engine)?;
        wipe_bases(&*engine)?;
        // A hub that cannot reach the log says so at its start.
        let described = upstream.describe().await?;

        // Sessions end before the fold that they read, and the upstream appenders end last: they
        // append the last reports and positions of the sessions.
        let (stop, upstream_stop) = (CancellationToken::new(), CancellationToken::new());
        let sessions_stop = stop.child_token();
        let fold = Arc::new(Fold::new(engine));
        let chance = Arc::new(chance);
        let new_uuid = {
            let chance = chance.clone();
            move || draw_uuid(&*chance)
        };
        let (appender, appending) = UpstreamAppender::start(
            upstream.clone(),
            limits.upstream_groups_max,
            new_uuid,
            &metrics,
            &upstream_stop,
        );
        let (positions, appending_positions) =
            PositionAppender::start(upstream.clone(), described, &metrics, &upstream_stop);
        let requests = Arc::new(FoldRequestHandler::new(fold.clone(), requests));
        let follower = DownstreamFollower {
            log: downstream,
            clock: wall_clock.clone(),
            fold: fold.clone(),
            metrics: metrics.fold.clone(),
        };
        let identities =
            IdentityFollower { log: upstream, fold: fold.clone(), metrics: metrics.fold.clone() };
        let hub = Arc::new(SessionDependencies {
            name,
            settings: Arc::new(settings),
            fold,
            upstream: appender,
            positions,
            requests: RequestDispatcher::new(requests, &limits),
            sessions: Sessions::new(&limits, sessions_stop.clone()),
            presence: Arc::default(),
            dials: PendingDials::default(),
            reports: ReportLimiter::new(&limits),
            transfers: TransferLimiter::new(
                limits.transfers_max,
                limits.transfers_held_max,
                limits.transfer_within,
            ),
            limits,
            wall_clock,
            chance: Box::new(move || chance()),
            metrics: metrics.clone(),
            stop: sessions_stop,
            connections: TaskTracker::new(),
        });
        let gauges: Arc<dyn GaugeSource> = hub.clone();
        metrics.gauges.read_from(Arc::downgrade(&gauges));
        let repeating = {
            let (hub, stop) = (hub.clone(), stop.clone());
            tokio::spawn(async move {
                let _ = stop.run_until_cancelled(hub.repeat_positions()).await;
            })
        };
        let tasks = vec![
            repeating,
            spawn_owner(stop.clone(), follower.run()),
            spawn_owner(stop.clone(), identities.run()),
            appending,
            appending_positions,
        ];
        Ok(HubHandle { address: listen, hub, stop: stop.drop_guard(), upstream_stop, tasks })
    }
}

impl HubHandle {
    /// The address that the hub listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a session over a transport of the caller. `messages` come from the edge; the result
    /// goes to it.
    pub fn open_session(
        &self,
        messages: BoxStream<'static, IncomingMessage>,
    ) -> BoxStream<'static, Result<wire::HubMessage, Status>> {
        let frames = open_session(&self.hub, messages, Peer::default());
        let message = |frame: HubFrame| {
            frame.into_message().map_err(|error| Status::internal(error.to_string()))
        };
        frames.map(move |frame| frame.and_then(message)).boxed()
    }

    /// The hub as other parts read it.
    pub fn view(&self) -> HubView {
        HubView::new(self.hub.clone())
    }

    /// Asks every edge to continue at another hub, as fast as other hubs admit them
    /// ([`handover_within`](crate::HubLimits::handover_within)), and then ends the hub. An edge is
    /// served until the hub asks it, and every acknowledged report is in the log.
    pub async fn stop(self) {
        let Self { hub, stop, upstream_stop, tasks, .. } = self;
        hub.stop.cancel();
        hub.connections.close();
        hand_over(&hub).await;
        drop(stop);
        if timeout(STOP_WITHIN, hub.connections.wait()).await.is_err() {
            tracing::warn!("the hub drops sessions that do not end");
        }
        upstream_stop.cancel();
        for mut task in tasks {
            match timeout(STOP_WITHIN, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a task of the hub has failed"),
                // A peer that does not read keeps its connection; the keepalive ends it.
                Err(_) => task.abort(),
            }
        }
    }
}

/// Draws a random UUID, 32 bits at a time.
pub(crate) fn draw_uuid(chance: &dyn Fn() -> f64) -> Uuid {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^32")]
    let draw = || u128::from((chance() * 4_294_967_296.0) as u32);
    let bits = (0..4).fold(0, |bits, _| bits << 32 | draw());
    Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

/// Sends a goodbye to one edge after the other. When the time is up, the remaining edges are
/// dropped with the hub, and find another one by themselves.
async fn hand_over(hub: &SessionDependencies) {
    let limits = &hub.limits;
    let began = Instant::now();
    let sessions = hub.sessions.ids();
    let due = (0_u32..).map(|n| limits.between_goodbyes().saturating_mul(n));
    for (n, (session, due)) in sessions.iter().zip(due).enumerate() {
        if due > limits.handover_within {
            let left = sessions.len() - n;
            tracing::warn!(left, "the hub stops before it could send a goodbye to every edge");
            return;
        }
        sleep_until(began + due).await;
        hub.sessions.send_goodbye(*session);
    }
    tracing::info!(edges = sessions.len(), "the hub has sent a goodbye to every edge");
}

#[cfg(test)]
mod tests;
