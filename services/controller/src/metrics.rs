//! What the controller counts, for whoever scrapes the process. Handles are bound once, here.
//!
//! | module | what it owns |
//! |---|---|
//! | `publisher` | sources, appends, the writer |
//! | `report_fold` | the fold of reports |
//! | `scrape` | what is looked up when somebody asks |

mod publisher;
mod report_fold;
mod scrape;

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntGauge, Registry, exponential_buckets,
    register_histogram_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_with_registry,
};

pub(crate) use publisher::{ChangeKind, FailureKind, PublisherMetrics};
pub(crate) use report_fold::{RecordKind, ReportFoldMetrics};
pub(crate) use scrape::Scrape;

/// The metrics of a controller. Cheap to clone; one per registry.
#[derive(Clone)]
pub struct ControllerMetrics {
    pub(crate) publisher: PublisherMetrics,
    pub(crate) report_fold: ReportFoldMetrics,
    pub(crate) scrape: Scrape,
}

impl ControllerMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families { registry };
        let scrape = Scrape::new()?;
        registry.register(Box::new(scrape.clone()))?;
        Ok(Self {
            publisher: PublisherMetrics::new(&families)?,
            report_fold: ReportFoldMetrics::new(&families)?,
            scrape,
        })
    }
}

/// Makes families and registers them.
struct Families<'a> {
    registry: &'a Registry,
}

impl Families<'_> {
    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        register_int_counter_with_registry!(name, help, self.registry)
    }

    /// A counter for each value of one label.
    fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> Result<[IntCounter; N], prometheus::Error> {
        let family = register_int_counter_vec_with_registry!(name, help, &[label], self.registry)?;
        Ok(values.map(|value| family.with_label_values(&[value])))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        register_int_gauge_with_registry!(name, help, self.registry)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        (first, factor, count): (f64, f64, usize),
    ) -> Result<Histogram, prometheus::Error> {
        let buckets = exponential_buckets(first, factor, count)?;
        let opts = HistogramOpts::new(name, help).buckets(buckets);
        register_histogram_with_registry!(opts, self.registry)
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
