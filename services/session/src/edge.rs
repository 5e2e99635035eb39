//! The edge's end of a session: checks every push before it is applied, acknowledges what is
//! durable, offers the outbox.
//!
//! ```text
//!             Connected               all durable: Hello            Welcome
//!   Down ----------------> Settling ---------------------> Greeting --------> Open
//!    ^                         |                               |                |
//!    |       Disconnected      v        violation, refusal,    v    silence     v
//!    +--------------------- Closing <-------------------------------------------+
//! ```
//!
//! A session begins from durable positions only, so that hub and edge agree after whatever the
//! edge may lose. Nothing from above the durable position is ever acknowledged as durable (I8),
//! a push that does not begin where its stream stands ends the session (I7), and a stream is
//! dropped only on the word of the private stream's own `!streams` entry, never because a hub
//! does not serve it (I14).

mod io;
mod report_window;
mod requests;
mod stream_receiver;

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{
    Assignment, Change, Checkpoint, EntryKey, Identity, LogId, Seq, StateHash, StreamId,
};

pub use io::{EdgeCloseReason, EdgeInput, EdgeOutput, EdgeState, PushFault, StreamStop};
use report_window::ReportWindow;
use requests::{PendingRequests, unavailable};
use stream_receiver::{ApplyOutcome, PushDecision, StreamReceiver};

use crate::message::{
    Ack, Compare, Divergence, EdgeHeartbeat, EdgeMessage, Hello, HubHeartbeat, HubMessage,
    PROTOCOL, Push, ReplicaPosition, StreamProgress, Summary, Welcome,
};
use crate::settings::EdgeSettings;

/// The edge's end of the protocol, for one start of an edge: lives across connections.
#[derive(Debug)]
pub struct EdgeSession {
    settings: EdgeSettings,
    identity: Identity,
    /// A higher boot number was asked for; no hello before it is there.
    raising_boot: bool,
    assignment: Option<Assignment>,
    receivers: BTreeMap<StreamId, StreamReceiver>,
    /// Streams dropped within this connection: the hub may believe that the edge holds them.
    dropped: BTreeSet<StreamId>,
    connection: Connection,
    reports: ReportWindow,
    requests: PendingRequests,
    /// Received before the hub could take it; newest only.
    heartbeat: Option<EdgeHeartbeat>,
    /// Bytes of all pushes of this connection, and how many of them are acknowledged.
    received_bytes: u64,
    acked_bytes: u64,
    /// Whether a position moved that the hub was not told.
    moved: bool,
    now_ms: u64,
    heard_ms: u64,
}

/// See the module's drawing.
#[derive(Debug)]
enum Connection {
    Down,
    Settling { sync_asked: bool },
    Greeting,
    Open { log_id: LogId },
    Closing,
}

/// Where a stream stands, for `status`: `durable <= applied <= received <= tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeStreamStatus {
    /// The stream.
    pub stream: StreamId,
    /// The end of the stream at the hub, as last heard; never below `received`.
    pub tail: Seq,
    /// The last event of the pushes received whole.
    pub received: Seq,
    /// What is applied and visible; `None` while the edge holds nothing of the stream.
    pub applied: Option<Checkpoint>,
    /// The state hash at `applied`.
    pub hash: StateHash,
    /// What of `applied` is synced.
    pub durable: Seq,
    /// Whether it differs from the log and waits for a snapshot.
    pub stopped: bool,
}

impl EdgeSession {
    /// A session that stands where the edge's disk stands.
    pub fn new(settings: EdgeSettings, state: EdgeState) -> Self {
        let receivers = state
            .positions
            .iter()
            .map(|position| (position.stream.clone(), StreamReceiver::found(position)))
            .collect();
        Self {
            settings,
            identity: state.identity,
            raising_boot: false,
            assignment: state.assignment,
            receivers,
            dropped: BTreeSet::new(),
            connection: Connection::Down,
            reports: ReportWindow::default(),
            requests: PendingRequests::default(),
            heartbeat: None,
            received_bytes: 0,
            acked_bytes: 0,
            moved: false,
            now_ms: 0,
            heard_ms: 0,
        }
    }

    /// Takes in what happened and says what is to be done, in order. Never panics.
    pub fn step(&mut self, input: EdgeInput) -> Vec<EdgeOutput> {
        let mut outputs = Vec::new();
        let result = match input {
            EdgeInput::Connected => {
                self.disconnected(&mut outputs);
                self.connection = Connection::Settling { sync_asked: false };
                self.drop_unassigned(&mut outputs);
                self.greet(&mut outputs);
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
                if receiver.is_some_and(|receiver| receiver.told(nonce, digests.len() as u64)) {
                    outputs.push(summary(Summary { stream, nonce, digests }));
                }
                Ok(())
            }
            EdgeInput::Reported => {
                if self.is_open() {
                    outputs.extend(self.reports.reported(self.settings.reports_window));
                }
                Ok(())
            }
            EdgeInput::Outbox(reports) => {
                let (max, frame) = (self.settings.reports_window, self.settings.frame_bytes_max);
                outputs.extend(self.reports.take(reports, max, frame));
                Ok(())
            }
            EdgeInput::BootRaised(identity) => {
                self.identity = identity;
                self.raising_boot = false;
                self.greet(&mut outputs);
                Ok(())
            }
            EdgeInput::Asked(request) => {
                outputs.push(if self.is_open() {
                    self.requests.ask(request, self.now_ms, self.settings.requests_max)
                } else {
                    unavailable(request.id, "the node is not connected to the cloud")
                });
                Ok(())
            }
            EdgeInput::Heartbeat(heartbeat) => {
                self.heartbeat = Some(heartbeat);
                self.beat(&mut outputs);
                Ok(())
            }
            EdgeInput::Tick(now_ms) => self.tick(now_ms, &mut outputs),
        };
        if let Err(end) = result {
            // Without a connection there is nothing to end.
            if !matches!(self.connection, Connection::Down | Connection::Closing) {
                self.close(end, &mut outputs);
            }
        }
        outputs
    }

    /// Whether a hub has welcomed the present connection.
    pub fn is_open(&self) -> bool {
        matches!(self.connection, Connection::Open { .. })
    }

    /// Who this edge is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where every stream stands.
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
        self.connection = Connection::Closing;
        outputs.push(EdgeOutput::Close(end));
    }

    fn disconnected(&mut self, outputs: &mut Vec<EdgeOutput>) {
        for (stream, receiver) in &mut self.receivers {
            receiver.forget_comparing();
            if receiver.unstage() {
                outputs.push(EdgeOutput::Unstage(stream.clone()));
            }
        }
        outputs.extend(self.requests.close());
        self.reports.close();
        self.dropped.clear();
        self.received_bytes = 0;
        self.acked_bytes = 0;
        self.moved = false;
        self.connection = Connection::Down;
    }

    /// Says hello once everything applied is durable and nothing is under way.
    fn greet(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Connection::Settling { sync_asked } = &mut self.connection else { return };
        let is_busy = self.receivers.values().any(|receiver| receiver.unapplied() > 0);
        if self.raising_boot || is_busy {
            return;
        }
        if !self.receivers.values().all(StreamReceiver::is_durable) {
            if !*sync_asked {
                *sync_asked = true;
                outputs.push(EdgeOutput::Sync);
            }
            return;
        }
        let positions = self
            .receivers
            .iter()
            .filter_map(|(stream, receiver)| {
                let checkpoint = receiver.durable?;
                Some(ReplicaPosition { stream: stream.clone(), checkpoint, hash: receiver.hash })
            })
            .collect();
        self.connection = Connection::Greeting;
        self.heard_ms = self.now_ms;
        outputs.push(EdgeOutput::Send(EdgeMessage::Hello(Hello {
            protocol: PROTOCOL,
            identity: self.identity.clone(),
            positions,
            window_bytes: self.settings.window_bytes,
        })));
    }

    fn received(
        &mut self,
        message: HubMessage,
        outputs: &mut Vec<EdgeOutput>,
    ) -> Result<(), EdgeCloseReason> {
        self.heard_ms = self.now_ms;
        let log_id = match (&self.connection, message) {
            // Nothing was said yet, or the session has ended: what still arrives is void.
            (Connection::Down | Connection::Settling { .. } | Connection::Closing, _) => {
                return Ok(());
            }
            (_, HubMessage::Refusal(refusal)) => return Err(EdgeCloseReason::Refused(refusal)),
            (_, HubMessage::Goodbye(goodbye)) => {
                return Err(EdgeCloseReason::Moved { reason: goodbye.reason });
            }
            (Connection::Greeting, HubMessage::Welcome(welcome)) => {
                return self.welcomed(&welcome, outputs);
            }
            (Connection::Open { log_id }, message) => (*log_id, message),
            (Connection::Greeting, message) => {
                return Err(EdgeCloseReason::Unexpected { message: message.name() });
            }
        };
        match log_id {
            (log_id, HubMessage::Push(push)) => self.pushed(push, &log_id, outputs),
            (_, HubMessage::Compare(compare)) => self.asked(compare, outputs),
            (_, HubMessage::ReportsAcked(through)) => {
                let forgotten = self.reports.acked(through, self.settings.reports_window);
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
            (_, HubMessage::ParkNotice(parked)) => {
                outputs.push(EdgeOutput::Parked(parked));
                Ok(())
            }
            (
                _,
                message
                @ (HubMessage::Welcome(_) | HubMessage::Refusal(_) | HubMessage::Goodbye(_)),
            ) => Err(EdgeCloseReason::Unexpected { message: message.name() }),
        }
    }

    fn welcomed(
        &mut self,
        welcome: &Welcome,
        outputs: &mut Vec<EdgeOutput>,
    ) -> Result<(), EdgeCloseReason> {
        if welcome.protocol != PROTOCOL {
            return Err(EdgeCloseReason::Protocol { ours: PROTOCOL, theirs: welcome.protocol });
        }
        for (stream, receiver) in &self.receivers {
            let Some(held) = receiver.applied.map(|applied| applied.log_id) else { continue };
            if held != welcome.log_id && !welcome.log_id.follows(&held) {
                let stream = stream.clone();
                return Err(EdgeCloseReason::ForeignLog { stream, held, offered: welcome.log_id });
            }
        }
        if let Some(known) = &welcome.known {
            if known.incarnation > self.identity.incarnation {
                return Err(EdgeCloseReason::Fenced { known: known.clone() });
            }
            if known.outranks(&self.identity) {
                self.raising_boot = true;
                outputs.push(EdgeOutput::RaiseBoot { known: known.clone() });
                return Err(EdgeCloseReason::RaisingBoot { known: known.clone() });
            }
        }
        self.connection = Connection::Open { log_id: welcome.log_id };
        outputs.push(EdgeOutput::Welcomed { log_id: welcome.log_id });
        for (stream, receiver) in &self.receivers {
            if let Some(seq) = receiver.stopped {
                outputs.push(diverged(stream, seq));
            }
        }
        outputs.extend(self.reports.open(self.settings.reports_window));
        self.beat(outputs);
        Ok(())
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
        let assigned = self.assigned_by(&push);
        let receiver = self.receivers.entry(stream.clone()).or_default();
        let decision = receiver.receive(&push, log_id, assigned).map_err(fault)?;
        if decision == PushDecision::Apply {
            outputs.push(EdgeOutput::Apply(push));
        }
        // Before the window can close, so that the hub never waits for the clock.
        if self.received_bytes - self.acked_bytes >= self.settings.window_bytes / 4 {
            self.acknowledge(outputs);
        }
        Ok(())
    }

    /// The hub asks what is held of a stream, before it says what differs.
    fn asked(
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
        if !receiver.ask(nonce) {
            let message = "a comparison before the last one was answered";
            return Err(EdgeCloseReason::Unexpected { message });
        }
        outputs.push(EdgeOutput::Summarize { stream, nonce, entries_max });
        Ok(())
    }

    /// What the part says of the node's streams. An entry that cannot be read says nothing.
    fn assigned_by(&self, push: &Push) -> Option<Assignment> {
        let node = &self.identity.node;
        if push.stream != StreamId::node(node) {
            return None;
        }
        let mut assigned = None;
        if push.mode.begins_anew() && push.part == 0 {
            assigned = Some(Assignment::new(node, []));
        }
        for pushed in &push.changes {
            match &pushed.change {
                Change::Applied(applied) if applied.key == EntryKey::Streams => {
                    assigned = Assignment::decode(node, &applied.object).ok();
                }
                Change::Removed(removed) if removed.key == EntryKey::Streams => {
                    assigned = Some(Assignment::new(node, []));
                }
                Change::Applied(_) | Change::Removed(_) => {}
            }
        }
        assigned
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
        match receiver.answered(checkpoint, hash) {
            None => {
                let stream = stream.clone();
                return Err(EdgeCloseReason::Unasked { stream, seq });
            }
            Some(ApplyOutcome::Visible(assigned)) => {
                self.moved = true;
                if assigned.is_some() {
                    self.assignment = assigned;
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
        self.greet(outputs);
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
        self.greet(outputs);
        if rose && self.is_open() {
            self.acknowledge(outputs);
        }
    }

    fn tick(&mut self, now_ms: u64, outputs: &mut Vec<EdgeOutput>) -> Result<(), EdgeCloseReason> {
        self.now_ms = self.now_ms.max(now_ms);
        outputs.extend(self.requests.expire(self.now_ms));
        let silent_ms = self.now_ms - self.heard_ms;
        let listening = matches!(self.connection, Connection::Greeting | Connection::Open { .. });
        if listening && silent_ms > self.settings.silence_ms_max {
            return Err(EdgeCloseReason::Silent { silent_ms });
        }
        if self.is_open() {
            self.acknowledge(outputs);
        }
        Ok(())
    }

    fn check_ends(&mut self, heartbeat: &HubHeartbeat, outputs: &mut Vec<EdgeOutput>) {
        for end in &heartbeat.tails {
            let Some(receiver) = self.receivers.get_mut(&end.stream) else { continue };
            let found = receiver.hash;
            if let Some(expected) = receiver.check_end(end) {
                self.stopped(&end.stream, end.checkpoint.seq, expected, found, outputs);
            }
        }
    }

    /// Tells of a stopped stream, behind an acknowledgement: the hub then knows whether a
    /// snapshot that it has sent came before.
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
            outputs.push(diverged(stream, seq));
        }
    }

    /// Removes the streams that the private stream no longer names, each once the shell has
    /// answered its pushes: no answer is then about a stream that is gone.
    fn drop_unassigned(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Some(assignment) = &self.assignment else { return };
        self.receivers.retain(|stream, receiver| {
            receiver.leaving |= !assignment.contains(stream);
            if receiver.leaving && receiver.unstage() {
                outputs.push(EdgeOutput::Unstage(stream.clone()));
            }
            let goes = receiver.leaving && receiver.unapplied() == 0;
            if goes {
                outputs.push(EdgeOutput::Drop(stream.clone()));
                self.dropped.insert(stream.clone());
            }
            !goes
        });
        self.ask_for_regained(outputs);
    }

    /// A stream that was taken away and given back within a session: the hub may have sent what
    /// the edge has dropped since, so the edge asks for all of it.
    fn ask_for_regained(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Some(assignment) = self.assignment.as_ref().filter(|_| self.is_open()) else { return };
        let regained: Vec<_> = self
            .dropped
            .iter()
            .filter(|stream| assignment.contains(stream) && !self.receivers.contains_key(*stream))
            .cloned()
            .collect();
        for stream in regained {
            self.acknowledge(outputs);
            outputs.push(diverged(&stream, Seq::ZERO));
            self.dropped.remove(&stream);
        }
    }

    /// Says how far the edge came, if the hub has not been told.
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

    /// Sends the newest heartbeat, behind what the hub was not told of the streams.
    fn beat(&mut self, outputs: &mut Vec<EdgeOutput>) {
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
            .filter(|(_, receiver)| receiver.is_of_the_present() && !receiver.leaving)
            .filter_map(|(stream, receiver)| {
                let applied = receiver.applied?.seq;
                let durable = receiver.durable_seq();
                Some(StreamProgress { stream: stream.clone(), applied, durable })
            })
            .collect()
    }
}

fn diverged(stream: &StreamId, seq: Seq) -> EdgeOutput {
    EdgeOutput::Send(EdgeMessage::Divergence(Divergence { stream: stream.clone(), seq }))
}

fn summary(summary: Summary) -> EdgeOutput {
    EdgeOutput::Send(EdgeMessage::Summary(summary))
}
