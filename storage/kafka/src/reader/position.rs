//! Positions for display: the oldest open reader of a log commits its position to a consumer group,
//! so that Kafka's own tools show its lag. They are never read back: a reader resumes from the
//! cursor that is stored with the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_event::{Offset, Partition};

/// How often positions are committed: a person looks again after seconds, and each commit is a
/// record in Kafka's own topic.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// The open readers of a log. The one that was opened first follows the log. The others look
/// something up; their positions mean nothing.
#[derive(Debug, Default)]
pub(crate) struct OpenReaders {
    next: AtomicU64,
    open: Mutex<BTreeSet<u64>>,
}

/// The position of one open reader. The reader is open until this is dropped or closed.
#[derive(Debug)]
pub(super) struct ReaderPosition {
    readers: Arc<OpenReaders>,
    id: u64,
    handled: Mutex<BTreeMap<Partition, Offset>>,
}

/// The last commit of a position.
#[derive(Debug)]
pub(super) struct PositionCommits {
    last: Instant,
    committed: BTreeMap<Partition, Offset>,
    is_denied: bool,
}

impl OpenReaders {
    /// Opens a reader at these offsets.
    pub(super) fn open(self: &Arc<Self>, from: BTreeMap<Partition, Offset>) -> Arc<ReaderPosition> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        Arc::new(ReaderPosition { readers: self.clone(), id, handled: Mutex::new(from) })
    }
}

impl ReaderPosition {
    /// Whether this is the reader whose position is shown.
    pub(super) fn is_shown(&self) -> bool {
        let open = self.readers.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.first() == Some(&self.id)
    }

    /// Sets the position: everything below `next` is handled.
    pub(super) fn handled(&self, partition: Partition, next: Offset) {
        let mut handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        handled.insert(partition, next);
    }

    /// The position in `partition`.
    pub(super) fn next(&self, partition: Partition) -> Option<Offset> {
        self.handled.lock().unwrap_or_else(PoisonError::into_inner).get(&partition).copied()
    }

    /// The positions in all partitions.
    pub(super) fn all(&self) -> BTreeMap<Partition, Offset> {
        self.handled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the reader: the position of the next one is shown.
    pub(super) fn close(&self) {
        self.readers.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Drop for ReaderPosition {
    fn drop(&mut self) {
        self.close();
    }
}

impl PositionCommits {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, committed: BTreeMap::new(), is_denied: false }
    }

    /// Returns the positions to commit, if it is time and one of them changed.
    pub(super) fn due(
        &mut self,
        now: Instant,
        position: &ReaderPosition,
    ) -> Option<BTreeMap<Partition, Offset>> {
        if self.is_denied || now.duration_since(self.last) < COMMIT_INTERVAL || !position.is_shown()
        {
            return None;
        }
        self.last = now;
        let all = position.all();
        if all == self.committed {
            return None;
        }
        self.committed.clone_from(&all);
        Some(all)
    }

    /// Records that Kafka denies commits. True the first time.
    pub(super) fn deny(&mut self) -> bool {
        !std::mem::replace(&mut self.is_denied, true)
    }

    /// Forgets the last commit, which failed: it is repeated.
    pub(super) fn forget(&mut self) {
        self.committed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_5: [(Partition, Offset); 1] = [(Partition(0), Offset(5))];

    #[test]
    fn the_oldest_readers_positions_are_shown() {
        let readers = Arc::new(OpenReaders::default());
        let (first, second) = (readers.open(AT_5.into()), readers.open(AT_5.into()));
        assert!(first.is_shown() && !second.is_shown());
        drop(first);
        assert!(second.is_shown());
    }

    #[test]
    fn positions_are_committed_now_and_then_and_only_when_they_moved() {
        let start = Instant::now();
        let position = Arc::new(OpenReaders::default()).open(AT_5.into());
        let mut commits = PositionCommits::new(start);
        assert_eq!(commits.due(start, &position), None, "not yet");
        let mut now = start + COMMIT_INTERVAL;
        assert_eq!(commits.due(now, &position), Some(AT_5.into()));
        assert_eq!(commits.due(now, &position), None, "a moment ago");
        now += COMMIT_INTERVAL;
        assert_eq!(commits.due(now, &position), None, "nothing has moved");
        position.handled(Partition(0), Offset(6));
        now += COMMIT_INTERVAL;
        assert_eq!(commits.due(now, &position), Some([(Partition(0), Offset(6))].into()));
        commits.forget();
        now += COMMIT_INTERVAL;
        assert!(commits.due(now, &position).is_some(), "it did not arrive");
        assert!(commits.deny() && !commits.deny());
        position.handled(Partition(0), Offset(7));
        assert_eq!(commits.due(now + COMMIT_INTERVAL, &position), None, "it is denied");
    }
}
