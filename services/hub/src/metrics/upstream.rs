//! Appends of reports and positions to the upstream log.

use std::time::Duration;

use headwater_event::ReportBody;
use headwater_log::AppendError;
use prometheus::{Histogram, IntCounter};

use super::Families;

/// The metrics of the upstream appender.
#[derive(Clone)]
pub(crate) struct UpstreamMetrics {
    records: [IntCounter; RecordKind::ALL.len()],
    batch_records: Histogram,
    append_seconds: Histogram,
    /// Rejected, unknown, fatal.
    failures: [IntCounter; 3],
    positions_left_out: IntCounter,
}

/// The kind of a record in the upstream log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    PodStatus,
    PodStatusRemoved,
    SnapshotClosed,
    Node,
    PodTerminated,
    Message,
    /// The position of a node; the hub's own record.
    Position,
}

impl RecordKind {
    const ALL: [Self; 7] = [
        Self::PodStatus,
        Self::PodStatusRemoved,
        Self::SnapshotClosed,
        Self::Node,
        Self::PodTerminated,
        Self::Message,
        Self::Position,
    ];

    /// The kind of a report.
    pub(crate) fn of(body: &ReportBody) -> Self {
        match body {
            ReportBody::PodStatus { .. } => Self::PodStatus,
            ReportBody::PodStatusRemoved { .. } => Self::PodStatusRemoved,
            ReportBody::SnapshotClosed(_) => Self::SnapshotClosed,
            ReportBody::Node { .. } => Self::Node,
            ReportBody::PodTerminated { .. } => Self::PodTerminated,
            ReportBody::Message { .. } => Self::Message,
        }
    }

    /// Its name in metrics and spans.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PodStatus => "pod_status",
            Self::PodStatusRemoved => "pod_status_removed",
            Self::SnapshotClosed => "snapshot_closed",
            Self::Node => "node",
            Self::PodTerminated => "pod_terminated",
            Self::Message => "message",
            Self::Position => "position",
        }
    }
}

impl UpstreamMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            records: families.counters(
                "headwater_hub_reports_appended_total",
                "Reports that the log has durably, and the hub's own position records.",
                "kind",
                RecordKind::ALL.map(RecordKind::name),
            )?,
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
                ["rejected", "unknown", "fatal"],
            )?,
            positions_left_out: families.counter(
                "headwater_hub_positions_left_out_total",
                "Position records that were left out because the queue was full.",
            )?,
        })
    }

    /// Counts a durable record.
    pub(crate) fn appended(&self, kind: RecordKind) {
        self.records[kind as usize].inc();
    }

    /// Counts an append.
    #[expect(clippy::cast_precision_loss, reason = "a batch has thousands at most")]
    pub(crate) fn batch(&self, records: usize, took: Duration) {
        self.batch_records.observe(records as f64);
        self.append_seconds.observe(took.as_secs_f64());
    }

    /// Counts a failed append.
    pub(crate) fn failed(&self, error: &AppendError) {
        let [rejected, unknown, fatal] = &self.failures;
        match error {
            AppendError::Rejected { .. } => rejected.inc(),
            AppendError::Unknown { .. } => unknown.inc(),
            AppendError::Fatal { .. } => fatal.inc(),
        }
    }

    /// Counts a position that was left out.
    pub(crate) fn position_left_out(&self) {
        self.positions_left_out.inc();
    }
}
