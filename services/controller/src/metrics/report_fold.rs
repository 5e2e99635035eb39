//! The metrics of the fold of reports.

use headwater_event::{Cursor, Offset, ReportBody};
use prometheus::{IntCounter, IntGauge, IntGaugeVec, register_int_gauge_vec_with_registry};

use super::{Families, level};

/// What the fold of reports counts.
#[derive(Clone)]
pub(crate) struct ReportFoldMetrics {
    records: [IntCounter; RecordKind::ALL.len()],
    stale: IntCounter,
    repaired: IntCounter,
    /// Reading, storing.
    failures: [IntCounter; 2],
    statuses: IntGauge,
    lag: IntGaugeVec,
}

/// What a record of the upstream log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    PodStatus,
    PodStatusRemoved,
    SnapshotClosed,
    Node,
    PodTerminated,
    Message,
    Position,
    /// A tombstone.
    Void,
    /// It cannot be read.
    Unreadable,
}

impl RecordKind {
    const ALL: [Self; 9] = [
        Self::PodStatus,
        Self::PodStatusRemoved,
        Self::SnapshotClosed,
        Self::Node,
        Self::PodTerminated,
        Self::Message,
        Self::Position,
        Self::Void,
        Self::Unreadable,
    ];

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

    /// Whether the picture keeps the id of the newest report of such a key.
    pub(crate) fn is_ordered(self) -> bool {
        use RecordKind::{Node, PodStatus, PodStatusRemoved, SnapshotClosed};
        matches!(self, PodStatus | PodStatusRemoved | SnapshotClosed | Node)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PodStatus => "pod_status",
            Self::PodStatusRemoved => "pod_status_removed",
            Self::SnapshotClosed => "snapshot_closed",
            Self::Node => "node",
            Self::PodTerminated => "pod_terminated",
            Self::Message => "message",
            Self::Position => "position",
            Self::Void => "void",
            Self::Unreadable => "unreadable",
        }
    }
}

impl ReportFoldMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            records: families.counters(
                "headwater_controller_upstream_records_total",
                "Records of the upstream log that were folded, by kind.",
                "kind",
                RecordKind::ALL.map(RecordKind::name),
            )?,
            stale: families.counter(
                "headwater_controller_stale_reports_total",
                "Reports ignored because a later one of their key had counted.",
            )?,
            repaired: families.counter(
                "headwater_controller_repaired_reports_total",
                "Reports appended once more because an older one of their key followed them.",
            )?,
            failures: families.counters(
                "headwater_controller_upstream_setbacks_total",
                "Times that the fold of the upstream log stopped and began again.",
                "kind",
                ["read", "engine"],
            )?,
            statuses: families.gauge(
                "headwater_controller_picture_pod_statuses",
                "Pods whose status is in the picture.",
            )?,
            lag: register_int_gauge_vec_with_registry!(
                "headwater_controller_upstream_lag_records",
                "Records between the fold and the end of the upstream log, at the last read.",
                &["partition"],
                families.registry
            )?,
        })
    }

    pub(crate) fn folded(&self, kind: RecordKind) {
        self.records[kind as usize].inc();
    }

    pub(crate) fn ignored_stale(&self) {
        self.stale.inc();
    }

    /// Counts reports that were appended once more.
    pub(crate) fn repaired(&self, count: usize) {
        self.repaired.inc_by(count as u64);
    }

    pub(crate) fn cannot_read(&self) {
        self.failures[0].inc();
    }

    pub(crate) fn cannot_store(&self) {
        self.failures[1].inc();
    }

    /// Sets the number of pods with a status.
    pub(crate) fn statuses(&self, count: usize) {
        self.statuses.set(level(count));
    }

    /// Adjusts the number of pods with a status by one node's.
    pub(crate) fn statuses_moved(&self, before: usize, after: usize) {
        self.statuses.add(level(after) - level(before));
    }

    /// Sets the lag of a partition that is folded up to `cursor` and ends at `high`.
    pub(crate) fn read_to(&self, cursor: &Cursor, high: Offset) {
        let behind = high.0.saturating_sub(cursor.next.0);
        self.lag.with_label_values(&[&cursor.partition.to_string()]).set(level(behind));
    }
}
