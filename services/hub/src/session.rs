//! One connection of an edge: a task around the pure session.
//!
//! The task owns the session's state. It waits for what may happen, steps the session over the
//! fold, and does what comes out. All its deadlines run here, not in the response body, which is
//! polled only while the socket takes bytes.

use std::collections::BTreeSet;
use std::future::pending;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use headwater_event::{
    Identity, NodeName, NodeStanding, Report, ReportId, StreamId, StreamStanding,
};
use headwater_proto::replication as wire;
use headwater_session::message::{
    EdgeHeartbeat, EdgeMessage, Hello, HubMessage, Refusal, RefusalCode, Request, RequestError,
    Response,
};
use headwater_session::{HubInput, HubOutput, HubSession, HubStreamStatus, SessionId};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until, timeout};
use tonic::Status;

use crate::metrics::{HelloEnd, SessionOver};
use crate::shared::{Dismissal, HUB_STOPS, Shared};
use crate::spans;
use crate::tally::Tally;
use crate::turns::Turn;

/// How often a session is told the time.
const TICK: Duration = Duration::from_secs(1);

/// How often at most a node's standing goes upstream while it is connected: one small record a
/// node, so that a fleet of thousands costs the log little.
const POSITION_INTERVAL: Duration = Duration::from_secs(10);

/// How often at most a node's standing is made up for those who ask this hub.
const STANDING_INTERVAL: Duration = Duration::from_millis(100);

/// What goes to the edge. Boxed: a channel holds room for dozens, and a hub has thousands of
/// sessions.
pub(crate) type Outbound = mpsc::Sender<Box<Result<wire::HubMessage, Status>>>;

/// A connection being served.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    id: SessionId,
    node: NodeName,
    session: HubSession,
    outbound: Outbound,
    dismissed: watch::Receiver<Option<Dismissal>>,
    bell: Arc<Notify>,
    subscribed: BTreeSet<StreamId>,
    /// Through which report the log has what the edge said.
    appended: watch::Sender<ReportId>,
    /// Requests under way; the session bounds their number. They end with the connection.
    asking: JoinSet<Response>,
    /// Who the edge said it is; outlives the session, so that its end can be told.
    identity: Option<Identity>,
    heartbeat: EdgeHeartbeat,
    contact_ms: i64,
    position_at: Option<Instant>,
    position_due: bool,
    kept_at: Option<Instant>,
    turn: Turn,
    tally: Tally,
}

impl Connection {
    /// Serves one connection of `node` to its end; `id` is its own. `heard` is what the edge says
    /// after its hello, decoded, or why nothing more comes; what is not taken yet waits in HTTP/2's
    /// own window.
    pub(crate) async fn serve(
        shared: Arc<Shared>,
        id: SessionId,
        node: NodeName,
        vouched_until: Option<Instant>,
        hello: Hello,
        heard: impl Stream<Item = Result<EdgeMessage, Status>> + Unpin,
        outbound: Outbound,
    ) {
        let (dismiss, dismissed) = watch::channel(None);
        let contact_ms = (shared.wall_clock)();
        if let Err(why) = shared.enter(id, &node, dismiss) {
            shared.metrics.sessions.hello(HelloEnd::TurnedAway(why.name()));
            let refusal = why.refusal(&node);
            let _ = outbound.send(Box::new(Ok(HubMessage::Refusal(refusal).into()))).await;
            return;
        }
        let mut connection = Self {
            session: HubSession::new(shared.settings.clone(), node.clone()),
            bell: shared.wakers.add(id),
            turn: shared.turns.turn(),
            tally: Tally::new(shared.metrics.sessions.clone(), contact_ms),
            shared,
            id,
            node,
            outbound,
            dismissed,
            subscribed: BTreeSet::new(),
            appended: watch::Sender::default(),
            asking: JoinSet::new(),
            identity: None,
            heartbeat: EdgeHeartbeat::default(),
            contact_ms,
            position_at: None,
            position_due: false,
            kept_at: None,
        };
        let over = connection.run(hello, heard, vouched_until).await;
        connection.tally.over(over);
        connection.leave();
    }

    async fn run(
        &mut self,
        hello: Hello,
        mut heard: impl Stream<Item = Result<EdgeMessage, Status>> + Unpin,
        vouched_until: Option<Instant>,
    ) -> SessionOver {
        let started = Instant::now();
        let mut old = pin!(sleep(self.shared.limits.age(rand::random())));
        let mut unvouched = pin!(async {
            match vouched_until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        });
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let bell = self.bell.clone();
        let mut appended = self.appended.subscribe();
        let mut input = HubInput::Received(EdgeMessage::Hello(hello));
        loop {
            if let ControlFlow::Break(over) = self.step(input).await {
                return over;
            }
            self.publish_if_due();
            input = tokio::select! {
                biased;
                dismissal = dismissal(&mut self.dismissed) => match dismissal {
                    Dismissal::Refused(refusal) => HubInput::Dismissed(refusal),
                    Dismissal::Leaving => HubInput::Leaving(HUB_STOPS.to_owned()),
                },
                message = heard.next() => match message {
                    Some(Ok(message)) => {
                        self.contact_ms = (self.shared.wall_clock)();
                        HubInput::Received(message)
                    }
                    Some(Err(status)) => {
                        let _ = self.outbound.send(Box::new(Err(status))).await;
                        return SessionOver::Broken;
                    }
                    None => return SessionOver::Left,
                },
                Ok(()) = appended.changed() => HubInput::Appended(*appended.borrow_and_update()),
                Some(Ok(answer)) = self.asking.join_next() => HubInput::Answered(answer),
                () = bell.notified() => HubInput::Advanced,
                () = self.turn.granted() => HubInput::Advanced,
                () = &mut unvouched => HubInput::Dismissed(expired(&self.node)),
                () = &mut old => HubInput::Leaving("the session is old".to_owned()),
                now = ticks.tick() => {
                    HubInput::Tick(u64::try_from((now - started).as_millis()).unwrap_or(u64::MAX))
                }
            };
        }
    }

    /// Steps the session and does what comes out; breaks off when the connection ends.
    async fn step(&mut self, input: HubInput) -> ControlFlow<SessionOver> {
        let mut inputs = std::collections::VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let (outputs, asked) = {
                let source = self.shared.fold.source().of(&self.subscribed);
                let source = source.in_turn(self.turn.is_held());
                (self.session.step(&source, input), source.has_asked())
            };
            if asked {
                self.turn.ask();
            } else if !self.session.is_catching_up() {
                self.turn.done();
            }
            for output in outputs {
                match output {
                    HubOutput::Identify(identity) => inputs.push_back(self.identify(&identity)),
                    HubOutput::Send(message) => self.send(message).await?,
                    HubOutput::AppendReports(reports) => self.append(reports).await?,
                    HubOutput::Ask(request) => self.ask(request),
                    HubOutput::Alive(heartbeat) => {
                        self.heartbeat = heartbeat;
                        self.position_due = true;
                    }
                    HubOutput::Progressed(_) => self.position_due = true,
                    HubOutput::Close(end) => {
                        tracing::info!(node = %self.node, %end, "session ended");
                        return ControlFlow::Break(SessionOver::of(&end));
                    }
                }
            }
            self.subscribe();
        }
        ControlFlow::Continue(())
    }

    fn identify(&mut self, identity: &Identity) -> HubInput {
        match self.shared.identify(self.id, identity) {
            Ok(known) => {
                self.identity = Some(identity.clone());
                self.position_due = true;
                self.position_at = None;
                self.kept_at = None;
                HubInput::Admitted { known }
            }
            Err(refusal) => HubInput::Dismissed(refusal),
        }
    }

    /// Queues a message; a reader that takes nothing for too long loses its session. Its turn to
    /// catch up comes and goes meanwhile.
    async fn send(&mut self, mut message: HubMessage) -> ControlFlow<SessionOver> {
        // They end when the transport has the message.
        let _spans = match &mut message {
            HubMessage::Push(push) => spans::push(push, &self.node),
            _ => Vec::new(),
        };
        let mut room = pin!(self.outbound.reserve());
        let mut too_long = pin!(sleep(self.shared.limits.outbound_within));
        loop {
            tokio::select! {
                biased;
                room = &mut room => {
                    let Ok(room) = room else { return ControlFlow::Break(SessionOver::Left) };
                    self.tally.sending(&message, &self.shared.wall_clock);
                    room.send(Box::new(Ok(message.into())));
                    return ControlFlow::Continue(());
                }
                dismissal = dismissal(&mut self.dismissed) => {
                    return ControlFlow::Break(self.dropped(&dismissal));
                }
                () = self.turn.granted() => self.bell.notify_one(),
                () = &mut too_long => {
                    tracing::warn!(node = %self.node, "an edge takes no bytes: session dropped");
                    return ControlFlow::Break(SessionOver::Slow);
                }
            }
        }
    }

    /// The session ends where it waits: there is no room for a last word.
    fn dropped(&self, dismissal: &Dismissal) -> SessionOver {
        tracing::info!(node = %self.node, ?dismissal, "session dropped");
        match dismissal {
            Dismissal::Refused(refusal) => SessionOver::Refused(refusal.code),
            Dismissal::Leaving => SessionOver::Moved,
        }
    }

    /// Hands reports on to the log; waits while thousands of others do.
    async fn append(&mut self, reports: Vec<Report>) -> ControlFlow<SessionOver> {
        let appended = self.appended.clone();
        let mut append = pin!(self.shared.upstream.append(&self.node, reports, appended));
        loop {
            tokio::select! {
                biased;
                taken = &mut append => return match taken {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(SessionOver::Upstream),
                },
                dismissal = dismissal(&mut self.dismissed) => {
                    return ControlFlow::Break(self.dropped(&dismissal));
                }
                () = self.turn.granted() => self.bell.notify_one(),
            }
        }
    }

    /// Asks on the edge's behalf, in a task of its own that ends with the request's deadline.
    fn ask(&mut self, request: Request) {
        let (shared, node) = (self.shared.clone(), self.node.clone());
        self.asking.spawn(async move {
            let within = Duration::from_millis(request.timeout_ms);
            let answer = timeout(within, shared.answers.answer(&node, &request.key)).await;
            let outcome = answer
                .unwrap_or_else(|_| Err(RequestError::Unavailable("no answer in time".to_owned())));
            Response { id: request.id, outcome }
        });
    }

    /// Waits for the streams that the session serves now.
    fn subscribe(&mut self) {
        let standings: Vec<HubStreamStatus> = self.session.streams().collect();
        self.tally.stepped(&self.session, &standings);
        let now: BTreeSet<StreamId> =
            standings.into_iter().map(|standing| standing.stream).collect();
        if now != self.subscribed {
            self.shared.wakers.subscribe(self.id, &self.subscribed, &now);
            self.subscribed = now;
            // What moved while it was not subscribed is seen now.
            self.bell.notify_one();
        }
    }

    /// Makes the node's standing known: here at once, upstream at a bounded rate.
    fn publish_if_due(&mut self) {
        // Before the welcome nothing is known of its streams.
        if !self.session.is_open()
            || self.kept_at.is_some_and(|at| at.elapsed() < STANDING_INTERVAL)
        {
            return;
        }
        let Some(standing) = self.standing(true) else { return };
        self.kept_at = Some(Instant::now());
        let rested = self.position_at.is_none_or(|at| at.elapsed() >= POSITION_INTERVAL);
        if !self.position_due || !rested {
            self.shared.keep(&self.node, standing);
            return;
        }
        self.position_due = false;
        self.position_at = self.kept_at;
        if let Some(identity) = &self.identity {
            self.shared.known.meet(identity);
        }
        self.shared.publish(&self.node, &standing);
    }

    fn standing(&self, connected: bool) -> Option<NodeStanding> {
        let identity = self.identity.as_ref()?;
        let streams = self.session.streams().map(|stream| StreamStanding {
            stream: stream.stream,
            log_id: stream.log_id.map(|log_id| log_id.to_string()).unwrap_or_default(),
            tail: stream.tail,
            sent: stream.sent,
            applied: stream.applied,
            durable: stream.durable,
            acked: stream.acked,
        });
        Some(NodeStanding {
            hub: self.shared.name.clone(),
            connected,
            incarnation: identity.incarnation,
            boot: identity.boot,
            outbox_depth: self.heartbeat.outbox_depth,
            contact_ms: self.contact_ms,
            meta_sync_ms: self.heartbeat.meta_sync_ms,
            streams: streams.collect(),
        })
    }

    fn leave(self) {
        self.shared.wakers.remove(self.id, &self.subscribed);
        self.shared.leave(self.id, &self.node);
        // A session that was refused says nothing of the node.
        if let Some(standing) = self.standing(false).filter(|_| self.position_at.is_some()) {
            self.shared.publish_last(&self.node, standing);
        }
    }
}

/// Why the connection is to end, once somebody wants that.
async fn dismissal(dismissed: &mut watch::Receiver<Option<Dismissal>>) -> Dismissal {
    loop {
        if dismissed.changed().await.is_err() {
            // The table of sessions has forgotten it: it is ending.
            return pending().await;
        }
        if let Some(dismissal) = dismissed.borrow_and_update().clone() {
            return dismissal;
        }
    }
}

fn expired(node: &NodeName) -> Refusal {
    let message = format!("the certificate of node {node} has expired: issue a new one");
    Refusal { code: RefusalCode::Forbidden, message }
}
