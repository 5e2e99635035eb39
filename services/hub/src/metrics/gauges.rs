//! Gauges whose values are computed at each scrape: sums and maxima over the nodes of the hub.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, IntGauge, Opts};

use super::level;

/// Gauges of a running hub; absent while none runs.
#[derive(Clone)]
pub(crate) struct HubGauges {
    sessions: IntGauge,
    connected: IntGauge,
    disconnected: IntGauge,
    transfers: IntGauge,
    lag_sum: IntGauge,
    lag_max: IntGauge,
    lag_seconds: Gauge,
    hub: Arc<Mutex<Option<Weak<dyn GaugeSource>>>>,
}

/// The running hub, as its gauges read it.
pub(crate) trait GaugeSource: Send + Sync {
    /// The values at present.
    fn read(&self) -> GaugeValues;
}

/// The values of all gauges at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GaugeValues {
    /// Sessions, welcomed or not yet.
    pub(crate) sessions: usize,
    /// Nodes that are connected.
    pub(crate) connected: usize,
    /// Nodes that were connected to this hub.
    pub(crate) disconnected: usize,
    /// Sessions that hold a transfer slot.
    pub(crate) transfers: usize,
    /// Events that connected nodes have not applied, of all nodes and streams.
    pub(crate) lag_sum: u64,
    /// The greatest of these numbers.
    pub(crate) lag_max: u64,
    /// The age of the oldest of these events.
    pub(crate) lag_ms_max: i64,
}

impl HubGauges {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| IntGauge::new(name, help);
        let nodes = |state| {
            let opts = Opts::new("headwater_hub_nodes", "Nodes that were connected to this hub.");
            IntGauge::with_opts(opts.const_label("state", state))
        };
        Ok(Self {
            sessions: gauge("headwater_hub_sessions", "Sessions, welcomed or not yet.")?,
            connected: nodes("connected")?,
            disconnected: nodes("disconnected")?,
            transfers: gauge(
                "headwater_hub_catch_ups",
                "Sessions that may hold a delta or a snapshot in memory.",
            )?,
            lag_sum: gauge(
                "headwater_hub_lag_events",
                "Events that connected nodes have not applied, of all streams and nodes.",
            )?,
            lag_max: gauge(
                "headwater_hub_lag_events_max",
                "Events that the connected node furthest behind in a stream has not applied.",
            )?,
            lag_seconds: Gauge::new(
                "headwater_hub_lag_seconds_max",
                "Age of the oldest event that a connected node has not applied.",
            )?,
            hub: Arc::default(),
        })
    }

    /// Reads the values from `hub` from now on.
    pub(crate) fn read_from(&self, hub: Weak<dyn GaugeSource>) {
        *self.hub.lock().unwrap_or_else(PoisonError::into_inner) = Some(hub);
    }

    fn collectors(&self) -> [&dyn Collector; 7] {
        [
            &self.sessions,
            &self.connected,
            &self.disconnected,
            &self.transfers,
            &self.lag_sum,
            &self.lag_max,
            &self.lag_seconds,
        ]
    }
}

impl Collector for HubGauges {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "an age in milliseconds is small")]
    fn collect(&self) -> Vec<MetricFamily> {
        let hub = self.hub.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(hub) = hub.and_then(|hub| hub.upgrade()) else { return Vec::new() };
        let values = hub.read();
        self.sessions.set(level(values.sessions));
        self.connected.set(level(values.connected));
        self.disconnected.set(level(values.disconnected));
        self.transfers.set(level(values.transfers));
        self.lag_sum.set(level(values.lag_sum));
        self.lag_max.set(level(values.lag_max));
        self.lag_seconds.set(values.lag_ms_max.max(0) as f64 / 1000.0);
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}
