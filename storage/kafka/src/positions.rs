//! Positions for display: how far the oldest open reader of a log has come, committed to a
//! consumer group so that Kafka's own tools show its lag. They are never read back: what a reader
//! goes on from lies with the state that it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_event::{Offset, Partition};

/// How often positions are committed: a person looks again after seconds, and every commit is a
/// record in Kafka's own topic.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// The open readers of a log. The one that has been open longest follows it; others look
/// something up, and their positions would say nothing.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    next: AtomicU64,
    open: Mutex<BTreeSet<u64>>,
}

/// One open reader, until it is dropped, and how far it has come.
#[derive(Debug)]
pub(crate) struct Position {
    readers: Arc<Readers>,
    id: u64,
    handled: Mutex<BTreeMap<Partition, Offset>>,
}

/// When and what was committed last.
#[derive(Debug)]
pub(crate) struct Commits {
    last: Instant,
    committed: BTreeMap<Partition, Offset>,
    is_denied: bool,
}

impl Readers {
    /// A reader that begins at these offsets.
    pub(crate) fn open(self: &Arc<Self>, from: BTreeMap<Partition, Offset>) -> Arc<Position> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        Arc::new(Position { readers: self.clone(), id, handled: Mutex::new(from) })
    }
}

impl Position {
    /// Whether this is the reader whose positions are shown.
    pub(crate) fn is_shown(&self) -> bool {
        let open = self.readers.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.first() == Some(&self.id)
    }

    /// Everything below `next` was handled.
    pub(crate) fn handled(&self, partition: Partition, next: Offset) {
        let mut handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        handled.insert(partition, next);
    }

    /// How far it has come.
    pub(crate) fn all(&self) -> BTreeMap<Partition, Offset> {
        self.handled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The reader is of no more use: the next one's positions are shown.
    pub(crate) fn close(&self) {
        self.readers.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        self.close();
    }
}

impl Commits {
    pub(crate) fn new(now: Instant) -> Self {
        Self { last: now, committed: BTreeMap::new(), is_denied: false }
    }

    /// What is to be committed now, if it is time and something has moved.
    pub(crate) fn due(
        &mut self,
        now: Instant,
        position: &Position,
    ) -> Option<BTreeMap<Partition, Offset>> {
        if self.is_denied || now.duration_since(self.last) < INTERVAL || !position.is_shown() {
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

    /// Kafka takes none; true the first time.
    pub(crate) fn deny(&mut self) -> bool {
        !std::mem::replace(&mut self.is_denied, true)
    }

    /// What was committed last did not arrive: it is committed again.
    pub(crate) fn forget(&mut self) {
        self.committed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_5: [(Partition, Offset); 1] = [(Partition(0), Offset(5))];

    #[test]
    fn the_oldest_readers_positions_are_shown() {
        let readers = Arc::new(Readers::default());
        let (first, second) = (readers.open(AT_5.into()), readers.open(AT_5.into()));
        assert!(first.is_shown() && !second.is_shown());
        drop(first);
        assert!(second.is_shown());
    }

    #[test]
    fn positions_are_committed_now_and_then_and_only_when_they_moved() {
        let start = Instant::now();
        let position = Arc::new(Readers::default()).open(AT_5.into());
        let mut commits = Commits::new(start);
        assert_eq!(commits.due(start, &position), None, "not yet");
        let mut now = start + INTERVAL;
        assert_eq!(commits.due(now, &position), Some(AT_5.into()));
        assert_eq!(commits.due(now, &position), None, "a moment ago");
        now += INTERVAL;
        assert_eq!(commits.due(now, &position), None, "nothing has moved");
        position.handled(Partition(0), Offset(6));
        now += INTERVAL;
        assert_eq!(commits.due(now, &position), Some([(Partition(0), Offset(6))].into()));
        commits.forget();
        now += INTERVAL;
        assert!(commits.due(now, &position).is_some(), "it did not arrive");
        assert!(commits.deny() && !commits.deny());
        position.handled(Partition(0), Offset(7));
        assert_eq!(commits.due(now + INTERVAL, &position), None, "it is denied");
    }
}
