//! The edge's end of a session: checks every push before it is applied, acknowledges durable
//! positions, sends the reports of the outbox.
//!
//! ```text
//!                 Connected             all durable: Hello                   Welcome
//!   Disconnected -----------> Syncing ---------------------> AwaitingWelcome --------> Open
//!        ^                       |                                  |                    |
//!        |                       +----------------------------------+--------------------+
//!        |                       |  a refusal, a goodbye, a violation, silence, an older
//!        |     Disconnected      v  identity, a log that cannot be followed
//!        +------------------- Closing
//! ```
//!
//! `Disconnected` leads to the first phase from every other one, and `Connected` to `Syncing`.
//!
//! A session begins from durable positions only, so hub and edge agree whatever the edge loses in
//! a crash. The edge never acknowledges a position as durable before it is synced (I8). A push that
//! does not continue its stream ends the session (I7). The edge drops a stream only when the
//! `!streams` entry of its private stream no longer names it, never because a hub does not serve
//! it (I14).

mod assignment;
mod handshake;
mod io;
mod report_window;
mod requests;
mod stream_receiver;

use std::collections::BTreeMap;

use headwater_event::{Assignment, Checkpoint, Identity, LogId, Seq, StateHash, StreamId};

pub use io::{EdgeCloseReason, EdgeInput, EdgeOutput, EdgeState, PushFault, StreamStop};
use report_window::{ReportWindow, WindowBounds};
use requests::{PendingRequests, unavailable};
use stream_receiver::{ApplyOutcome, PushDecision, StreamReceiver};

use crate::message::{
    Ack, Compare, Divergence, EdgeHeartbeat, EdgeMessage, HubHeartbeat, HubMessage, Push, Request,
    RequestVerb, StreamProgress, Summary,
};
use crate::settings::EdgeSettings;

/// The edge's end of the protocol, for one start of an edge: lives across connections.
#[derive(Debug)]
pub struct EdgeSession {
    settings: EdgeSettings,
    identity: Identity,
    /// The shell is raising the boot number; no hello before it has.
    raising_boot: bool,
    assignment: Option<Assignment>,
    receivers: BTreeMap<StreamId, StreamReceiver>,
    /// The streams that the hub counts as held, and the edge has dropped or not begun. Only a
    /// snapshot begins them. With each, whether the hub was asked for one.
    dropped: BTreeMap<StreamId, bool>,
    phase: Phase,
    /// The connections on which a hello was sent.
    connections: u64,
    reports: ReportWindow,
    requests: PendingRequests,
    /// The verbs of the requests that the hub of this connection takes.
    verbs: Vec<RequestVerb>,
    /// The newest heartbeat that could not be sent yet.
    heartbeat: Option<EdgeHeartbeat>,
    /// Bytes of all pushes of this connection, and those of them that are acknowledged.
    received_bytes: u64,
    acked_bytes: u64,
    /// Whether a position changed that is not acknowledged yet.
    moved: bool,
    /// Whether a sync is acknowledged only when [`EdgeInput::AckDue`] comes.
    delays_acks: bool,
    now_ms: u64,
    /// When the last message arrived.
    received_ms: u64,
}

/// See the module's diagram.
#[derive(Debug)]
enum Phase {
    Disconnected,
    Syncing { is_requested: bool },
    AwaitingWelcome,
    Open { log_id: LogId },
    Closing,
}

/// The positions of a stream at the edge: `durable <= applied <= received <= tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeStreamStatus {
    /// The stream.
    pub stream: StreamId,
    /// The end of the stream at the hub, as last received; never below `received`.
    pub tail: Seq,
    /// The last event of the pushes received whole.
    pub received: Seq,
    /// The position that is applied and visible; `None`: the edge holds nothing of the stream.
    pub applied: Option<Checkpoint>,
    /// The state hash at `applied`.
    pub hash: StateHash,
    /// The last event that is synced to disk.
    pub durable: Seq,
    /// Whether the stream differs from the log and waits for a snapshot.
    pub stopped: bool,
}

impl EdgeSession {
    /// Creates a session at the positions on the edge's disk.
    pub fn new(settings: EdgeSettings, state: EdgeState) -> Self {
        let receivers = state
            .positions
            .iter()
            .map(|position| (position.stream.clone(), StreamReceiver::from_disk(position)))
            .collect();
        Self {
            settings,
            identity: state.identity,
            raising_boot: false,
            assignment: state.assignment,
            receivers,
            dropped: BTreeMap::new(),
            phase: Phase::Disconnected,
            connections: 0,
            reports: ReportWindow::default(),
            requests: PendingRequests::default(),
            verbs: Vec::new(),
            heartbeat: None,
            received_bytes: 0,
            acked_bytes: 0,
            moved: false,
            delays_acks: false,
            now_ms: 0,
            received_ms: 0,
        }
    }

    /// Processes an input; returns what the shell must do, in order. Never panics.
    pub fn step(&mut self, input: EdgeInput) -> Vec<EdgeOutput> {
        let mut outputs = Vec::new();
        let result = match input {
            EdgeInput::Connected => {
                self.disconnected(&mut outputs);
                self.phase = Phase::Syncing { is_requested: false };
                self.drop_unassigned(&mut outputs);
                self.hello_when_durable(&mut outputs);
                Ok(())
            }
            EdgeInput::Disconnected => {
                self.disconnected(&mut outputs);
                Ok(())
            }
            EdgeInput::Received(message) => self.received(message, &mut outputs),
            EdgeInput::Applied { stream, checkpoint, hash } => {
                self.applied(&stream, checkpoint, hash, &mut outputs)
            }
            EdgeInput::Durable { stream, checkpoint } => {
                self.durable(&stream, checkpoint, &mut outputs);
                Ok(())
            }
            EdgeInput::Summarized { stream, nonce, digests } => {
                let receiver = self.receivers.get_mut(&stream);
                if receiver.is_some_and(|receiver| receiver.summarized(nonce, digests.len() as u64))
                {
                    outputs.push(summary(Summary { stream, nonce, digests }));
                }
                Ok(())
            }
            EdgeInput::Reported => {
                if self.is_open() {
                    outputs.extend(self.reports.reported(self.report_bounds()));
                }
                Ok(())
            }
            EdgeInput::Outbox { reports, is_end } => {
                let (bounds, frame) = (self.report_bounds(), self.settings.frame_bytes_max);
                outputs.extend(self.reports.take(reports, is_end, bounds, frame));
                Ok(())
            }
            EdgeInput::BootRaised(identity) => {
                self.identity = identity;
                self.raising_boot = false;
                self.hello_when_durable(&mut outputs);
                Ok(())
            }
            EdgeInput::Asked(request) => {
                outputs.push(self.asked(request));
                Ok(())
            }
            EdgeInput::Heartbeat(heartbeat) => {
                self.heartbeat = Some(heartbeat);
                self.send_heartbeat(&mut outputs);
                Ok(())
            }
            EdgeInput::AckDue => {
                self.ack_due(&mut outputs);
                Ok(())
            }
            EdgeInput::Tick(now_ms) => self.tick(now_ms, &mut outputs),
        };
        if let Err(end) = result {
            // Without a connection there is nothing to close.
            if !matches!(self.phase, Phase::Disconnected | Phase::Closing) {
                self.close(end, &mut outputs);
            }
        }
        outputs
    }

    /// Whether a hub has welcomed the current connection.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    /// The identity of this edge.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The positions of every stream.
    pub fn streams(&self) -> impl Iterator<Item = EdgeStreamStatus> + '_ {
        self.receivers.iter().map(|(stream, receiver)| {
            let received = receiver.received().map_or(Seq::ZERO, |received| received.seq);
            EdgeStreamStatus {
                stream: stream.clone(),
                tail: receiver.tail.max(received),
                received,
                applied: receiver.applied,
                hash: receiver.hash,
                durable: receiver.durable_seq(),
                stopped: receiver.stopped.is_some(),
            }
        })
    }

    fn close(&mut self, end: EdgeCloseReason, outputs: &mut Vec<EdgeOutput>) {
        self.disconnected(outputs);
        self.phase = Phase::Closing;
        outputs.push(EdgeOutput::Close(end));
    }

    fn report_bounds(&self) -> WindowBounds {
        let EdgeSettings { reports_window, report_bytes_window, .. } = self.settings;
        WindowBounds { reports: reports_window, bytes: report_bytes_window }
    }

    fn disconnected(&mut self, outputs: &mut Vec<EdgeOutput>) {
        for (stream, receiver) in &mut self.receivers {
            if receiver.disconnected() {
                outputs.push(EdgeOutput::Unstage(stream.clone()));
            }
        }
        self.receivers.retain(|_, receiver| !receiver.is_empty());
        outputs.extend(self.requests.close());
        self.reports.close();
        self.dropped.clear();
        self.received_bytes = 0;
        self.acked_bytes = 0;
        self.moved = false;
        self.delays_acks = false;
        self.phase = Phase::Disconnected;
    }

    fn received(
        &mut self,
        message: HubMessage,
        outputs: &mut Vec<EdgeOutput>,
    ) -> Result<(), EdgeCloseReason> {
        self.received_ms = self.now_ms;
        let log_id = match (&self.phase, message) {
            // The session has not begun, or has ended: late messages are discarded.
            (Phase::Disconnected | Phase::Syncing { .. } | Phase::Closing, _) => {
                return Ok(());
            }
            (_, HubMessage::Refusal(refusal)) => return Err(EdgeCloseReason::Refused(refusal)),
            (_, HubMessage::Goodbye(goodbye)) => {
                return Err(EdgeCloseReason::Moved { reason: goodbye.reason });
            }
            (Phase::AwaitingWelcome, HubMessage::Welcome(welcome)) => {
                return self.welcomed(&welcome, outputs);
            }
            (Phase::Open { log_id }, message) => (*log_id, message),
            (Phase::AwaitingWelcome, message) => {
                return Err(EdgeCloseReason::Unexpected { message: message.name() });
            }
        };
        match log_id {
            (log_id, HubMessage::Push(push)) => self.pushed(push, &log_id, outputs),
            (_, HubMessage::Compare(compare)) => self.compare(compare, outputs),
            (_, HubMessage::ReportsAcked(acked)) => {
                let forgotten = self.reports.acked(acked, self.report_bounds());
                let message = "an acknowledgement of reports that were not sent";
                outputs.extend(forgotten.ok_or(EdgeCloseReason::Unexpected { message })?);
                Ok(())
            }
            (_, HubMessage::Heartbeat(heartbeat)) => {
                self.check_ends(&heartbeat, outputs);
                Ok(())
            }
            (_, HubMessage::Response(response)) => {
                outputs.extend(self.requests.answer(response));
                Ok(())
            }
            (_, HubMessage::Unknown) => Ok(()),
            (_, HubMessage::Dial(dial)) => {
                // The edge has not offered to take any.
                if self.settings.takes_dials {
                    outputs.push(EdgeOutput::Send(EdgeMessage::DialReceipt));
                    outputs.push(EdgeOutput::Dial(dial));
                }
                Ok(())
            }
            (_, HubMessage::ParkNotice(notice)) => {
                outputs.push(EdgeOutput::Parked(notice));
                Ok(())
            }
            (
                _,
                message
                @ (HubMessage::Welcome(_) | HubMessage::Refusal(_) | HubMessage::Goodbye(_)),
            ) => Err(EdgeCloseReason::Unexpected { message: message.name() }),
        }
    }

    /// Sends a request, if the hub takes its verb.
    fn asked(&mut self, request: Request) -> EdgeOutput {
        if !self.is_open() {
            return unavailable(request.id, "the node is not connected to the cloud");
        }
        let verb = request.verb.unwrap_or(RequestVerb::Get);
        if !self.verbs.contains(&verb) {
            let reason = format!("the hub is of an earlier version and takes no {verb} of a node");
            return unavailable(request.id, &reason);
        }
        self.requests.send(request, self.now_ms, self.settings.requests_max)
    }

    fn pushed(
        &mut self,
        push: Push,
        log_id: &LogId,
        outputs: &mut Vec<EdgeOutput>,
    ) -> Result<(), EdgeCloseReason> {
        let stream = push.stream.clone();
        let fault = |fault| EdgeCloseReason::Push { stream: stream.clone(), fault };
        if !stream.readable_by(&self.identity.node) {
            return Err(fault(PushFault::NotReadable));
        }
        let unapplied: usize = self.receivers.values().map(StreamReceiver::unapplied).sum();
        if unapplied >= self.settings.unapplied_max {
            return Err(EdgeCloseReason::Overflow { pushes: unapplied });
        }
        self.received_bytes = self.received_bytes.saturating_add(push.bytes());
        if !self.discards(&push) {
            let assignment = self.assignment_in(&push);
            let receiver = self.receivers.entry(stream.clone()).or_default();
            let decision = receiver.receive(&push, log_id, assignment).map_err(fault)?;
            if decision == PushDecision::Apply {
                outputs.push(EdgeOutput::Apply(push));
            }
        }
        // Before the window is full, so that the hub never waits for the next tick.
        if self.received_bytes - self.acked_bytes >= self.settings.window_bytes / 4 {
            self.acknowledge(outputs);
        }
        Ok(())
    }

    /// The hub asks for a summary of a stream.
    fn compare(
        &mut self,
        compare: Compare,
        outputs: &mut Vec<EdgeOutput>,
    ) -> Result<(), EdgeCloseReason> {
        let Compare { stream, nonce } = compare;
        if !stream.readable_by(&self.identity.node) {
            return Err(EdgeCloseReason::Push { stream, fault: PushFault::NotReadable });
        }
        let entries_max = self.settings.summary_entries_max;
        let receiver = self.receivers.get_mut(&stream);
        let Some(receiver) = receiver.filter(|receiver| receiver.may_be_compared()) else {
            outputs.push(summary(Summary { stream, nonce, digests: Vec::new() }));
            return Ok(());
        };
        if !receiver.begin_comparison(nonce) {
            let message = "a comparison before the summary of the last one";
            return Err(EdgeCloseReason::Unexpected { message });
        }
        outputs.push(EdgeOutput::Summarize { stream, nonce, entries_max });
        Ok(())
    }

    fn applied(
        &mut self,
        stream: &StreamId,
        checkpoint: Checkpoint,
        hash: StateHash,
        outputs: &mut Vec<EdgeOutput>,
    ) -> Result<(), EdgeCloseReason> {
        let seq = checkpoint.seq;
        let Some(receiver) = self.receivers.get_mut(stream) else { return Ok(()) };
        match receiver.applied_to(checkpoint, hash) {
            None => {
                let stream = stream.clone();
                return Err(EdgeCloseReason::UnknownPush { stream, seq });
            }
            Some(ApplyOutcome::Visible(assignment)) => {
                self.moved = true;
                if assignment.is_some() {
                    self.assignment = assignment;
                }
            }
            Some(ApplyOutcome::Superseded) => {}
            Some(ApplyOutcome::Stopped { expected, unstage }) => {
                if unstage {
                    outputs.push(EdgeOutput::Unstage(stream.clone()));
                }
                self.stopped(stream, seq, expected, hash, outputs);
            }
            Some(ApplyOutcome::BadSnapshot { expected }) => {
                let fault = PushFault::Snapshot { expected, found: hash };
                return Err(EdgeCloseReason::Push { stream: stream.clone(), fault });
            }
        }
        self.drop_unassigned(outputs);
        self.hello_when_durable(outputs);
        Ok(())
    }

    fn durable(
        &mut self,
        stream: &StreamId,
        checkpoint: Checkpoint,
        outputs: &mut Vec<EdgeOutput>,
    ) {
        let Some(receiver) = self.receivers.get_mut(stream) else { return };
        let before = receiver.durable_seq();
        receiver.synced(checkpoint);
        let rose = receiver.durable_seq() != before;
        self.moved |= rose;
        self.hello_when_durable(outputs);
        if rose && self.is_open() && !self.delays_acks {
            self.acknowledge(outputs);
            self.delay_acks(outputs);
        }
    }

    /// Acknowledges what became durable during the delay.
    fn ack_due(&mut self, outputs: &mut Vec<EdgeOutput>) {
        self.delays_acks = false;
        if self.is_open() && self.moved {
            self.acknowledge(outputs);
            self.delay_acks(outputs);
        }
    }

    fn delay_acks(&mut self, outputs: &mut Vec<EdgeOutput>) {
        self.delays_acks = true;
        outputs.push(EdgeOutput::DelayAck);
    }

    fn tick(&mut self, now_ms: u64, outputs: &mut Vec<EdgeOutput>) -> Result<(), EdgeCloseReason> {
        self.now_ms = self.now_ms.max(now_ms);
        outputs.extend(self.requests.expire(self.now_ms));
        let silent_ms = self.now_ms - self.received_ms;
        let is_waiting = matches!(self.phase, Phase::AwaitingWelcome | Phase::Open { .. });
        if is_waiting && silent_ms > self.settings.silence_ms_max {
            return Err(EdgeCloseReason::Silent { silent_ms });
        }
        if self.is_open() {
            self.acknowledge(outputs);
        }
        Ok(())
    }

    fn check_ends(&mut self, heartbeat: &HubHeartbeat, outputs: &mut Vec<EdgeOutput>) {
        for end in &heartbeat.tails {
            // A hub of an earlier version may have ignored the request of a snapshot.
            if let Some(is_requested) = self.dropped.get_mut(&end.stream) {
                *is_requested = false;
            }
            let Some(receiver) = self.receivers.get_mut(&end.stream) else { continue };
            let found = receiver.hash;
            if let Some(expected) = receiver.check_end(end) {
                self.stopped(&end.stream, end.checkpoint.seq, expected, found, outputs);
            }
        }
        self.request_regained(outputs);
    }

    /// Reports a stopped stream, behind an acknowledgement: the acknowledgement shows the hub
    /// whether the edge had received a snapshot before it stopped.
    fn stopped(
        &mut self,
        stream: &StreamId,
        seq: Seq,
        expected: StateHash,
        found: StateHash,
        outputs: &mut Vec<EdgeOutput>,
    ) {
        outputs.push(EdgeOutput::Stopped(StreamStop {
            stream: stream.clone(),
            seq,
            expected,
            found,
        }));
        if self.is_open() {
            self.acknowledge(outputs);
            outputs.push(divergence(stream, seq));
        }
    }

    /// Sends an acknowledgement, if the hub lacks any part of it.
    fn acknowledge(&mut self, outputs: &mut Vec<EdgeOutput>) {
        if !self.moved && self.acked_bytes == self.received_bytes {
            return;
        }
        self.moved = false;
        self.acked_bytes = self.received_bytes;
        let progress = self.progress();
        let ack = Ack { received_bytes: self.received_bytes, progress };
        outputs.push(EdgeOutput::Send(EdgeMessage::Ack(ack)));
    }

    /// Sends the newest heartbeat, behind an acknowledgement.
    fn send_heartbeat(&mut self, outputs: &mut Vec<EdgeOutput>) {
        if !self.is_open() {
            return;
        }
        let Some(heartbeat) = self.heartbeat.take() else { return };
        self.acknowledge(outputs);
        outputs.push(EdgeOutput::Send(EdgeMessage::Heartbeat(heartbeat)));
    }

    fn progress(&self) -> Vec<StreamProgress> {
        self.receivers
            .iter()
            .filter(|(_, receiver)| receiver.is_in_current_history() && !receiver.is_leaving)
            .filter_map(|(stream, receiver)| {
                let applied = receiver.applied?.seq;
                let durable = receiver.durable_seq();
                Some(StreamProgress { stream: stream.clone(), applied, durable })
            })
            .collect()
    }
}

fn divergence(stream: &StreamId, seq: Seq) -> EdgeOutput {
    EdgeOutput::Send(EdgeMessage::Divergence(Divergence { stream: stream.clone(), seq }))
}

fn summary(summary: Summary) -> EdgeOutput {
    EdgeOutput::Send(EdgeMessage::Summary(summary))
}
