//! Which partitions of the log lag: something is in flight there, and nothing has moved for long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_event::Partition;
use tokio::time::Instant;

/// How long a partition with something in flight may stand still before the others stop waiting for
/// it: longer than an election of a leader that goes well, and well within a standby's silence.
pub(super) const LAG_MAX: Duration = Duration::from_secs(2);

/// The partitions with something in flight, and those of them that lag.
#[derive(Debug, Default)]
pub(super) struct PartitionLags {
    /// When each partition with something in flight last moved.
    moved: BTreeMap<Partition, Instant>,
    lagging: BTreeSet<Partition>,
}

impl PartitionLags {
    /// Notes that something begins in `partition`.
    pub(super) fn note_begun(&mut self, partition: Partition, now: Instant) {
        self.moved.entry(partition).or_insert(now);
    }

    /// Notes that `partition` has moved; `is_idle`: nothing is in flight there any more. Returns
    /// whether it lagged and has caught up with that.
    pub(super) fn note_moved(&mut self, partition: Partition, is_idle: bool, now: Instant) -> bool {
        if is_idle {
            self.moved.remove(&partition);
            return self.lagging.remove(&partition);
        }
        if let Some(moved) = self.moved.get_mut(&partition) {
            *moved = now;
        }
        false
    }

    /// Forgets a partition: nothing of it is awaited any more.
    pub(super) fn forget(&mut self, partition: Partition) {
        self.moved.remove(&partition);
        self.lagging.remove(&partition);
    }

    /// When the next partition begins to lag, unless it moves.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(*self.awaited().map(|(_, moved)| moved).min()? + LAG_MAX)
    }

    /// The partitions that lag from `now` on.
    pub(super) fn begin(&mut self, now: Instant) -> Vec<Partition> {
        let still = self.awaited().filter(|(_, moved)| **moved + LAG_MAX <= now);
        let still: Vec<_> = still.map(|(partition, _)| *partition).collect();
        self.lagging.extend(&still);
        still
    }

    /// Whether nothing is in flight but in partitions that lag.
    pub(super) fn is_idle(&self) -> bool {
        self.awaited().next().is_none()
    }

    /// Whether a partition lags.
    pub(super) fn contains(&self, partition: Partition) -> bool {
        self.lagging.contains(&partition)
    }

    /// The partitions that lag.
    pub(super) fn lagging(&self) -> impl ExactSizeIterator<Item = Partition> + '_ {
        self.lagging.iter().copied()
    }

    /// The partitions with something in flight that do not lag, and when each last moved.
    pub(super) fn awaited(&self) -> impl Iterator<Item = (&Partition, &Instant)> {
        self.moved.iter().filter(|(partition, _)| !self.lagging.contains(partition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Partition = Partition(1);
    const Q: Partition = Partition(2);

    #[test]
    fn a_partition_that_stands_still_lags_until_nothing_of_it_is_in_flight() {
        let start = Instant::now();
        let mut lags = PartitionLags::default();
        assert!(lags.is_idle() && lags.deadline().is_none());
        lags.note_begun(P, start);
        lags.note_begun(Q, start);
        lags.note_begun(P, start + LAG_MAX / 2);
        assert!(!lags.note_moved(Q, false, start + LAG_MAX / 2));
        assert_eq!(lags.deadline(), Some(start + LAG_MAX), "a second append is no progress");
        assert_eq!(lags.begin(start + LAG_MAX), [P]);
        assert!(lags.contains(P) && !lags.contains(Q) && !lags.is_idle());
        assert!(!lags.note_moved(Q, true, start + LAG_MAX));
        assert!(lags.is_idle(), "no other waits for it");
        assert!(!lags.note_moved(P, false, start + 2 * LAG_MAX), "more of it is in flight");
        assert!(lags.note_moved(P, true, start + 3 * LAG_MAX), "it has caught up");
        assert!(!lags.contains(P));
    }
}
