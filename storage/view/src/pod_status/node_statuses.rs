//! The cloud's fold of one node's reports about its pods: pure.
//!
//! A report is accepted for its pod only if its id (incarnation, boot, seq) is greater than the id
//! of the last accepted one. Removals are accepted and remembered too, so that a late status
//! restores nothing. A node sends in the order of its ids. Once a closing agrees, everything below
//! it has arrived, and what arrives later from below is a duplicate: the remembered removals are
//! then discarded, and [`NodeStatuses::fold`] accepts nothing new from below.
//!
//! A removal with the id of a status takes that status back. A node never sends one. The controller
//! appends one when a log has an old status behind all reports of a removed pod
//! ([`ReportOutcome::Stale`]).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use headwater_event::report::SnapshotClosed;
use headwater_event::{NodeName, ReportBody, ReportId, ResourceKey};

use super::snapshot::{PodStatusSnapshot, StatusDigest};

/// Pods of one node whose reports are remembered, removed ones included: some ten times the pods that
/// a large node has. A node can name any pod; beyond the bound no further one counts, until a full
/// snapshot takes the place of the others.
pub const NODE_PODS_MAX: usize = 4_096;

/// The pod statuses that one node reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatuses {
    snapshot: PodStatusSnapshot,
    /// The last accepted report of each pod, removed pods included.
    accepted: BTreeMap<ResourceKey, ReportId>,
    closed: Option<Closing>,
    /// Reports below it are duplicates, for a pod that is not in `accepted`.
    floor: ReportId,
}

/// The last accepted closing of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The id of its report.
    pub id: ReportId,
    /// Its content.
    pub closed: SnapshotClosed,
}

/// The effect of a report on the cloud's picture of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// None: the report was accepted before, is not about a pod's status, or is about one pod more
    /// than [`NODE_PODS_MAX`].
    NoChange,
    /// The report is stale: a later one of its key was accepted, or the pod was removed long ago.
    /// A log that keeps the last record of a key would keep this one, so the current report is to
    /// be appended behind it.
    Stale,
    /// The pod has a new status.
    StatusChanged(ResourceKey),
    /// A later report repeats the pod's status.
    StatusUnchanged(ResourceKey),
    /// The pod has no status any longer.
    Removed(ResourceKey),
    /// A snapshot was closed.
    Closed {
        /// Pods that a full snapshot did not contain.
        dropped: Vec<ResourceKey>,
        /// Removed pods that are no longer remembered.
        forgotten: Vec<ResourceKey>,
        /// Whether the cloud's snapshot equals the node's, or has no room for more. If not, the cloud
        /// is to request a full one.
        agrees: bool,
    },
}

impl NodeStatuses {
    /// The statuses of `node` before its first report.
    pub fn new(node: &NodeName) -> Self {
        Self {
            snapshot: PodStatusSnapshot::new(node),
            accepted: BTreeMap::new(),
            closed: None,
            floor: ReportId::default(),
        }
    }

    /// The statuses of the node's pods, as far as they are reported.
    pub fn snapshot(&self) -> &PodStatusSnapshot {
        &self.snapshot
    }

    /// The last accepted report of `pod`.
    pub fn accepted(&self, pod: &ResourceKey) -> Option<ReportId> {
        self.accepted.get(pod).copied()
    }

    /// The pods whose status was reported before `first`, each with its report.
    pub fn reported_before(&self, first: ReportId) -> Vec<(ResourceKey, ReportId)> {
        let present = self.accepted.iter().filter(|(pod, _)| self.snapshot.get(pod).is_some());
        present.filter(|(_, id)| **id < first).map(|(pod, id)| (pod.clone(), *id)).collect()
    }

    /// The last accepted closing.
    pub fn closing(&self) -> Option<&Closing> {
        self.closed.as_ref()
    }

    /// Whether the reports do not add up to the snapshot that the node closed, although no report
    /// is later: a full snapshot is to be requested.
    pub fn differs(&self) -> bool {
        // What has no room would not come by another request.
        let closed = self.closed.as_ref().filter(|_| !self.is_full());
        closed.is_some_and(|closing| {
            !self.agrees_with(&closing.closed) && self.accepted.values().all(|id| *id < closing.id)
        })
    }

    /// Folds one report. The same reports, repeated and in any order, each before its closing, give
    /// the same picture.
    pub fn fold(&mut self, id: ReportId, body: &ReportBody) -> ReportOutcome {
        match body {
            ReportBody::PodStatus { pod, uid, status } => {
                self.accept(id, pod, Some(StatusDigest::of(uid, status)))
            }
            ReportBody::PodStatusRemoved { pod, .. } => self.accept(id, pod, None),
            ReportBody::SnapshotClosed(closed) => self.close(id, closed),
            ReportBody::Node { .. }
            | ReportBody::PodTerminated { .. }
            | ReportBody::Message { .. }
            | ReportBody::Event { .. } => ReportOutcome::NoChange,
        }
    }

    /// Restores the accepted report of `pod`; without a digest, the pod was removed.
    pub(crate) fn restore(&mut self, pod: ResourceKey, id: ReportId, digest: Option<StatusDigest>) {
        self.accepted.insert(pod.clone(), id);
        if let Some(digest) = digest {
            self.snapshot.set(pod, digest);
        }
    }

    /// Restores the last closing.
    pub(crate) fn restore_closing(&mut self, closing: Closing, floor: ReportId) {
        self.closed = Some(closing);
        self.floor = floor;
    }

    /// The id below which reports of unknown pods are duplicates.
    pub(crate) fn floor(&self) -> ReportId {
        self.floor
    }

    fn accept(
        &mut self,
        id: ReportId,
        pod: &ResourceKey,
        digest: Option<StatusDigest>,
    ) -> ReportOutcome {
        if self.is_full() && !self.accepted.contains_key(pod) {
            return ReportOutcome::NoChange;
        }
        let order = match self.accepted.get(pod) {
            Some(accepted) => id.cmp(accepted),
            None if id >= self.floor => Ordering::Greater,
            // The pod was removed long ago; a late removal agrees.
            None => Ordering::Equal,
        };
        match (order, self.snapshot.get(pod).is_some(), digest.is_some()) {
            (Ordering::Greater, ..) | (Ordering::Equal, true, false) => {}
            (Ordering::Less, ..) | (Ordering::Equal, false, true) => return ReportOutcome::Stale,
            (Ordering::Equal, ..) => return ReportOutcome::NoChange,
        }
        self.accepted.insert(pod.clone(), id);
        match digest {
            Some(digest) => {
                let is_new = self.snapshot.set(pod.clone(), digest);
                if is_new {
                    ReportOutcome::StatusChanged(pod.clone())
                } else {
                    ReportOutcome::StatusUnchanged(pod.clone())
                }
            }
            None => {
                self.snapshot.remove(pod);
                ReportOutcome::Removed(pod.clone())
            }
        }
    }

    fn close(&mut self, id: ReportId, closed: &SnapshotClosed) -> ReportOutcome {
        match self.closed.as_ref().map(|last| id.cmp(&last.id)) {
            None | Some(Ordering::Greater) => {}
            Some(Ordering::Equal) => return ReportOutcome::NoChange,
            Some(Ordering::Less) => return ReportOutcome::Stale,
        }
        self.closed = Some(Closing { id, closed: *closed });
        let mut dropped = Vec::new();
        let mut forgotten = Vec::new();
        if closed.full {
            self.floor = self.floor.max(closed.first);
            forgotten = self.forget_below(closed.first, &mut dropped);
        }
        let agrees = self.agrees_with(closed);
        if agrees {
            self.floor = self.floor.max(id);
            let removed = self.removed_below(id);
            for pod in &removed {
                self.accepted.remove(pod);
            }
            forgotten.extend(removed);
        }
        ReportOutcome::Closed { dropped, forgotten, agrees: agrees || self.is_full() }
    }

    /// Forgets every pod whose report is below `first`. Pods with a status go to `dropped`; pods
    /// that were removed before are returned.
    fn forget_below(
        &mut self,
        first: ReportId,
        dropped: &mut Vec<ResourceKey>,
    ) -> Vec<ResourceKey> {
        let below: Vec<ResourceKey> = self
            .accepted
            .iter()
            .filter(|(_, id)| **id < first)
            .map(|(pod, _)| pod.clone())
            .collect();
        let mut forgotten = Vec::new();
        for pod in below {
            self.accepted.remove(&pod);
            match self.snapshot.remove(&pod) {
                Some(_) => dropped.push(pod),
                None => forgotten.push(pod),
            }
        }
        forgotten
    }

    /// The removed pods whose report is below `id`.
    fn removed_below(&self, id: ReportId) -> Vec<ResourceKey> {
        // Every pod of the snapshot is accepted. A node closes after each burst of reports, and most
        // of them remove no pod: those closings cost the same for any number of pods.
        if self.accepted.len() == self.snapshot.len() {
            return Vec::new();
        }
        let below = self.accepted.iter().filter(|(_, accepted)| **accepted < id);
        let removed = below.filter(|(pod, _)| self.snapshot.get(pod).is_none());
        removed.map(|(pod, _)| pod.clone()).collect()
    }

    fn is_full(&self) -> bool {
        self.accepted.len() >= NODE_PODS_MAX
    }

    fn agrees_with(&self, closed: &SnapshotClosed) -> bool {
        self.snapshot.hash() == closed.hash && self.snapshot.len() as u64 == closed.pods
    }
}
