//! The session's shell: one task owns the protocol's state, the connection and the waits.
//!
//! ```text
//!            wait over            accepted
//!  Waiting -----------> Dialing -----------> Up
//!     ^                    | refused          | ended, closed, broken
//!     +--------------------+------------------+
//!  Cut: somebody cut the link.   Fenced: a person must act.   Raising: the identity first.
//! ```
//!
//! It never waits for anyone but in its one `select`: replica and upstream may block on it, it
//! never blocks on them.

mod wait;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use headwater_event::{Identity, ResourceKey};
use headwater_session::message::{EdgeHeartbeat, RefusalCode, Request, RequestError};
use headwater_session::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeSettings, EdgeState, EdgeStreamStatus,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::wait::{Phase, SessionEvent, ToReplica, linked, to_replica, to_upstream};
use crate::connection::address::HubAddress;
use crate::connection::backoff::{Backoff, BackoffSettings};
use crate::connection::link::{Link, LinkError};
use crate::connection::send_queue::SendQueue;
use crate::dependencies::{Chance, Clock};
use crate::metrics::{EdgeCounts, ErrorKind};
use crate::replica::fold::PreparedPush;
use crate::replica::{ReplicaCommand, ReplicaEvent};
use crate::upstream::{UpstreamCommand, UpstreamEvent, UpstreamStatus};

/// How often the edge says that it lives: a hub calls it gone after 45 s, and two may be lost.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// How often the clock is read for everyone who has deadlines in seconds.
const TICK: Duration = Duration::from_secs(1);

/// Bytes of pushes that may wait for the replica: two full windows. Then the hub is not read.
const INTAKE_BYTES_MAX: usize = 8 << 20;

/// The unit in which the intake is counted.
const INTAKE_UNIT: usize = 1 << 10;

/// How the session is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// The bounds of the protocol.
    pub protocol: EdgeSettings,
    /// The waits between connections.
    pub backoff: BackoffSettings,
    /// See [`HEARTBEAT_INTERVAL`].
    pub heartbeat_interval: Duration,
}

/// What the session is asked from outside.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    /// Cut the link, or restore it.
    Cut(bool),
    /// Ask the cloud for an object.
    Ask { key: ResourceKey, timeout: Duration, reply: oneshot::Sender<CloudResponse> },
    /// Where the session stands.
    Status(oneshot::Sender<SessionStatus>),
}

/// How a hub is asked for a connection.
pub(crate) type LinkDialer =
    Arc<dyn Fn(HubAddress) -> BoxFuture<'static, Result<Link, LinkError>> + Send + Sync>;

/// The answer of the cloud.
pub(crate) type CloudResponse = Result<Bytes, RequestError>;

/// Where the session stands.
#[derive(Clone, Debug)]
pub(crate) struct SessionStatus {
    pub(crate) connected: bool,
    /// The hub that was tried last.
    pub(crate) hub: Option<String>,
    pub(crate) streams: Vec<EdgeStreamStatus>,
    pub(crate) trouble: Option<String>,
}

/// What the session's task hears and speaks through.
#[derive(Debug)]
pub(crate) struct SessionDependencies {
    pub(crate) commands: mpsc::Receiver<SessionCommand>,
    pub(crate) replica: mpsc::Sender<ReplicaCommand>,
    pub(crate) answers: mpsc::Receiver<ReplicaEvent>,
    pub(crate) upstream: mpsc::Sender<UpstreamCommand>,
    pub(crate) events: mpsc::Receiver<UpstreamEvent>,
    pub(crate) upstream_status: watch::Receiver<UpstreamStatus>,
    /// Whether a hub has welcomed the present connection.
    pub(crate) connected: watch::Sender<bool>,
    /// What is counted.
    pub(crate) metrics: EdgeCounts,
}

/// How a connection ended, or came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DisconnectReason {
    /// The hub asked the edge to go on elsewhere.
    Moved,
    /// Nobody answered.
    NoResponse,
    /// Otherwise.
    Failed,
}

/// See the module.
pub(crate) struct Session {
    settings: SessionSettings,
    session: EdgeSession,
    hubs: Vec<HubAddress>,
    dial: LinkDialer,
    next_hub: usize,
    last_hub: Option<String>,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    wires: SessionDependencies,
    phase: Phase,
    cut: bool,
    raising: bool,
    /// Why the last session ended, until one is welcomed.
    last_end: Option<String>,
    backoff: Backoff,
    outgoing: SendQueue,
    /// What replica and upstream have not taken yet; the protocol bounds both.
    to_replica: VecDeque<ToReplica>,
    to_upstream: VecDeque<UpstreamCommand>,
    intake: Arc<Semaphore>,
    asked: HashMap<u64, oneshot::Sender<CloudResponse>>,
    next_request: u64,
    trouble: Option<String>,
    beaten_ms: Option<u64>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            protocol: EdgeSettings::default(),
            backoff: BackoffSettings::default(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
        }
    }
}

impl Session {
    pub(crate) fn new(
        settings: SessionSettings,
        state: EdgeState,
        hubs: Vec<HubAddress>,
        dial: LinkDialer,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
        wires: SessionDependencies,
    ) -> Self {
        // Edges that were given the same list do not all begin with the same hub.
        let next_hub = usize::try_from(chance.draw() % (hubs.len().max(1) as u64)).unwrap_or(0);
        Self {
            session: EdgeSession::new(settings.protocol.clone(), state),
            backoff: Backoff::new(settings.backoff, hubs.len()),
            settings,
            hubs,
            dial,
            next_hub,
            last_hub: None,
            clock,
            chance,
            wires,
            phase: Phase::Waiting(Instant::now()),
            cut: false,
            raising: false,
            last_end: None,
            outgoing: SendQueue::default(),
            to_replica: VecDeque::new(),
            to_upstream: VecDeque::new(),
            intake: Arc::new(Semaphore::new(INTAKE_BYTES_MAX / INTAKE_UNIT)),
            asked: HashMap::new(),
            next_request: 1,
            trouble: None,
            beaten_ms: None,
        }
    }

    /// Holds sessions until it is cancelled, or replica or upstream are gone.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while let Some(happened) = self.next(&mut ticks, &stop).await {
            self.take(happened);
        }
    }

    /// The one wait: everything that may happen to the session.
    async fn next(
        &mut self,
        ticks: &mut tokio::time::Interval,
        stop: &CancellationToken,
    ) -> Option<SessionEvent> {
        let may_read = self.to_replica.is_empty();
        let has_outgoing = !self.outgoing.is_empty();
        // What it can bound itself goes first, the hub last: it may speak without a pause.
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            _ = ticks.tick() => Some(SessionEvent::Tick),
            answer = self.wires.answers.recv() => answer.map(SessionEvent::Answered),
            event = self.wires.events.recv() => event.map(SessionEvent::Upstream),
            Some(command) = self.wires.commands.recv() => Some(SessionEvent::Asked(command)),
            taken = to_replica(&mut self.to_replica, &self.intake, &self.wires.replica) => {
                taken.then_some(SessionEvent::Nothing)
            }
            taken = to_upstream(&mut self.to_upstream, &self.wires.upstream) => {
                taken.then_some(SessionEvent::Nothing)
            }
            linked = linked(&mut self.phase, may_read, has_outgoing) => Some(linked),
        }
    }

    fn take(&mut self, happened: SessionEvent) {
        match happened {
            SessionEvent::Nothing => {}
            SessionEvent::Answered(answer) => self.step(match answer {
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
            SessionEvent::Upstream(event) => self.heard_upstream(event),
            SessionEvent::Asked(command) => self.asked(command),
            SessionEvent::Tick => self.tick(),
            SessionEvent::WaitOver => self.dial(),
            SessionEvent::Dialed(Ok(link)) => {
                self.phase = Phase::Up { link, since: Instant::now() };
                self.outgoing.clear();
                self.step(EdgeInput::Connected);
            }
            SessionEvent::Dialed(Err(error)) | SessionEvent::Heard(Err(error)) => {
                tracing::info!(error = &error as &dyn std::error::Error, "no connection");
                self.wires.metrics.failed(error.counts_as());
                if let Some(trouble) = error.trouble() {
                    self.troubled(trouble);
                }
                self.disconnect(match error.is_unreachable() {
                    true => DisconnectReason::NoResponse,
                    false => DisconnectReason::Failed,
                });
            }
            SessionEvent::Gone => self.disconnect(DisconnectReason::Failed),
            SessionEvent::Heard(Ok(message)) => {
                self.wires.metrics.heard(self.clock.wall_ms());
                self.step(EdgeInput::Received(message));
            }
            SessionEvent::Writable => {
                if let Phase::Up { link, .. } = &self.phase
                    && let Some(message) = self.outgoing.pop()
                {
                    // There was room a moment ago, and this task alone sends.
                    let _ = link.outgoing.try_send(message);
                }
            }
        }
    }

    fn step(&mut self, input: EdgeInput) {
        let was_open = self.session.is_open();
        let mut outputs = VecDeque::from(self.session.step(input));
        while let Some(output) = outputs.pop_front() {
            if let Some(input) = self.carry_out(output) {
                outputs.extend(self.session.step(input));
            }
        }
        if was_open && !self.session.is_open() {
            self.wires.connected.send_replace(false);
            self.wires.metrics.connected(false);
        }
    }

    /// Does what came out; gives what is to go in because of it.
    fn carry_out(&mut self, output: EdgeOutput) -> Option<EdgeInput> {
        match output {
            EdgeOutput::Send(message) => self.outgoing.push(message),
            EdgeOutput::Sync => self.tell_replica(ReplicaCommand::Sync, 0),
            EdgeOutput::Apply(push) => {
                let bytes = usize::try_from(push.bytes()).unwrap_or(usize::MAX);
                let units = bytes.min(INTAKE_BYTES_MAX).div_ceil(INTAKE_UNIT);
                let units = u32::try_from(units).unwrap_or(1);
                let push = PreparedPush::from(push);
                self.tell_replica(ReplicaCommand::Apply { push, room: None }, units);
            }
            EdgeOutput::Summarize { stream, nonce, entries_max } => {
                let command = ReplicaCommand::Summarize { stream, nonce, entries_max };
                self.tell_replica(command, 0);
            }
            // Part 0 of the next one clears what is staged.
            EdgeOutput::Unstage(_) => {}
            EdgeOutput::Drop(stream) => self.tell_replica(ReplicaCommand::Drop(stream), 0),
            EdgeOutput::ReadOutbox { after, count } => {
                self.to_upstream.push_back(UpstreamCommand::Read { after, count });
            }
            EdgeOutput::Forget(through) => {
                self.to_upstream.push_back(UpstreamCommand::Forget(through));
            }
            EdgeOutput::RaiseBoot { known } => self.raise(known),
            EdgeOutput::Answered(response) => {
                if let Some(reply) = self.asked.remove(&response.id) {
                    let _ = reply.send(response.outcome);
                }
            }
            EdgeOutput::Welcomed { log_id } => {
                tracing::info!(%log_id, "connected");
                self.trouble = None;
                self.last_end = None;
                self.wires.connected.send_replace(true);
                self.wires.metrics.connected(true);
                return Some(self.heartbeat());
            }
            EdgeOutput::Parked(parked) => {
                tracing::info!(stream = %parked.stream, reason = parked.reason, "parked");
            }
            EdgeOutput::Stopped(stop) => {
                tracing::error!(error = &stop as &dyn std::error::Error, "a stream stopped");
            }
            EdgeOutput::Close(end) => {
                self.closed(&end);
                return Some(EdgeInput::Disconnected);
            }
        }
        None
    }

    fn closed(&mut self, end: &EdgeCloseReason) {
        self.log_end(end);
        let refused = match end {
            EdgeCloseReason::Refused(refusal) => Some(refusal.code),
            _ => None,
        };
        match (end, refused) {
            // Passing, and no trouble of this edge.
            (_, Some(RefusalCode::Unavailable | RefusalCode::Superseded))
            | (
                EdgeCloseReason::Moved { .. }
                | EdgeCloseReason::RaisingBoot { .. }
                | EdgeCloseReason::Silent { .. },
                _,
            ) => {}
            _ => {
                self.wires.metrics.failed(match refused {
                    Some(_) => ErrorKind::Refused,
                    None => ErrorKind::Session,
                });
                self.trouble = Some(end.to_string());
            }
        }
        if refused == Some(RefusalCode::StaleIdentity) {
            let known = self.session.identity().clone();
            self.raise(known);
        }
        self.hang_up(match end {
            EdgeCloseReason::Moved { .. } => DisconnectReason::Moved,
            _ => DisconnectReason::Failed,
        });
        if end.is_final() {
            self.phase = Phase::Held;
        }
    }

    /// Says why a session ended, once for each reason in a row: an edge that is refused tries
    /// again and again. What heals by itself is no warning.
    fn log_end(&mut self, end: &EdgeCloseReason) {
        let error = end as &dyn std::error::Error;
        let reason = end.to_string();
        if self.last_end.as_ref() == Some(&reason) {
            tracing::debug!(error, "the session ended");
        } else if matches!(end, EdgeCloseReason::RaisingBoot { .. } | EdgeCloseReason::Moved { .. })
        {
            tracing::info!(error, "the session ended");
        } else {
            tracing::warn!(error, "the session ended");
        }
        self.last_end = Some(reason);
    }

    /// Says what a person has to do something about, once for each in a row.
    fn troubled(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(trouble, "no connection");
        }
        self.trouble = Some(trouble);
    }

    fn disconnect(&mut self, parting: DisconnectReason) {
        self.hang_up(parting);
        self.step(EdgeInput::Disconnected);
    }

    /// Ends the connection, if there is one, and waits before the next, with the next hub.
    fn hang_up(&mut self, parting: DisconnectReason) {
        if let Phase::Up { since, .. } = &self.phase {
            self.backoff.session_ended(since.elapsed());
        }
        self.next_hub = (self.next_hub + 1) % self.hubs.len().max(1);
        let drawn = self.chance.draw();
        let wait = match parting {
            DisconnectReason::Moved => self.backoff.after_move(drawn),
            DisconnectReason::NoResponse => self.backoff.after_no_response(drawn),
            DisconnectReason::Failed => self.backoff.after_failure(drawn),
        };
        self.phase = Phase::Waiting(Instant::now() + wait);
        self.outgoing.clear();
    }

    fn dial(&mut self) {
        let hub = self.hubs.get(self.next_hub).cloned();
        self.phase = match hub {
            Some(hub) if !self.cut && !self.raising => {
                self.last_hub = Some(hub.to_string());
                Phase::Dialing((self.dial)(hub))
            }
            _ => Phase::Held,
        };
    }

    fn raise(&mut self, known: Identity) {
        self.raising = true;
        self.to_upstream.push_back(UpstreamCommand::Raise { known });
    }

    fn heard_upstream(&mut self, event: UpstreamEvent) {
        match event {
            UpstreamEvent::Reported => self.step(EdgeInput::Reported),
            UpstreamEvent::Read(reports) => self.step(EdgeInput::Outbox(reports)),
            UpstreamEvent::Raised(identity) => {
                self.raising = false;
                self.step(EdgeInput::BootRaised(identity));
                if matches!(self.phase, Phase::Held) && !self.cut {
                    self.phase = Phase::Waiting(Instant::now());
                }
            }
        }
    }

    fn asked(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Cut(cut) => {
                self.cut = cut;
                if cut {
                    self.disconnect(DisconnectReason::Failed);
                    self.phase = Phase::Held;
                } else if matches!(self.phase, Phase::Held) && !self.raising {
                    self.phase = Phase::Waiting(Instant::now());
                }
            }
            SessionCommand::Ask { key, timeout, reply } => {
                let id = self.next_request;
                self.next_request += 1;
                self.asked.retain(|_, reply| !reply.is_closed());
                self.asked.insert(id, reply);
                let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                self.step(EdgeInput::Asked(Request { id, timeout_ms, key }));
            }
            SessionCommand::Status(reply) => {
                let _ = reply.send(self.status());
            }
        }
    }

    fn status(&self) -> SessionStatus {
        let streams: Vec<_> = self.session.streams().collect();
        let stopped = streams.iter().find(|stream| stream.stopped).map(|stopped| {
            format!("stream {} differs from the log and waits for a snapshot", stopped.stream)
        });
        let trouble = self.trouble.clone().or(stopped);
        SessionStatus {
            connected: self.session.is_open(),
            hub: self.last_hub.clone(),
            streams,
            trouble,
        }
    }

    fn tick(&mut self) {
        let now_ms = self.clock.monotonic_ms();
        self.step(EdgeInput::Tick(now_ms));
        if self.wires.metrics.counts() {
            let streams: Vec<_> = self.session.streams().collect();
            self.wires.metrics.streams(&streams);
            self.wires.metrics.waiting(self.to_replica.len());
        }
        // Both have one in the queue already, if they are busy: a clock that lags does no harm.
        let _ = self.wires.replica.try_send(ReplicaCommand::Tick(now_ms));
        let _ = self.wires.upstream.try_send(UpstreamCommand::Tick(now_ms));
        let interval = u64::try_from(self.settings.heartbeat_interval.as_millis());
        let interval = interval.unwrap_or(u64::MAX);
        if self.beaten_ms.is_none_or(|beaten_ms| now_ms.saturating_sub(beaten_ms) >= interval) {
            let heartbeat = self.heartbeat();
            self.step(heartbeat);
        }
    }

    fn heartbeat(&mut self) -> EdgeInput {
        self.beaten_ms = Some(self.clock.monotonic_ms());
        let status = self.wires.upstream_status.borrow();
        EdgeInput::Heartbeat(EdgeHeartbeat {
            outbox_depth: status.depth as u64,
            time_ms: self.clock.wall_ms(),
            meta_sync_ms: status.last_meta_sync_ms,
        })
    }

    fn tell_replica(&mut self, command: ReplicaCommand, units: u32) {
        self.to_replica.push_back(ToReplica { command, units });
    }
}
