//! A change, with all that can be said of it before the state is known.

use headwater_event::{Applied, Change, ObjectHash, Removed, Seq};

use crate::entry::EncodedEntry;

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
    /// The entry is gone.
    Removed(Removed),
}

impl Prepared {
    /// Prepares a change that is folded at `seq`.
    pub(crate) fn new(seq: Seq, change: Change) -> Self {
        match change {
            Change::Applied(mut applied) => {
                let object_hash = ObjectHash::of(&applied.object);
                let row = EncodedEntry::of(seq, &object_hash, &mut applied);
                Self::Applied { applied, object_hash, row }
            }
            Change::Removed(removed) => Self::Removed(removed),
        }
    }

    /// The bytes of the object that comes.
    pub(crate) fn object_bytes(&self) -> usize {
        match self {
            Self::Applied { applied, .. } => applied.object.len(),
            Self::Removed(_) => 0,
        }
    }
}
