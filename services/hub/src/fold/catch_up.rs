//! A delta or snapshot, read whole when it is asked for and given out in parts.
//!
//! It is held in memory until it is sent; [`crate::turns`] bounds how many are. A snapshot of a
//! stream that many nodes have is read once for all who take it at the same position.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use headwater_event::{Checkpoint, StateHash, StreamId};
use headwater_session::message::{PushedChange, change_bytes};
use headwater_session::{CatchUp, CatchUpPart, SourceError};

/// What a snapshot is of: the same position and hash, the same state.
type Position = Option<(Checkpoint, StateHash)>;

/// Changes not yet given out.
pub(super) struct Changes {
    all: Arc<Vec<PushedChange>>,
    given: usize,
}

impl Changes {
    pub(super) fn new(changes: Vec<PushedChange>) -> Self {
        Self::shared(Arc::new(changes))
    }

    /// Changes that others give out too. Objects share their bytes.
    pub(super) fn shared(all: Arc<Vec<PushedChange>>) -> Self {
        Self { all, given: 0 }
    }
}

impl CatchUp for Changes {
    fn next(&mut self, bytes_max: u64) -> Result<CatchUpPart, SourceError> {
        let mut changes = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.all.get(self.given) {
            bytes += change_bytes(&next.change);
            if bytes > bytes_max && !changes.is_empty() {
                break;
            }
            changes.push(next.clone());
            self.given += 1;
        }
        Ok(CatchUpPart { changes, last: self.given == self.all.len() })
    }
}

/// The newest snapshot of each shared stream, for as long as a session gives it out.
#[derive(Debug, Default)]
pub(super) struct SharedSnapshots {
    newest: Mutex<BTreeMap<StreamId, Newest>>,
}

/// Of what, and the changes while anyone holds them.
type Newest = (Position, Weak<Vec<PushedChange>>);

impl SharedSnapshots {
    /// The snapshot of `stream` at `position`: the one that others give out, else as `read` now.
    pub(super) fn at(
        &self,
        stream: &StreamId,
        position: Position,
        read: impl FnOnce() -> Result<Vec<PushedChange>, SourceError>,
    ) -> Result<Arc<Vec<PushedChange>>, SourceError> {
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

#[cfg(test)]
mod tests {
    use headwater_event::{Change, Removed};

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
        let nothing = || Ok(Vec::new());
        let cluster = StreamId::Cluster;
        let first = snapshots.at(&cluster, None, nothing).expect("read");
        let again = snapshots.at(&cluster, None, || unreachable!("it is held")).expect("held");
        assert!(Arc::ptr_eq(&first, &again));
        drop((first, again));
        let mut reads = 0;
        let read = || {
            reads += 1;
            Ok(Vec::new())
        };
        snapshots.at(&cluster, None, read).expect("read");
        assert_eq!(reads, 1, "nobody held it any more");
    }
}
