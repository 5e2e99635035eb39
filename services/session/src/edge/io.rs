//! Inputs and outputs of an edge session.

use headwater_event::{
    Assignment, Checkpoint, EntryDigest, EntryKey, Identity, LogId, Report, ReportId, Seq,
    StateHash, StreamId,
};

use crate::message::{
    Dial, EdgeHeartbeat, EdgeMessage, HubMessage, ParkNotice, Push, Refusal, RefusedReport,
    ReplicaPosition, Request, Response,
};

/// The state on the edge's disk at its start, all of it durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeState {
    /// The identity of the edge, its boot number already raised and synced.
    pub identity: Identity,
    /// The position of each stream that the edge holds anything of.
    pub positions: Vec<ReplicaPosition>,
    /// The assignment in the `!streams` entry of the private stream; `None`: there is no such entry.
    pub assignment: Option<Assignment>,
}

/// An event at an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeInput {
    /// A connection to a hub is open; no message was sent on it yet.
    Connected,
    /// The connection is gone, for any reason. No effect without a connection.
    Disconnected,
    /// The hub sent this message on the current connection.
    Received(HubMessage),
    /// Every [`EdgeOutput::Apply`] of the stream up to the push that ends here is applied and
    /// visible. When `hash` differs from the push's hash, the shell has kept the state before that
    /// push.
    Applied {
        /// The stream.
        stream: StreamId,
        /// The `to` of the push.
        checkpoint: Checkpoint,
        /// The hash of the state there.
        hash: StateHash,
    },
    /// The state at this checkpoint is synced to disk.
    Durable {
        /// The stream.
        stream: StreamId,
        /// A position of an `Applied` before the sync began.
        checkpoint: Checkpoint,
    },
    /// The result of [`EdgeOutput::Summarize`].
    Summarized {
        /// The stream.
        stream: StreamId,
        /// The nonce of the `Summarize`.
        nonce: u64,
        /// The digests of the stream's entries; none if there are too many.
        digests: Vec<EntryDigest>,
    },
    /// The outbox has a new report.
    Reported,
    /// The result of [`EdgeOutput::ReadOutbox`].
    Outbox {
        /// The reports behind `after`, ids rising, within the bounds.
        reports: Vec<Report>,
        /// Whether there are no more behind them.
        is_end: bool,
    },
    /// The result of [`EdgeOutput::RaiseBoot`]: the new identity is synced, and every report of the
    /// outbox has a new id under it.
    BootRaised(Identity),
    /// A client on the node requests an object from the cloud. The id is unique among the pending
    /// requests.
    Asked(Request),
    /// The edge's heartbeat.
    Heartbeat(EdgeHeartbeat),
    /// The delay of [`EdgeOutput::DelayAck`] is over.
    AckDue,
    /// The monotonic clock, in milliseconds; at least once a second.
    Tick(u64),
}

/// What the edge's shell must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeOutput {
    /// Send this to the hub.
    Send(EdgeMessage),
    /// Input `AckDue` after a delay. Until then the session does not acknowledge each sync: an
    /// acknowledgement costs the hub as much as a push. A longer delay costs fewer acknowledgements,
    /// and the hub knows the edge's position later. A shell without timers inputs `AckDue` at once.
    DelayAck,
    /// Sync everything applied, then input `Durable` for every stream: a session begins from durable
    /// positions only.
    Sync,
    /// Apply a push; the session has checked its position. The pushes of a stream are applied in
    /// order, each in one batch with the checkpoint `to`; pushes may share a batch. A push of several
    /// parts is staged: part 0 discards what was staged of the stream before, and `last_part` makes
    /// the whole visible at once. Input `Applied` once the last part is visible.
    ///
    /// After a push with another hash, discard every further push of the stream without an input, up
    /// to part 0 of the next one that begins anew: they build on a state that was not applied.
    ///
    /// A correction applies to the summarized state. First the entries in `gone` leave, counted as
    /// in the summary, and all reserved entries; then its changes are applied. The hash is that of
    /// all entries, under the log id of `to`.
    Apply(Push),
    /// Input `Summarized`, behind every `Apply` before: a digest for each visible entry of an object,
    /// in an order that stays the same while nothing is applied; none if there are more than
    /// `entries_max`.
    Summarize {
        /// The stream.
        stream: StreamId,
        /// The key of the digests.
        nonce: u64,
        /// The highest number of digests.
        entries_max: usize,
    },
    /// Discard the parts staged for this stream: the rest will not arrive.
    Unstage(StreamId),
    /// The node no longer has this stream: remove its whole state and its checkpoint.
    Drop(StreamId),
    /// Read the outbox and input `Outbox`: reports behind `after` (`None`: from the first), at most
    /// `count`, and no further one once they have `bytes`.
    ReadOutbox {
        /// The last report that the session has.
        after: Option<ReportId>,
        /// The highest number of reports.
        count: usize,
        /// The bytes after which the read ends.
        bytes: u64,
    },
    /// The log never takes this report of the outbox. `Forget` follows: count it, and name it.
    Refused(RefusedReport),
    /// The log has every report up to this one, inclusive, or never takes it: remove them from the
    /// outbox.
    Forget(ReportId),
    /// The cloud knows a later or another start of this node. Take a boot number above `known`'s with
    /// a fresh nonce, sync it, give every report of the outbox a new id, input `BootRaised`. Then
    /// connect again.
    RaiseBoot {
        /// The identity to move past.
        known: Identity,
    },
    /// A request has its response, or failed.
    Answered(Response),
    /// The hub welcomed the session: the node is connected.
    Welcomed {
        /// The log that the hub serves.
        log_id: LogId,
    },
    /// The hub does not serve this stream now; the edge keeps its state.
    Parked(ParkNotice),
    /// Open a stream at this hub, on another connection.
    Dial(Dial),
    /// A stream's state differs from the log; it stops here and waits for a snapshot. For people: a
    /// `Send` reports it to the hub.
    Stopped(StreamStop),
    /// End the connection; connect again after a back-off, preferably to another hub, unless
    /// [`EdgeCloseReason::is_final`].
    Close(EdgeCloseReason),
}

/// A stream that stopped because its state differs from the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stream {stream} differs from the log at seq {seq}: the state has hash {found}, the log has \
     {expected}; the stream waits for a snapshot"
)]
pub struct StreamStop {
    /// The stream.
    pub stream: StreamId,
    /// Where the difference was noticed.
    pub seq: Seq,
    /// The hash in the log.
    pub expected: StateHash,
    /// The hash at the edge.
    pub found: StateHash,
}

/// Why an edge closed a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeCloseReason {
    /// The hub refused the session.
    #[error("the hub refused the session ({:?}): {}", .0.code, .0.message)]
    Refused(Refusal),
    /// The hub asked the edge to continue at another hub. It is no error.
    #[error("the hub asked the edge to continue at another hub: {reason}")]
    Moved {
        /// The hub's reason.
        reason: String,
    },
    /// The hub's log does not continue the log of the edge's state.
    #[error(
        "the hub serves log {offered}, but stream {stream} is of log {held}: an edge follows only to \
         a higher number; connect to another hub or wipe the edge's state"
    )]
    ForeignLog {
        /// The stream.
        stream: StreamId,
        /// The log of its state.
        held: LogId,
        /// The hub's log.
        offered: LogId,
    },
    /// The hub speaks another version of the protocol.
    #[error("the hub speaks protocol {theirs}, this edge {ours}: upgrade the older one")]
    Protocol {
        /// The edge's version.
        ours: u32,
        /// The hub's version.
        theirs: u32,
    },
    /// A push does not continue its stream.
    #[error("stream {stream}: {fault}")]
    Push {
        /// The stream.
        stream: StreamId,
        /// The fault of the push.
        fault: PushFault,
    },
    /// The hub sent a message that the session does not expect now.
    #[error("unexpected message from the hub: {message}")]
    Unexpected {
        /// The kind of message.
        message: &'static str,
    },
    /// The cloud knows a later issue of the node's identity: this disk is stale.
    #[error(
        "node {} was enrolled again as incarnation {}: this edge has an older one and must be \
         enrolled again", .known.node, .known.incarnation.0
    )]
    Fenced {
        /// The identity that the cloud knows.
        known: Identity,
    },
    /// The boot number must be raised before the next session.
    #[error("the cloud knows boot {} of node {}: raising past it", .known.boot.number, .known.node)]
    RaisingBoot {
        /// The identity that the cloud knows.
        known: Identity,
    },
    /// No message arrived from the hub for too long.
    #[error("no message from the hub for {silent_ms} ms")]
    Silent {
        /// The time since the last message.
        silent_ms: u64,
    },
    /// The shell applied a push that the session did not output: a defect of the edge itself.
    #[error("stream {stream}: no pending push ends at the applied seq {seq}")]
    UnknownPush {
        /// The stream.
        stream: StreamId,
        /// Its position.
        seq: Seq,
    },
    /// The shell is too far behind with applying.
    #[error("{pushes} pushes wait to be applied: the edge's disk does not keep up")]
    Overflow {
        /// The number of pushes.
        pushes: usize,
    },
}

impl EdgeCloseReason {
    /// Whether the edge must not connect again until an operator has acted.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Fenced { .. })
    }
}

/// The fault of a push. The stream keeps its position (I7).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushFault {
    /// Not a stream of this node.
    #[error("the node may not read it")]
    NotReadable,
    /// The push does not begin at the stream's position: a gap or a repetition.
    #[error("a push from {from} does not continue {applied}")]
    Gap {
        /// The start of the push.
        from: Seq,
        /// The stream's position.
        applied: Seq,
    },
    /// A push that does not begin anew for a stream that the edge holds nothing of.
    #[error("a push from {from} continues a stream that the edge holds nothing of")]
    NoBase {
        /// The start of the push.
        from: Seq,
    },
    /// A push from another log than the hub's or the stream's.
    #[error("a push from log {offered} does not continue log {held}")]
    Log {
        /// The log of the stream.
        held: LogId,
        /// The log of the push.
        offered: LogId,
    },
    /// A push that goes back.
    #[error("a push to epoch {} seq {} goes back behind epoch {} seq {}",
        .to.epoch, .to.seq, .held.epoch, .held.seq)]
    Back {
        /// The stream's position.
        held: Checkpoint,
        /// The end of the push.
        to: Checkpoint,
    },
    /// A part out of order, or of another push.
    #[error("part {part} of a push to {to}, but part {expected} of a push to {staged} is next")]
    Part {
        /// The next part.
        expected: u32,
        /// The `to` of the staged push.
        staged: Seq,
        /// The part received.
        part: u32,
        /// Its `to`.
        to: Seq,
    },
    /// The mode of the push does not allow it.
    #[error("a {mode} push must not {what}")]
    Mode {
        /// The mode.
        mode: &'static str,
        /// What is not allowed.
        what: &'static str,
    },
    /// A correction without a summary, or of a stale one.
    #[error("a correction without a current summary")]
    NotCompared,
    /// A correction of more entries than were summarized.
    #[error("a correction of {corrected} entries, but the summary has {summarized}")]
    Gone {
        /// The entries that the push counts.
        corrected: u64,
        /// The entries in the summary.
        summarized: u64,
    },
    /// A key that occurs twice in a part.
    #[error("entry {key} occurs twice in a part")]
    Repeated {
        /// The key.
        key: EntryKey,
    },
    /// A snapshot with another hash than it claims. Another request at once could repeat for ever.
    #[error("the snapshot has hash {found}, the log has {expected}")]
    Snapshot {
        /// The hash in the log.
        expected: StateHash,
        /// The hash of the snapshot.
        found: StateHash,
    },
}
