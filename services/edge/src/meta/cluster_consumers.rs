//! Which programs of the node read the shared stream `cluster`: Services and where they are served.
//!
//! The edge reports to the cloud whether any does, and the cloud assigns the stream by it. A program reads
//! it that watches such objects, or queries them. No runtime of pods reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The programs of the node that read the stream. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterConsumers(Arc<Uses>);

#[derive(Debug, Default)]
struct Uses {
    watches: AtomicUsize,
    /// Whether a query came, or a watch ended, since the last look.
    was_used: AtomicBool,
}

/// A watch that counts as a consumer for as long as this lives.
#[derive(Debug)]
pub(crate) struct ClusterWatch(Arc<Uses>);

/// Whether the node counts as a consumer, and until when. Pure.
#[derive(Debug)]
pub(crate) struct ClusterConsumption {
    /// How long the node counts after the last use.
    grace_ms: u64,
    last_use_ms: Option<u64>,
}

impl ClusterConsumers {
    /// A watch was opened.
    pub(crate) fn watch(&self) -> ClusterWatch {
        self.0.watches.fetch_add(1, Ordering::Relaxed);
        ClusterWatch(self.0.clone())
    }

    /// A query came.
    pub(crate) fn query(&self) {
        self.0.was_used.store(true, Ordering::Relaxed);
    }

    /// Whether the stream is read now, or was since the last call.
    pub(crate) fn take_use(&self) -> bool {
        let was_used = self.0.was_used.swap(false, Ordering::Relaxed);
        was_used || self.0.watches.load(Ordering::Relaxed) > 0
    }
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        self.0.was_used.store(true, Ordering::Relaxed);
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClusterConsumption {
    /// A node at its start. One that has the stream counts as if a program had just read it: the
    /// programs of the node start, too.
    pub(crate) fn at_start(has_stream: bool, now_ms: u64, grace_ms: u64) -> Self {
        Self { grace_ms, last_use_ms: has_stream.then_some(now_ms) }
    }

    /// Whether the node counts as a consumer at `now_ms`. `is_used`: the stream was read since the
    /// last call.
    pub(crate) fn look(&mut self, is_used: bool, now_ms: u64) -> bool {
        if is_used {
            self.last_use_ms = Some(now_ms);
        }
        self.last_use_ms.is_some_and(|last_ms| now_ms.saturating_sub(last_ms) < self.grace_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_a_use_until_it_ends_and_a_query_is_one_use() {
        let consumers = ClusterConsumers::default();
        assert!(!consumers.take_use());
        let watch = consumers.watch();
        assert!(consumers.take_use() && consumers.take_use());
        drop(watch);
        assert!(consumers.take_use(), "it was read until now");
        assert!(!consumers.take_use());
        consumers.query();
        assert!(consumers.take_use());
        assert!(!consumers.take_use());
    }

    #[test]
    fn a_node_counts_for_a_while_after_the_last_use() {
        let mut consumption = ClusterConsumption::at_start(false, 0, 100);
        assert!(!consumption.look(false, 10));
        assert!(consumption.look(true, 20));
        assert!(consumption.look(false, 119));
        assert!(!consumption.look(false, 120));
        assert!(consumption.look(true, 130));
    }

    #[test]
    fn a_node_that_has_the_stream_keeps_it_over_a_restart() {
        let mut consumption = ClusterConsumption::at_start(true, 1_000, 100);
        assert!(consumption.look(false, 1_050));
        assert!(!consumption.look(false, 1_100));
    }
}
