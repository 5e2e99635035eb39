//! The metrics of the replica: batches, durations, and how long events were in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dependencies::{Clock, SystemClock};
use crate::metrics::{EdgeCounts, Resync};

/// The counts of the fold. Without metrics no clock is read.
#[derive(Debug, Default)]
pub(super) struct FoldCounts {
    metrics: EdgeCounts,
    /// How long the folds of the open batch have taken.
    folding: Duration,
    /// The changes in the open batch.
    changes: usize,
}

/// The counts of what subscribers receive.
#[derive(Debug)]
pub(super) struct DeliveryCounts {
    metrics: EdgeCounts,
    clock: Arc<dyn Clock>,
    /// Lagging watches that are counted already.
    lagged: u64,
}

/// Measures a duration, if it is counted.
#[derive(Debug, Default)]
pub(super) struct Stopwatch(Option<Instant>);

impl FoldCounts {
    pub(super) fn new(metrics: EdgeCounts) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Starts a stopwatch.
    pub(super) fn start(&self) -> Stopwatch {
        Stopwatch::start(&self.metrics)
    }

    /// Counts changes that were folded into the open batch.
    pub(super) fn folded(&mut self, changes: usize, stopwatch: &Stopwatch) {
        self.folding += stopwatch.elapsed();
        self.changes += changes;
    }

    /// Counts the commit of the open batch.
    pub(super) fn committed(&mut self, stopwatch: &Stopwatch) {
        let took = std::mem::take(&mut self.folding) + stopwatch.elapsed();
        self.metrics.applied(std::mem::take(&mut self.changes), took);
    }

    /// Counts a delta, snapshot or correction of a stream.
    pub(super) fn resynced(&self, by: Resync) {
        self.metrics.resynced(by);
    }
}

impl DeliveryCounts {
    pub(super) fn new(metrics: EdgeCounts, clock: Arc<dyn Clock>) -> Self {
        Self { metrics, clock, lagged: 0 }
    }

    /// Counts events, by the times of their writing, that watches can see now.
    pub(super) fn visible(&self, written_ms: impl Iterator<Item = i64>) {
        let mut now_ms = None;
        for written_ms in written_ms {
            let now_ms = *now_ms.get_or_insert_with(|| self.clock.wall_ms());
            self.metrics.propagated(written_ms, now_ms);
        }
    }

    /// Counts the open watches, and those that lagged since the start.
    pub(super) fn watches(&mut self, open: usize, lagged: u64) {
        let newly = lagged.saturating_sub(std::mem::replace(&mut self.lagged, lagged));
        self.metrics.watches(open, newly);
    }
}

impl Default for DeliveryCounts {
    fn default() -> Self {
        Self::new(EdgeCounts::default(), Arc::new(SystemClock::new()))
    }
}

impl Stopwatch {
    pub(super) fn start(metrics: &EdgeCounts) -> Self {
        Self(metrics.counts().then(Instant::now))
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |at| at.elapsed())
    }
}
