//! The metrics of the publisher: sources, appends, the writer.

use std::time::Duration;

use headwater_event::{Event, WriterEpoch};
use headwater_log::WriterError;
use prometheus::{
    Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
};

use super::{Families, level, number};
use crate::source::{NoticeKind, SourceError, SourceKind};

/// What the publisher counts.
#[derive(Clone)]
pub(crate) struct PublisherMetrics {
    /// Applied, removed, head.
    events: [IntCounter; 3],
    append_events: Histogram,
    append_bytes: Histogram,
    append_seconds: Histogram,
    /// Too large, rejected, dead.
    append_failures: [IntCounter; 3],
    claims: IntCounter,
    epoch: IntGauge,
    reconciled: IntGauge,
    partitions_away: IntGauge,
    left_out_objects: IntGauge,
    failures: [IntCounter; FailureKind::ALL.len()],
    changes: IntCounterVec,
    follows: IntGaugeVec,
    listed: IntCounter,
    notices: [IntCounter; NoticeKind::ALL.len()],
    manifest_troubles: IntGaugeVec,
    /// Rare: at most one in a run of a controller.
    source_failures: IntCounterVec,
    snapshot_requests: IntCounter,
}

/// What a source does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// It came or changed.
    Applied,
    /// It is gone.
    Removed,
}

/// Why publishing stopped and began again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    LogMetadata,
    Claim,
    Engine,
    Fenced,
    Follow,
    Partition,
    Sources,
    Write,
}

impl ChangeKind {
    const ALL: [Self; 2] = [Self::Applied, Self::Removed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Removed => "removed",
        }
    }
}

impl FailureKind {
    const ALL: [Self; 8] = [
        Self::LogMetadata,
        Self::Claim,
        Self::Engine,
        Self::Fenced,
        Self::Follow,
        Self::Partition,
        Self::Sources,
        Self::Write,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::LogMetadata => "metadata",
            Self::Claim => "claim",
            Self::Engine => "engine",
            Self::Fenced => "fenced",
            Self::Follow => "follow",
            Self::Partition => "partition",
            Self::Sources => "sources",
            Self::Write => "write",
        }
    }
}

impl PublisherMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        let changes = register_int_counter_vec_with_registry!(
            "headwater_controller_source_changes_total",
            "Changes that sources sent after their first list.",
            &["source", "kind"],
            families.registry
        )?;
        for source in [SourceKind::MANIFESTS, SourceKind::OBJECTS, SourceKind::OTHER] {
            for kind in ChangeKind::ALL {
                changes.with_label_values(&[source.name(), kind.name()]);
            }
        }
        let manifest_troubles = register_int_gauge_vec_with_registry!(
            "headwater_controller_manifest_troubles",
            "What is wrong with manifests now, by the reason: the notices that hold until a repair.",
            &["reason"],
            families.registry
        )?;
        for kind in NoticeKind::TROUBLES {
            manifest_troubles.with_label_values(&[kind.name()]);
        }
        Ok(Self {
            manifest_troubles,
            events: families.counters(
                "headwater_controller_events_appended_total",
                "Events that the log has durably, by what they do to their entry.",
                "kind",
                ["applied", "removed", "head"],
            )?,
            append_events: families.histogram(
                "headwater_controller_append_events",
                "Events of one append.",
                (1.0, 2.0, 11),
            )?,
            append_bytes: families.histogram(
                "headwater_controller_append_bytes",
                "Bytes of the objects of one append, as they are before compression.",
                (256.0, 4.0, 9),
            )?,
            append_seconds: families.histogram(
                "headwater_controller_append_duration_seconds",
                "Time of an append until the log had it durably.",
                (0.000_5, 2.0, 17),
            )?,
            append_failures: families.counters(
                "headwater_controller_append_failures_total",
                "Appends that failed: too_large, one event is left out; rejected, certainly not \
                 written; dead, the outcome is unknown or another claimed the log.",
                "kind",
                ["too_large", "rejected", "dead"],
            )?,
            claims: families
                .counter("headwater_controller_claims_total", "Claims of the log that were won.")?,
            epoch: families.gauge(
                "headwater_controller_writer_epoch",
                "The epoch of the writer; 0 while there is none.",
            )?,
            reconciled: families.gauge(
                "headwater_controller_reconciled",
                "Whether everything that sources list is in the log (1) or not (0).",
            )?,
            partitions_away: families.gauge(
                "headwater_controller_partitions_away",
                "Partitions of the log that take no appends at present. The changes of their streams \
                 wait; the others go on.",
            )?,
            left_out_objects: families.gauge(
                "headwater_controller_left_out_objects",
                "Objects that are too large for the log, which keeps an older version or none.",
            )?,
            failures: families.counters(
                "headwater_controller_setbacks_total",
                "Times that publishing stopped and began again, by the reason.",
                "kind",
                FailureKind::ALL.map(FailureKind::name),
            )?,
            changes,
            follows: register_int_gauge_vec_with_registry!(
                "headwater_controller_source_following",
                "Whether a source, or a part of one, has listed and sends changes (1) or not (0).",
                &["source", "part"],
                families.registry
            )?,
            listed: families.counter(
                "headwater_controller_source_listed_objects_total",
                "Objects that sources listed.",
            )?,
            notices: families.counters(
                "headwater_controller_source_notices_total",
                "Messages of sources to a person, by what they are about.",
                "kind",
                NoticeKind::ALL.map(NoticeKind::name),
            )?,
            source_failures: register_int_counter_vec_with_registry!(
                "headwater_controller_source_failures_total",
                "Failures of sources that stopped, for good or until a retry, by the reason.",
                &["kind"],
                families.registry
            )?,
            snapshot_requests: families.counter(
                "headwater_controller_snapshot_requests_total",
                "Requests to a node for its whole pod status snapshot.",
            )?,
        })
    }

    /// Counts an append that succeeded: its events, and the bytes of their objects.
    pub(crate) fn appended<'a>(
        &self,
        events: impl ExactSizeIterator<Item = &'a Event>,
        bytes: usize,
        took: Duration,
    ) {
        if events.len() == 0 {
            return;
        }
        self.append_events.observe(number(events.len()));
        self.append_bytes.observe(number(bytes));
        self.append_seconds.observe(took.as_secs_f64());
        let [applied, removed, heads] = &self.events;
        for event in events {
            match event {
                Event::Applied(_) => applied.inc(),
                Event::Removed(_) => removed.inc(),
                Event::Head => heads.inc(),
            }
        }
    }

    /// Counts a failure that suspends one partition.
    pub(crate) fn append_suspended(&self) {
        let [.., dead] = &self.append_failures;
        dead.inc();
    }

    pub(crate) fn append_failed(&self, error: &WriterError) {
        let [too_large, rejected, dead] = &self.append_failures;
        match error {
            WriterError::TooLarge { .. } => too_large.inc(),
            WriterError::Rejected { .. } => rejected.inc(),
            WriterError::Suspended { .. } => self.append_suspended(),
            WriterError::Dead { .. } => dead.inc(),
        }
    }

    pub(crate) fn claimed(&self, epoch: WriterEpoch) {
        self.claims.inc();
        self.epoch.set(level(epoch.0));
    }

    pub(crate) fn reconciled(&self) {
        self.reconciled.set(1);
    }

    pub(crate) fn away(&self, partitions: usize) {
        self.partitions_away.set(level(partitions));
    }

    pub(crate) fn left_out(&self, objects: usize) {
        self.left_out_objects.set(level(objects));
    }

    /// Counts a stop of publishing: there is no writer now.
    pub(crate) fn lost(&self, why: FailureKind) {
        self.partitions_away.set(0);
        self.left_out_objects.set(0);
        self.epoch.set(0);
        self.reconciled.set(0);
        self.failures[why as usize].inc();
    }

    pub(crate) fn changed(&self, source: SourceKind, kind: ChangeKind) {
        self.changes.with_label_values(&[source.name(), kind.name()]).inc();
    }

    pub(crate) fn source_follows(&self, source: SourceKind, part: &str, follows: bool) {
        self.follows.with_label_values(&[source.name(), part]).set(i64::from(follows));
    }

    pub(crate) fn listed(&self) {
        self.listed.inc();
    }

    pub(crate) fn noticed(&self, kind: NoticeKind) {
        self.notices[kind as usize].inc();
    }

    pub(crate) fn manifest_troubles(&self, kind: NoticeKind, count: usize) {
        self.manifest_troubles.with_label_values(&[kind.name()]).set(level(count));
    }

    pub(crate) fn source_failed(&self, error: &SourceError) {
        self.source_failures.with_label_values(&[error.reason()]).inc();
    }

    pub(crate) fn snapshot_requested(&self) {
        self.snapshot_requests.inc();
    }
}
