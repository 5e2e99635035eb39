//! What becomes of the directory of a claim that the node's view lacks. Pure.
//!
//! A claim is in a node's view as long as a pod of the node names it. A claim that leaves with its
//! pods may exist still, for pods that come back. So it counts as deleted only if the view showed that:
//! the cloud was about to delete it, another claim has its name, or the view lacked it while a pod
//! named it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::container::claim::{ClaimView, ReclaimPolicy};
use crate::disk::claim_record::ClaimRecord;

/// The absence of a claim from a settled view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    /// Since when.
    since: Instant,
    /// A pod of the view has named the claim all the time.
    is_named: bool,
}

/// Whether a directory is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uses {
    /// No pod on the machine uses it.
    None,
    /// Pods on the machine use it. They may have ended.
    ByPods,
}

/// The next step for a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClaimStep {
    /// Nothing.
    Keep,
    /// Write this record.
    Write(ClaimRecord),
    /// Remove the directory.
    Remove,
}

impl Absence {
    /// Observes the view: the absence of this claim; `None` while it is present, or absence has no
    /// meaning.
    pub(super) fn observe(
        absences: &mut BTreeMap<String, Self>,
        uid: &str,
        record: &ClaimRecord,
        view: &ClaimView,
        now: Instant,
    ) -> Option<Self> {
        let is_present = view.claims.get(&record.name).is_some_and(|claim| claim.uid == uid);
        if is_present || !view.is_settled {
            absences.remove(uid);
            return None;
        }
        let new = Self { since: now, is_named: true };
        let absence = absences.entry(uid.to_owned()).or_insert(new);
        absence.is_named &= view.named.contains(&record.name);
        Some(*absence)
    }

    /// Whether it counts: the events of one commit arrive one by one, and a pod that is replaced takes
    /// its claim along for a moment.
    pub(super) fn has_lasted(&self, hold: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= hold
    }
}

/// The step for a directory with this record. `absence` has lasted long enough to count.
pub(super) fn step(
    uid: &str,
    record: &ClaimRecord,
    view: &ClaimView,
    absence: Option<Absence>,
    uses: Uses,
    time: Timestamp,
) -> ClaimStep {
    let of_name = view.claims.get(&record.name);
    let next = match (of_name.filter(|claim| claim.uid == uid), absence) {
        (Some(claim), _) => ClaimRecord::of(claim),
        (None, None) => return ClaimStep::Keep,
        (None, Some(absence)) => {
            let is_superseded = of_name.is_some_and(|claim| !claim.uid.is_empty());
            let is_deleted = record.is_deleted || is_superseded || absence.is_named;
            let left_at = record.left_at.or(Some(time));
            ClaimRecord { is_deleted, left_at, ..record.clone() }
        }
    };
    let is_due = next.left_at.is_some() && next.is_deleted && next.policy == ReclaimPolicy::Delete;
    if is_due && uses == Uses::None {
        ClaimStep::Remove
    } else if next == *record {
        ClaimStep::Keep
    } else {
        ClaimStep::Write(next)
    }
}
