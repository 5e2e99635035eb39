//! What the replica counts: batches, their time, and how long events were on their way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dependencies::{Clock, SystemClock};
use crate::metrics::{EdgeCounts, Resync};

/// The counts of a replica. Clocks are read only where something is counted.
#[derive(Debug)]
pub(super) struct ReplicaCounts {
    metrics: EdgeCounts,
    clock: Arc<dyn Clock>,
    /// How long folding the open batch has taken, and its changes.
    folding: Duration,
    changes: usize,
    /// Watches that lagged and are counted already.
    lagging: u64,
}

/// When something began.
#[derive(Debug, Default)]
pub(super) struct Stopwatch(Option<Instant>);

impl ReplicaCounts {
    pub(super) fn new(metrics: EdgeCounts, clock: Arc<dyn Clock>) -> Self {
        Self { metrics, clock, folding: Duration::ZERO, changes: 0, lagging: 0 }
    }

    /// Something begins that takes time.
    pub(super) fn begin(&self) -> Stopwatch {
        Stopwatch(self.metrics.counts().then(Instant::now))
    }

    /// So many changes were folded into the open batch.
    pub(super) fn folded(&mut self, changes: usize, began: &Stopwatch) {
        self.folding += began.elapsed();
        self.changes += changes;
    }

    /// The open batch was committed.
    pub(super) fn committed(&mut self, began: &Stopwatch) {
        let took = std::mem::take(&mut self.folding) + began.elapsed();
        self.metrics.applied(std::mem::take(&mut self.changes), took);
    }

    /// What is applied was synced.
    pub(super) fn synced(&self, began: &Stopwatch) {
        self.metrics.synced(began.elapsed());
    }

    /// Events that were written at these times may be seen now.
    pub(super) fn visible(&self, written_ms: impl Iterator<Item = i64>) {
        let mut now_ms = None;
        for written_ms in written_ms {
            let now_ms = *now_ms.get_or_insert_with(|| self.clock.wall_ms());
            self.metrics.propagated(written_ms, now_ms);
        }
    }

    /// A stream was brought forward by other means than its tail.
    pub(super) fn resynced(&self, by: Resync) {
        self.metrics.resynced(by);
    }

    /// So many watches are open, and so many have lagged since the start.
    pub(super) fn watches(&mut self, open: usize, lagged: u64) {
        let newly = lagged.saturating_sub(std::mem::replace(&mut self.lagging, lagged));
        self.metrics.watches(open, newly);
    }
}

impl Default for ReplicaCounts {
    fn default() -> Self {
        Self::new(EdgeCounts::default(), Arc::new(SystemClock::new()))
    }
}

impl Stopwatch {
    fn elapsed(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |at| at.elapsed())
    }
}
