//! How far the downstream log is folded.

use headwater_event::{Cursor, Offset};
use headwater_follow::FollowError;
use headwater_log::Outcome;
use prometheus::{IntCounter, IntGauge, IntGaugeVec};

use super::{Families, level};

/// What the task that follows the downstream log counts.
#[derive(Clone)]
pub(crate) struct FoldMetrics {
    offset: IntGaugeVec,
    lag: IntGaugeVec,
    events: IntCounter,
    /// Fenced, holes, malformed.
    passed_over: [IntCounter; 3],
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
                "How far the fold was behind the end of the downstream log when it last read.",
                "partition",
            )?,
            events: families
                .counter("headwater_hub_events_folded_total", "Events that were folded.")?,
            passed_over: families.counters(
                "headwater_hub_records_passed_over_total",
                "Records of the downstream log that do not count: fenced, of a former writer; \
                 hole, events before it are missing; malformed, it cannot be read.",
                "kind",
                ["fenced", "hole", "malformed"],
            )?,
            reconciled: families.gauge(
                "headwater_hub_reconciled",
                "Whether the fold is complete, so that snapshots are served (1), or not (0).",
            )?,
            setbacks: families.counters(
                "headwater_hub_setbacks_total",
                "Times that a log could no longer be followed and was opened again; \
                 identities: the upstream log.",
                "kind",
                ["birth", "read", "engine", "differs", "identities"],
            )?,
        })
    }

    /// Everything before `cursor` is folded of a partition that ends at `high`.
    pub(crate) fn read_to(&self, cursor: &Cursor, high: Offset) {
        let partition = cursor.partition.to_string();
        let behind = high.0.saturating_sub(cursor.next.0);
        self.offset.with_label_values(&[&partition]).set(level(cursor.next.0));
        self.lag.with_label_values(&[&partition]).set(level(behind));
    }

    /// This became of a record.
    pub(crate) fn folded(&self, outcome: &Outcome) {
        let [fenced, holes, malformed] = &self.passed_over;
        match outcome {
            Outcome::Accepted(_) => self.events.inc(),
            Outcome::Fenced(_) => fenced.inc(),
            Outcome::Hole(_) => holes.inc(),
            Outcome::Malformed(_) => malformed.inc(),
            _ => {}
        }
    }

    pub(crate) fn reconciled(&self, is_reconciled: bool) {
        self.reconciled.set(i64::from(is_reconciled));
    }

    /// The downstream log could not be followed.
    pub(crate) fn lost(&self, error: &FollowError) {
        self.reconciled(false);
        let [birth, read, engine, differs, _] = &self.setbacks;
        match error {
            // It is not there yet.
            FollowError::EmptyLog => {}
            FollowError::Birth(_) => birth.inc(),
            FollowError::Read(_)
            | FollowError::CompactedAway { .. }
            | FollowError::SeqRegressed { .. } => read.inc(),
            FollowError::Engine(_) => engine.inc(),
            FollowError::Diverged { .. } => differs.inc(),
        }
    }

    /// The upstream log could not be followed.
    pub(crate) fn identities_lost(&self) {
        let [.., identities] = &self.setbacks;
        identities.inc();
    }
}
