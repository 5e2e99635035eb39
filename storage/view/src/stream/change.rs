//! Changes of a push, and their preparation: all work that does not need the state.

use headwater_event::{
    Applied, BodyAddress, Change, EntryKey, ObjectHash, Removed, Seq, SharedObject,
};
use headwater_object::patch::patched_bytes;

use super::entry::EncodedEntry;

/// A change as a push carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingChange {
    /// The change.
    pub change: Change,
    /// `Some`: the object of `change` is a patch against the object of this entry before the
    /// change. If it is the changed entry itself, the entry's UID stays, whatever `change` says.
    pub base: Option<EntryKey>,
}

impl From<Change> for IncomingChange {
    /// A change with a whole object.
    fn from(change: Change) -> Self {
        Self { change, base: None }
    }
}

/// A change with its object hashed and encoded, so that the fold has little left to do, whatever
/// the size of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PreparedChange {
    /// The entry has this object now.
    Applied {
        /// The change; its object is a slice of `row`, unless a body has it.
        applied: Applied,
        /// BLAKE3 of the object.
        object_hash: ObjectHash,
        /// The body that has the object.
        body: Option<BodyAddress>,
        /// The row to store.
        row: EncodedEntry,
    },
    /// The entry has the patched object of `base` now. The fold hashes and encodes it.
    Patched {
        /// The change; its object is the patch.
        applied: Applied,
        /// The entry whose object is patched.
        base: EntryKey,
        /// The seq at which the change is folded.
        seq: Seq,
    },
    /// The entry is removed.
    Removed(Removed),
}

impl PreparedChange {
    /// Prepares a change that is folded at `seq`.
    pub(crate) fn new(seq: Seq, incoming: IncomingChange) -> Self {
        match (incoming.change, incoming.base) {
            (Change::Applied(applied), None) => Self::whole(seq, applied),
            (Change::Applied(applied), Some(base)) => Self::Patched { applied, base, seq },
            (Change::Removed(removed), _) => Self::Removed(removed),
        }
    }

    /// Prepares a change with a whole object.
    pub(crate) fn whole(seq: Seq, mut applied: Applied) -> Self {
        let object_hash = ObjectHash::of(&applied.object);
        let row = EncodedEntry::of(seq, &object_hash, &mut applied);
        Self::Applied { applied, object_hash, body: None, row }
    }

    /// Prepares a change whose object is in a body that the fold keeps.
    pub(crate) fn shared(seq: Seq, applied: Applied, shared: SharedObject) -> Self {
        let row = EncodedEntry::of_shared(seq, &shared, &applied);
        let SharedObject { body, object_hash } = shared;
        Self::Applied { applied, object_hash, body: Some(body), row }
    }

    /// The key of the changed entry.
    pub(crate) fn key(&self) -> &EntryKey {
        match self {
            Self::Applied { applied, .. } | Self::Patched { applied, .. } => &applied.key,
            Self::Removed(removed) => &removed.key,
        }
    }

    /// The bytes of the new object.
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
