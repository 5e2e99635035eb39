//! An advance of which some parts are staged.

use headwater_event::{Checkpoint, EntryKey, Seq, StateHash};

use super::advance::{Advance, AdvanceMode};
use super::effect::EffectKind;
use super::generation::Generation;

/// An advance of which some parts are staged.
#[derive(Debug)]
pub(crate) struct StagedAdvance {
    /// The generation that its entries are written to.
    pub(crate) generation: Generation,
    /// The number of that generation.
    pub(crate) number: u32,
    pub(crate) mode: AdvanceMode,
    pub(crate) to: Checkpoint,
    pub(crate) hash: StateHash,
    from: Seq,
    pub(crate) next_part: u32,
}

impl StagedAdvance {
    /// An advance before its first part.
    pub(crate) fn new(advance: &Advance, number: u32, generation: Generation) -> Self {
        let Advance { mode, from, to, hash, .. } = *advance;
        Self { generation, number, mode, to, hash, from, next_part: 0 }
    }

    /// Whether `advance` is the next part.
    pub(crate) fn continues_with(&self, advance: &Advance) -> bool {
        self.next_part == advance.part
            && self.mode == advance.mode
            && self.from == advance.from
            && self.to == advance.to
            && self.hash == advance.hash
    }

    /// The entry that a snapshot contains twice, if there is one among `effects`.
    pub(crate) fn repeated<'e>(&self, effects: &'e [EffectKind]) -> Option<&'e EntryKey> {
        if self.mode != AdvanceMode::Snapshot {
            return None;
        }
        effects.iter().find_map(|effect| match effect {
            EffectKind::Added(_) | EffectKind::Replaced => None,
            EffectKind::Changed(applied) => Some(&applied.key),
            EffectKind::Unchanged(key) => Some(key),
            EffectKind::Removed(removed) => Some(&removed.key),
        })
    }
}
