//! The messages between an edge and a hub.
//!
//! This module defines their meaning, `proto/headwater/replication/v1/replication.proto` their wire
//! form.

use bytes::Bytes;
pub use headwater_event::{AnswerBody, RequestError, RequestVerb};
use headwater_event::{
    Change, Checkpoint, EntryDigest, EntryKey, Identity, LogId, RemovalRuns, Report, ReportBody,
    ReportId, ResourceKey, Seq, StateHash, StreamId,
};

/// The protocol version of this build.
pub const PROTOCOL: u32 = 1;

/// A message from an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeMessage {
    /// The first message of a session.
    Hello(Hello),
    /// Acknowledges cumulatively what the edge received, applied and made durable.
    Ack(Ack),
    /// The replica's state hash differs from that of a push.
    Divergence(Divergence),
    /// Reports of the node, in the order of their ids.
    Reports(Reports),
    /// A sign of life; a newer one supersedes an older one.
    Heartbeat(EdgeHeartbeat),
    /// Asks the cloud for an object.
    Request(Request),
    /// The response to [`HubMessage::Compare`].
    Summary(Summary),
    /// The edge has received a [`Dial`].
    DialReceipt,
    /// A message that this version does not know. It has no effect.
    Unknown,
}

/// A message from a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubMessage {
    /// The response to a hello.
    Welcome(Welcome),
    /// Carries a stream from one position to another.
    Push(Push),
    /// Asks for a summary of the edge's entries in a stream.
    Compare(Compare),
    /// Every report up to one of them is durable in the log, or refused.
    ReportsAcked(ReportsAcked),
    /// A sign of life; a newer one supersedes an older one.
    Heartbeat(HubHeartbeat),
    /// The response to a request.
    Response(Response),
    /// The hub cannot serve a stream yet; the edge keeps its replica and waits.
    ParkNotice(ParkNotice),
    /// The session cannot continue.
    Refusal(Refusal),
    /// The session ends in order; the edge continues at another hub.
    Goodbye(Goodbye),
    /// A client of the hub waits for a stream to the node.
    Dial(Dial),
    /// A message that this version does not know. It has no effect.
    Unknown,
}

/// The first message of a session: the edge's identity and positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The edge's protocol version.
    pub protocol: u32,
    /// The identity that the edge claims.
    pub identity: Identity,
    /// The edge's *durable* position in each stream of which it has a replica.
    pub positions: Vec<ReplicaPosition>,
    /// The bytes of unacknowledged pushes that the edge accepts.
    pub window_bytes: u64,
    /// The number of this connection since the edge's start, from 1; zero: the edge does not count.
    pub connection: u64,
    /// What the edge does after a [`Dial`].
    pub dials: DialSupport,
}

/// What an edge does after a [`Dial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialSupport {
    /// Nothing: a hub sends it none.
    None,
    /// It opens a stream. An edge of an earlier version.
    Taken,
    /// It sends [`EdgeMessage::DialReceipt`] at once, and opens a stream.
    Confirmed,
}

impl DialSupport {
    /// Whether the edge opens a stream after a dial.
    pub fn is_taken(self) -> bool {
        self != Self::None
    }
}

/// A position in a stream, with the state hash there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPosition {
    /// The stream.
    pub stream: StreamId,
    /// Log, epoch and seq.
    pub checkpoint: Checkpoint,
    /// State hash at the checkpoint.
    pub hash: StateHash,
}

/// The response to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The hub's protocol version.
    pub protocol: u32,
    /// The id of the log that the hub serves.
    pub log_id: LogId,
    /// The streams of the node.
    pub streams: Vec<StreamId>,
    /// The highest identity of this node in the cloud.
    pub known: Option<Identity>,
    /// The verbs of the requests that the hub takes; none: a hub of an earlier version.
    pub verbs: Vec<RequestVerb>,
    /// Whether the hub takes reports of Events. To a hub of an earlier version, the edge sends them as
    /// messages.
    pub takes_events: bool,
}

/// What a push contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushMode {
    /// Every event in `(from, to]`.
    Tail,
    /// The latest change of each key that changed in `(from, to]`.
    Delta,
    /// The complete state at `to`; the edge deletes every absent entry.
    Snapshot,
    /// The difference between the edge's [`Summary`] and the complete state at `to`: the entries
    /// that the summary lacks, and the entries of the summary that the state lacks. It contains
    /// every reserved entry, as a snapshot does.
    Correction,
}

impl PushMode {
    /// Whether a push leads to the complete state from any position. Only such a push may change
    /// the log id or go back.
    pub fn begins_anew(self) -> bool {
        matches!(self, Self::Snapshot | Self::Correction)
    }
}

/// Carries a stream from `from`, exclusive, to `to`, inclusive. The edge applies it atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The stream.
    pub stream: StreamId,
    /// What the push contains.
    pub mode: PushMode,
    /// The position that the replica must have applied; zero for a push that begins anew.
    pub from: Seq,
    /// The replica's position after the push.
    pub to: Checkpoint,
    /// The entries of the summary to remove; empty outside of part 0 of a correction.
    pub gone: RemovalRuns,
    /// The changes, in order.
    pub changes: Vec<PushedChange>,
    /// The state hash at `to`.
    pub hash: StateHash,
    /// The number of this part, from 0. A push larger than a frame has several parts, with the same
    /// `from`, `to` and `hash`.
    pub part: u32,
    /// Whether this is the last part.
    pub last_part: bool,
}

/// Asks for the edge's entries in a stream that needs its complete state. The edge responds with
/// one [`Summary`]; until then the hub pushes nothing in this stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The stream.
    pub stream: StreamId,
    /// Keys the digests; chosen by the hub.
    pub nonce: u64,
}

/// The digests of an edge's entries in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The stream.
    pub stream: StreamId,
    /// The nonce of the [`Compare`].
    pub nonce: u64,
    /// A digest of each entry that is not reserved, in the edge's own order. Empty: the edge has no
    /// entries, or too many for a summary.
    pub digests: Vec<EntryDigest>,
}

/// A change with the trace context of its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedChange {
    /// The change.
    pub change: Change,
    /// `Some`: the object of `change` is a patch of the object that this entry has before the
    /// change. A patch of the entry itself keeps the UID; `change` then has none. Only in a tail.
    pub base: Option<EntryKey>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// When the log appended the event, in milliseconds since the Unix epoch. Only in a tail. It is
    /// for people and orders nothing.
    pub appended_ms: Option<i64>,
}

impl From<Change> for PushedChange {
    /// With the whole object and without a trace context.
    fn from(change: Change) -> Self {
        Self { change, base: None, traceparent: None, appended_ms: None }
    }
}

/// Cumulative acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Bytes of all pushes received in this session ([`Push::bytes`]); opens the window.
    pub received_bytes: u64,
    /// The edge's progress in each stream.
    pub progress: Vec<StreamProgress>,
}

/// An edge's progress in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamProgress {
    /// The stream.
    pub stream: StreamId,
    /// Applied and visible at the edge.
    pub applied: Seq,
    /// Durable on the edge's disk; never above `applied`.
    pub durable: Seq,
}

/// A replica that differs from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The stream; its next push is a plain snapshot.
    pub stream: StreamId,
    /// The seq at which the edge detected the difference.
    pub seq: Seq,
}

/// Reports of a node, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    /// The last report sent before these in this session; `None` with the first. Because ids have
    /// gaps, a hub needs it to detect reports that were lost between the two ends.
    pub after: Option<ReportId>,
    /// The reports, ids rising.
    pub reports: Vec<Report>,
}

/// Acknowledges reports cumulatively.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportsAcked {
    /// Every report up to this one, inclusive, is durable in the log, except the refused ones.
    pub through: ReportId,
    /// Reports since the last acknowledgement that the log never takes.
    pub refused: Vec<RefusedReport>,
}

/// A report that the log never takes, whenever it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedReport {
    /// The report.
    pub id: ReportId,
    /// The reason, for people.
    pub reason: String,
}

/// An edge's sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeHeartbeat {
    /// Reports not yet acknowledged.
    pub outbox_depth: u64,
    /// The edge's wall clock, milliseconds: data, orders nothing.
    pub time_ms: i64,
    /// When the edge last closed a pod status snapshot, by the same clock; zero: never.
    pub meta_sync_ms: i64,
    /// Whether programs of the node read the stream `cluster`; `None`: the edge is of a version that
    /// does not report it.
    pub consumes_cluster: Option<bool>,
    /// The worker of the pods does not run. The worker of an edge of a version that does not report
    /// this counts as running.
    pub lacks_worker: bool,
}

/// A hub's sign of life: the tails of this node's streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubHeartbeat {
    /// The tails. A tail is left out once the hub has sent it to an edge that was already there.
    pub tails: Vec<ReplicaPosition>,
}

/// Asks the cloud for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the edge, unique in the session.
    pub id: u64,
    /// How long the edge waits, milliseconds from receipt.
    pub timeout_ms: u64,
    /// What the edge asks for. `None`: a get of an edge of an earlier version, which knows three errors.
    pub verb: Option<RequestVerb>,
    /// The object that the request is about.
    pub key: ResourceKey,
    /// The input of the verb; empty for a get.
    pub body: Bytes,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The request's id.
    pub id: u64,
    /// The answer, or why there is none.
    pub outcome: Result<AnswerBody, RequestError>,
}

/// Why the hub does not serve a stream for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkNotice {
    /// The stream.
    pub stream: StreamId,
    /// The reason, for people.
    pub reason: String,
}

/// The orderly end of a session: the hub stops, or the session is old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// The reason, for people.
    pub reason: String,
}

/// A client of the hub waits for a stream to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Names the stream; drawn by the hub, and taken once.
    pub id: DialId,
    /// How long the hub waits, milliseconds from receipt.
    pub within_ms: u64,
}

/// The name of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DialId(pub [u8; 16]);

/// Why a session cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind, which decides how the edge reacts.
    pub code: RefusalCode,
    /// The reason, for people.
    pub message: String,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// Two live sessions of one identity: both are refused until an operator releases the node.
    Clone,
    /// The cloud has a higher identity of the node: the edge must raise its boot number above it.
    StaleIdentity,
    /// No common protocol version.
    Protocol,
    /// The peer violated the protocol.
    Violation,
    /// The certificate is not for this node.
    Forbidden,
    /// A newer session of the same start took over.
    Superseded,
    /// The hub stops or is full: the edge connects again, to another hub if possible.
    Unavailable,
}

impl From<ReportId> for ReportsAcked {
    /// Without a refusal.
    fn from(through: ReportId) -> Self {
        Self { through, refused: Vec::new() }
    }
}

impl EdgeMessage {
    /// The kind of the message, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "a hello",
            Self::Ack(_) => "an ack",
            Self::Divergence(_) => "a divergence",
            Self::Reports(_) => "reports",
            Self::Heartbeat(_) => "a heartbeat",
            Self::Request(_) => "a request",
            Self::Summary(_) => "a summary",
            Self::DialReceipt => "a receipt of a dial",
            Self::Unknown => "a message of another version",
        }
    }
}

impl Request {
    /// A request for an object.
    pub fn get(id: u64, timeout_ms: u64, key: ResourceKey) -> Self {
        Self { id, timeout_ms, verb: Some(RequestVerb::Get), key, body: Bytes::new() }
    }
}

impl HubMessage {
    /// The kind of the message, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Welcome(_) => "a welcome",
            Self::Push(_) => "a push",
            Self::Compare(_) => "a compare request",
            Self::ReportsAcked(_) => "an acknowledgement of reports",
            Self::Heartbeat(_) => "a heartbeat",
            Self::Response(_) => "a response",
            Self::ParkNotice(_) => "a park notice",
            Self::Refusal(_) => "a refusal",
            Self::Goodbye(_) => "a goodbye",
            Self::Dial(_) => "a dial",
            Self::Unknown => "a message of another version",
        }
    }
}

impl Push {
    /// Whether this is the first part of a push that begins its stream anew.
    pub fn is_beginning(&self) -> bool {
        self.mode.begins_anew() && self.part == 0
    }

    /// The bytes that the push takes of the window: its keys, its objects and a fixed amount per
    /// change.
    pub fn bytes(&self) -> u64 {
        let changes = self.changes.iter().map(|pushed| change_bytes(&pushed.change));
        changes.sum::<u64>() + size_of_val(self.gone.runs()) as u64 + PUSH_OVERHEAD_BYTES
    }
}

/// Counted for every push, so that empty pushes cannot flood a peer.
pub const PUSH_OVERHEAD_BYTES: u64 = 128;

/// Counted for every change in addition to its texts and object.
pub const CHANGE_OVERHEAD_BYTES: u64 = 32;

/// The bytes that one change takes of the window.
pub fn change_bytes(change: &Change) -> u64 {
    let texts = match change {
        Change::Applied(applied) => {
            applied.uid.len() + applied.resource_version.len() + applied.object.len()
        }
        Change::Removed(removed) => removed.uid.len(),
    };
    (change.key().as_str().len() + texts) as u64 + CHANGE_OVERHEAD_BYTES
}

/// The bytes that one report takes of a frame.
pub fn report_bytes(report: &Report) -> u64 {
    let body = match &report.body {
        ReportBody::PodStatus { pod, uid, status } => pod.as_str().len() + uid.len() + status.len(),
        ReportBody::PodStatusRemoved { pod, uid } | ReportBody::PodTerminated { pod, uid } => {
            pod.as_str().len() + uid.len()
        }
        ReportBody::SnapshotClosed(_) => 0,
        ReportBody::Node { object } => object.len(),
        ReportBody::Message { key, content } => key.as_str().len() + content.len(),
        ReportBody::Event { key, object } => key.as_str().len() + object.len(),
    };
    body as u64 + REPORT_OVERHEAD_BYTES
}

/// Counted for every report in addition to its texts and content.
pub const REPORT_OVERHEAD_BYTES: u64 = 128;
