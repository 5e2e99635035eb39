//! A delta, snapshot or correction, read whole when it is asked for and given out in parts.
//!
//! It is held in memory until it is sent; [`crate::turns`] bounds how many are. A snapshot of a
//! stream that many nodes have is read once for all who take it at the same position.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use headwater_event::{Applied, Change, Checkpoint, EntryKey, ObjectHash, StateHash, StreamId};
use headwater_session::message::{PushedChange, change_bytes};
use headwater_session::{CatchUp, CatchUpPart, Comparison, SourceError};
use headwater_view::Entry;

/// What a snapshot is of: the same position and hash, the same state.
type Position = Option<(Checkpoint, StateHash)>;

/// The entries of a stream.
#[derive(Debug, Default)]
pub(super) struct Entries {
    changes: Vec<PushedChange>,
    object_hashes: Vec<ObjectHash>,
}

impl Entries {
    pub(super) fn push(&mut self, key: EntryKey, entry: Entry) {
        self.object_hashes.push(entry.object_hash);
        self.changes.push(applied(key, entry).into());
    }
}

/// Changes not yet given out.
pub(super) struct Changes {
    all: Arc<Entries>,
    /// Which of them; all.
    chosen: Option<Vec<usize>>,
    given: usize,
}

impl Changes {
    pub(super) fn new(changes: Vec<PushedChange>) -> Self {
        Self::shared(Arc::new(Entries { changes, object_hashes: Vec::new() }))
    }

    /// Entries that others give out too. Objects share their bytes.
    pub(super) fn shared(all: Arc<Entries>) -> Self {
        Self { all, chosen: None, given: 0 }
    }

    /// Those of the entries that the edge of `comparison` does not have.
    pub(super) fn lacking(all: Arc<Entries>, comparison: &mut Comparison) -> Self {
        let mut chosen = Vec::new();
        for (at, (pushed, object)) in all.changes.iter().zip(&all.object_hashes).enumerate() {
            if let Change::Applied(Applied { key, uid, resource_version, .. }) = &pushed.change
                && !comparison.has(key, uid, resource_version, object)
            {
                chosen.push(at);
            }
        }
        Self { all, chosen: Some(chosen), given: 0 }
    }

    fn len(&self) -> usize {
        self.chosen.as_ref().map_or(self.all.changes.len(), Vec::len)
    }

    fn get(&self, number: usize) -> Option<&PushedChange> {
        let at = match &self.chosen {
            Some(chosen) => *chosen.get(number)?,
            None => number,
        };
        self.all.changes.get(at)
    }
}

impl CatchUp for Changes {
    fn next(&mut self, bytes_max: u64) -> Result<CatchUpPart, SourceError> {
        let mut changes = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.get(self.given) {
            bytes += change_bytes(&next.change);
            if bytes > bytes_max && !changes.is_empty() {
                break;
            }
            changes.push(next.clone());
            self.given += 1;
        }
        Ok(CatchUpPart { changes, last: self.given == self.len() })
    }
}

/// The newest snapshot of each shared stream, for as long as a session gives it out.
#[derive(Debug, Default)]
pub(super) struct SharedSnapshots {
    newest: Mutex<BTreeMap<StreamId, Newest>>,
}

/// Of what, and the entries while anyone holds them.
type Newest = (Position, Weak<Entries>);

impl SharedSnapshots {
    /// The snapshot of `stream` at `position`: the one that others give out, else as `read` now.
    pub(super) fn at(
        &self,
        stream: &StreamId,
        position: Position,
        read: impl FnOnce() -> Result<Entries, SourceError>,
    ) -> Result<Arc<Entries>, SourceError> {
        // Held while one reads, so that a storm reads once. No code here panics while it is.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, held)) = newest.get(stream)
            && *at == position
            && let Some(held) = held.upgrade()
        {
            return Ok(held);
        }
        let fresh = Arc::new(read()?);
        newest.insert(stream.clone(), (position, Arc::downgrade(&fresh)));
        Ok(fresh)
    }
}

/// An entry as it is pushed.
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
        let mut changes = Changes::new((1..=5).map(change).collect());
        let sizes: Vec<_> = std::iter::from_fn(|| {
            let part = changes.next(2 * one).expect("readable");
            (!part.changes.is_empty()).then_some((part.changes.len(), part.last))
        })
        .collect();
        assert_eq!(sizes, [(2, false), (2, false), (1, true)]);
        let mut tiny = Changes::new(vec![change(1)]);
        assert_eq!(tiny.next(1).expect("readable").changes.len(), 1);
        assert!(Changes::new(Vec::new()).next(1).expect("readable").last);
    }

    #[test]
    fn a_shared_snapshot_is_read_once_while_anyone_gives_it_out() {
        let snapshots = SharedSnapshots::default();
        let nothing = || Ok(Entries::default());
        let cluster = StreamId::Cluster;
        let first = snapshots.at(&cluster, None, nothing).expect("read");
        let again = snapshots.at(&cluster, None, || unreachable!("it is held")).expect("held");
        assert!(Arc::ptr_eq(&first, &again));
        drop((first, again));
        let mut reads = 0;
        let read = || {
            reads += 1;
            Ok(Entries::default())
        };
        snapshots.at(&cluster, None, read).expect("read");
        assert_eq!(reads, 1, "nobody held it any more");
    }

    #[test]
    fn of_shared_entries_each_edge_is_given_what_it_lacks() {
        let mut all = Entries::default();
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
            let mut changes = Changes::lacking(all.clone(), &mut Comparison::new(3, &digests));
            let part = changes.next(u64::MAX).expect("readable");
            let given: Vec<_> = part.changes.iter().map(|pushed| pushed.change.key()).collect();
            let lacking: Vec<EntryKey> = (0..5).filter(|n| !held.contains(n)).map(key).collect();
            assert_eq!(given, lacking.iter().collect::<Vec<_>>());
            assert!(part.last);
        }
    }
}
