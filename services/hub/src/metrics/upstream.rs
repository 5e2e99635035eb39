//! Appends of reports and positions to the upstream log.

use std::time::Duration;

use headwater_event::ReportKind;
use headwater_log::AppendError;
use prometheus::{Histogram, IntCounter};

use super::Families;

/// The metrics of the upstream appender.
#[derive(Clone)]
pub(crate) struct UpstreamMetrics {
    reports: [IntCounter; ReportKind::ALL.len()],
    positions: IntCounter,
    batch_records: Histogram,
    append_seconds: Histogram,
    /// Rejected, no partition, unknown, fatal.
    failures: [IntCounter; 4],
    refused: IntCounter,
}

/// The kind of a record in the upstream log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Report(ReportKind),
    /// The position of a node; the hub's own record.
    Position,
}

impl UpstreamMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        let records = families.counter_vec(
            "headwater_hub_reports_appended_total",
            "Reports that the log has durably, and the hub's own position records.",
            "kind",
        )?;
        Ok(Self {
            reports: ReportKind::ALL.map(|kind| records.with_label_values(&[kind.name()])),
            positions: records.with_label_values(&["position"]),
            batch_records: families.histogram(
                "headwater_hub_report_batch_records",
                "Records of one append, of many edges.",
                (1.0, 2.0, 12),
            )?,
            append_seconds: families.histogram(
                "headwater_hub_report_append_duration_seconds",
                "Time of an append until the log had it durably.",
                (0.000_5, 2.0, 17),
            )?,
            failures: families.counters(
                "headwater_hub_report_append_failures_total",
                "Appends that failed; the hub retries all but rejected ones.",
                "kind",
                ["rejected", "no_partition", "unknown", "fatal"],
            )?,
            refused: families.counter(
                "headwater_hub_reports_refused_total",
                "Reports that the log never takes; the hub refused each to its edge by name.",
            )?,
        })
    }

    /// Counts a durable record.
    pub(crate) fn appended(&self, kind: RecordKind) {
        match kind {
            RecordKind::Report(kind) => self.reports[kind as usize].inc(),
            RecordKind::Position => self.positions.inc(),
        }
    }

    /// Counts an append.
    #[expect(clippy::cast_precision_loss, reason = "a batch has thousands at most")]
    pub(crate) fn batch(&self, records: usize, took: Duration) {
        self.batch_records.observe(records as f64);
        self.append_seconds.observe(took.as_secs_f64());
    }

    /// Counts a failed append.
    pub(crate) fn failed(&self, error: &AppendError) {
        let [rejected, no_partition, unknown, fatal] = &self.failures;
        match error {
            AppendError::Rejected { .. } => rejected.inc(),
            AppendError::NoPartition { .. } => no_partition.inc(),
            AppendError::Unknown { .. } => unknown.inc(),
            AppendError::Fatal { .. } => fatal.inc(),
        }
    }

    /// Counts reports that the log never takes.
    pub(crate) fn refused(&self, reports: usize) {
        self.refused.inc_by(reports as u64);
    }
}
