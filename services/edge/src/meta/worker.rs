//! Whether the pod worker of the node runs: it has a watch of the local API open.
//!
//! The edge reports it to the cloud with its heartbeats. A worker that lost its watch, because it did not
//! keep up or the edge started again, opens it again within moments, so the end of a watch counts after a
//! while.

use std::sync::Arc;

use tokio::sync::watch;

/// How long after its last watch ended a worker counts as running: one second more than edged waits at
/// most before it watches again.
pub(crate) const WORKER_GRACE_MS: u64 = 3_000;

/// Counts the open watches of workers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerWatches(Arc<watch::Sender<usize>>);

/// A watch that counts for as long as this lives.
#[derive(Debug)]
pub(crate) struct WorkerWatch(Arc<watch::Sender<usize>>);

/// Whether the worker runs. Pure.
#[derive(Debug)]
pub(crate) struct WorkerState {
    /// When a watch was last open.
    last_open_ms: u64,
}

impl WorkerWatches {
    /// A watch was opened.
    pub(crate) fn open(&self) -> WorkerWatch {
        self.0.send_modify(|open| *open += 1);
        WorkerWatch(self.0.clone())
    }

    /// The number of open watches. Each change notifies.
    pub(crate) fn subscribe(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

impl Drop for WorkerWatch {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl WorkerState {
    /// A node at its start: the worker starts, too.
    pub(crate) fn at_start(now_ms: u64) -> Self {
        Self { last_open_ms: now_ms }
    }

    /// Whether the worker runs at `now_ms`. `is_open`: it has a watch open now.
    pub(crate) fn look(&mut self, is_open: bool, now_ms: u64) -> bool {
        if is_open {
            self.last_open_ms = now_ms;
        }
        is_open || now_ms.saturating_sub(self.last_open_ms) < WORKER_GRACE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_runs_while_it_watches_and_a_moment_longer() {
        let mut worker = WorkerState::at_start(1_000);
        for (is_open, now_ms, runs) in [
            (false, 1_000, true),
            (false, 3_999, true),
            (false, 4_000, false),
            (true, 4_500, true),
            (true, 90_000, true),
            (false, 92_999, true),
            (true, 93_000, true),
            (false, 95_999, true),
            (false, 96_000, false),
            (true, 96_001, true),
        ] {
            assert_eq!(worker.look(is_open, now_ms), runs, "at {now_ms}");
        }
    }

    #[test]
    fn each_open_watch_counts_and_each_change_notifies() {
        let watches = WorkerWatches::default();
        let mut open = watches.subscribe();
        let (first, second) = (watches.open(), watches.open());
        assert!(open.has_changed().expect("there") && *open.borrow_and_update() == 2);
        drop(first);
        assert!(open.has_changed().expect("there") && *open.borrow_and_update() == 1);
        drop(second);
        assert_eq!(*open.borrow_and_update(), 0);
    }
}
