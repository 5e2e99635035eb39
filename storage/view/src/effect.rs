//! What a fold did to the state, for those who wait for it.

use headwater_event::{Applied, EntryKey, Removed, Seq, StreamId};

/// Something that a fold did. Let out only once it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The stream.
    pub stream: StreamId,
    /// The position of the stream after it.
    pub seq: Seq,
    /// What was done.
    pub kind: EffectKind,
}

/// What a fold did to one entry, or to the stream as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectKind {
    /// An entry came. Another UID under a present key is a removal, then this.
    Added(Applied),
    /// An entry changed.
    Changed(Applied),
    /// The same object came again, perhaps with another resource version: stored, and nobody
    /// is to be woken.
    Unchanged(EntryKey),
    /// An entry left; the UID is that of the object that was there.
    Removed(Removed),
    /// A catch-up that came in parts became visible: any entry may have come or changed. What
    /// left was told before, one by one. To be answered by reading the stream again, after a
    /// sync and before more is folded, so that nothing is read from above the durable seq.
    Replaced,
}

impl Effect {
    /// Whether anyone who waits for changes is to be woken.
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
