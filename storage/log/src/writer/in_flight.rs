//! What a writer appended and its owner has not read back yet.

use std::collections::{BTreeMap, HashMap};

use headwater_event::{Applied, ObjectHash, Partition, Seq, StreamId};

use crate::acceptance::RepairKey;

/// A key of a stream, or its head.
pub(super) type KeyPlace = (StreamId, RepairKey);

/// The last append under a key that the owner has not read back yet.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) partition: Partition,
    pub(super) seq: Seq,
    /// The object and its hash; `None` after a removal, and for a head.
    pub(super) applied: Option<(ObjectHash, Applied)>,
    /// The bytes of the object that it keeps in memory. Of the events that share one, the first.
    pub(super) object_bytes: usize,
}

/// The last append under each key that the owner has not read back yet.
#[derive(Debug, Default)]
pub(super) struct KeysInFlight {
    keys: HashMap<KeyPlace, InFlight>,
    /// What each partition has of them, if it has some.
    usage: BTreeMap<Partition, InFlightUsage>,
}

/// How much of a partition is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlightUsage {
    /// Keys under which something was appended.
    pub keys: usize,
    /// The bytes of their objects.
    pub bytes: usize,
}

impl InFlight {
    pub(super) fn object_hash(&self) -> Option<ObjectHash> {
        self.applied.as_ref().map(|(hash, _)| *hash)
    }
}

impl KeysInFlight {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn get(&self, at: &KeyPlace) -> Option<&InFlight> {
        self.keys.get(at)
    }

    pub(super) fn contains(&self, at: &KeyPlace) -> bool {
        self.keys.contains_key(at)
    }

    pub(super) fn usage(&self, partition: Partition) -> InFlightUsage {
        self.usage.get(&partition).copied().unwrap_or_default()
    }

    pub(super) fn insert(&mut self, at: KeyPlace, sent: InFlight) {
        let (partition, bytes) = (sent.partition, sent.object_bytes);
        let before = self.keys.insert(at, sent);
        let usage = self.usage.entry(partition).or_default();
        usage.bytes += bytes;
        match before {
            Some(before) => usage.bytes -= before.object_bytes,
            None => usage.keys += 1,
        }
    }

    /// Forgets a key whose last append, or a later one, was read back.
    pub(super) fn came_back(&mut self, at: &KeyPlace, seq: Seq) {
        if self.keys.get(at).is_none_or(|sent| sent.seq > seq) {
            return;
        }
        let Some(InFlight { partition, object_bytes, .. }) = self.keys.remove(at) else { return };
        let usage = self.usage.entry(partition).or_default();
        usage.keys -= 1;
        usage.bytes -= object_bytes;
        if usage.keys == 0 {
            self.usage.remove(&partition);
        }
    }

    /// Forgets what is in flight in a partition: its outcome is unknown.
    pub(super) fn discard(&mut self, partition: Partition) {
        if self.usage.remove(&partition).is_some() {
            self.keys.retain(|_, sent| sent.partition != partition);
        }
    }
}
