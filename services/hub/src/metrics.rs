//! What the hub counts, for whoever scrapes the process.
//!
//! Nothing is labelled by node: a hub serves thousands of them. What every event touches has its
//! handles bound here, once; what a session touches once is looked up.
//!
//! | module | what it owns |
//! |---|---|
//! | `handshake` | TLS handshakes |
//! | `session` | sessions, pushes, requests |
//! | `upstream` | reports on their way into the log |
//! | `fold` | how far the downstream log is folded |
//! | `wire` | what passes through their sockets |
//! | `scrape` | what is looked up when somebody asks |

mod fold;
mod handshake;
mod scrape;
mod session;
mod upstream;
mod wire;

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    exponential_buckets, register_histogram_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};

pub(crate) use fold::FoldMetrics;
pub(crate) use handshake::{Handshake, HandshakeMetrics};
pub(crate) use scrape::Scrape;
pub(crate) use session::{HelloEnd, SessionMetrics, SessionOver};
pub(crate) use upstream::{RecordKind, UpstreamMetrics};
pub(crate) use wire::WireMetrics;

/// The metrics of a hub. Cheap to clone; one per registry.
#[derive(Clone)]
pub struct HubMetrics {
    pub(crate) handshakes: HandshakeMetrics,
    pub(crate) wire: WireMetrics,
    pub(crate) sessions: SessionMetrics,
    pub(crate) upstream: UpstreamMetrics,
    pub(crate) fold: FoldMetrics,
    pub(crate) scrape: Scrape,
}

impl HubMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families { registry };
        let scrape = Scrape::new()?;
        registry.register(Box::new(scrape.clone()))?;
        Ok(Self {
            handshakes: HandshakeMetrics::new(&families)?,
            wire: WireMetrics::new(&families)?,
            sessions: SessionMetrics::new(&families)?,
            upstream: UpstreamMetrics::new(&families)?,
            fold: FoldMetrics::new(&families)?,
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

    fn counter_vec(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntCounterVec, prometheus::Error> {
        register_int_counter_vec_with_registry!(name, help, &[label], self.registry)
    }

    /// A counter for each value of one label.
    fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> Result<[IntCounter; N], prometheus::Error> {
        let family = self.counter_vec(name, help, label)?;
        Ok(values.map(|value| family.with_label_values(&[value])))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        register_int_gauge_with_registry!(name, help, self.registry)
    }

    fn gauge_vec(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntGaugeVec, prometheus::Error> {
        register_int_gauge_vec_with_registry!(name, help, &[label], self.registry)
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

/// A count as a gauge takes it.
fn level(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
