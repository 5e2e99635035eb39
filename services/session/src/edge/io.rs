//! What goes into an edge session and what comes out.

use headwater_event::{
    Assignment, Checkpoint, EntryDigest, EntryKey, Identity, LogId, Report, ReportId, Seq,
    StateHash, StreamId,
};

use crate::message::{
    EdgeHeartbeat, EdgeMessage, HubMessage, ParkNotice, Push, Refusal, ReplicaPosition, Request,
    Response,
};

/// What the shell found on the edge's disk when it started: everything there is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeState {
    /// Who this edge is, its boot number already raised and synced.
    pub identity: Identity,
    /// Where each stream stands that it holds anything of.
    pub positions: Vec<ReplicaPosition>,
    /// What the `!streams` entry of the private stream says; `None` while there is no such
    /// entry.
    pub assignment: Option<Assignment>,
}

/// What happened at an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeInput {
    /// A connection to a hub is open; nothing has been said on it.
    Connected,
    /// The connection is gone, for whatever reason. Harmless when there is none.
    Disconnected,
    /// The hub said this on the present connection.
    Received(HubMessage),
    /// Every [`EdgeOutput::Apply`] of the stream up to the push that ends here has been done and
    /// is visible. `hash` is what the state there hashes to; where it differs from the push's,
    /// the shell has left the state as it was before that push.
    Applied {
        /// The stream.
        stream: StreamId,
        /// The `to` of the push.
        checkpoint: Checkpoint,
        /// The state hash that came out.
        hash: StateHash,
    },
    /// The state at this checkpoint is synced to disk.
    Durable {
        /// The stream.
        stream: StreamId,
        /// A position that was answered by `Applied` before the sync began.
        checkpoint: Checkpoint,
    },
    /// The answer to [`EdgeOutput::Summarize`].
    Summarized {
        /// The stream.
        stream: StreamId,
        /// That of the question.
        nonce: u64,
        /// What the stream holds, or nothing where that is too much.
        digests: Vec<EntryDigest>,
    },
    /// The outbox has a report that it had not before.
    Reported,
    /// The answer to [`EdgeOutput::ReadOutbox`]: what the outbox holds behind `after`, ids
    /// rising, at most `count`; fewer means that there are no more.
    Outbox(Vec<Report>),
    /// The answer to [`EdgeOutput::RaiseBoot`]: the new identity is synced, and every report of
    /// the outbox has been issued anew under it.
    BootRaised(Identity),
    /// Someone on the node asks the cloud. The id is unique among the requests not yet answered.
    Asked(Request),
    /// The edge's sign of life; `progress` is filled in by the session.
    Heartbeat(EdgeHeartbeat),
    /// The monotonic clock, milliseconds; given at least every second.
    Tick(u64),
}

/// What an edge is to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeOutput {
    /// Say this to the hub.
    Send(EdgeMessage),
    /// Sync everything applied, then answer with `Durable` for every stream: a session begins
    /// from durable positions only.
    Sync,
    /// Apply a push; the session has checked its position. Done in order within a stream, as
    /// one batch with the checkpoint `to`; pushes may share a batch. A push with more than one
    /// part is staged: part 0 clears what was staged of the stream before, and `last_part` makes
    /// the whole visible at once. Answered with `Applied` once the last part is visible.
    ///
    /// After a push whose hash did not come out, every further push of the stream is dropped
    /// unanswered, up to part 0 of the next one that begins anew: they build on what was not
    /// applied.
    ///
    /// A correction is applied to what was summarized: the entries that it says are gone leave,
    /// counted as the summary counted them, and so do all reserved ones, then its changes come.
    /// The hash is that of all entries, under the log id of `to`.
    Apply(Push),
    /// Answer with `Summarized`, behind every `Apply` before: a digest for each entry of an object
    /// that is held and visible, in an order that is the same for as long as nothing is applied;
    /// none if there are more than `entries_max`.
    Summarize {
        /// The stream.
        stream: StreamId,
        /// What the digests are made with.
        nonce: u64,
        /// How many digests may be said.
        entries_max: usize,
    },
    /// Forget the parts staged for this stream: the rest will not come.
    Unstage(StreamId),
    /// The node no longer has this stream: remove its whole state and its checkpoint.
    Drop(StreamId),
    /// Answer with `Outbox`: reports behind `after` (`None`: from the first), at most `count`.
    ReadOutbox {
        /// The last report that the session has.
        after: Option<ReportId>,
        /// How many more it takes.
        count: usize,
    },
    /// The cloud has every report up to this one, inclusive: remove them from the outbox.
    Forget(ReportId),
    /// The cloud knows a later or another start of this node: take a boot number above `known`'s
    /// with a fresh nonce, sync it, issue the outbox anew, answer `BootRaised`. Then connect
    /// again.
    RaiseBoot {
        /// The identity to move past.
        known: Identity,
    },
    /// A request has its answer, or never gets one.
    Answered(Response),
    /// The hub welcomed the session: the node is connected.
    Welcomed {
        /// The life of the log it serves.
        log_id: LogId,
    },
    /// The hub does not serve this stream just now; what is held stays.
    Parked(ParkNotice),
    /// A stream's state did not hash to what the log says; it stops here and waits for a
    /// snapshot. For people: the hub is told by a `Send`.
    Stopped(StreamStop),
    /// End the connection; connect again after a back-off, preferably to another hub, unless
    /// [`EdgeCloseReason::is_final`].
    Close(EdgeCloseReason),
}

/// A stream that stopped because its state and the log differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stream {stream} differs from the log at seq {seq}: the state hashes to {found}, the log to \
     {expected}; it waits for a snapshot"
)]
pub struct StreamStop {
    /// The stream.
    pub stream: StreamId,
    /// Where it was noticed.
    pub seq: Seq,
    /// What the log says.
    pub expected: StateHash,
    /// What the edge has.
    pub found: StateHash,
}

/// Why an edge ended a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeCloseReason {
    /// The hub refused.
    #[error("the hub refused the session ({:?}): {}", .0.code, .0.message)]
    Refused(Refusal),
    /// The hub asked the edge to go on at another one. Nothing is wrong.
    #[error("the hub ended the session in order: {reason}")]
    Moved {
        /// Why.
        reason: String,
    },
    /// The hub's log is not a continuation of what the edge holds.
    #[error(
        "the hub serves log {offered}, stream {stream} was folded from {held}: an edge follows \
         only to a higher number; connect to another hub or wipe the edge's state"
    )]
    ForeignLog {
        /// The stream.
        stream: StreamId,
        /// The log it was folded from.
        held: LogId,
        /// The log offered.
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
    /// A push did not fit the stream's position.
    #[error("stream {stream}: {fault}")]
    Push {
        /// The stream.
        stream: StreamId,
        /// What was wrong with it.
        fault: PushFault,
    },
    /// The hub sent a message that has no place in the session's state.
    #[error("the hub sent {message} where the protocol has no place for it")]
    Unexpected {
        /// What was sent.
        message: &'static str,
    },
    /// The cloud knows a later issue of the node's identity: this disk is an old one.
    #[error(
        "node {} was enrolled anew as incarnation {}: this edge holds an older one and must be \
         enrolled again", .known.node, .known.incarnation.0
    )]
    Fenced {
        /// What the cloud knows.
        known: Identity,
    },
    /// The boot number must be raised before the next session.
    #[error("the cloud knows boot {} of node {}: raising past it", .known.boot.number, .known.node)]
    RaisingBoot {
        /// What the cloud knows.
        known: Identity,
    },
    /// Nothing was heard of the hub for too long.
    #[error("nothing heard of the hub for {silent_ms} ms")]
    Silent {
        /// For how long.
        silent_ms: u64,
    },
    /// The shell answered what it was not asked: a defect of the edge itself.
    #[error("stream {stream}: applied seq {seq} is the end of no push")]
    Unasked {
        /// The stream.
        stream: StreamId,
        /// Its position.
        seq: Seq,
    },
    /// The shell is too far behind with applying.
    #[error("{pushes} pushes wait to be applied: the edge's disk does not keep up")]
    Overflow {
        /// How many wait.
        pushes: usize,
    },
}

impl EdgeCloseReason {
    /// Whether connecting again cannot help before a person has done something.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Fenced { .. })
    }
}

/// What was wrong with a push. The stream stays where it was (I7).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushFault {
    /// Not a stream of this node.
    #[error("the node may not read it")]
    NotReadable,
    /// The push begins elsewhere than the stream stands: a gap or a repetition.
    #[error("a push from {from} does not continue {applied}")]
    Gap {
        /// Where the push begins.
        from: Seq,
        /// Where the stream stands.
        applied: Seq,
    },
    /// A push that does not begin anew for a stream that the edge holds nothing of.
    #[error("a push from {from} continues a stream that the edge holds nothing of")]
    NoBase {
        /// Where the push begins.
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
        /// Where the stream stands.
        held: Checkpoint,
        /// Where the push ends.
        to: Checkpoint,
    },
    /// A part out of order, or one that belongs to another push.
    #[error("part {part} of a push to {to} where part {expected} of a push to {staged} was due")]
    Part {
        /// The part due.
        expected: u32,
        /// The `to` of the push due.
        staged: Seq,
        /// The part received.
        part: u32,
        /// Its `to`.
        to: Seq,
    },
    /// What a mode does not allow.
    #[error("a {mode} push must not {what}")]
    Mode {
        /// The mode.
        mode: &'static str,
        /// What it did.
        what: &'static str,
    },
    /// A correction of what was not summarized, or is not as it was summarized any more.
    #[error("a correction of what was not compared")]
    NotCompared,
    /// A correction of more entries than were summarized.
    #[error("a correction speaks of {said} entries where {summarized} were summarized")]
    Gone {
        /// Of how many the push speaks.
        said: u64,
        /// How many there are.
        summarized: u64,
    },
    /// A key that comes twice where each comes once.
    #[error("entry {key} comes twice in a part")]
    Repeated {
        /// The key.
        key: EntryKey,
    },
    /// A snapshot whose state does not hash to what it says: asking for another at once could
    /// go on for ever.
    #[error("the snapshot hashes to {found}, the log to {expected}")]
    Snapshot {
        /// What the log says.
        expected: StateHash,
        /// What the edge has.
        found: StateHash,
    },
}
