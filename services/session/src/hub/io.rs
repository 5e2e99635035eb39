//! Inputs and outputs of a hub session.

use std::sync::Arc;

use headwater_event::{Identity, NodeName, Report, ReportId, Seq, StreamId};

use crate::message::{
    Dial, EdgeHeartbeat, EdgeMessage, HubMessage, Refusal, ReportsAcked, Request, Response,
};
use crate::shared_push::SharedPush;
use crate::source::SourceError;

/// An event at a hub that concerns one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubInput {
    /// The edge sent this message.
    Received(EdgeMessage),
    /// The registry admits the session, in response to [`HubOutput::Identify`]. `known` is the
    /// identity of a later start that is live at this hub.
    Admitted {
        /// See [`crate::Admission::result`].
        known: Option<Identity>,
    },
    /// The registry refuses the session, or ends it.
    Dismissed(Refusal),
    /// The hub asks the edge to continue at another hub, for this reason. It is no error.
    Leaving(String),
    /// The fold advanced in a stream of this node, became ready, or reads another log.
    Advanced,
    /// Every report of [`HubOutput::AppendReports`] up to one of them is durable in the log, or the
    /// log never takes it.
    Appended(ReportsAcked),
    /// The response to [`HubOutput::Ask`].
    Answered(Response),
    /// A client of the hub waits for a stream to the node. It is sent in an open session of an edge
    /// that takes dials, else discarded.
    Dial(Dial),
    /// The monotonic clock, in milliseconds; at least once a second.
    Tick(u64),
    /// The shell reads no messages of the edge: that none arrive is no silence.
    Unread,
}

/// What the hub's shell must do for a session, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubOutput {
    /// The edge claims this identity: ask the registry, then input `Admitted` or `Dismissed`.
    Identify(Identity),
    /// Send this to the edge.
    Send(HubMessage),
    /// Send this push to the edge, as other sessions do. Only a source that shares tails
    /// ([`StreamSource::shared_tail`](crate::StreamSource::shared_tail)) causes it.
    Share(Arc<SharedPush>),
    /// Append these reports of the node to the upstream log, in order. Input `Appended` once they
    /// are durable there, in the same order. A shell with too many reads no messages meanwhile; it
    /// inputs `Unread` with each tick.
    AppendReports(Vec<Report>),
    /// Forward this request to the active controller; the node is allowed to make it. Input
    /// `Answered` within the request's timeout, with `Unavailable` if necessary.
    Ask(Request),
    /// A heartbeat of the edge: last contact, outbox depth, its clock.
    Alive(EdgeHeartbeat),
    /// The durable position of a stream rose: the node's position record changes.
    Progressed(StreamId),
    /// Close the connection behind the messages sent. The session has no output after this.
    Close(HubCloseReason),
}

/// Why a hub closed a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubCloseReason {
    /// The session was refused; the edge received the same refusal.
    #[error("refused ({:?}): {}", .0.code, .0.message)]
    Refused(Refusal),
    /// The edge was asked to continue at another hub.
    #[error("the edge continues at another hub: {reason}")]
    Left {
        /// The reason.
        reason: String,
    },
    /// The edge broke the protocol; it received the violation.
    #[error("the edge broke the protocol: {0}")]
    Violation(Violation),
    /// The fold could not be read; the edge was asked to connect again.
    #[error(transparent)]
    Source(SourceError),
    /// No message arrived from the edge for too long.
    #[error("no message from the edge for {silent_ms} ms")]
    Silent {
        /// The time since the last message.
        silent_ms: u64,
    },
}

/// The highest boot number and incarnation that a hub accepts; no node counts further. A node must
/// be able to move past the numbers that the cloud knows of it.
pub const COUNTER_MAX: u64 = 1 << 48;

/// How an edge broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message that the session does not expect now.
    #[error("unexpected message: {message}")]
    Unexpected {
        /// The kind of message.
        message: &'static str,
    },
    /// The identity names another node than the certificate.
    #[error("the certificate is for node {certified}, but the hello names node {claimed}")]
    Node {
        /// The node in the certificate.
        certified: NodeName,
        /// The node in the hello.
        claimed: NodeName,
    },
    /// A number of an identity that is too high.
    #[error("{what} {found} is too high, at most {COUNTER_MAX} is allowed")]
    Counter {
        /// Which number.
        what: &'static str,
        /// Its value.
        found: u64,
    },
    /// `acked <= durable <= applied <= received <= sent <= tail` does not hold.
    #[error("stream {stream}: {lower_name} {lower} is above {upper_name} {upper}")]
    Position {
        /// The stream.
        stream: StreamId,
        /// The position that must not be above.
        lower_name: &'static str,
        /// Its value.
        lower: Seq,
        /// The position that must not be below.
        upper_name: &'static str,
        /// Its value.
        upper: Seq,
    },
    /// More bytes acknowledged than sent, or fewer than before.
    #[error("{received} bytes acknowledged, {before} before, {sent} sent")]
    Bytes {
        /// Bytes acknowledged now.
        received: u64,
        /// Bytes acknowledged before.
        before: u64,
        /// Bytes sent.
        sent: u64,
    },
    /// A stream that is not served in this session, or named twice.
    #[error("stream {stream} is named twice or not served to this node")]
    Stream {
        /// The stream.
        stream: StreamId,
    },
    /// A report under a later boot or another incarnation than the hello's.
    #[error("report {found} is not of incarnation {} up to boot {}",
        .identity.incarnation.0, .identity.boot.number)]
    ReportIdentity {
        /// The report received.
        found: ReportId,
        /// The identity in the hello.
        identity: Identity,
    },
    /// Reports out of order.
    #[error("report {found} does not follow {after}")]
    ReportOrder {
        /// The last report accepted.
        after: ReportId,
        /// The report received.
        found: ReportId,
    },
    /// Reports are missing between two messages.
    #[error("reports behind {sent:?}, but the last report received is {received:?}")]
    ReportsMissing {
        /// The last report that the edge sent before.
        sent: Option<ReportId>,
        /// The last report received.
        received: Option<ReportId>,
    },
    /// A bound is exceeded.
    #[error("{count} {what}, at most {max} are allowed")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The number.
        count: usize,
        /// The bound.
        max: usize,
    },
}
