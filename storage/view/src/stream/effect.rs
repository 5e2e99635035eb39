//! The effects of a fold on the state, for those that wait for changes.

use headwater_event::{Applied, EntryKey, Removed, Seq, StreamId};

/// An effect of a fold. A materializer releases it once it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The stream.
    pub stream: StreamId,
    /// The position of the stream after the fold.
    pub seq: Seq,
    /// What changed.
    pub kind: EffectKind,
}

/// What a fold changed of one entry, or of the stream as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectKind {
    /// An entry was added. Another UID under an existing key is a removal, then this.
    Added(Applied),
    /// An entry changed.
    Changed(Applied),
    /// The same object was applied again, perhaps with another resource version. It is stored;
    /// no subscriber is woken.
    Unchanged(EntryKey),
    /// An entry was removed. The UID is that of the removed object.
    Removed(Removed),
    /// An advance in parts became visible: any entry may be added or changed. Its removals were
    /// reported before, one by one. The receiver reads the stream again, after a sync and before
    /// the next fold, so that it reads nothing above the durable seq.
    Replaced,
}

impl Effect {
    /// Whether subscribers are to be woken.
    pub fn wakes(&self) -> bool {
        !matches!(self.kind, EffectKind::Unchanged(_))
    }
}

/// Adds an effect on `stream` at `seq` for each of `kinds`.
pub(crate) fn extend(
    effects: &mut Vec<Effect>,
    stream: &StreamId,
    seq: Seq,
    kinds: Vec<EffectKind>,
) {
    effects.extend(kinds.into_iter().map(|kind| Effect { stream: stream.clone(), seq, kind }));
}
