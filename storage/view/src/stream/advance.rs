//! What moves a replica's stream forward: a tail, delta, snapshot or correction, whole or in parts.

use headwater_event::{Checkpoint, RemovalRuns, Seq, StateHash, StreamId};

use super::change::{IncomingChange, PreparedChange};

/// How an advance moves a replica forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvanceMode {
    /// Every event in `(from, to]`.
    Tail,
    /// The latest change of each key that changed in `(from, to]`.
    Delta,
    /// The complete state at `to`: absent entries are removed.
    Snapshot,
    /// The difference between the replica's entries and the complete state at `to`: the entries
    /// to remove, by their places in [`StreamReader::digests`](crate::StreamReader::digests), and
    /// the entries to add. All reserved entries are among them, as in a snapshot.
    Correction,
}

impl AdvanceMode {
    /// Whether the result is a complete state, whatever the position before. Only such an advance
    /// may lead to a later life of the log, or go back.
    pub fn begins_anew(self) -> bool {
        matches!(self, Self::Snapshot | Self::Correction)
    }
}

/// Moves a stream from `from`, exclusive, to `to`, inclusive; or one part of such a move.
///
/// Visible whole or not at all: parts are staged and become visible with the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The stream.
    pub stream: StreamId,
    /// How it moves.
    pub mode: AdvanceMode,
    /// The position that the replica must have; unused when the mode begins anew.
    pub from: Seq,
    /// The position afterwards.
    pub to: Checkpoint,
    /// The state hash at `to`. A state with another hash refuses the advance.
    pub hash: StateHash,
    /// The entries that part 0 of a correction removes, before anything changes.
    pub(crate) gone: RemovalRuns,
    /// The changes, in order.
    pub(crate) changes: Vec<PreparedChange>,
    /// The number of this part, from 0. `stream`, `mode`, `from`, `to` and `hash` are the same in
    /// each part.
    pub part: u32,
    /// Whether this is the last part.
    pub last_part: bool,
}

impl Advance {
    /// The whole advance of `stream` from `from` to `to`, where its state hashes to `hash`.
    ///
    /// Hashes and encodes the objects. This is most of the work of a fold and needs no state, so
    /// it is best done on another thread than the fold.
    pub fn new(
        stream: StreamId,
        mode: AdvanceMode,
        from: Seq,
        to: Checkpoint,
        hash: StateHash,
        changes: impl IntoIterator<Item = impl Into<IncomingChange>>,
    ) -> Self {
        let changes =
            changes.into_iter().map(|change| PreparedChange::new(to.seq, change.into())).collect();
        let gone = RemovalRuns::default();
        Self { stream, mode, from, to, hash, gone, changes, part: 0, last_part: true }
    }

    /// The same correction, which removes the entries of `gone`.
    #[must_use]
    pub fn with_gone(self, gone: RemovalRuns) -> Self {
        Self { gone, ..self }
    }

    /// One part of the advance.
    #[must_use]
    pub fn part(self, part: u32, last_part: bool) -> Self {
        Self { part, last_part, ..self }
    }

    /// How many changes it holds.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Whether it is the only part.
    pub fn is_whole(&self) -> bool {
        self.part == 0 && self.last_part
    }
}

/// Whether the events given to a fold may leave out seqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// Each event has the next seq; a hole is refused. The state hash is compared at each event.
    Dense,
    /// Compaction may have dropped superseded events: seqs grow, with holes, and the state hash
    /// agrees only at the end. Only for a fold that shows nothing before that end;
    /// [`StreamState::differing`](crate::StreamState::differing) then lists the damaged streams.
    Sparse,
}
