//! The progress of the fold.

use headwater_event::{Cursor, Offset};
use headwater_follow::FollowError;
use headwater_log::Outcome;
use prometheus::{IntCounter, IntGauge, IntGaugeVec};

use super::{Families, level};

/// The metrics of the tasks that follow the logs.
#[derive(Clone)]
pub(crate) struct FoldMetrics {
    offset: IntGaugeVec,
    lag: IntGaugeVec,
    events: IntCounter,
    /// Fenced, holes, malformed.
    ignored: [IntCounter; 3],
    reconciled: IntGauge,
    setbacks: [IntCounter; 5],
}

impl FoldMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            offset: families.gauge_vec(
                "headwater_hub_fold_offset",
                "Every record before this offset of the downstream log is folded.",
                "partition",
            )?,
            lag: families.gauge_vec(
                "headwater_hub_fold_lag_records",
                "Records of the downstream log above the fold, as of its last read.",
                "partition",
            )?,
            events: families
                .counter("headwater_hub_events_folded_total", "Events that were folded.")?,
            ignored: families.counters(
                "headwater_hub_records_passed_over_total",
                "Records of the downstream log that the fold ignores: fenced, of a former \
                 writer; hole, events before it are missing; malformed, it cannot be read.",
                "kind",
                ["fenced", "hole", "malformed"],
            )?,
            reconciled: families.gauge(
                "headwater_hub_reconciled",
                "Whether the fold is complete, so that the hub serves snapshots (1), or not (0).",
            )?,
            setbacks: families.counters(
                "headwater_hub_setbacks_total",
                "Times that the hub could no longer follow a log and opened it again; \
                 identities: the upstream log.",
                "kind",
                ["metadata", "read", "engine", "differs", "identities"],
            )?,
        })
    }

    /// Every record before `cursor` is folded, of a partition that ends at `high`.
    pub(crate) fn read_to(&self, cursor: &Cursor, high: Offset) {
        let partition = cursor.partition.to_string();
        let behind = high.0.saturating_sub(cursor.next.0);
        self.offset.with_label_values(&[&partition]).set(level(cursor.next.0));
        self.lag.with_label_values(&[&partition]).set(level(behind));
    }

    /// Counts the outcome of a record.
    pub(crate) fn folded(&self, outcome: &Outcome) {
        let [fenced, holes, malformed] = &self.ignored;
        match outcome {
            Outcome::Accepted(_) => self.events.inc(),
            Outcome::Fenced(_) => fenced.inc(),
            Outcome::Hole(_) => holes.inc(),
            Outcome::Malformed(_) => malformed.inc(),
            _ => {}
        }
    }

    /// Sets whether the fold is complete.
    pub(crate) fn reconciled(&self, is_reconciled: bool) {
        self.reconciled.set(i64::from(is_reconciled));
    }

    /// Counts a failure to follow the downstream log.
    pub(crate) fn failed(&self, error: &FollowError) {
        let [metadata, read, engine, differs, _] = &self.setbacks;
        match error {
            // The log has no metadata yet.
            FollowError::EmptyLog => {}
            FollowError::Metadata(_) => metadata.inc(),
            FollowError::Read(_)
            | FollowError::CompactedAway { .. }
            | FollowError::Outdated { .. }
            | FollowError::SeqRegressed { .. } => read.inc(),
            FollowError::Engine(_) => engine.inc(),
            FollowError::Diverged { .. } | FollowError::LostObjects { .. } => differs.inc(),
        }
    }

    /// Counts a failure to follow the upstream log.
    pub(crate) fn identities_failed(&self) {
        let [.., identities] = &self.setbacks;
        identities.inc();
    }
}
