//! Families of metrics that a crate updates itself.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    exponential_buckets, register_histogram_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};

/// Creates metrics and registers them in one registry. Each method fails when the registry has a
/// metric of this name already.
pub struct Families<'a> {
    /// The registry.
    pub registry: &'a Registry,
}

impl<'a> Families<'a> {
    /// Registers in `registry`.
    pub fn new(registry: &'a Registry) -> Self {
        Self { registry }
    }

    /// Registers a counter.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        register_int_counter_with_registry!(name, help, self.registry)
    }

    /// Registers counters with one label.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn counter_vec(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntCounterVec, prometheus::Error> {
        register_int_counter_vec_with_registry!(name, help, &[label], self.registry)
    }

    /// Registers a counter for each value of one label.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> Result<[IntCounter; N], prometheus::Error> {
        let family = self.counter_vec(name, help, label)?;
        Ok(values.map(|value| family.with_label_values(&[value])))
    }

    /// Registers a gauge.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        register_int_gauge_with_registry!(name, help, self.registry)
    }

    /// Registers gauges with one label.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn gauge_vec(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntGaugeVec, prometheus::Error> {
        register_int_gauge_vec_with_registry!(name, help, &[label], self.registry)
    }

    /// Registers a histogram with exponential buckets: the first bound, the factor, the count.
    ///
    /// # Errors
    /// When the name is taken, or the buckets are invalid.
    pub fn histogram(
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
