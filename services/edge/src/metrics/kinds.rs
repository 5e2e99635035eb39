//! The label values of counters.

use headwater_view::AdvanceMode;

/// A transfer by which a stream catches up, other than its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resync {
    /// The stream was far behind.
    Delta,
    /// The stream had no base.
    Snapshot,
    /// The entries were compared with the complete state.
    Correction,
    /// The stream differed from the log; a snapshot follows.
    Diverged,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// No hub accepted a connection.
    Connect,
    /// A connection broke.
    Link,
    /// A hub sent a message that is not of the protocol.
    Malformed,
    /// A hub refused the session.
    Refused,
    /// A session ended for another reason.
    Session,
    /// The outbox had no room for a report.
    OutboxFull,
}

pub(super) const RESYNCS: [(Resync, &str); 4] = [
    (Resync::Delta, "delta"),
    (Resync::Snapshot, "snapshot"),
    (Resync::Correction, "correction"),
    (Resync::Diverged, "diverged"),
];

pub(super) const ERROR_KINDS: [(ErrorKind, &str); 6] = [
    (ErrorKind::Connect, "connect"),
    (ErrorKind::Link, "link"),
    (ErrorKind::Malformed, "malformed"),
    (ErrorKind::Refused, "refused"),
    (ErrorKind::Session, "session"),
    (ErrorKind::OutboxFull, "outbox_full"),
];

impl Resync {
    /// The kind of a push of this mode; `None`: event by event.
    pub(crate) fn by(mode: AdvanceMode) -> Option<Self> {
        match mode {
            AdvanceMode::Tail => None,
            AdvanceMode::Delta => Some(Self::Delta),
            AdvanceMode::Snapshot => Some(Self::Snapshot),
            AdvanceMode::Correction => Some(Self::Correction),
        }
    }
}
