//! One session per edge: a task around the pure session of `headwater-session`.
//!
//! The task owns the state of its session. It waits for the next input, steps the session over the
//! fold, and carries the outputs out:
//!
//! ```text
//!            messages of the edge, notifications of the fold, room in the queue of the log,
//!            acknowledgements of the log, responses, slots, deadlines, dismissal
//!                    │
//!                    ▼ HubInput
//!  fold ──────► HubSession::step ──────► HubOutput: send, append, ask, identify, close
//! ```
//!
//! All deadlines run in this task. The response body of the gRPC call could not run them: HTTP/2
//! polls it no further than one chunk ahead of what the socket takes.
//!
//! | module | what it owns |
//! |---|---|
//! | `dependencies` | what every session needs from its hub |
//! | `output` | the messages to the edge, which may have to wait; and requests |
//! | `report_queue` | the reports that wait for room in the queue of the log |
//! | `position` | when the position of the node is published, and its content |
//! | `deadline` | when the session ends by the clock |
//! | `counters` | what the session counts |
//! | `spans` | the spans of pushed events |

mod counters;
mod deadline;
mod dependencies;
mod output;
mod position;
mod report_queue;
mod spans;

use std::collections::VecDeque;
use std::future::pending;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use headwater_event::{Identity, NodeName, StreamId};
use headwater_identity::{Distrust, PeerTrust};
use headwater_session::message::{
    Dial, EdgeMessage, Hello, HubMessage, Refusal, RefusalCode, Response,
};
use headwater_session::{HubInput, HubOutput, HubSession, SessionId};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;

use crate::admission::{Dismissal, HUB_STOPS, LiveSession, TransferSlot};
use crate::metrics::{EndReason, HelloOutcome};
use crate::server::{OutgoingMessage, not_trusted};
use crate::tunnels::DialQueue;
use crate::upstream::AppendOutcome;
use crate::watched_value::WatchedValue;
use counters::SessionCounters;
use deadline::Deadline;
pub(crate) use dependencies::SessionDependencies;
use position::PositionPublisher;
use report_queue::ReportQueue;

/// How often the session receives the time.
const TICK: Duration = Duration::from_secs(1);

/// Messages that are read although a tick is due. Those that arrived while the hub did not run are signs of
/// life, and count before the tick looks for silence. An edge that sends without end has ticks as well: they
/// check its certificate.
const MESSAGES_BEFORE_TICK: u32 = 1_000;

/// Why an edge must connect again after the upstream log was created again.
const REPORTS_LOST: &str = "the upstream log was created again: send the reports once more";

/// The messages to the edge. Boxed: the channel has room for dozens, and a hub has thousands of
/// sessions.
pub(crate) type Outbound = mpsc::Sender<Box<OutgoingMessage>>;

/// A session of one edge.
pub(crate) struct SessionTask {
    hub: Arc<SessionDependencies>,
    id: SessionId,
    node: NodeName,
    session: HubSession,
    outbound: Outbound,
    /// Why others end the session.
    dismissal: Arc<WatchedValue<Option<Dismissal>>>,
    /// The dials to the edge; `None`: the edge takes none.
    dials: Option<Arc<DialQueue>>,
    /// Notified when the fold changes in a way that concerns the session.
    changed: Arc<Notify>,
    /// Sorted. A list: a set has room for eleven, and most edges have two.
    subscribed: Vec<StreamId>,
    reports: ReportQueue,
    /// Requests in flight; they end with the session.
    requests: JoinSet<Response>,
    transfer_slot: TransferSlot,
    position: PositionPublisher,
    counters: SessionCounters,
}

/// What the server knows of an edge that has sent its hello.
pub(crate) struct Arrival {
    /// The id of the new session.
    pub(crate) session: SessionId,
    /// The node, as its certificate names it.
    pub(crate) node: NodeName,
    /// When its certificate expires.
    pub(crate) valid_until: Option<Instant>,
    /// The trust in its certificate, which a new CA ends.
    pub(crate) trust: Option<PeerTrust>,
    /// Its hello.
    pub(crate) hello: Hello,
}

impl Arrival {
    /// The hello; when the certificate expires; the trust in it. The room of the arrival is free then.
    #[allow(clippy::boxed_local, reason = "the box ends here")]
    fn into_parts(self: Box<Self>) -> (Hello, Option<Instant>, Option<PeerTrust>) {
        let Self { valid_until, trust, hello, .. } = *self;
        (hello, valid_until, trust)
    }
}

impl SessionTask {
    /// Serves an edge until its session ends. `messages` are the edge's messages after the hello,
    /// or why none follow; HTTP/2's own window holds those that the session has not taken yet.
    pub(crate) async fn serve(
        hub: Arc<SessionDependencies>,
        arrival: Box<Arrival>,
        messages: impl Stream<Item = Result<EdgeMessage, Status>> + Unpin,
        outbound: Outbound,
    ) {
        let (id, node) = (arrival.session, arrival.node.clone());
        let dismissal = Arc::<WatchedValue<_>>::default();
        let dials = DialQueue::new(arrival.hello.dials).map(Arc::new);
        let contact_ms = (hub.wall_clock)();
        let live = LiveSession { dismissal: dismissal.clone(), dials: dials.clone() };
        if let Err(error) = hub.sessions.admit(id, &node, live) {
            hub.metrics.sessions.hello(HelloOutcome::NotAdmitted(error.metric_name()));
            let refusal = HubMessage::Refusal(error.refusal());
            let _ = outbound.send(Box::new(Ok(refusal.into()))).await;
            return;
        }
        let mut session = Self {
            id,
            session: HubSession::new(hub.settings.clone(), node.clone()),
            node,
            outbound,
            dismissal,
            dials,
            changed: hub.fold.subscriptions().add(id),
            subscribed: Vec::new(),
            reports: ReportQueue::new(hub.upstream.clone()),
            requests: JoinSet::new(),
            transfer_slot: hub.transfers.slot(),
            position: PositionPublisher::new(contact_ms),
            counters: SessionCounters::new(hub.metrics.sessions.clone(), contact_ms),
            hub,
        };
        let reason = session.run(arrival, messages).await;
        session.counters.ended(reason);
        session.leave();
    }

    async fn run(
        &mut self,
        arrival: Box<Arrival>,
        mut messages: impl Stream<Item = Result<EdgeMessage, Status>> + Unpin,
    ) -> EndReason {
        let (hello, valid_until, mut trust) = arrival.into_parts();
        let started = Instant::now();
        let age = self.hub.limits.age((self.hub.chance)());
        let deadline = Deadline::of(started, age, valid_until);
        let mut deadline_passed = pin!(deadline.passed());
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let changed = self.changed.clone();
        let outcome = self.reports.outcome().clone();
        let mut messages_since_look = 0;
        let mut input = HubInput::Received(EdgeMessage::Hello(hello));
        loop {
            if let ControlFlow::Break(reason) = self.step(input).await {
                return reason;
            }
            self.publish_position_if_due();
            input = loop {
                let reads = self.reports.has_room();
                self.dials.iter().for_each(|dials| dials.set_read(reads));
                // An edge that sends without end keeps neither the worker nor the ticks from others.
                tokio::task::consume_budget().await;
                if messages_since_look >= MESSAGES_BEFORE_TICK {
                    messages_since_look = 0;
                    if let Some(now) = ticks.tick().now_or_never() {
                        break self.tick(now - started, trust.as_mut());
                    }
                }
                break tokio::select! {
                    biased;
                    dismissal = dismissal(&self.dismissal) => match dismissal {
                        Dismissal::Refused(refusal) => HubInput::Dismissed(refusal),
                        Dismissal::Leaving => HubInput::Leaving(HUB_STOPS.to_owned()),
                    },
                    () = &mut deadline_passed => deadline.input(&self.node),
                    message = messages.next(), if reads => match message {
                        Some(Ok(message)) => {
                            messages_since_look += 1;
                            self.position.contact((self.hub.wall_clock)());
                            self.dials.iter().for_each(|dials| dials.hear());
                            HubInput::Received(message)
                        }
                        Some(Err(status)) => {
                            // An edge that takes nothing does not hold its session up.
                            if self.has_room() || Box::pin(self.wait_for_room()).await.is_continue() {
                                let _ = self.outbound.try_send(Box::new(Err(status)));
                            }
                            return EndReason::Broken;
                        }
                        None => return EndReason::Left,
                    },
                    () = outcome.changed() => match AppendOutcome::take(&outcome) {
                        Some(acked) => HubInput::Appended(acked),
                        None => HubInput::Leaving(REPORTS_LOST.to_owned()),
                    },
                    room = self.reports.room() => match room {
                        Some(permit) => {
                            self.reports.take_room(&self.node, permit);
                            continue;
                        }
                        None => return EndReason::Upstream,
                    },
                    Some(Ok(response)) = self.requests.join_next() => HubInput::Answered(response),
                    dial = next_dial(self.dials.as_deref()) => HubInput::Dial(dial),
                    () = changed.notified() => HubInput::Advanced,
                    () = self.transfer_slot.granted() => HubInput::Advanced,
                    now = ticks.tick() => self.tick(now - started, trust.as_mut()),
                };
            };
        }
    }

    /// The input of a tick at `age`, if the edge is still trusted.
    fn tick(&self, age: Duration, trust: Option<&mut PeerTrust>) -> HubInput {
        match trust.map_or(Ok(()), PeerTrust::check) {
            Ok(()) => HubInput::Tick(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            Err(distrust) => HubInput::Dismissed(no_longer_trusted(&self.node, &distrust)),
        }
    }

    /// Steps the session and carries its outputs out; breaks when the session ends.
    async fn step(&mut self, input: HubInput) -> ControlFlow<EndReason> {
        let is_tick = matches!(input, HubInput::Tick(_));
        let (mut next, mut inputs) = (Some(input), VecDeque::new());
        if !is_tick {
            self.position.moved();
        } else if !self.reports.has_room() {
            inputs.extend(next.replace(HubInput::Unread));
            // The edge is not silent: its messages wait here. The pings of HTTP/2 end a connection whose edge is gone.
            self.position.contact((self.hub.wall_clock)());
            self.position.moved();
        }
        // Only a hello, and a tick while reports wait, cause further inputs: the list is mostly empty.
        while let Some(input) = next.take().or_else(|| inputs.pop_front()) {
            let (outputs, wants_transfer) = {
                let source = self.hub.fold.source().with_heads_of(&self.subscribed);
                let source = source.with_transfer(self.transfer_slot.is_held());
                (self.session.step(&source, input), source.wants_transfer())
            };
            if wants_transfer {
                self.transfer_slot.request();
            } else if !self.session.is_transferring() {
                self.transfer_slot.release();
            }
            for output in outputs {
                match output {
                    HubOutput::Identify(identity) => inputs.push_back(self.identify(&identity)),
                    HubOutput::Send(message) if self.has_room() => self.send(message)?,
                    HubOutput::Share(push) if self.has_room() => self.share(&push)?,
                    // Boxed: a session rarely waits, and would have the size of the wait all the time.
                    HubOutput::Send(message) => Box::pin(self.send_later(message)).await?,
                    HubOutput::Share(push) => Box::pin(self.share_later(&push)).await?,
                    HubOutput::AppendReports(reports) => {
                        let wait = self.hub.reports.take(&self.node, &reports);
                        self.reports.add(&self.node, reports, Instant::now() + wait);
                    }
                    HubOutput::Ask(request) => self.request(request),
                    HubOutput::Alive(heartbeat) => self.position.heartbeat(heartbeat),
                    // The position is published after each step.
                    HubOutput::Progressed(_) => {}
                    HubOutput::Close(end) => {
                        tracing::info!(node = %self.node, %end, "session ended");
                        return ControlFlow::Break(EndReason::of(&end));
                    }
                }
            }
            self.subscribe();
        }
        ControlFlow::Continue(())
    }

    fn identify(&mut self, identity: &Identity) -> HubInput {
        match self.hub.sessions.identify(self.id, identity) {
            Ok(known) => {
                self.position.identified(identity.clone());
                HubInput::Admitted { known }
            }
            Err(refusal) => HubInput::Dismissed(refusal),
        }
    }

    /// Subscribes to the streams that the session serves now.
    fn subscribe(&mut self) {
        self.counters.stepped(&self.session);
        if !self.session.streams().map(|stream| stream.stream).eq(&self.subscribed) {
            let now: Vec<_> = self.session.streams().map(|stream| stream.stream.clone()).collect();
            self.hub.fold.subscriptions().subscribe(self.id, &self.subscribed, &now);
            self.subscribed = now;
            // A stream may have moved before the subscription.
            self.changed.notify_one();
        }
    }

    fn publish_position_if_due(&mut self) {
        self.position.publish_if_due(&self.session, &self.node, &self.hub);
    }

    fn leave(self) {
        let Self { hub, id, node, session, subscribed, position, dials, .. } = self;
        hub.fold.subscriptions().remove(id, &subscribed);
        hub.sessions.remove(id, &node);
        position.publish_last(&session, &node, &hub);
        // Behind the last position, which the clients that wait are given.
        dials.inspect(|dials| dials.end());
    }
}

/// Waits until the session is dismissed.
async fn dismissal(dismissal: &WatchedValue<Option<Dismissal>>) -> Dismissal {
    loop {
        dismissal.changed().await;
        if let Some(dismissal) = dismissal.with(Option::take) {
            return dismissal;
        }
    }
}

/// Waits for a dial; for ever, where the edge takes none.
async fn next_dial(dials: Option<&DialQueue>) -> Dial {
    match dials {
        Some(dials) => dials.next().await,
        None => pending().await,
    }
}

fn no_longer_trusted(node: &NodeName, distrust: &Distrust) -> Refusal {
    tracing::warn!(%node, error = distrust as &dyn std::error::Error, "session ends: the CAs changed");
    Refusal { code: RefusalCode::Forbidden, message: not_trusted(node) }
}
