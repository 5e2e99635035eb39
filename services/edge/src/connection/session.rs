//! The session with a hub: one task owns the protocol's state, the connection and the waits.
//!
//! ```text
//!             due             accepted
//!   Waiting ------> Dialing ------------> Up
//!    ^ ^ ^ ^           |                 | | |
//!    | | | +-----------+                 | | |
//!    | | |   no connection               | | |
//!    | | +-------------------------------+ | |
//!    | |     closed, broken, refused       | |
//!    | +------- Raising <------------------+ |
//!    |  raised    the hub knows a later      |
//!    |            start of this node         |
//!    +--------- Fenced <---------------------+
//!      restored   another machine has this identity
//!
//!   any phase --cut--> Cut --restored--> Waiting, or Raising
//!   Waiting --due, no hub is configured--> NoHub
//! ```
//!
//! The task waits in one `select` only. Replica and outbox thread may wait for this task; it never
//! waits for them, so there is no deadlock.

mod answer_wait;
mod failures;
mod outputs;
mod phase;
mod queues;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use headwater_event::StreamId;
use headwater_event::presence::NODE_BEAT;
use headwater_session::message::{EdgeHeartbeat, HubMessage};
use headwater_session::{EdgeInput, EdgeSession, EdgeSettings, EdgeState, EdgeStreamStatus};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until};
use tokio_util::sync::CancellationToken;

use self::answer_wait::{AnswerWait, Question};
use self::failures::FailureLog;
use self::phase::{LinkEvent, Phase};
use self::queues::{ReplicaQueue, UpstreamQueue};
use self::requests::CloudRequests;
pub(crate) use self::requests::{CloudAsk, CloudResponse};
use super::address::HubAddress;
use super::backoff::BackoffSettings;
use super::dialer::{Dialer, DisconnectReason, LinkDialer};
use super::link::LinkError;
use crate::dependencies::{Chance, Clock};
use crate::meta::cluster_consumers::{ClusterConsumers, ClusterConsumption};
use crate::meta::worker::WorkerState;
use crate::metrics::EdgeCounts;
use crate::replica::{ReplicaCommand, ReplicaEvent};
use crate::tunnel::TunnelCommand;
use crate::upstream::outbox::OutboxPage;
use crate::upstream::{UpstreamCommand, UpstreamEvent, UpstreamStatus};

/// How often an edge sends a heartbeat. A node is present at its hub for 25 s after the last one, so
/// one may be lost and the next one may be late; the session ends after 45 s.
pub const HEARTBEAT_INTERVAL: Duration = NODE_BEAT;

/// The shortest time between two acknowledgements of syncs. Each costs the hub a wake of the
/// connection and of the session, as a push does, and a node with many changes a second syncs after
/// most of them. The hub knows the position of such a node this much later. The first acknowledgement
/// after a pause is sent at once.
pub const ACK_INTERVAL: Duration = Duration::from_millis(250);

/// How long a node still counts as a reader of the shared stream after the last program has read it.
/// A program that restarts must not cost the whole stream once more, which may have megabytes.
pub const CONSUMER_GRACE: Duration = Duration::from_secs(3600);

/// How often the session reads the clock for everything that has a deadline in seconds.
const TICK: Duration = Duration::from_secs(1);

/// The bounds of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// The bounds of the protocol.
    pub protocol: EdgeSettings,
    /// The waits between connections.
    pub backoff: BackoffSettings,
    /// See [`HEARTBEAT_INTERVAL`].
    pub heartbeat_interval: Duration,
    /// See [`ACK_INTERVAL`].
    pub ack_interval: Duration,
    /// See [`CONSUMER_GRACE`].
    pub consumer_grace: Duration,
}

/// What other tasks ask of the session.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    /// Cut the link, or restore it.
    Cut(bool),
    /// Ask the cloud.
    Request { ask: CloudAsk, timeout: Duration, reply: oneshot::Sender<CloudResponse> },
    /// Send the status.
    Status(oneshot::Sender<SessionStatus>),
}

/// The state of the session.
#[derive(Clone, Debug)]
pub(crate) struct SessionStatus {
    /// Whether a hub has welcomed the session.
    pub(crate) connected: bool,
    /// The hub that was dialed last.
    pub(crate) hub: Option<String>,
    pub(crate) streams: Vec<EdgeStreamStatus>,
    /// What needs a person.
    pub(crate) trouble: Option<String>,
}

/// What the session needs from outside.
pub(crate) struct SessionDependencies {
    pub(crate) dial: LinkDialer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<dyn Chance>,
    pub(crate) metrics: EdgeCounts,
    pub(crate) commands: mpsc::Receiver<SessionCommand>,
    pub(crate) replica: mpsc::Sender<ReplicaCommand>,
    pub(crate) replica_events: mpsc::Receiver<ReplicaEvent>,
    pub(crate) upstream: mpsc::Sender<UpstreamCommand>,
    pub(crate) upstream_events: mpsc::Receiver<UpstreamEvent>,
    pub(crate) upstream_status: watch::Receiver<UpstreamStatus>,
    /// The programs that read the shared stream.
    pub(crate) cluster_consumers: ClusterConsumers,
    /// The number of open watches of the pod worker.
    pub(crate) worker_watches: watch::Receiver<usize>,
    /// Whether a hub has welcomed the present connection.
    pub(crate) connected: watch::Sender<bool>,
    /// The task of streams; `None`: the edge takes no dials.
    pub(crate) tunnel: Option<mpsc::Sender<TunnelCommand>>,
}

/// The task of the session; see the module.
pub(crate) struct Session {
    protocol: EdgeSession,
    phase: Phase,
    dialer: Dialer,
    requests: CloudRequests,
    failures: FailureLog,
    answer_wait: AnswerWait,
    heartbeat_interval: Duration,
    /// When the last heartbeat was made.
    heartbeat_ms: Option<u64>,
    ack_interval: Duration,
    /// When the next acknowledgement may be sent, if the session waits for that.
    ack_at: Option<Instant>,
    replica: ReplicaQueue,
    upstream: UpstreamQueue,
    inbox: Inbox,
    upstream_status: watch::Receiver<UpstreamStatus>,
    cluster_consumers: ClusterConsumers,
    cluster_consumption: ClusterConsumption,
    /// Whether the node reads the shared stream, as of the last look.
    consumes_cluster: bool,
    worker_watches: watch::Receiver<usize>,
    worker: WorkerState,
    /// Whether the worker does not run, as of the last look.
    lacks_worker: bool,
    /// Whether the hub of this session has received that no report waits.
    has_sent_drained: bool,
    connected: watch::Sender<bool>,
    tunnel: Option<mpsc::Sender<TunnelCommand>>,
    clock: Arc<dyn Clock>,
    metrics: EdgeCounts,
}

/// What other tasks send to the session.
struct Inbox {
    commands: mpsc::Receiver<SessionCommand>,
    replica: mpsc::Receiver<ReplicaEvent>,
    upstream: mpsc::Receiver<UpstreamEvent>,
}

/// What the one wait brought.
enum SessionEvent {
    /// A second has passed.
    Tick,
    /// The interval between two acknowledgements has passed.
    AckDue,
    /// From the replica.
    Replica(ReplicaEvent),
    /// From the outbox thread.
    Upstream(UpstreamEvent),
    /// From the local API or the edge's handle.
    Command(SessionCommand),
    /// The worker opened or lost a watch.
    Worker,
    /// An owner took a queued command.
    HandedOver,
    /// From the connection.
    Link(LinkEvent),
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            protocol: EdgeSettings::default(),
            backoff: BackoffSettings::default(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            ack_interval: ACK_INTERVAL,
            consumer_grace: CONSUMER_GRACE,
        }
    }
}

impl Session {
    pub(crate) fn new(
        settings: SessionSettings,
        state: EdgeState,
        hubs: Vec<HubAddress>,
        dependencies: SessionDependencies,
    ) -> Self {
        let SessionSettings { protocol, backoff, heartbeat_interval, ack_interval, consumer_grace } =
            settings;
        let SessionDependencies {
            dial,
            clock,
            chance,
            metrics,
            commands,
            replica,
            replica_events,
            upstream,
            upstream_events,
            upstream_status,
            cluster_consumers,
            worker_watches,
            connected,
            tunnel,
        } = dependencies;
        let protocol = EdgeSettings { takes_dials: tunnel.is_some(), ..protocol };
        let consumes_cluster = state
            .assignment
            .as_ref()
            .is_some_and(|assignment| assignment.contains(&StreamId::Cluster));
        let grace_ms = u64::try_from(consumer_grace.as_millis()).unwrap_or(u64::MAX);
        let now_ms = clock.monotonic_ms();
        Self {
            protocol: EdgeSession::new(protocol, state),
            phase: Phase::Waiting { until: Instant::now() },
            dialer: Dialer::new(hubs, backoff, dial, chance),
            requests: CloudRequests::default(),
            failures: FailureLog::default(),
            answer_wait: AnswerWait::default(),
            heartbeat_interval,
            heartbeat_ms: None,
            ack_interval,
            ack_at: None,
            replica: ReplicaQueue::new(replica),
            upstream: UpstreamQueue::new(upstream),
            inbox: Inbox { commands, replica: replica_events, upstream: upstream_events },
            upstream_status,
            cluster_consumers,
            cluster_consumption: ClusterConsumption::at_start(consumes_cluster, now_ms, grace_ms),
            consumes_cluster,
            worker_watches,
            worker: WorkerState::at_start(now_ms),
            lacks_worker: false,
            has_sent_drained: false,
            connected,
            tunnel,
            clock,
            metrics,
        }
    }

    /// Holds sessions until `stop` is cancelled, or one of the two owners has ended.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while let Some(event) = self.next_event(&mut ticks, &stop).await {
            self.handle(event);
        }
    }

    /// Waits for the next event; `None` ends the task.
    async fn next_event(
        &mut self,
        ticks: &mut tokio::time::Interval,
        stop: &CancellationToken,
    ) -> Option<SessionEvent> {
        let may_receive = self.replica.is_empty();
        let ack_at = self.ack_at.unwrap_or_else(Instant::now);
        // The session bounds the first sources itself. The hub comes last: it may send without a
        // pause.
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            _ = ticks.tick() => Some(SessionEvent::Tick),
            () = sleep_until(ack_at), if self.ack_at.is_some() => Some(SessionEvent::AckDue),
            event = self.inbox.replica.recv() => event.map(SessionEvent::Replica),
            event = self.inbox.upstream.recv() => event.map(SessionEvent::Upstream),
            Some(command) = self.inbox.commands.recv() => Some(SessionEvent::Command(command)),
            Ok(()) = self.worker_watches.changed() => Some(SessionEvent::Worker),
            taken = self.replica.hand_over() => taken.then_some(SessionEvent::HandedOver),
            taken = self.upstream.hand_over() => taken.then_some(SessionEvent::HandedOver),
            event = self.phase.next_event(may_receive) => Some(SessionEvent::Link(event)),
        }
    }

    fn handle(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Tick => self.tick(),
            SessionEvent::AckDue => {
                self.ack_at = None;
                self.step(EdgeInput::AckDue);
            }
            SessionEvent::Replica(event) => self.step(match event {
                ReplicaEvent::Applied { stream, checkpoint, hash } => {
                    EdgeInput::Applied { stream, checkpoint, hash }
                }
                ReplicaEvent::Durable { stream, checkpoint } => {
                    EdgeInput::Durable { stream, checkpoint }
                }
                ReplicaEvent::Summarized { stream, nonce, digests } => {
                    EdgeInput::Summarized { stream, nonce, digests }
                }
            }),
            SessionEvent::Upstream(UpstreamEvent::Reported) => self.step(EdgeInput::Reported),
            SessionEvent::Upstream(UpstreamEvent::Read(page)) => {
                let OutboxPage { reports, is_end } = page;
                self.step(EdgeInput::Outbox { reports, is_end });
            }
            SessionEvent::Upstream(UpstreamEvent::Raised(identity)) => {
                self.step(EdgeInput::BootRaised(identity));
                self.phase.raised();
            }
            SessionEvent::Command(command) => self.command(command),
            SessionEvent::Worker => {
                if self.look_at_worker(self.clock.monotonic_ms()) {
                    let heartbeat = self.heartbeat();
                    self.step(heartbeat);
                }
            }
            SessionEvent::HandedOver => {}
            SessionEvent::Link(event) => self.link_event(event),
        }
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Due => {
                self.phase = self.dialer.dial().map_or(Phase::NoHub, Phase::Dialing);
                self.answer_wait.end();
                self.look_at_wait();
            }
            LinkEvent::Dialed(Ok(link)) => {
                let since = Instant::now();
                self.phase = Phase::Up { link, since, send_queue: Box::default() };
                self.step(EdgeInput::Connected);
            }
            LinkEvent::Dialed(Err(error)) | LinkEvent::Received(Err(error)) => {
                self.lost(&error);
            }
            LinkEvent::Received(Ok(message)) => {
                self.metrics.contacted(self.clock.wall_ms());
                if matches!(message, HubMessage::Welcome(_) | HubMessage::ReportsAcked(_)) {
                    self.answer_wait.end();
                }
                self.step(EdgeInput::Received(message));
            }
            LinkEvent::Sent => {}
            LinkEvent::Closed => self.disconnect(DisconnectReason::Failed),
        }
    }

    fn lost(&mut self, error: &LinkError) {
        let was_welcomed = self.protocol.is_open();
        self.failures.no_connection(error, was_welcomed, &self.metrics);
        self.disconnect(match error.is_unreachable() {
            true => DisconnectReason::NoResponse,
            false => DisconnectReason::Failed,
        });
    }

    fn disconnect(&mut self, reason: DisconnectReason) {
        self.phase = Phase::Waiting { until: self.next_dial(reason) };
        self.answer_wait.end();
        self.step(EdgeInput::Disconnected);
    }

    /// When the next hub is dialed, after the present connection or attempt.
    fn next_dial(&mut self, reason: DisconnectReason) -> Instant {
        let lasted = match &self.phase {
            Phase::Up { since, .. } => Some(since.elapsed()),
            _ => None,
        };
        Instant::now() + self.dialer.retry_after(reason, lasted)
    }

    fn command(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Cut(true) => {
                self.next_dial(DisconnectReason::Failed);
                self.phase.cut();
                // A full queue has dials only, and those to no hub end by themselves.
                let _ = self.tunnel.as_ref().map(|tunnel| tunnel.try_send(TunnelCommand::Close));
                self.step(EdgeInput::Disconnected);
            }
            SessionCommand::Cut(false) => self.phase.restore(),
            SessionCommand::Request { ask, timeout, reply } => {
                let request = self.requests.open(ask, timeout, reply);
                self.step(EdgeInput::Asked(request));
            }
            SessionCommand::Status(reply) => {
                let _ = reply.send(self.status());
            }
        }
    }

    fn status(&self) -> SessionStatus {
        let streams: Vec<_> = self.protocol.streams().collect();
        let stopped = streams.iter().find(|stream| stream.stopped).map(|stopped| {
            format!("stream {} differs from the log and waits for a snapshot", stopped.stream)
        });
        let hub = self.dialer.last_hub();
        let silence = hub.as_ref().and_then(|hub| self.answer_wait.trouble(hub, Instant::now()));
        SessionStatus {
            connected: self.protocol.is_open(),
            hub,
            streams,
            trouble: self.failures.trouble().or(stopped).or(silence),
        }
    }

    /// Notes what the edge waits for.
    fn look_at_wait(&mut self) {
        let question = match &self.phase {
            Phase::Dialing(_) => Some(Question::Session),
            Phase::Up { .. } if !self.protocol.is_open() => Some(Question::Session),
            Phase::Up { .. } => {
                (self.upstream_status.borrow().depth > 0).then_some(Question::Reports)
            }
            _ => None,
        };
        self.answer_wait.look(question, Instant::now());
    }

    fn tick(&mut self) {
        let now_ms = self.clock.monotonic_ms();
        self.step(EdgeInput::Tick(now_ms));
        if self.metrics.counts() {
            let streams: Vec<_> = self.protocol.streams().collect();
            self.metrics.streams(&streams);
            self.metrics.waiting(self.replica.len());
        }
        self.look_at_wait();
        self.replica.tick(now_ms);
        self.upstream.tick(now_ms);
        let is_used = self.cluster_consumers.take_use();
        let consumed_before = self.consumes_cluster;
        self.consumes_cluster = self.cluster_consumption.look(is_used, now_ms);
        let has_changed = self.consumes_cluster != consumed_before
            || self.look_at_worker(now_ms)
            || self.has_just_drained();
        let interval = u64::try_from(self.heartbeat_interval.as_millis()).unwrap_or(u64::MAX);
        let is_due =
            self.heartbeat_ms.is_none_or(|last_ms| now_ms.saturating_sub(last_ms) >= interval);
        if is_due || has_changed {
            let heartbeat = self.heartbeat();
            self.step(heartbeat);
        }
    }

    /// Looks whether the worker runs; returns whether that has changed.
    fn look_at_worker(&mut self, now_ms: u64) -> bool {
        let is_open = *self.worker_watches.borrow_and_update() > 0;
        let lacks_worker = !self.worker.look(is_open, now_ms);
        std::mem::replace(&mut self.lacks_worker, lacks_worker) != lacks_worker
    }

    /// Whether no report waits, for the first time in this session.
    fn has_just_drained(&self) -> bool {
        self.protocol.is_open()
            && !self.has_sent_drained
            && self.upstream_status.borrow().depth == 0
    }

    fn heartbeat(&mut self) -> EdgeInput {
        self.heartbeat_ms = Some(self.clock.monotonic_ms());
        let status = self.upstream_status.borrow();
        self.has_sent_drained |= self.protocol.is_open() && status.depth == 0;
        EdgeInput::Heartbeat(EdgeHeartbeat {
            outbox_depth: status.depth as u64,
            time_ms: self.clock.wall_ms(),
            meta_sync_ms: status.last_meta_sync_ms,
            consumes_cluster: Some(self.consumes_cluster),
            lacks_worker: self.lacks_worker,
        })
    }
}
