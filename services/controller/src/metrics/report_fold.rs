//! The metrics of the fold of reports.

use headwater_event::{Cursor, Offset, ReportKind};
use prometheus::{IntCounter, IntGauge, IntGaugeVec};

use super::{Families, level};

/// What the fold of reports counts.
#[derive(Clone)]
pub(crate) struct ReportFoldMetrics {
    reports: [IntCounter; ReportKind::ALL.len()],
    positions: IntCounter,
    registrations: IntCounter,
    voids: IntCounter,
    metadata: IntCounter,
    unreadable: IntCounter,
    stale: IntCounter,
    repaired: IntCounter,
    terminations_removed: IntCounter,
    events_removed: IntCounter,
    nodes_forgotten: IntCounter,
    /// Reading, storing.
    failures: [IntCounter; 2],
    statuses: IntGauge,
    lag: IntGaugeVec,
}

/// What a record of the upstream log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Report(ReportKind),
    Position,
    /// A registration of a Node.
    Registration,
    /// A tombstone.
    Void,
    /// The metadata of the log.
    Metadata,
    /// It cannot be read.
    Unreadable,
}

impl ReportFoldMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        let records = families.counter_vec(
            "headwater_controller_upstream_records_total",
            "Records of the upstream log that were folded, by kind.",
            "kind",
        )?;
        Ok(Self {
            reports: ReportKind::ALL.map(|kind| records.with_label_values(&[kind.name()])),
            positions: records.with_label_values(&["position"]),
            registrations: records.with_label_values(&["registration"]),
            voids: records.with_label_values(&["void"]),
            metadata: records.with_label_values(&["metadata"]),
            unreadable: records.with_label_values(&["unreadable"]),
            stale: families.counter(
                "headwater_controller_stale_reports_total",
                "Reports ignored because a later one of their key had counted.",
            )?,
            repaired: families.counter(
                "headwater_controller_repaired_reports_total",
                "Reports appended once more because an older one of their key followed them.",
            )?,
            terminations_removed: families.counter(
                "headwater_controller_removed_terminations_total",
                "Terminations removed from the upstream log because their pods are gone.",
            )?,
            events_removed: families.counter(
                "headwater_controller_removed_events_total",
                "Events removed from the upstream log: the API has them, or they are old.",
            )?,
            nodes_forgotten: families.counter(
                "headwater_controller_forgotten_nodes_total",
                "Nodes without a stream that left the picture because they were gone for long.",
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
            lag: families.gauge_vec(
                "headwater_controller_upstream_lag_records",
                "Records between the fold and the end of the upstream log, at the last read.",
                "partition",
            )?,
        })
    }

    pub(crate) fn folded(&self, kind: RecordKind) {
        match kind {
            RecordKind::Report(kind) => self.reports[kind as usize].inc(),
            RecordKind::Position => self.positions.inc(),
            RecordKind::Registration => self.registrations.inc(),
            RecordKind::Void => self.voids.inc(),
            RecordKind::Metadata => self.metadata.inc(),
            RecordKind::Unreadable => self.unreadable.inc(),
        }
    }

    pub(crate) fn ignored_stale(&self) {
        self.stale.inc();
    }

    /// Counts reports that were appended once more.
    pub(crate) fn repaired(&self, count: usize) {
        self.repaired.inc_by(count as u64);
    }

    /// Counts terminations that were removed from the log.
    pub(crate) fn forgot_nodes(&self, nodes: usize) {
        self.nodes_forgotten.inc_by(nodes as u64);
    }

    /// Counts Events that were removed from the log.
    pub(crate) fn removed_events(&self, count: usize) {
        self.events_removed.inc_by(count as u64);
    }

    pub(crate) fn removed_terminations(&self, count: usize) {
        self.terminations_removed.inc_by(count as u64);
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
