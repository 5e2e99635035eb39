//! MetaSync: what turns one pod status snapshot into the next, as reports.
//!
//! An edge tells the cloud full statuses of changed pods, then removed pods, then closes with
//! the hash of the whole. What it compares with is the snapshot that the cloud has once it has
//! every report of the outbox: the last one that was acknowledged, or whose reports are durably
//! queued, whichever is later. (Compared with an older one, a pod whose status went back to
//! what it was would be left out, and its queued report would stand.)

use headwater_event::report::SnapshotClosed;
use headwater_event::{ReportId, ResourceKey};

use crate::pod_status_snapshot::PodStatusSnapshot;

/// What differs between two snapshots, in the order in which it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Pods whose status is to be told, whole.
    pub changed: Vec<ResourceKey>,
    /// Pods that left, with the UID they had.
    pub removed: Vec<(ResourceKey, String)>,
}

impl Difference {
    /// Whether there is nothing to tell, so that a heartbeat is enough.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// What turns `told` into `current`.
pub fn diff(told: &PodStatusSnapshot, current: &PodStatusSnapshot) -> Difference {
    if told.hash() == current.hash() {
        return Difference::default();
    }
    let changed = current.pods().filter(|(pod, digest)| told.get(pod) != Some(digest));
    let removed = told.pods().filter(|(pod, _)| current.get(pod).is_none());
    Difference {
        changed: changed.map(|(pod, _)| pod.clone()).collect(),
        removed: removed.map(|(pod, digest)| (pod.clone(), digest.uid.clone())).collect(),
    }
}

/// Everything: what a full snapshot tells. What it does not name is gone by its closing.
pub fn full(current: &PodStatusSnapshot) -> Difference {
    Difference {
        changed: current.pods().map(|(pod, _)| pod.clone()).collect(),
        removed: Vec::new(),
    }
}

/// The report that closes `current`.
///
/// `full_since` is the first report of the last full snapshot, until that is acknowledged: a
/// later closing replaces the full one's in the outbox, and must then say the same for it.
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
