//! The sink's metrics.

use headwater_telemetry::Families;
use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

use super::answer::Answer;
use super::memory::Purpose;

/// What the sink counts; one for each registry. Cheap to clone.
#[derive(Clone)]
pub struct SinkMetrics {
    requests: IntCounterVec,
    behind: IntGauge,
}

impl SinkMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families::new(registry);
        let requests = IntCounterVec::new(
            Opts::new(
                "headwater_controller_api_requests_total",
                "Requests that write to the Kubernetes API, by what they do and what came of it.",
            ),
            &["request", "outcome"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        Ok(Self {
            requests,
            behind: families.gauge(
                "headwater_controller_api_objects_behind",
                "Nodes and pods whose comparison with the Kubernetes API, or whose write, is pending.",
            )?,
        })
    }

    pub(super) fn answered(&self, purpose: Purpose, answer: &Answer) {
        self.requests.with_label_values(&[purpose.right(), answer.outcome()]).inc();
    }

    pub(super) fn behind(&self, objects: usize) {
        self.behind.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }
}
