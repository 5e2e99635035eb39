//! The controller's metrics. Each handle is bound to its labels once, here.
//!
//! | module | what it owns |
//! |---|---|
//! | `publisher` | sources, appends, the writer |
//! | `report_fold` | the fold of reports |
//! | `scrape` | gauges that are computed at a scrape |

mod publisher;
mod report_fold;
mod scrape;

use headwater_telemetry::Families;
use prometheus::Registry;

pub(crate) use publisher::{ChangeKind, FailureKind, PublisherMetrics};
pub(crate) use report_fold::{RecordKind, ReportFoldMetrics};
pub(crate) use scrape::Scrape;

/// The metrics of a controller; one for each registry. Cheap to clone.
#[derive(Clone)]
pub struct ControllerMetrics {
    pub(crate) publisher: PublisherMetrics,
    pub(crate) report_fold: ReportFoldMetrics,
    pub(crate) scrape: Scrape,
}

impl ControllerMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families::new(registry);
        let scrape = Scrape::new()?;
        registry.register(Box::new(scrape.clone()))?;
        Ok(Self {
            publisher: PublisherMetrics::new(&families)?,
            report_fold: ReportFoldMetrics::new(&families)?,
            scrape,
        })
    }
}

/// A count as a histogram takes it.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn number(count: usize) -> f64 {
    count as f64
}

/// A count as a gauge takes it.
fn level(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
