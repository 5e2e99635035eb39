//! The hub's end of a session: plans how each stream catches up, keeps the window, checks the
//! edge's messages.
//!
//! ```text
//!                 Hello: Identify                    Admitted               log known: Welcome
//!   AwaitingHello ---------------> AwaitingAdmission ---------> AwaitingLog -----------------> Open
//!         |                               |                          |                          |
//!         +-------------------------------+--------------------------+--------------------------+
//!         |  a violation, Dismissed, Leaving, silence, an unreadable fold, an older identity,
//!         |  no log in time, another log
//!         v
//!       Closed
//! ```
//!
//! A hub that has just started has not read the beginning of its log yet, nor which identities the
//! node has had. The welcome waits for both, for a bounded time.
//!
//! In an open session each stream of the node is idle at the end of the fold, is parked, or has a
//! push in flight. A stream that the node does not have by the fold keeps its position and sends
//! nothing. While the window has room, every event is sent as it is; the events behind a full window
//! are sent as one delta (`catch_up_plan`). When an edge needs the complete state and holds some
//! of it, the hub asks for a summary first:
//!
//! ```text
//!   Compare ---> Summary ---> Correction: entries that the edge lacks, and those that leave
//!      |            | empty       | its hash differs at the edge: Divergence
//!      |            v             v
//!      +--------> Snapshot <------+        (directly: the edge holds nothing, or reported a
//!                                           divergence)
//! ```
//!
//! `acked <= durable <= applied <= received <= sent <= tail` holds for every stream that is
//! served. The hub refuses an edge whose positions break it, and names both.

mod catch_up_plan;
mod handshake;
mod io;
mod pending_reports;
mod request_interest;
mod send_window;
mod serve;
mod status;
mod stream_sender;
mod tail;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_event::{Identity, LogId, NodeName, StreamId};

pub use io::{COUNTER_MAX, HubCloseReason, HubInput, HubOutput, Violation};
use pending_reports::PendingReports;
use request_interest::RequestInterest;
use send_window::SendWindow;
pub use status::HubStreamStatus;
use stream_sender::StreamSender;
pub use tail::tail_push;

use crate::message::{
    Ack, Divergence, EdgeMessage, Goodbye, HubHeartbeat, HubMessage, Refusal, RefusalCode,
    ReplicaPosition, Reports, ReportsAcked, Request, RequestError, RequestVerb, Response,
    StreamProgress, Summary,
};
use crate::settings::HubSettings;
use crate::source::{FoldStatus, Readiness, SourceError, StreamSource};

/// The hub's end of one connection.
pub struct HubSession {
    settings: Arc<HubSettings>,
    node: NodeName,
    phase: Phase,
    /// The edge's number of this connection; zero before the hello.
    connection: u64,
    /// Whether the edge opens streams.
    takes_dials: bool,
    /// The streams of the node, and those that the edge has by its hello or had in this session.
    /// Sorted by stream. A list: a node of a map has room for eleven, and most edges have two.
    senders: Vec<StreamSender>,
    window: SendWindow,
    pending_reports: PendingReports,
    /// The edge's requests without a response: their ids, and their verbs as sent.
    requests: BTreeMap<u64, Option<RequestVerb>>,
    request_interest: RequestInterest,
    /// Snapshots that the edge asked for with a divergence.
    resets: u32,
    now_ms: u64,
    /// When the last message arrived; `None` before the first tick.
    received_ms: Option<u64>,
    /// When the last heartbeat was sent.
    heartbeat_ms: u64,
}

/// See the module's diagram.
#[derive(Debug)]
enum Phase {
    AwaitingHello,
    AwaitingAdmission(Identity),
    /// The registry admitted the session; the fold does not know its log or the node's identities
    /// yet. `live` is the identity of a later start.
    AwaitingLog {
        identity: Identity,
        live: Option<Identity>,
        since_ms: u64,
    },
    Open {
        identity: Identity,
        log_id: LogId,
        since_ms: u64,
    },
    Closed,
}

impl HubSession {
    /// Creates the session of a connection whose certificate is for `node`.
    pub fn new(settings: impl Into<Arc<HubSettings>>, node: NodeName) -> Self {
        Self {
            settings: settings.into(),
            node,
            phase: Phase::AwaitingHello,
            connection: 0,
            takes_dials: false,
            senders: Vec::new(),
            window: SendWindow::default(),
            pending_reports: PendingReports::default(),
            requests: BTreeMap::new(),
            request_interest: RequestInterest::default(),
            resets: 0,
            now_ms: 0,
            received_ms: None,
            heartbeat_ms: 0,
        }
    }

    /// Processes an input; returns what the shell must do, in order. Never panics.
    pub fn step(&mut self, source: &dyn StreamSource, input: HubInput) -> Vec<HubOutput> {
        let mut outputs = Vec::new();
        if matches!(self.phase, Phase::Closed) {
            return outputs;
        }
        let result = self.process(source, input, &mut outputs);
        if let Err(end) = result.and_then(|()| self.serve(source, &mut outputs)) {
            self.close(end, &mut outputs);
        }
        outputs
    }

    /// The node of the connection.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The edge's number of the connection; zero before the hello, and of an edge that does not count.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// The identity in the edge's hello, while the session lasts.
    pub fn identity(&self) -> Option<&Identity> {
        match &self.phase {
            Phase::AwaitingAdmission(identity)
            | Phase::AwaitingLog { identity, .. }
            | Phase::Open { identity, .. } => Some(identity),
            Phase::AwaitingHello | Phase::Closed => None,
        }
    }

    /// Whether the welcome was sent and the session lasts.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    /// Whether a delta, snapshot or correction of any stream is in flight, or waits for a summary.
    pub fn is_transferring(&self) -> bool {
        self.senders.iter().any(|sender| sender.transfer_since().is_some())
    }

    /// Whether the session can push nothing until the edge has received what is in flight.
    pub fn is_window_full(&self) -> bool {
        self.is_open() && self.window.room(self.settings.frame_bytes_max).is_none()
    }

    /// The node's positions in each of its streams; the last ones once the session has ended.
    pub fn streams(&self) -> impl Iterator<Item = HubStreamStatus<'_>> {
        self.served().map(|sender| {
            let progress = sender.progress();
            HubStreamStatus {
                stream: sender.stream(),
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

    fn process(
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
            HubInput::Appended(ReportsAcked { through, refused }) => {
                if let Some(through) = self.pending_reports.appended(through) {
                    let acked = ReportsAcked { through, refused };
                    outputs.push(HubOutput::Send(HubMessage::ReportsAcked(acked)));
                }
                Ok(())
            }
            HubInput::Unread => {
                self.received_ms = self.received_ms.map(|_| self.now_ms);
                Ok(())
            }
            HubInput::Answered(response) => {
                if let Some(verb) = self.requests.remove(&response.id) {
                    respond(response, verb, outputs);
                }
                Ok(())
            }
            HubInput::Dial(dial) => {
                if self.takes_dials && self.is_open() {
                    outputs.push(HubOutput::Send(HubMessage::Dial(dial)));
                }
                Ok(())
            }
            HubInput::Tick(now_ms) => self.tick(source, now_ms, outputs),
        }
    }

    /// Sends the reason to the edge and ends the session.
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
        self.senders.iter_mut().for_each(StreamSender::end);
        outputs.push(HubOutput::Send(last));
        outputs.push(HubOutput::Close(end));
    }

    fn received(
        &mut self,
        source: &dyn StreamSource,
        message: EdgeMessage,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        self.received_ms = self.received_ms.map(|_| self.now_ms);
        match (&self.phase, message) {
            (Phase::AwaitingHello, EdgeMessage::Hello(hello)) => self.hello(hello, outputs),
            (Phase::Open { .. }, EdgeMessage::Ack(ack)) => self.acknowledged(&ack, outputs),
            (Phase::Open { .. }, EdgeMessage::Heartbeat(heartbeat)) => {
                outputs.push(HubOutput::Alive(heartbeat));
                Ok(())
            }
            (Phase::Open { .. }, EdgeMessage::Divergence(divergence)) => self.diverged(&divergence),
            (Phase::Open { identity, .. }, EdgeMessage::Reports(reports)) => {
                let identity = identity.clone();
                self.reported(source, &identity, reports, outputs)
            }
            (Phase::Open { .. }, EdgeMessage::Request(request)) => {
                self.requested(source, request, outputs)
            }
            (Phase::Open { .. }, EdgeMessage::Summary(summary)) => self.summarized(summary),
            // The shell takes it, as any message, for a sign of life.
            (Phase::Open { .. }, EdgeMessage::DialReceipt | EdgeMessage::Unknown) => Ok(()),
            (_, message) => Err(Violation::Unexpected { message: message.name() }.into()),
        }
    }

    /// The fold advanced, or reads another log.
    fn advanced(
        &mut self,
        source: &dyn StreamSource,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let Phase::Open { log_id, .. } = &self.phase else { return self.welcome(source, outputs) };
        let message = match source.log_id() {
            Some(read) if read == *log_id => return self.resume(source),
            Some(_) => "the hub reads another log now",
            None => "the hub cannot read its log just now",
        };
        Err(HubCloseReason::Refused(unavailable(message)))
    }

    /// Looks at every stream again: the fold advanced, and the node's streams may have changed.
    fn resume(&mut self, source: &dyn StreamSource) -> Result<(), HubCloseReason> {
        self.assign(source)?;
        for sender in &mut self.senders {
            sender.is_idle = false;
        }
        Ok(())
    }

    /// Serves exactly the node's streams.
    fn assign(&mut self, source: &dyn StreamSource) -> Result<(), SourceError> {
        let mut streams = source.streams(&self.node)?;
        streams.retain(|stream| stream.readable_by(&self.node));
        for stream in &streams {
            if let Err(at) = self.sender_at(stream) {
                self.insert_sender(at, StreamSender::new(stream.clone(), None));
            }
        }
        for sender in &mut self.senders {
            match streams.contains(sender.stream()) {
                true => sender.is_served = true,
                false => sender.withdraw(),
            }
        }
        Ok(())
    }

    /// The senders of the streams that the node has by the fold.
    fn served(&self) -> impl Iterator<Item = &StreamSender> {
        self.senders.iter().filter(|sender| sender.is_served)
    }

    /// Adds a sender at its place in the list. A list that grows by itself has room for four.
    fn insert_sender(&mut self, at: usize, sender: StreamSender) {
        self.senders.reserve_exact(1);
        self.senders.insert(at, sender);
    }

    /// Where the sender of `stream` is in the list, or would be.
    fn sender_at(&self, stream: &StreamId) -> Result<usize, usize> {
        self.senders.binary_search_by(|sender| sender.stream().cmp(stream))
    }

    fn sender_mut(&mut self, stream: &StreamId) -> Option<&mut StreamSender> {
        let at = self.sender_at(stream).ok()?;
        self.senders.get_mut(at)
    }

    fn acknowledged(
        &mut self,
        ack: &Ack,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        self.window.acknowledge(ack.received_bytes)?;
        for sender in &mut self.senders {
            sender.received(ack.received_bytes);
        }
        self.progressed(&ack.progress, outputs)
    }

    fn progressed(
        &mut self,
        progress: &[StreamProgress],
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let mut seen = BTreeSet::new();
        for progress in progress {
            let stream = &progress.stream;
            if !stream.readable_by(&self.node) || !seen.insert(stream) {
                return Err(Violation::Stream { stream: stream.clone() }.into());
            }
            // The hello did not name the stream, and nothing of it was sent.
            let Some(sender) = self.sender_mut(stream) else { continue };
            if sender.progressed(progress)? && sender.is_served {
                outputs.push(HubOutput::Progressed(stream.clone()));
            }
        }
        Ok(())
    }

    fn diverged(&mut self, divergence: &Divergence) -> Result<(), HubCloseReason> {
        let received_bytes = self.window.received();
        // A stream without a sender begins with a snapshot anyway.
        let sender = self.sender_mut(&divergence.stream);
        if sender.is_some_and(|sender| sender.diverged(received_bytes)) {
            self.resets += 1;
        }
        if self.resets > self.settings.resets_max {
            let message = format!("{} differs from the log again and again", divergence.stream);
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
        if let Some(sender) = self.sender_mut(&summary.stream) {
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
        self.check_rank(source, identity)?;
        self.pending_reports.add(&reports, identity, self.settings.reports_unappended_max)?;
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
        if self.requests.contains_key(&request.id) {
            return Err(Violation::Unexpected { message: "a request id in use" }.into());
        }
        let refusal = if self.requests.len() >= self.settings.requests_max {
            Some(RequestError::TooMany("requests of this node are pending".to_owned()))
        } else {
            let is_shared = self.served().any(|sender| *sender.stream() == StreamId::Cluster);
            self.request_interest.refusal(source, &self.node, &request, is_shared)?
        };
        match refusal {
            Some(error) => {
                respond(Response { id: request.id, outcome: Err(error) }, request.verb, outputs);
            }
            None => {
                self.requests.insert(request.id, request.verb);
                outputs.push(HubOutput::Ask(request));
            }
        }
        Ok(())
    }

    fn tick(
        &mut self,
        source: &dyn StreamSource,
        now_ms: u64,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        self.now_ms = self.now_ms.max(now_ms);
        let silent_ms = self.now_ms - *self.received_ms.get_or_insert(self.now_ms);
        if silent_ms > self.settings.silence_ms_max {
            return Err(HubCloseReason::Silent { silent_ms });
        }
        if let Phase::AwaitingLog { since_ms, .. } = &self.phase
            && self.now_ms - since_ms > self.settings.welcome_ms_max
        {
            let message = match source.log_id() {
                Some(_) => "the hub has not read the positions of the node",
                None => "the hub has not read the beginning of the log",
            };
            return Err(HubCloseReason::Refused(unavailable(message)));
        }
        let Phase::Open { identity, since_ms, .. } = &self.phase else { return Ok(()) };
        let open_ms = self.now_ms - since_ms;
        let began_ms = self.senders.iter().filter_map(StreamSender::transfer_since).min();
        if began_ms.is_some_and(|began| self.now_ms - began > self.settings.transfer_ms_max) {
            return Err(HubCloseReason::Refused(unavailable(
                "the edge takes its transfer too slowly",
            )));
        }
        if self.now_ms - self.heartbeat_ms < self.settings.heartbeat_ms {
            return Ok(());
        }
        if open_ms >= self.settings.outranked_ms_min {
            self.check_rank(source, identity)?;
        }
        self.heartbeat_ms = self.now_ms;
        let mut tails = Vec::new();
        for sender in self.senders.iter_mut().filter(|sender| sender.is_served) {
            let stream = sender.stream().clone();
            let FoldStatus { checkpoint, hash, readiness, .. } = source.status(&stream)?;
            sender.tail = sender.tail.max(checkpoint.seq);
            let tail = ReplicaPosition { stream, checkpoint, hash };
            if readiness >= Readiness::Folded && sender.must_compare_hash(&tail) {
                tails.push(tail);
            }
        }
        outputs.push(HubOutput::Send(HubMessage::Heartbeat(HubHeartbeat { tails })));
        Ok(())
    }
}

/// Sends a response to a request of this verb. An edge of an earlier version gets errors that it knows.
fn respond(response: Response, verb: Option<RequestVerb>, outputs: &mut Vec<HubOutput>) {
    let Response { id, outcome } = response;
    let outcome = match verb {
        None => outcome.map_err(RequestError::for_earlier_edge),
        Some(_) => outcome,
    };
    outputs.push(HubOutput::Send(HubMessage::Response(Response { id, outcome })));
}

fn unavailable(message: &str) -> Refusal {
    Refusal { code: RefusalCode::Unavailable, message: message.to_owned() }
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
