//! The metrics of the hub's end.

use headwater_telemetry::Families;
use prometheus::{IntCounter, IntGauge, Registry};

/// The metrics of a hub's lane.
#[derive(Clone, Debug)]
pub struct LaneMetrics {
    is_up: IntGauge,
    failures: IntCounter,
}

impl LaneMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry has metrics of these names.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families::new(registry);
        Ok(Self {
            is_up: families.gauge(
                "headwater_hub_lane_up",
                "Whether the hub has a stream to the active controller; also 0 if the controller \
                 does not listen.",
            )?,
            failures: families.counter(
                "headwater_hub_lane_failures_total",
                "Streams to the active controller that failed, or were not established.",
            )?,
        })
    }

    pub(crate) fn up(&self, is_up: bool) {
        self.is_up.set(i64::from(is_up));
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }
}
