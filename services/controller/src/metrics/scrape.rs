//! Gauges that are computed at a scrape: cheaper than to keep them up with every event.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};
use tokio::sync::mpsc;

use super::level;
use crate::interest::{SharedInterest, WeakInterest};
use crate::source::SourceEvent;

/// The gauges of a running controller; absent while none runs.
#[derive(Clone)]
pub(crate) struct Scrape {
    queue: IntGauge,
    objects: IntGauge,
    nodes: IntGauge,
    inputs: Arc<Mutex<Option<Inputs>>>,
}

/// What the gauges are computed from, for as long as it exists.
struct Inputs {
    source: mpsc::WeakSender<SourceEvent>,
    interest: WeakInterest,
}

impl Scrape {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name, help| IntGauge::with_opts(Opts::new(name, help));
        Ok(Self {
            queue: gauge(
                "headwater_controller_publish_queue_events",
                "Events of sources that wait for the publisher.",
            )?,
            objects: gauge("headwater_controller_objects", "Objects of the sources.")?,
            nodes: gauge("headwater_controller_nodes", "Nodes that have a stream.")?,
            inputs: Arc::default(),
        })
    }

    /// Computes the gauges from a controller that starts.
    pub(crate) fn look_at(&self, source: &mpsc::Sender<SourceEvent>, interest: &SharedInterest) {
        let inputs = Inputs { source: source.downgrade(), interest: interest.downgrade() };
        *self.inputs.lock().unwrap_or_else(PoisonError::into_inner) = Some(inputs);
    }
}

impl Collector for Scrape {
    fn desc(&self) -> Vec<&Desc> {
        [&self.queue, &self.objects, &self.nodes].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let found = {
            let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
            inputs
                .as_ref()
                .and_then(|inputs| Some((inputs.source.upgrade()?, inputs.interest.upgrade()?)))
        };
        let Some((source, interest)) = found else { return Vec::new() };
        self.queue.set(level(source.max_capacity() - source.capacity()));
        let interest = interest.read();
        self.objects.set(level(interest.objects_count()));
        self.nodes.set(level(interest.nodes().count()));
        drop(interest);
        [&self.queue, &self.objects, &self.nodes].into_iter().flat_map(Collector::collect).collect()
    }
}
