//! A delta, a snapshot or a correction: read whole at once, and pushed in parts.
//!
//! Its changes stay in memory until they are sent; [`crate::admission`] bounds how many sessions
//! hold one. All sessions that take the snapshot of a shared stream at one position share one read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use headwater_event::{Applied, Change, Checkpoint, EntryKey, ObjectHash, StateHash, StreamId};
use headwater_session::message::{PushedChange, change_bytes};
use headwater_session::{Comparison, SourceError, TransferPart, TransferReader};
use headwater_view::Entry;

/// The position of a snapshot: equal position and hash mean equal state.
type Position = Option<(Checkpoint, StateHash)>;

/// The entries of a stream, or the changes of a delta.
#[derive(Debug, Default)]
pub(super) struct StreamEntries {
    changes: Vec<PushedChange>,
    object_hashes: Vec<ObjectHash>,
}

impl StreamEntries {
    pub(super) fn push(&mut self, key: EntryKey, entry: Entry) {
        self.object_hashes.push(entry.object_hash);
        self.changes.push(applied(key, entry).into());
    }
}

/// Changes that a session has yet to push.
pub(super) struct PendingChanges {
    all: Arc<StreamEntries>,
    /// Indices of the changes to push; `None`: all.
    chosen: Option<Vec<usize>>,
    sent: usize,
}

impl PendingChanges {
    pub(super) fn new(changes: Vec<PushedChange>) -> Self {
        Self::shared(Arc::new(StreamEntries { changes, object_hashes: Vec::new() }))
    }

    /// Entries that several sessions push.
    pub(super) fn shared(all: Arc<StreamEntries>) -> Self {
        Self { all, chosen: None, sent: 0 }
    }

    /// The entries that the edge of `comparison` lacks.
    pub(super) fn missing(all: Arc<StreamEntries>, comparison: &mut Comparison) -> Self {
        let mut chosen = Vec::new();
        for (index, (pushed, object)) in all.changes.iter().zip(&all.object_hashes).enumerate() {
            if let Change::Applied(Applied { key, uid, resource_version, .. }) = &pushed.change
                && !comparison.has(key, uid, resource_version, object)
            {
                chosen.push(index);
            }
        }
        Self { all, chosen: Some(chosen), sent: 0 }
    }

    fn len(&self) -> usize {
        self.chosen.as_ref().map_or(self.all.changes.len(), Vec::len)
    }

    fn get(&self, number: usize) -> Option<&PushedChange> {
        let index = match &self.chosen {
            Some(chosen) => *chosen.get(number)?,
            None => number,
        };
        self.all.changes.get(index)
    }
}

impl TransferReader for PendingChanges {
    fn next(&mut self, bytes_max: u64) -> Result<TransferPart, SourceError> {
        let mut changes = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.get(self.sent) {
            bytes += change_bytes(&next.change);
            if bytes > bytes_max && !changes.is_empty() {
                break;
            }
            changes.push(next.clone());
            self.sent += 1;
        }
        Ok(TransferPart { changes, last: self.sent == self.len() })
    }
}

/// The newest snapshot of each shared stream, for as long as a session pushes it.
#[derive(Debug, Default)]
pub(super) struct SharedSnapshots {
    newest: Mutex<BTreeMap<StreamId, CachedSnapshot>>,
}

/// The position, and the entries while a session holds them.
type CachedSnapshot = (Position, Weak<StreamEntries>);

impl SharedSnapshots {
    /// The snapshot of `stream` at `position`: the one that other sessions push, else the result
    /// of `read`.
    ///
    /// # Errors
    /// As `read`.
    pub(super) fn at(
        &self,
        stream: &StreamId,
        position: Position,
        read: impl FnOnce() -> Result<StreamEntries, SourceError>,
    ) -> Result<Arc<StreamEntries>, SourceError> {
        // The lock is held during the read, so that a storm of sessions reads once. No code here
        // panics while it holds the lock; a poisoned one is still whole.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, entries)) = newest.get(stream)
            && *at == position
            && let Some(entries) = entries.upgrade()
        {
            return Ok(entries);
        }
        let entries = Arc::new(read()?);
        newest.insert(stream.clone(), (position, Arc::downgrade(&entries)));
        Ok(entries)
    }
}

/// The change that applies an entry.
pub(super) fn applied(key: EntryKey, entry: Entry) -> Change {
    let Entry { uid, resource_version, object, .. } = entry;
    Change::Applied(Applied { key, uid, resource_version, object })
}

#[cfg(test)]
mod tests {
    use headwater_event::{DigestKey, Removed, Seq};

    use super::*;

    #[test]
    fn parts_are_cut_at_the_bound_but_never_empty_before_the_end() {
        let change = |n: u8| -> PushedChange {
            let key = format!("d/pod/p{n}").parse().expect("a key");
            Change::Removed(Removed { key, uid: "u".to_owned() }).into()
        };
        let one = change_bytes(&change(1).change);
        let mut changes = PendingChanges::new((1..=5).map(change).collect());
        let sizes: Vec<_> = std::iter::from_fn(|| {
            let part = changes.next(2 * one).expect("readable");
            (!part.changes.is_empty()).then_some((part.changes.len(), part.last))
        })
        .collect();
        assert_eq!(sizes, [(2, false), (2, false), (1, true)]);
        let mut tiny = PendingChanges::new(vec![change(1)]);
        assert_eq!(tiny.next(1).expect("readable").changes.len(), 1);
        assert!(PendingChanges::new(Vec::new()).next(1).expect("readable").last);
    }

    #[test]
    fn a_shared_snapshot_is_read_once_while_a_session_pushes_it() {
        let snapshots = SharedSnapshots::default();
        let nothing = || Ok(StreamEntries::default());
        let cluster = StreamId::Cluster;
        let first = snapshots.at(&cluster, None, nothing).expect("read");
        let again = snapshots.at(&cluster, None, || unreachable!("it is held")).expect("held");
        assert!(Arc::ptr_eq(&first, &again));
        drop((first, again));
        let mut reads = 0;
        let read = || {
            reads += 1;
            Ok(StreamEntries::default())
        };
        snapshots.at(&cluster, None, read).expect("read");
        assert_eq!(reads, 1, "no session held it any more");
    }

    #[test]
    fn each_edge_gets_the_shared_entries_that_it_lacks() {
        let mut all = StreamEntries::default();
        let key = |n: u8| format!("d/service/s{n}").parse().expect("a key");
        let object_hash = |n| ObjectHash::of(&[n]);
        for n in 0..5 {
            let (uid, resource_version) = ("u".to_owned(), "1".to_owned());
            let (object_hash, object) = (object_hash(n), vec![n].into());
            all.push(key(n), Entry { seq: Seq(1), object_hash, uid, resource_version, object });
        }
        let all = Arc::new(all);
        let digest = |n| DigestKey::new(3).digest(&key(n), "u", "1", &object_hash(n));
        for held in [vec![], vec![1, 3], vec![0, 1, 2, 3, 4]] {
            let digests: Vec<_> = held.iter().map(|n| digest(*n)).collect();
            let mut changes =
                PendingChanges::missing(all.clone(), &mut Comparison::new(3, &digests));
            let part = changes.next(u64::MAX).expect("readable");
            let sent: Vec<_> = part.changes.iter().map(|pushed| pushed.change.key()).collect();
            let lacking: Vec<EntryKey> = (0..5).filter(|n| !held.contains(n)).map(key).collect();
            assert_eq!(sent, lacking.iter().collect::<Vec<_>>());
            assert!(part.last);
        }
    }
}
