//! What goes into a hub session and what comes out.

use headwater_event::{Identity, NodeName, Report, ReportId, Seq, StreamId};

use crate::message::{EdgeHeartbeat, EdgeMessage, HubMessage, Refusal, Request, Response};
use crate::source::SourceError;

/// What happened at a hub, as far as one session is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubInput {
    /// The edge said this.
    Received(EdgeMessage),
    /// The registry's answer to [`HubOutput::Identify`]: the session may go on. `known` is the
    /// identity of a later start that is live at this hub.
    Admitted {
        /// See [`crate::Admission::result`].
        known: Option<Identity>,
    },
    /// The registry refuses or ends the session.
    Dismissed(Refusal),
    /// The hub stops, or wants the edge elsewhere for this reason: nothing is wrong.
    Leaving(String),
    /// The fold moved in a stream of this node, or became ready, or is another log's.
    Advanced,
    /// Every report given by [`HubOutput::AppendReports`] up to this one is durable in the log.
    Appended(ReportId),
    /// The answer to [`HubOutput::Ask`].
    Answered(Response),
    /// The monotonic clock, milliseconds; given at least every second.
    Tick(u64),
}

/// What a hub is to do for a session, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubOutput {
    /// The edge says it is this: ask the registry, answer `Admitted` or `Dismissed`.
    Identify(Identity),
    /// Say this to the edge.
    Send(HubMessage),
    /// Append these to the upstream log, in order, as the node's; answer `Appended` when they
    /// are durable there. Never answered out of order.
    AppendReports(Vec<Report>),
    /// Forward to the active controller; the node may ask this. Answer `Answered` within the
    /// request's timeout, with `Unavailable` if need be.
    Ask(Request),
    /// The edge's sign of life: last contact, outbox depth, its clock.
    Alive(EdgeHeartbeat),
    /// The durable position of a stream rose: material for the node's position record.
    Progressed(StreamId),
    /// Close the connection behind what was sent. Nothing comes out of the session after this.
    Close(HubCloseReason),
}

/// Why a hub ended a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubCloseReason {
    /// The session was refused; the edge was told the same.
    #[error("refused ({:?}): {}", .0.code, .0.message)]
    Refused(Refusal),
    /// The edge was told to go on elsewhere.
    #[error("ended in order: {reason}")]
    Left {
        /// The reason.
        reason: String,
    },
    /// The edge broke the protocol; it was told.
    #[error("the edge broke the protocol: {0}")]
    Violation(Violation),
    /// The fold could not be read; the edge was told to connect again.
    #[error(transparent)]
    Source(SourceError),
    /// Nothing was heard of the edge for too long.
    #[error("nothing heard of the edge for {silent_ms} ms")]
    Silent {
        /// For how long.
        silent_ms: u64,
    },
}

/// No node has counted further: its starts, or the issues of its identity. A node must be able to
/// move past whatever the cloud knows of it.
pub const COUNTER_MAX: u64 = 1 << 48;

/// How an edge broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message that has no place in the session's state.
    #[error("{message} has no place here")]
    Unexpected {
        /// What was sent.
        message: &'static str,
    },
    /// The identity names another node than the certificate.
    #[error("the certificate is for node {certified}, the hello says {claimed}")]
    Node {
        /// Whom the certificate is for.
        certified: NodeName,
        /// Whom the hello names.
        claimed: NodeName,
    },
    /// A number of an identity that no node has counted to.
    #[error("{what} {found} is more than any node has counted to, at most {COUNTER_MAX}")]
    Counter {
        /// Of what.
        what: &'static str,
        /// How many.
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
    /// A position in a stream that is not served in this session, or named twice.
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
        /// Who the edge said it is.
        identity: Identity,
    },
    /// Reports out of order.
    #[error("report {found} does not follow {after}")]
    ReportOrder {
        /// The last one that counted.
        after: ReportId,
        /// The one received.
        found: ReportId,
    },
    /// Reports are missing between two messages.
    #[error("reports that follow {said:?} where {received:?} was the last received")]
    ReportsMissing {
        /// What the edge sent before.
        said: Option<ReportId>,
        /// What was received before.
        received: Option<ReportId>,
    },
    /// A bound was passed.
    #[error("{count} {what}, at most {max} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// The bound.
        max: usize,
    },
}
