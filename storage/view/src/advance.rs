//! What moves a replica's stream forward: a tail, delta, snapshot or correction, whole or in parts.

use headwater_event::{Checkpoint, Gone, Seq, StateHash, StreamId};

use crate::prepared::{IncomingChange, Prepared};

/// How a replica is brought forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvanceMode {
    /// Every event in `(from, to]`.
    Tail,
    /// Each key changed in `(from, to]`, once, its latest change.
    Delta,
    /// The complete state at `to`: what is absent is deleted.
    Snapshot,
    /// What leads from the entries that are held to the complete state at `to`: those of them that
    /// are not in it, by their places in [`StreamReader::digests`](crate::StreamReader::digests), and
    /// those that it has beyond them. Reserved entries are all there, as in a snapshot.
    Correction,
}

impl AdvanceMode {
    /// Whether the state is complete afterwards, whatever the position before: it may then be of a
    /// later life of the log, or go back.
    pub fn begins_anew(self) -> bool {
        matches!(self, Self::Snapshot | Self::Correction)
    }
}

/// Carries a stream from `from`, exclusive, to `to`, inclusive; or one part of what does.
///
/// Visible whole or not at all. One that comes in parts is staged, and visible with its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The stream.
    pub stream: StreamId,
    /// How.
    pub mode: AdvanceMode,
    /// Where the replica must stand; of no meaning for what begins anew.
    pub from: Seq,
    /// Where it then stands.
    pub to: Checkpoint,
    /// The state hash at `to`: another one refuses the whole.
    pub hash: StateHash,
    /// Which entries leave with part 0 of a correction, before anything changes.
    pub(crate) gone: Gone,
    /// What changes, in order.
    pub(crate) changes: Vec<Prepared>,
    /// Which part this is, from 0; `stream`, `mode`, `from`, `to` and `hash` are the same in each.
    pub part: u32,
    /// Whether it is the last part.
    pub last_part: bool,
}

impl Advance {
    /// All of what changes `stream` from `from` to `to`, where its state hashes to `hash`.
    ///
    /// Hashes and encodes the objects, which is most of the work of a fold and needs nothing of
    /// the state: best done on another thread than folds.
    pub fn new(
        stream: StreamId,
        mode: AdvanceMode,
        from: Seq,
        to: Checkpoint,
        hash: StateHash,
        changes: impl IntoIterator<Item = impl Into<IncomingChange>>,
    ) -> Self {
        let changes =
            changes.into_iter().map(|change| Prepared::new(to.seq, change.into())).collect();
        let gone = Gone::default();
        Self { stream, mode, from, to, hash, gone, changes, part: 0, last_part: true }
    }

    /// The same correction, of which these leave.
    #[must_use]
    pub fn with_gone(self, gone: Gone) -> Self {
        Self { gone, ..self }
    }

    /// One part of it.
    #[must_use]
    pub fn part(self, part: u32, last_part: bool) -> Self {
        Self { part, last_part, ..self }
    }

    /// How many changes it holds.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Whether this is all of it.
    pub fn is_whole(&self) -> bool {
        self.part == 0 && self.last_part
    }
}

/// Whether the events that a fold is given may leave out seqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// Each event has the next seq, and a hole is refused. The state hash is compared at each.
    Dense,
    /// Compaction may have dropped superseded events: seqs grow, with holes, and the state
    /// hash means nothing before the end. Only for a fold that shows nothing before that end;
    /// [`StreamState::differing`](crate::StreamState::differing) then tells what is wrong.
    Sparse,
}
