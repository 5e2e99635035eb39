//! Why an input cannot be folded: the rules that keep a state a prefix of its stream.

use headwater_event::{EntryKey, LogId, Seq, StateHash, StreamId, WriterEpoch};

/// An input that must not be folded. Nothing of it is in the state or in the open batch, and
/// the same input would be refused again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Seqs are missing between the state and the input.
    #[error("stream {stream}: seq {expected} is missing, the input has {found}")]
    Gap {
        /// The stream.
        stream: StreamId,
        /// The seq that the state needs next.
        expected: Seq,
        /// The first seq of the input.
        found: Seq,
    },
    /// The input is in the state already, or lies before it.
    #[error("stream {stream}: the state is at seq {at} already, the input has {found}")]
    Stale {
        /// The stream.
        stream: StreamId,
        /// Where the state is.
        at: Seq,
        /// Where the input is.
        found: Seq,
    },
    /// The input comes from a writer that another one has fenced.
    #[error("stream {stream}: the state is at writer epoch {at}, the input has {found}")]
    Fenced {
        /// The stream.
        stream: StreamId,
        /// The epoch of the state.
        at: WriterEpoch,
        /// The epoch of the input.
        found: WriterEpoch,
    },
    /// The input comes from another life of the log, and is no snapshot of a later one.
    #[error("stream {stream}: the state is of log {at}, the input of {found}")]
    ForeignLog {
        /// The stream.
        stream: StreamId,
        /// The log of the state.
        at: LogId,
        /// The log of the input.
        found: LogId,
    },
    /// The state would not be what the writer had: only a snapshot heals it.
    #[error("stream {stream}: at seq {seq} the state hashes to {found}, the log says {expected}")]
    Diverged {
        /// The stream.
        stream: StreamId,
        /// Where.
        seq: Seq,
        /// What the writer had.
        expected: StateHash,
        /// What the state would be.
        found: StateHash,
    },
    /// A part of a catch-up that does not continue the one before. What was staged is dropped.
    #[error(
        "stream {stream}: part {found} of a catch-up to seq {to} does not continue what is staged"
    )]
    Parts {
        /// The stream.
        stream: StreamId,
        /// Where the catch-up goes.
        to: Seq,
        /// The part that came.
        found: u32,
    },
    /// A correction of entries beyond those that there are.
    #[error(
        "stream {stream}: the correction at seq {seq} speaks of {said} entries, there are fewer"
    )]
    Correction {
        /// The stream.
        stream: StreamId,
        /// Where.
        seq: Seq,
        /// Of how many it speaks.
        said: u64,
    },
    /// A snapshot or correction that says what left by key, or a snapshot that says an entry twice.
    #[error("stream {stream}: the snapshot at seq {seq} is malformed at {key}")]
    Snapshot {
        /// The stream.
        stream: StreamId,
        /// Where.
        seq: Seq,
        /// The entry.
        key: EntryKey,
    },
}

impl Refusal {
    /// Whether the replica is another state than the log's, so that it needs a snapshot.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::Diverged { .. })
    }
}
