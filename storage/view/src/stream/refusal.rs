//! Why an input is refused: it would break the rule that a state is a prefix of its stream.

use headwater_event::{EntryKey, LogId, Seq, StateHash, StreamId, WriterEpoch};

/// Why an input is refused. Nothing of it is in the state or in the open batch, and the same input
/// would be refused again.
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
    /// The state has the input already, or is past it.
    #[error("stream {stream}: the state is already at seq {at}, the input has {found}")]
    Stale {
        /// The stream.
        stream: StreamId,
        /// The seq of the state.
        at: Seq,
        /// The seq of the input.
        found: Seq,
    },
    /// The input is from a writer that a later one has fenced.
    #[error("stream {stream}: the state is at writer epoch {at}, the input has {found}")]
    Fenced {
        /// The stream.
        stream: StreamId,
        /// The epoch of the state.
        at: WriterEpoch,
        /// The epoch of the input.
        found: WriterEpoch,
    },
    /// The input is from another life of the log, and is no complete state of a later one.
    #[error("stream {stream}: the state is of log {at}, the input of {found}")]
    ForeignLog {
        /// The stream.
        stream: StreamId,
        /// The log of the state.
        at: LogId,
        /// The log of the input.
        found: LogId,
    },
    /// The state would differ from the writer's. A complete state repairs it.
    #[error("stream {stream}: at seq {seq} the state hashes to {found}, the log has {expected}")]
    Diverged {
        /// The stream.
        stream: StreamId,
        /// The seq.
        seq: Seq,
        /// The writer's hash.
        expected: StateHash,
        /// The hash of the state.
        found: StateHash,
    },
    /// A part of an advance does not continue the part before it. What was staged is discarded.
    #[error(
        "stream {stream}: part {found} of an advance to seq {to} does not continue what is staged"
    )]
    Parts {
        /// The stream.
        stream: StreamId,
        /// The end of the advance.
        to: Seq,
        /// The part of the input.
        found: u32,
    },
    /// A correction covers more entries than the state has.
    #[error(
        "stream {stream}: the correction at seq {seq} covers {covered} entries, the state has fewer"
    )]
    Correction {
        /// The stream.
        stream: StreamId,
        /// The seq.
        seq: Seq,
        /// How many entries it covers.
        covered: u64,
    },
    /// A snapshot or correction removes an entry by its key, or a snapshot contains an entry twice.
    #[error("stream {stream}: the snapshot at seq {seq} is malformed at {key}")]
    Snapshot {
        /// The stream.
        stream: StreamId,
        /// The seq.
        seq: Seq,
        /// The entry.
        key: EntryKey,
    },
}

impl Refusal {
    /// Whether the state differs from the log's, so that it needs a snapshot.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::Diverged { .. })
    }
}
