//! MetaSync: the difference of two pod status snapshots, as reports.
//!
//! An edge reports the full statuses of changed pods, then removed pods, then closes the snapshot
//! with the hash of the whole. The base of the difference is the snapshot that the cloud has after
//! every report of the outbox: the last one that was acknowledged, or whose reports are durable in
//! the outbox, whichever is later. (With an older base, a pod whose status changed back would be
//! left out, and its queued report would remain.)

use headwater_event::report::SnapshotClosed;
use headwater_event::{ReportId, ResourceKey};

use super::snapshot::PodStatusSnapshot;

/// The difference of two snapshots, in the order of its reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Pods whose full status is to be reported.
    pub changed: Vec<ResourceKey>,
    /// Removed pods, each with its UID.
    pub removed: Vec<(ResourceKey, String)>,
}

impl Difference {
    /// Whether there is nothing to report: a heartbeat is enough.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// The difference of `current` from `base`.
pub fn diff(base: &PodStatusSnapshot, current: &PodStatusSnapshot) -> Difference {
    if base.hash() == current.hash() {
        return Difference::default();
    }
    let changed = current.pods().filter(|(pod, digest)| base.get(pod) != Some(digest));
    let removed = base.pods().filter(|(pod, _)| current.get(pod).is_none());
    Difference {
        changed: changed.map(|(pod, _)| pod.clone()).collect(),
        removed: removed.map(|(pod, digest)| (pod.clone(), digest.uid.clone())).collect(),
    }
}

/// All pods: the content of a full snapshot. Its closing removes every other pod.
pub fn full(current: &PodStatusSnapshot) -> Difference {
    Difference {
        changed: current.pods().map(|(pod, _)| pod.clone()).collect(),
        removed: Vec::new(),
    }
}

/// The report that closes `current`.
///
/// `full_since` is the first report of the last full snapshot that is not acknowledged. A later
/// closing replaces the full snapshot's closing in the outbox, so it must carry the same.
pub fn close(current: &PodStatusSnapshot, full_since: Option<ReportId>) -> SnapshotClosed {
    SnapshotClosed {
        hash: current.hash(),
        pods: current.len() as u64,
        full: full_since.is_some(),
        first: full_since.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
