//! What an edge and a hub say to each other.
//!
//! The wire form is `proto/headwater/replication/v1/replication.proto`; the meaning is here.

use bytes::Bytes;
use headwater_event::{
    Change, Checkpoint, EntryDigest, EntryKey, Identity, LogId, RemovalRuns, Report, ReportBody,
    ReportId, ResourceKey, Seq, StateHash, StreamId,
};

/// The version of the protocol that this build speaks.
pub const PROTOCOL: u32 = 1;

/// What an edge says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeMessage {
    /// The first message of a session.
    Hello(Hello),
    /// What was received, applied and made durable, cumulatively.
    Ack(Ack),
    /// The state at a push's end did not hash to what the push said.
    Divergence(Divergence),
    /// What the node says, in the order of the reports' ids.
    Reports(Reports),
    /// A sign of life; newest only.
    Heartbeat(EdgeHeartbeat),
    /// A question that needs the cloud.
    Request(Request),
    /// The answer to a comparison.
    Summary(Summary),
}

/// What a hub says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubMessage {
    /// The answer to a hello.
    Welcome(Welcome),
    /// Carries a stream from one position to another.
    Push(Push),
    /// Asks what the edge holds of a stream.
    Compare(Compare),
    /// Every report up to this one, inclusive, is durable in the log.
    ReportsAcked(ReportId),
    /// A sign of life; newest only.
    Heartbeat(HubHeartbeat),
    /// The answer to a request.
    Response(Response),
    /// The hub cannot serve a stream yet; the edge keeps what it has and waits.
    ParkNotice(ParkNotice),
    /// The session cannot go on.
    Refusal(Refusal),
    /// The session ends in order: the edge goes on at another hub.
    Goodbye(Goodbye),
}

/// The first message of a session: who the edge is and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The protocol version the edge speaks.
    pub protocol: u32,
    /// Who it says it is.
    pub identity: Identity,
    /// Where it stands in every stream that it holds anything of: its *durable* positions.
    pub positions: Vec<ReplicaPosition>,
    /// How many bytes of pushes it takes unacknowledged.
    pub window_bytes: u64,
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

/// The answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The protocol version the hub speaks.
    pub protocol: u32,
    /// The life of the log that it serves.
    pub log_id: LogId,
    /// The streams that the node has.
    pub streams: Vec<StreamId>,
    /// The highest identity the cloud knows of this node.
    pub known: Option<Identity>,
}

/// How a push brings a replica forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushMode {
    /// Every event in `(from, to]`.
    Tail,
    /// Each key changed in `(from, to]`, once, its latest change.
    Delta,
    /// The complete state at `to`: what is absent is deleted.
    Snapshot,
    /// What of the complete state at `to` the edge's [`Summary`] did not have, and which of the
    /// entries in that summary are not of it. Reserved entries are all there, as in a snapshot.
    Correction,
}

impl PushMode {
    /// Whether a push leads to the complete state whatever the position before it: only such a
    /// one may change the log id or go back.
    pub fn begins_anew(self) -> bool {
        matches!(self, Self::Snapshot | Self::Correction)
    }
}

/// Carries a stream from `from`, exclusive, to `to`, inclusive. Applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The stream.
    pub stream: StreamId,
    /// How.
    pub mode: PushMode,
    /// The position the replica must have applied; zero for one that begins anew.
    pub from: Seq,
    /// Where it then stands.
    pub to: Checkpoint,
    /// Which entries of the summary leave; said in part 0 of a correction, and nowhere else.
    pub gone: RemovalRuns,
    /// What changes, in order.
    pub changes: Vec<PushedChange>,
    /// The state hash at `to`.
    pub hash: StateHash,
    /// A push larger than a frame comes in parts from 0; `from`, `to` and `hash` are the same in
    /// each.
    pub part: u32,
    /// Whether this is the last part.
    pub last_part: bool,
}

/// Asks what the edge holds of a stream that needs its complete state. It is answered once by a
/// [`Summary`], and until then nothing of the stream is pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The stream.
    pub stream: StreamId,
    /// What the digests are made with; of the hub's choice.
    pub nonce: u64,
}

/// What an edge holds of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The stream.
    pub stream: StreamId,
    /// That of the question.
    pub nonce: u64,
    /// One for each entry but reserved ones, in the edge's own order. None: it holds nothing, or
    /// too much to say.
    pub digests: Vec<EntryDigest>,
}

/// A change with the trace context of what caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedChange {
    /// The change.
    pub change: Change,
    /// `Some`: the object of `change` is a patch against the object that this entry has before
    /// the change; where that is the entry itself, its UID stays and is not said. Told of a tail.
    pub base: Option<EntryKey>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// When the log appended the event, in milliseconds since the Unix epoch; told of a tail.
    /// For people; nothing is ordered by it.
    pub appended_ms: Option<i64>,
}

impl From<Change> for PushedChange {
    /// With the whole object, and without a word on what caused it.
    fn from(change: Change) -> Self {
        Self { change, base: None, traceparent: None, appended_ms: None }
    }
}

/// Cumulative acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Bytes of all pushes received in this session ([`Push::bytes`]); opens the window.
    pub received_bytes: u64,
    /// How far each stream came.
    pub progress: Vec<StreamProgress>,
}

/// How far an edge came in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamProgress {
    /// The stream.
    pub stream: StreamId,
    /// Applied and visible at the edge.
    pub applied: Seq,
    /// Synced to its disk; never above `applied`.
    pub durable: Seq,
}

/// A replica that noticed it differs from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The stream; it takes a plain snapshot next.
    pub stream: StreamId,
    /// Where it noticed.
    pub seq: Seq,
}

/// What a node says, in the order of the reports' ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    /// The last report sent before these in this session; `None` with the first. Ids have gaps,
    /// so this is how a hub notices that reports went missing between the two ends.
    pub after: Option<ReportId>,
    /// The reports, ids rising.
    pub reports: Vec<Report>,
}

/// An edge's sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeHeartbeat {
    /// Reports not yet acknowledged.
    pub outbox_depth: u64,
    /// The edge's wall clock, milliseconds: data, orders nothing.
    pub time_ms: i64,
    /// When it last closed a pod status snapshot, same clock; zero is never.
    pub meta_sync_ms: i64,
}

/// A hub's sign of life: where the streams of this node end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubHeartbeat {
    /// Streams at whose end the edge has not stood yet when it was told.
    pub tails: Vec<ReplicaPosition>,
}

/// A question that needs the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the edge, unique in the session.
    pub id: u64,
    /// How long the edge waits, milliseconds from receipt.
    pub timeout_ms: u64,
    /// The object asked for.
    pub key: ResourceKey,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The request's id.
    pub id: u64,
    /// The object's JSON, or why there is none.
    pub outcome: Result<Bytes, RequestError>,
}

/// Why a request got no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no such object.
    #[error("not found")]
    NotFound,
    /// The node has no interest in it.
    #[error("forbidden: no pod of this node names the object")]
    Forbidden,
    /// Nobody could answer in time.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// Why a stream is not served just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkNotice {
    /// The stream.
    pub stream: StreamId,
    /// The reason, for people.
    pub reason: String,
}

/// The end of a session with which nothing is wrong: its hub stops, or it is old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// The reason, for people.
    pub reason: String,
}

/// Why a session cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the edge does about it depends on this.
    pub code: RefusalCode,
    /// The reason, for people.
    pub message: String,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// Two live sessions of one identity: both are held until an operator picks.
    Clone,
    /// The cloud knows a higher identity of the node: raise the boot number past it.
    StaleIdentity,
    /// No common protocol version.
    Protocol,
    /// The peer broke the protocol.
    Violation,
    /// The certificate is not for this node.
    Forbidden,
    /// A newer session of the same start took over.
    Superseded,
    /// The hub stops or is full: connect again, elsewhere if possible.
    Unavailable,
}

impl EdgeMessage {
    /// What kind of message it is, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "a hello",
            Self::Ack(_) => "an ack",
            Self::Divergence(_) => "a divergence",
            Self::Reports(_) => "reports",
            Self::Heartbeat(_) => "a heartbeat",
            Self::Request(_) => "a request",
            Self::Summary(_) => "a summary",
        }
    }
}

impl HubMessage {
    /// What kind of message it is, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Welcome(_) => "a welcome",
            Self::Push(_) => "a push",
            Self::Compare(_) => "a comparison",
            Self::ReportsAcked(_) => "an acknowledgement of reports",
            Self::Heartbeat(_) => "a heartbeat",
            Self::Response(_) => "a response",
            Self::ParkNotice(_) => "a parking",
            Self::Refusal(_) => "a refusal",
            Self::Goodbye(_) => "a goodbye",
        }
    }
}

impl Push {
    /// What the push counts against the window: its keys, objects and a fixed share a change.
    pub fn bytes(&self) -> u64 {
        let changes = self.changes.iter().map(|pushed| change_bytes(&pushed.change));
        changes.sum::<u64>() + size_of_val(self.gone.runs()) as u64 + PUSH_OVERHEAD_BYTES
    }
}

/// Counted for every push, whatever it holds, so that empty pushes cannot flood a peer.
pub const PUSH_OVERHEAD_BYTES: u64 = 128;

/// Counted for every change besides its texts and object.
pub const CHANGE_OVERHEAD_BYTES: u64 = 32;

/// What one change counts against the window.
pub fn change_bytes(change: &Change) -> u64 {
    let texts = match change {
        Change::Applied(applied) => {
            applied.uid.len() + applied.resource_version.len() + applied.object.len()
        }
        Change::Removed(removed) => removed.uid.len(),
    };
    (change.key().as_str().len() + texts) as u64 + CHANGE_OVERHEAD_BYTES
}

/// What one report counts against a frame.
pub fn report_bytes(report: &Report) -> u64 {
    let body = match &report.body {
        ReportBody::PodStatus { pod, uid, status } => pod.as_str().len() + uid.len() + status.len(),
        ReportBody::PodStatusRemoved { pod, uid } | ReportBody::PodTerminated { pod, uid } => {
            pod.as_str().len() + uid.len()
        }
        ReportBody::SnapshotClosed(_) => 0,
        ReportBody::Node { object } => object.len(),
        ReportBody::Message { key, content } => key.as_str().len() + content.len(),
    };
    body as u64 + REPORT_OVERHEAD_BYTES
}

/// Counted for every report besides its texts and content.
pub const REPORT_OVERHEAD_BYTES: u64 = 128;
