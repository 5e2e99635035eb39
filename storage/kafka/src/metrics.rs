//! The metrics of the logs on Kafka of a process, by topic and partition.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use headwater_event::{Offset, Partition};
use headwater_log::{Append, AppendError, ReadError, RecordPosition, StoredRecord};
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    exponential_buckets, register_histogram_vec_with_registry,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
};

const TOPIC: [&str; 1] = ["topic"];
const PARTITION: [&str; 2] = ["topic", "partition"];
const KIND: [&str; 2] = ["topic", "kind"];

/// The metrics of the logs on Kafka of a process; one per registry. The number of series grows with
/// the partitions.
#[derive(Clone, Debug)]
pub struct KafkaMetrics {
    records: IntCounterVec,
    bytes: IntCounterVec,
    ends: IntGaugeVec,
    append_failures: IntCounterVec,
    append_seconds: HistogramVec,
    records_read: IntCounterVec,
    read_to: IntGaugeVec,
    lag: IntGaugeVec,
    readers_opened: IntCounterVec,
    read_failures: IntCounterVec,
    connection_failures: IntCounterVec,
    commit_failures: IntCounterVec,
}

/// The handles of one log.
#[derive(Debug)]
pub(crate) struct Counts {
    topic: String,
    all: KafkaMetrics,
    append_seconds: Histogram,
    readers_opened: IntCounter,
    connection_failures: IntCounter,
    commit_failures: IntCounter,
    partitions: Mutex<BTreeMap<Partition, PartitionCounts>>,
}

#[derive(Debug)]
struct PartitionCounts {
    records: IntCounter,
    bytes: IntCounter,
    records_read: IntCounter,
    end: IntGauge,
    /// None before the first read: a process that only appends has no lag.
    lag: Option<ReaderLag>,
}

#[derive(Debug)]
struct ReaderLag {
    handled: IntGauge,
    lag: IntGauge,
}

impl KafkaMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let gauges = |name: &str, help: &str| {
            register_int_gauge_vec_with_registry!(name, help, &PARTITION, registry)
        };
        Ok(Self {
            records: counters(
                "headwater_kafka_records_appended_total",
                "Records that enough brokers have.",
                &PARTITION,
            )?,
            bytes: counters(
                "headwater_kafka_appended_bytes_total",
                "Bytes of keys, values and headers of those records, before compression.",
                &PARTITION,
            )?,
            ends: gauges("headwater_kafka_end_offset", "The first unwritten offset.")?,
            append_failures: counters(
                "headwater_kafka_append_failures_total",
                "Appends that failed: rejected, certainly not written; unknown, the writer \
                 reads back; fatal, this process appends no more.",
                &KIND,
            )?,
            append_seconds: register_histogram_vec_with_registry!(
                "headwater_kafka_append_duration_seconds",
                "Duration of an append, of one record or many.",
                &TOPIC,
                exponential_buckets(0.000_5, 2.5, 13)?,
                registry
            )?,
            records_read: counters(
                "headwater_kafka_records_read_total",
                "Records that a reader returned.",
                &PARTITION,
            )?,
            read_to: gauges(
                "headwater_kafka_read_offset",
                "The first offset that the oldest open reader has not handled.",
            )?,
            lag: gauges(
                "headwater_kafka_lag_offsets",
                "How many offsets the oldest open reader is behind the end; compacted ones count.",
            )?,
            readers_opened: counters(
                "headwater_kafka_readers_opened_total",
                "Readers opened: at a start, and after each failure.",
                &TOPIC,
            )?,
            read_failures: counters(
                "headwater_kafka_read_failures_total",
                "Readers that failed, or could not be opened, by cause.",
                &KIND,
            )?,
            connection_failures: counters(
                "headwater_kafka_connection_failures_total",
                "Connections to brokers that failed or broke; each is retried.",
                &TOPIC,
            )?,
            commit_failures: counters(
                "headwater_kafka_position_commit_failures_total",
                "Positions for display that Kafka refused.",
                &TOPIC,
            )?,
        })
    }

    /// The handles of the log on `topic`.
    pub(crate) fn of(&self, topic: &str) -> Counts {
        Counts {
            topic: topic.to_owned(),
            all: self.clone(),
            append_seconds: self.append_seconds.with_label_values(&[topic]),
            readers_opened: self.readers_opened.with_label_values(&[topic]),
            connection_failures: self.connection_failures.with_label_values(&[topic]),
            commit_failures: self.commit_failures.with_label_values(&[topic]),
            partitions: Mutex::default(),
        }
    }
}

impl Counts {
    /// Counts an append with its result and duration.
    pub(crate) fn appended(
        &self,
        records: &[Append],
        result: &Result<Vec<RecordPosition>, AppendError>,
        took: Duration,
    ) {
        self.append_seconds.observe(took.as_secs_f64());
        let kind = match result {
            Ok(appended) => {
                for (append, appended) in records.iter().zip(appended) {
                    self.with(append.partition, |of| {
                        of.records.inc();
                        of.bytes.inc_by(append.record.bytes() as u64);
                        of.ends_at(appended.offset.next());
                    });
                }
                return;
            }
            Err(AppendError::Rejected { .. }) => "rejected",
            Err(AppendError::NoPartition { .. }) => "no_partition",
            Err(AppendError::Unknown { .. }) => "unknown",
            Err(AppendError::Fatal { .. }) => "fatal",
        };
        self.all.append_failures.with_label_values(&[self.topic.as_str(), kind]).inc();
    }

    /// Counts an opened reader.
    pub(crate) fn opened(&self) {
        self.readers_opened.inc();
    }

    /// Counts records that a reader returned.
    pub(crate) fn returned(&self, records: &[StoredRecord]) {
        if let Some(first) = records.first() {
            self.with(first.partition, |of| of.records_read.inc_by(records.len() as u64));
        }
    }

    /// Sets the position of the oldest reader: it has handled everything below `next`.
    pub(crate) fn handled(&self, partition: Partition, next: Offset) {
        let labels = [self.topic.as_str(), &partition.to_string()];
        self.with(partition, |of| {
            let lag = of.lag.get_or_insert_with(|| ReaderLag {
                handled: self.all.read_to.with_label_values(&labels),
                lag: self.all.lag.with_label_values(&labels),
            });
            lag.handled.set(number(next));
            let end = of.end.get().max(number(next));
            of.end.set(end);
            lag.lag.set(end - number(next));
        });
    }

    /// Sets the end of a partition: its first unwritten offset.
    pub(crate) fn ends(&self, partition: Partition, end: Offset) {
        self.with(partition, |of| of.ends_at(end));
    }

    /// Counts a reader that failed, or was not opened.
    pub(crate) fn read_failed(&self, error: &ReadError) {
        let kind = match error {
            ReadError::Expired { .. } => "expired",
            ReadError::Truncated { .. } => "truncated",
            ReadError::Recreated { .. } => "recreated",
            ReadError::NoPartition { .. } => "no_partition",
            ReadError::Unavailable { .. } => "unavailable",
            ReadError::Corrupt { .. } => "corrupt",
        };
        self.all.read_failures.with_label_values(&[self.topic.as_str(), kind]).inc();
    }

    /// Counts a failed connection to a broker.
    pub(crate) fn connection_failed(&self) {
        self.connection_failures.inc();
    }

    /// Counts a refused position.
    pub(crate) fn commit_failed(&self) {
        self.commit_failures.inc();
    }

    fn with(&self, partition: Partition, count: impl FnOnce(&mut PartitionCounts)) {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        count(partitions.entry(partition).or_insert_with(|| {
            let labels = [self.topic.as_str(), &partition.to_string()];
            PartitionCounts {
                records: self.all.records.with_label_values(&labels),
                bytes: self.all.bytes.with_label_values(&labels),
                records_read: self.all.records_read.with_label_values(&labels),
                end: self.all.ends.with_label_values(&labels),
                lag: None,
            }
        }));
    }
}

impl PartitionCounts {
    fn ends_at(&self, end: Offset) {
        self.end.set(number(end));
        if let Some(ReaderLag { handled, lag }) = &self.lag {
            lag.set((number(end) - handled.get()).max(0));
        }
    }
}

fn number(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_what_the_oldest_reader_has_not_handled() {
        let registry = Registry::new();
        let metrics = KafkaMetrics::new(&registry).expect("new names");
        let counts = metrics.of("t");
        counts.ends(Partition(1), Offset(10));
        let lag = |of| metrics.lag.with_label_values(&["t", of]).get();
        counts.handled(Partition(1), Offset(4));
        assert_eq!(lag("1"), 6);
        counts.ends(Partition(1), Offset(12));
        assert_eq!(lag("1"), 8);
        counts.handled(Partition(1), Offset(15));
        assert_eq!(lag("1"), 0, "it has read past the end that was known");
        let families = registry.gather();
        let lags = families.iter().find(|family| family.name() == "headwater_kafka_lag_offsets");
        assert_eq!(lags.map(|family| family.get_metric().len()), Some(1));
    }
}
