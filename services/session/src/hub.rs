//! The hub's end of a session: decides how each stream comes forward, keeps the window, checks
//! what the edge says.
//!
//! ```text
//!            Hello: Identify           Admitted             a log: Welcome
//!  Expecting ---------------> Identifying --------> Admitted --------------> Open
//!      |                          |                    |                       |
//!      |         violation, Dismissed, silence, unreadable fold                |
//!      +--------------------------+--------------------+-----------------------+---> Closed
//! ```
//!
//! A hub that starts has not read the beginning of its log yet; the welcome waits for that, for
//! a bounded time.
//!
//! In an open session each stream rests at the fold's end, is parked, or has a push on its way:
//! every event as long as the window is open, one delta for what lay past it (see `plan`). Where
//! only the complete state leads on, an edge that holds something is first asked what:
//!
//! ```text
//!  Compare ---> Summary ---> Correction: what it lacks, and what of it goes
//!     |            | empty         | its hash does not come out: Divergence
//!     |            v               v
//!     +--------> Snapshot <--------+      (it holds nothing; it differed before)
//! ```
//!
//! `acked <= durable <= applied <= received <= sent <= tail` holds for every stream that is
//! served; an edge that says otherwise is refused with both numbers.

mod catch_up_plan;
mod io;
mod pending_reports;
mod stream_sender;
mod tail;

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{Identity, LogId, NodeName, Seq, StreamId};

use catch_up_plan::{CatchUpPlan, PlanInput};
pub use io::{COUNTER_MAX, HubCloseReason, HubInput, HubOutput, Violation};
use pending_reports::PendingReports;
use stream_sender::StreamSender;
use tail::tail;

use crate::message::{
    Ack, Divergence, EdgeMessage, Goodbye, Hello, HubHeartbeat, HubMessage, PROTOCOL, ParkNotice,
    Push, PushMode, Refusal, RefusalCode, ReplicaPosition, Reports, Request, RequestError,
    Response, StreamProgress, Summary, Welcome,
};
use crate::settings::HubSettings;
use crate::source::{FoldStatus, Readiness, SourceError, StreamSource};

/// The hub's end of one connection.
pub struct HubSession {
    settings: HubSettings,
    node: NodeName,
    phase: Phase,
    /// What the hello said of streams that are not served yet.
    hello: BTreeMap<StreamId, ReplicaPosition>,
    /// Boxed: a node of the map has room for eleven, and most edges have two.
    senders: BTreeMap<StreamId, Box<StreamSender>>,
    window_bytes: u64,
    sent_bytes: u64,
    received_bytes: u64,
    pending_reports: PendingReports,
    requests: BTreeSet<u64>,
    resets: u32,
    now_ms: u64,
    /// When the edge was last heard; `None` before the first tick.
    heard_ms: Option<u64>,
    beat_ms: u64,
}

/// See the module's drawing.
#[derive(Debug)]
enum Phase {
    Expecting,
    Identifying(Identity),
    /// The registry let it in; the fold does not know its log yet. `live` is of a later start.
    Admitted {
        identity: Identity,
        live: Option<Identity>,
        since_ms: u64,
    },
    Open {
        identity: Identity,
        log_id: LogId,
    },
    Closed,
}

/// Where a node stands in a stream:
/// `acked <= durable <= applied <= received <= sent <= tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubStreamStatus {
    /// The stream.
    pub stream: StreamId,
    /// The log of what was sent; `None` while nothing was.
    pub log_id: Option<LogId>,
    /// The end of the stream in the hub's fold.
    pub tail: Seq,
    /// The last event sent.
    pub sent: Seq,
    /// The last event of the pushes received whole.
    pub received: Seq,
    /// What the edge applied.
    pub applied: Seq,
    /// What the edge synced.
    pub durable: Seq,
    /// What the hub took as acknowledged.
    pub acked: Seq,
    /// Why it is not served, where it is not; the inequality says nothing then.
    pub parked: Option<&'static str>,
    /// A snapshot is due or partly sent: seqs are of two histories, the inequality says nothing.
    pub resetting: bool,
}

impl HubSession {
    /// The session of a connection whose certificate is for `node`.
    pub fn new(settings: HubSettings, node: NodeName) -> Self {
        Self {
            settings,
            node,
            phase: Phase::Expecting,
            hello: BTreeMap::new(),
            senders: BTreeMap::new(),
            window_bytes: 0,
            sent_bytes: 0,
            received_bytes: 0,
            pending_reports: PendingReports::default(),
            requests: BTreeSet::new(),
            resets: 0,
            now_ms: 0,
            heard_ms: None,
            beat_ms: 0,
        }
    }

    /// Takes in what happened and says what is to be done, in order. Never panics.
    pub fn step(&mut self, source: &dyn StreamSource, input: HubInput) -> Vec<HubOutput> {
        let mut outputs = Vec::new();
        if matches!(self.phase, Phase::Closed) {
            return outputs;
        }
        let taken = self.take(source, input, &mut outputs);
        if let Err(end) = taken.and_then(|()| self.serve(source, &mut outputs)) {
            self.close(end, &mut outputs);
        }
        outputs
    }

    /// The node that the connection is for.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// Who the edge said it is, while the session lasts.
    pub fn identity(&self) -> Option<&Identity> {
        match &self.phase {
            Phase::Identifying(identity)
            | Phase::Admitted { identity, .. }
            | Phase::Open { identity, .. } => Some(identity),
            Phase::Expecting | Phase::Closed => None,
        }
    }

    /// Whether the edge was welcomed and the session lasts.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    /// Whether a delta, snapshot or correction is on its way in any stream, or waits for a summary.
    pub fn is_catching_up(&self) -> bool {
        self.senders.values().any(|sender| sender.catching_up_since().is_some())
    }

    /// Whether nothing can be pushed until the edge has taken what is on its way.
    pub fn is_window_full(&self) -> bool {
        self.is_open() && self.room().is_none()
    }

    /// Where the node stands in each of its streams; once the session is over, where it stood.
    pub fn streams(&self) -> impl Iterator<Item = HubStreamStatus> + '_ {
        self.senders.iter().map(|(stream, sender)| {
            let progress = sender.progress();
            HubStreamStatus {
                stream: stream.clone(),
                log_id: sender.log_id(),
                tail: sender.tail,
                sent: sender.sent(),
                received: progress.received,
                applied: progress.applied,
                durable: progress.durable,
                acked: progress.acked,
                parked: sender.parked,
                resetting: sender.is_resetting(),
            }
        })
    }

    fn take(
        &mut self,
        source: &dyn StreamSource,
        input: HubInput,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        match input {
            HubInput::Received(message) => self.received(source, message, outputs),
            HubInput::Admitted { known } => self.admitted(source, known, outputs),
            HubInput::Dismissed(refusal) => Err(HubCloseReason::Refused(refusal)),
            HubInput::Leaving(reason) => Err(HubCloseReason::Left { reason }),
            HubInput::Advanced => self.advanced(source, outputs),
            HubInput::Appended(through) => {
                if let Some(acked) = self.pending_reports.appended(through) {
                    outputs.push(HubOutput::Send(HubMessage::ReportsAcked(acked)));
                }
                Ok(())
            }
            HubInput::Answered(response) => {
                if self.requests.remove(&response.id) {
                    outputs.push(HubOutput::Send(HubMessage::Response(response)));
                }
                Ok(())
            }
            HubInput::Tick(now_ms) => self.tick(source, now_ms, outputs),
        }
    }

    /// Tells the edge why, as far as it concerns it, and ends.
    fn close(&mut self, end: HubCloseReason, outputs: &mut Vec<HubOutput>) {
        let last = match &end {
            HubCloseReason::Left { reason } => {
                HubMessage::Goodbye(Goodbye { reason: reason.clone() })
            }
            HubCloseReason::Refused(refusal) => HubMessage::Refusal(refusal.clone()),
            HubCloseReason::Violation(violation) => HubMessage::Refusal(Refusal {
                code: RefusalCode::Violation,
                message: violation.to_string(),
            }),
            HubCloseReason::Source(error) => HubMessage::Refusal(unavailable(&error.to_string())),
            HubCloseReason::Silent { .. } => {
                HubMessage::Refusal(unavailable("the edge was silent"))
            }
        };
        self.phase = Phase::Closed;
        self.senders.values_mut().for_each(|sender| sender.end());
        outputs.push(HubOutput::Send(last));
        outputs.push(HubOutput::Close(end));
    }

    fn received(
        &mut self,
        source: &dyn StreamSource,
        message: EdgeMessage,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        self.heard_ms = self.heard_ms.map(|_| self.now_ms);
        match (&self.phase, message) {
            (Phase::Expecting, EdgeMessage::Hello(hello)) => self.greeted(hello, outputs),
            (Phase::Open { .. }, EdgeMessage::Ack(ack)) => self.acknowledged(&ack, outputs),
            (Phase::Open { .. }, EdgeMessage::Heartbeat(heartbeat)) => {
                outputs.push(HubOutput::Alive(heartbeat));
                Ok(())
            }
            (Phase::Open { .. }, EdgeMessage::Divergence(diverged)) => self.diverged(&diverged),
            (Phase::Open { identity, .. }, EdgeMessage::Reports(reports)) => {
                let identity = identity.clone();
                self.reported(source, &identity, reports, outputs)
            }
            (Phase::Open { .. }, EdgeMessage::Request(request)) => {
                self.requested(source, request, outputs)
            }
            (Phase::Open { .. }, EdgeMessage::Summary(summary)) => self.summarized(summary),
            (_, message) => Err(Violation::Unexpected { message: message.name() }.into()),
        }
    }

    fn greeted(
        &mut self,
        hello: Hello,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        if hello.protocol != PROTOCOL {
            let message =
                format!("this hub speaks protocol {PROTOCOL}, the edge {}", hello.protocol);
            return Err(HubCloseReason::Refused(Refusal { code: RefusalCode::Protocol, message }));
        }
        if hello.identity.node != self.node {
            let (certified, claimed) = (self.node.clone(), hello.identity.node);
            let message = Violation::Node { certified, claimed }.to_string();
            return Err(HubCloseReason::Refused(Refusal { code: RefusalCode::Forbidden, message }));
        }
        let Identity { incarnation, boot, .. } = &hello.identity;
        for (what, found) in [("incarnation", incarnation.0), ("boot", boot.number)] {
            if found > COUNTER_MAX {
                return Err(Violation::Counter { what, found }.into());
            }
        }
        let (count, max) = (hello.positions.len(), self.settings.streams_max);
        if count > max {
            return Err(Violation::TooMany { what: "positions", count, max }.into());
        }
        for position in hello.positions {
            let stream = position.stream.clone();
            let is_readable = stream.readable_by(&self.node);
            if self.hello.insert(stream.clone(), position).is_some() || !is_readable {
                return Err(Violation::Stream { stream }.into());
            }
        }
        self.window_bytes = self.settings.window_bytes.min(hello.window_bytes);
        outputs.push(HubOutput::Identify(hello.identity.clone()));
        self.phase = Phase::Identifying(hello.identity);
        Ok(())
    }

    fn admitted(
        &mut self,
        source: &dyn StreamSource,
        live: Option<Identity>,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let Phase::Identifying(identity) = &self.phase else { return Ok(()) };
        let (identity, since_ms) = (identity.clone(), self.now_ms);
        self.phase = Phase::Admitted { identity, live, since_ms };
        self.welcome(source, outputs)
    }

    /// Welcomes an edge that was admitted, once the log is known.
    fn welcome(
        &mut self,
        source: &dyn StreamSource,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let Phase::Admitted { identity, live, .. } = &self.phase else { return Ok(()) };
        let Some(log_id) = source.log_id() else { return Ok(()) };
        let (identity, live) = (identity.clone(), live.clone());
        let logged = source.known_identity(&self.node)?;
        let known = [logged, live].into_iter().flatten().max_by_key(|known| {
            let is_another = known.boot.nonce != identity.boot.nonce;
            (known.rank(), is_another)
        });
        self.assign(source)?;
        outputs.push(HubOutput::Send(HubMessage::Welcome(Welcome {
            protocol: PROTOCOL,
            log_id,
            streams: self.senders.keys().cloned().collect(),
            known: known.clone(),
        })));
        if let Some(known) = known.filter(|known| known.outranks(&identity)) {
            return Err(HubCloseReason::Refused(stale(&known)));
        }
        self.phase = Phase::Open { identity, log_id };
        self.beat_ms = self.now_ms;
        Ok(())
    }

    fn advanced(
        &mut self,
        source: &dyn StreamSource,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let Phase::Open { log_id, .. } = &self.phase else { return self.welcome(source, outputs) };
        let message = match source.log_id() {
            Some(read) if read == *log_id => return self.moved(source),
            Some(_) => "the hub reads another log now",
            None => "the hub cannot read its log just now",
        };
        Err(HubCloseReason::Refused(unavailable(message)))
    }

    /// The fold has moved, and perhaps which streams the node has.
    fn moved(&mut self, source: &dyn StreamSource) -> Result<(), HubCloseReason> {
        self.assign(source)?;
        for sender in self.senders.values_mut() {
            sender.resting = false;
        }
        Ok(())
    }

    /// Serves exactly the streams that the node has.
    fn assign(&mut self, source: &dyn StreamSource) -> Result<(), SourceError> {
        let mut streams = source.streams(&self.node)?;
        streams.retain(|stream| stream.readable_by(&self.node));
        self.senders.retain(|stream, _| streams.contains(stream));
        for stream in streams {
            let held = self.hello.remove(&stream);
            self.senders
                .entry(stream)
                .or_insert_with_key(|stream| Box::new(StreamSender::new(stream.clone(), held)));
        }
        Ok(())
    }

    fn acknowledged(
        &mut self,
        ack: &Ack,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let (before, sent) = (self.received_bytes, self.sent_bytes);
        let received = ack.received_bytes;
        if received < before || received > sent {
            return Err(Violation::Bytes { received, before, sent }.into());
        }
        self.received_bytes = received;
        for sender in self.senders.values_mut() {
            sender.received(received);
        }
        self.progressed(&ack.progress, outputs)
    }

    fn progressed(
        &mut self,
        progress: &[StreamProgress],
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let mut seen = BTreeSet::new();
        for said in progress {
            let stream = &said.stream;
            if !stream.readable_by(&self.node) || !seen.insert(stream) {
                return Err(Violation::Stream { stream: stream.clone() }.into());
            }
            // A stream that the edge still holds and the node no longer has.
            let Some(sender) = self.senders.get_mut(stream) else { continue };
            if sender.progressed(said)? {
                outputs.push(HubOutput::Progressed(stream.clone()));
            }
        }
        Ok(())
    }

    fn diverged(&mut self, diverged: &Divergence) -> Result<(), HubCloseReason> {
        let received_bytes = self.received_bytes;
        let Some(sender) = self.senders.get_mut(&diverged.stream) else { return Ok(()) };
        if sender.diverged(received_bytes) {
            self.resets += 1;
        }
        if self.resets > self.settings.resets_max {
            let message = format!("{} differs from the log again and again", diverged.stream);
            return Err(HubCloseReason::Refused(unavailable(&message)));
        }
        Ok(())
    }

    fn summarized(&mut self, summary: Summary) -> Result<(), HubCloseReason> {
        let (count, max) = (summary.digests.len(), self.settings.summary_entries_max);
        if count > max {
            return Err(Violation::TooMany { what: "digests in a summary", count, max }.into());
        }
        if !summary.stream.readable_by(&self.node) {
            return Err(Violation::Stream { stream: summary.stream }.into());
        }
        // The stream may have been taken from the node meanwhile.
        if let Some(sender) = self.senders.get_mut(&summary.stream) {
            sender.summarized(summary);
        }
        Ok(())
    }

    fn reported(
        &mut self,
        source: &dyn StreamSource,
        identity: &Identity,
        reports: Reports,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        // A later start may have connected elsewhere since.
        if let Some(known) =
            source.known_identity(&self.node)?.filter(|known| known.outranks(identity))
        {
            return Err(HubCloseReason::Refused(stale(&known)));
        }
        self.pending_reports.take(&reports, identity, self.settings.reports_unappended_max)?;
        if !reports.reports.is_empty() {
            outputs.push(HubOutput::AppendReports(reports.reports));
        }
        Ok(())
    }

    fn requested(
        &mut self,
        source: &dyn StreamSource,
        request: Request,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let error = if !source.may_request(&self.node, &request.key)? {
            RequestError::Forbidden
        } else if self.requests.len() >= self.settings.requests_max {
            RequestError::Unavailable("too many requests of this node wait".to_owned())
        } else if self.requests.insert(request.id) {
            outputs.push(HubOutput::Ask(request));
            return Ok(());
        } else {
            return Err(Violation::Unexpected { message: "a request id in use" }.into());
        };
        let response = Response { id: request.id, outcome: Err(error) };
        outputs.push(HubOutput::Send(HubMessage::Response(response)));
        Ok(())
    }

    fn tick(
        &mut self,
        source: &dyn StreamSource,
        now_ms: u64,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        self.now_ms = self.now_ms.max(now_ms);
        let silent_ms = self.now_ms - *self.heard_ms.get_or_insert(self.now_ms);
        if silent_ms > self.settings.silence_ms_max {
            return Err(HubCloseReason::Silent { silent_ms });
        }
        if let Phase::Admitted { since_ms, .. } = &self.phase
            && self.now_ms - since_ms > self.settings.welcome_ms_max
        {
            let message = "the hub has not read the beginning of the log";
            return Err(HubCloseReason::Refused(unavailable(message)));
        }
        if !self.is_open() {
            return Ok(());
        }
        let began_ms = self.senders.values().filter_map(|sender| sender.catching_up_since()).min();
        if began_ms.is_some_and(|began| self.now_ms - began > self.settings.catch_up_ms_max) {
            return Err(HubCloseReason::Refused(unavailable(
                "the edge takes its catch-up too slowly",
            )));
        }
        if self.now_ms - self.beat_ms < self.settings.heartbeat_ms {
            return Ok(());
        }
        self.beat_ms = self.now_ms;
        let mut tails = Vec::new();
        for (stream, sender) in &mut self.senders {
            let FoldStatus { checkpoint, hash, readiness, .. } = source.status(stream)?;
            sender.tail = sender.tail.max(checkpoint.seq);
            let tail = ReplicaPosition { stream: stream.clone(), checkpoint, hash };
            if readiness >= Readiness::Folded && sender.tells(&tail) {
                tails.push(tail);
            }
        }
        outputs.push(HubOutput::Send(HubMessage::Heartbeat(HubHeartbeat { tails })));
        Ok(())
    }

    /// Sends what the window takes, the private stream first.
    fn serve(
        &mut self,
        source: &dyn StreamSource,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        if !self.is_open() {
            return Ok(());
        }
        let mut senders = std::mem::take(&mut self.senders);
        let private = StreamId::node(&self.node);
        let mut order: Vec<_> = senders.iter_mut().filter(|(_, s)| !s.resting).collect();
        order.sort_by_key(|(stream, _)| **stream != private);
        let mut result = Ok(());
        for (stream, sender) in order {
            result = self.serve_stream(source, stream, sender, outputs);
            if result.is_err() {
                break;
            }
        }
        self.senders = senders;
        result
    }

    fn serve_stream(
        &mut self,
        source: &dyn StreamSource,
        stream: &StreamId,
        sender: &mut StreamSender,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        loop {
            let room = self.room();
            if let Some(bytes_max) = room
                && let Some(push) = sender.next_part(bytes_max)?
            {
                self.send(sender, push, outputs);
                continue;
            }
            if sender.catching_up_since().is_some() {
                return Ok(());
            }
            let summary = sender.take_summary();
            let status = source.status(stream)?;
            sender.tail = status.checkpoint.seq;
            let next_epoch_from = match &sender.held {
                Some(held) => source.next_epoch_from(stream, held.checkpoint.epoch)?,
                None => None,
            };
            let behind = PlanInput {
                held: sender.held.as_ref(),
                reset: sender.reset || summary.is_some(),
                overflowed: sender.overflowed,
                next_epoch_from,
            };
            let plan = CatchUpPlan::choose(&behind, &status, self.settings.tail_events_max);
            let parked = if let CatchUpPlan::Park(reason) = plan { Some(reason) } else { None };
            if let Some(reason) = parked
                && sender.parked != parked
            {
                let parked = ParkNotice { stream: stream.clone(), reason: reason.to_owned() };
                outputs.push(HubOutput::Send(HubMessage::ParkNotice(parked)));
            }
            sender.parked = parked;
            sender.snapshot_due = plan == CatchUpPlan::Snapshot;
            if plan == CatchUpPlan::Snapshot
                && let Some(summary) = summary
            {
                // It waited for its turn before it asked.
                sender.answer(source, &summary, &status, self.now_ms)?;
                continue;
            }
            match (plan, room) {
                (CatchUpPlan::Rest | CatchUpPlan::Park(_), _) => {
                    sender.resting = true;
                    sender.overflowed = false;
                    return Ok(());
                }
                (_, None) => {
                    sender.overflowed = true;
                    return Ok(());
                }
                (CatchUpPlan::Tail, Some(bytes_max)) => {
                    let push = tail(source, stream, sender.sent(), &status, bytes_max)?;
                    self.send(sender, push, outputs);
                }
                (CatchUpPlan::Delta | CatchUpPlan::Snapshot, Some(_)) if !source.may_catch_up() => {
                    sender.resting = true;
                    return Ok(());
                }
                (CatchUpPlan::Delta, Some(_)) => {
                    let reader = source.delta(stream, sender.sent())?;
                    sender.begin(PushMode::Delta, reader, &status, self.now_ms);
                }
                (CatchUpPlan::Snapshot, Some(_)) if sender.may_ask() => {
                    let compare = sender.ask(&status.hash, self.now_ms);
                    outputs.push(HubOutput::Send(HubMessage::Compare(compare)));
                    return Ok(());
                }
                (CatchUpPlan::Snapshot, Some(_)) => {
                    let reader = source.snapshot(stream)?;
                    sender.begin(PushMode::Snapshot, reader, &status, self.now_ms);
                }
            }
        }
    }

    /// How many bytes the next push may have; `None`: the window is closed. With nothing in
    /// flight there is always room, else an object larger than the window would never pass.
    fn room(&self) -> Option<u64> {
        let in_flight = self.sent_bytes - self.received_bytes;
        if in_flight == 0 {
            return Some(self.settings.frame_bytes_max.min(self.window_bytes));
        }
        let left = self.window_bytes.saturating_sub(in_flight);
        (left > 0).then(|| left.min(self.settings.frame_bytes_max))
    }

    fn send(&mut self, sender: &mut StreamSender, push: Push, outputs: &mut Vec<HubOutput>) {
        self.sent_bytes = self.sent_bytes.saturating_add(push.bytes());
        sender.sending(&push, self.sent_bytes);
        outputs.push(HubOutput::Send(HubMessage::Push(push)));
    }
}

fn unavailable(message: &str) -> Refusal {
    Refusal { code: RefusalCode::Unavailable, message: message.to_owned() }
}

fn stale(known: &Identity) -> Refusal {
    let message = format!(
        "the cloud knows incarnation {} boot {} of node {}: raise the boot number past it",
        known.incarnation.0, known.boot.number, known.node,
    );
    Refusal { code: RefusalCode::StaleIdentity, message }
}

impl From<Violation> for HubCloseReason {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<SourceError> for HubCloseReason {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}
