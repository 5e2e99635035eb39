//! What is looked up when somebody asks: cheaper than to keep it up with every event.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};
use tokio::sync::mpsc;

use super::level;
use crate::publisher::{SharedInterest, WeakInterest};
use crate::source::SourceEvent;

/// Gauges of what a running controller holds; absent while none runs.
#[derive(Clone)]
pub(crate) struct Scrape {
    queue: IntGauge,
    objects: IntGauge,
    nodes: IntGauge,
    seen: Arc<Mutex<Option<Seen>>>,
}

/// What is looked at, for as long as it is there.
struct Seen {
    source: mpsc::WeakSender<SourceEvent>,
    interest: WeakInterest,
}

impl Scrape {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name, help| IntGauge::with_opts(Opts::new(name, help));
        Ok(Self {
            queue: gauge(
                "headwater_controller_publish_queue_events",
                "What sources told and the controller has not taken in.",
            )?,
            objects: gauge("headwater_controller_objects", "Objects that the sources have.")?,
            nodes: gauge("headwater_controller_nodes", "Nodes that have a stream.")?,
            seen: Arc::default(),
        })
    }

    /// Looks at a controller that starts, from now on.
    pub(crate) fn look_at(&self, source: &mpsc::Sender<SourceEvent>, interest: &SharedInterest) {
        let seen = Seen { source: source.downgrade(), interest: interest.downgrade() };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }
}

impl Collector for Scrape {
    fn desc(&self) -> Vec<&Desc> {
        [&self.queue, &self.objects, &self.nodes].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let found = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.as_ref().and_then(|seen| Some((seen.source.upgrade()?, seen.interest.upgrade()?)))
        };
        let Some((source, interest)) = found else { return Vec::new() };
        self.queue.set(level(source.max_capacity() - source.capacity()));
        let interest = interest.read();
        self.objects.set(level(interest.objects().count()));
        self.nodes.set(level(interest.nodes().count()));
        drop(interest);
        [&self.queue, &self.objects, &self.nodes].into_iter().flat_map(Collector::collect).collect()
    }
}
