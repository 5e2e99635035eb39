//! The metrics of the embedded logs of a process. A log binds its handles once, when it is opened.

use headwater_event::{Offset, Partition};
use headwater_log::{AppendError, StoredRecord};
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    exponential_buckets, register_histogram_vec_with_registry,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
};

use crate::compaction_run::CompactionRun;
use crate::layout::LogTopic;

const TOPIC: [&str; 1] = ["topic"];
const PARTITION: [&str; 2] = ["topic", "partition"];

/// The metrics of the embedded logs of a process; one per registry.
pub struct LogMetrics {
    appends: IntCounterVec,
    records: IntCounterVec,
    bytes: IntCounterVec,
    ends: IntGaugeVec,
    failures: IntCounterVec,
    group_appends: HistogramVec,
    sync_seconds: HistogramVec,
    tail_bytes: IntGaugeVec,
    compaction_runs: IntCounterVec,
    compaction_failures: IntCounterVec,
    compaction_met: IntCounterVec,
    compaction_dropped: IntCounterVec,
}

/// The handles of one log.
#[derive(Debug)]
pub(crate) struct Counts {
    appends: IntCounter,
    /// By the number of the partition.
    partitions: Vec<PartitionCounts>,
    rejected: IntCounter,
    fatal: IntCounter,
    group_appends: Histogram,
    sync_seconds: Histogram,
    tail_bytes: IntGauge,
    compaction_runs: IntCounter,
    compaction_failures: IntCounter,
    compaction_met: IntCounter,
    compaction_dropped: IntCounter,
}

#[derive(Debug)]
struct PartitionCounts {
    records: IntCounter,
    bytes: IntCounter,
    end: IntGauge,
}

impl LogMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register_int_gauge_vec_with_registry!(name, help, labels, registry)
        };
        let histograms = |name: &str, help: &str, buckets: Vec<f64>| {
            register_histogram_vec_with_registry!(name, help, &TOPIC, buckets, registry)
        };
        Ok(Self {
            appends: counters(
                "headwater_log_appends_total",
                "Appends that are durable, each of one record or many.",
                &TOPIC,
            )?,
            records: counters(
                "headwater_log_records_appended_total",
                "Records that are durable.",
                &PARTITION,
            )?,
            bytes: counters(
                "headwater_log_appended_bytes_total",
                "Bytes of keys, values and headers of durable records.",
                &PARTITION,
            )?,
            ends: gauges("headwater_log_end_offset", "The first unwritten offset.", &PARTITION)?,
            failures: counters(
                "headwater_log_append_failures_total",
                "Appends that failed: rejected, certainly not written; \
                 fatal, the log accepts none until it is opened again.",
                &["topic", "kind"],
            )?,
            group_appends: histograms(
                "headwater_log_group_appends",
                "Appends that shared a synced write.",
                exponential_buckets(1.0, 2.0, 11)?,
            )?,
            sync_seconds: histograms(
                "headwater_log_sync_duration_seconds",
                "Duration of a synced write.",
                exponential_buckets(0.000_1, 2.5, 15)?,
            )?,
            tail_bytes: gauges(
                "headwater_log_tail_bytes",
                "Memory of the newest records, which readers get without the disk.",
                &TOPIC,
            )?,
            compaction_runs: counters(
                "headwater_log_compaction_runs_total",
                "Runs of compaction, each over a bounded number of records.",
                &TOPIC,
            )?,
            compaction_failures: counters(
                "headwater_log_compaction_failures_total",
                "Runs of compaction that failed in the database.",
                &TOPIC,
            )?,
            compaction_met: counters(
                "headwater_log_compaction_met_records_total",
                "Records and tombstones that compaction examined.",
                &TOPIC,
            )?,
            compaction_dropped: counters(
                "headwater_log_compaction_dropped_records_total",
                "Records that compaction dropped.",
                &TOPIC,
            )?,
        })
    }

    /// The handles of the log `topic` with this number of partitions.
    pub(crate) fn of(&self, topic: LogTopic, partitions: u32) -> Counts {
        let topic = topic.name();
        let of_partition = |partition: u32| {
            let labels = [topic, &partition.to_string()];
            PartitionCounts {
                records: self.records.with_label_values(&labels),
                bytes: self.bytes.with_label_values(&labels),
                end: self.ends.with_label_values(&labels),
            }
        };
        Counts {
            appends: self.appends.with_label_values(&[topic]),
            partitions: (0..partitions).map(of_partition).collect(),
            rejected: self.failures.with_label_values(&[topic, "rejected"]),
            fatal: self.failures.with_label_values(&[topic, "fatal"]),
            group_appends: self.group_appends.with_label_values(&[topic]),
            sync_seconds: self.sync_seconds.with_label_values(&[topic]),
            tail_bytes: self.tail_bytes.with_label_values(&[topic]),
            compaction_runs: self.compaction_runs.with_label_values(&[topic]),
            compaction_failures: self.compaction_failures.with_label_values(&[topic]),
            compaction_met: self.compaction_met.with_label_values(&[topic]),
            compaction_dropped: self.compaction_dropped.with_label_values(&[topic]),
        }
    }
}

impl Counts {
    /// Counts a synced write that took `seconds` and made `appends` with `records` durable.
    pub(crate) fn synced(&self, seconds: f64, appends: usize, records: &[StoredRecord]) {
        self.appends.inc_by(appends as u64);
        self.group_appends.observe(number(appends));
        self.sync_seconds.observe(seconds);
        for recorded in records {
            let Some(of) = self.partitions.get(recorded.partition.0 as usize) else { continue };
            of.records.inc();
            of.bytes.inc_by(recorded.record.bytes() as u64);
            of.ends_at(recorded.offset.next());
        }
    }

    /// Sets the end of a partition: its first unwritten offset.
    pub(crate) fn ends_at(&self, partition: Partition, offset: Offset) {
        if let Some(of) = self.partitions.get(partition.0 as usize) {
            of.ends_at(offset);
        }
    }

    /// Counts failed appends.
    pub(crate) fn failed(&self, error: &AppendError, appends: usize) {
        let counter = match error {
            AppendError::Rejected { .. } | AppendError::NoPartition { .. } => &self.rejected,
            AppendError::Unknown { .. } | AppendError::Fatal { .. } => &self.fatal,
        };
        counter.inc_by(appends as u64);
    }

    /// Sets the memory of the newest records.
    pub(crate) fn tail(&self, bytes: usize) {
        self.tail_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a run of compaction.
    pub(crate) fn compacted<E>(&self, run: &Result<CompactionRun, E>) {
        self.compaction_runs.inc();
        match run {
            Ok(done) => {
                self.compaction_met.inc_by(done.examined as u64);
                self.compaction_dropped.inc_by(done.dropped as u64);
            }
            Err(_) => self.compaction_failures.inc(),
        }
    }
}

impl PartitionCounts {
    fn ends_at(&self, offset: Offset) {
        self.end.set(i64::try_from(offset.0).unwrap_or(i64::MAX));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a group has a thousand appends at most")]
fn number(appends: usize) -> f64 {
    appends as f64
}
