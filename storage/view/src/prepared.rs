//! A change, with all that can be said of it before the state is known.

use headwater_event::{Applied, Change, EntryKey, ObjectHash, Removed, Seq};
use headwater_object::patch::patched_bytes;

use crate::entry::EncodedEntry;

/// A change as a push brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingChange {
    /// The change.
    pub change: Change,
    /// `Some`: the object of `change` is a patch against the object that this entry has before
    /// the change. Where that is the entry itself, its UID stays, whatever `change` says.
    pub base: Option<EntryKey>,
}

impl From<Change> for IncomingChange {
    /// With the whole object.
    fn from(change: Change) -> Self {
        Self { change, base: None }
    }
}

/// A change whose object is hashed and encoded: what is left to the fold is small, whatever the
/// object weighs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prepared {
    /// The entry is now this.
    Applied {
        /// What came; its object is a part of `row`.
        applied: Applied,
        /// BLAKE3 of the object.
        object_hash: ObjectHash,
        /// What is stored.
        row: EncodedEntry,
    },
    /// The entry is now what this makes of another; hashed and encoded when that is known.
    Patched {
        /// What came; its object is the patch.
        applied: Applied,
        /// The entry with the object that it is a patch of.
        base: EntryKey,
        /// Where it is folded.
        seq: Seq,
    },
    /// The entry is gone.
    Removed(Removed),
}

impl Prepared {
    /// Prepares a change that is folded at `seq`.
    pub(crate) fn new(seq: Seq, incoming: IncomingChange) -> Self {
        match (incoming.change, incoming.base) {
            (Change::Applied(applied), None) => Self::whole(seq, applied),
            (Change::Applied(applied), Some(base)) => Self::Patched { applied, base, seq },
            (Change::Removed(removed), _) => Self::Removed(removed),
        }
    }

    /// Prepares an object that is there whole.
    pub(crate) fn whole(seq: Seq, mut applied: Applied) -> Self {
        let object_hash = ObjectHash::of(&applied.object);
        let row = EncodedEntry::of(seq, &object_hash, &mut applied);
        Self::Applied { applied, object_hash, row }
    }

    /// The entry that it is about.
    pub(crate) fn key(&self) -> &EntryKey {
        match self {
            Self::Applied { applied, .. } | Self::Patched { applied, .. } => &applied.key,
            Self::Removed(removed) => &removed.key,
        }
    }

    /// The bytes of the object that comes.
    pub(crate) fn object_bytes(&self) -> usize {
        match self {
            Self::Applied { applied, .. } => applied.object.len(),
            Self::Patched { applied, .. } => {
                patched_bytes(&applied.object).unwrap_or(applied.object.len())
            }
            Self::Removed(_) => 0,
        }
    }
}
