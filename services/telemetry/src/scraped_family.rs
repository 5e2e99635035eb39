//! Metrics that are read from the system at each scrape.

use prometheus::core::Desc;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// The name, kind and meaning of a family.
#[derive(Clone, Copy, Debug)]
pub struct ScrapedFamily {
    /// The metric name.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// Counter or gauge.
    pub kind: MetricType,
}

impl ScrapedFamily {
    /// A gauge: a value that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::GAUGE }
    }

    /// A counter: a value that only goes up.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::COUNTER }
    }

    /// The description that the registry asks for.
    ///
    /// # Errors
    /// When the name or a label is malformed.
    pub fn desc(&self, labels: &[&str]) -> Result<Desc, prometheus::Error> {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, Default::default())
    }

    /// The family with these samples: the labels and the value of each.
    pub fn with(&self, samples: Vec<(Vec<LabelPair>, f64)>) -> MetricFamily {
        let metrics = samples.into_iter().map(|(labels, value)| {
            let mut metric = Metric::default();
            metric.set_label(labels);
            if self.kind == MetricType::COUNTER {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(metrics.collect());
        family
    }
}

/// A label with its value.
pub fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// A count as the text format takes it: exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "the text format has no other numbers")]
pub fn number(count: u64) -> f64 {
    count as f64
}
