//! The cloud's fold of what one node says about its pods: pure.
//!
//! A report counts for its pod only if its id (incarnation, boot, seq) is greater than that of
//! the last one that counted; removals count too, and are remembered, so that a late status
//! brings nothing back. A node sends in the order of its ids, so once a closing agrees,
//! everything below it has come and what is still on its way is a duplicate: then the
//! remembered removals can go, and [`NodeStatuses::fold`] takes nothing new from below.
//!
//! A removal under the id of a status takes that status back: no node says so, but whoever finds
//! an old status behind everything that was said of a pod long gone ([`ReportOutcome::Stale`]).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use headwater_event::report::SnapshotClosed;
use headwater_event::{NodeName, ReportBody, ReportId, ResourceKey};

use crate::pod_status_snapshot::{PodStatusSnapshot, StatusDigest};

/// What one node says about its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatuses {
    snapshot: PodStatusSnapshot,
    /// The report that counts for each pod, of pods that were removed too.
    counted: BTreeMap<ResourceKey, ReportId>,
    closed: Option<Closing>,
    /// Reports below it say nothing of a pod that is not in `counted`.
    floor: ReportId,
}

/// The last closing that counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Its place in what the node says.
    pub id: ReportId,
    /// What it says.
    pub closed: SnapshotClosed,
}

/// What a report did to the cloud's picture of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// Nothing: it has counted already, or it says nothing of pods.
    NoChange,
    /// A later report of its key has counted already, or the pod is long gone. A log that keeps
    /// the last record of a key would keep this one: the truth is to be appended behind it.
    Stale,
    /// The pod has this status now.
    StatusChanged(ResourceKey),
    /// The pod has the status it had; a later report says so.
    StatusUnchanged(ResourceKey),
    /// The pod has no status any more.
    Removed(ResourceKey),
    /// A snapshot was closed.
    Closed {
        /// Pods that left by it: a full snapshot did not name them.
        dropped: Vec<ResourceKey>,
        /// Removed pods that need not be remembered any more.
        forgotten: Vec<ResourceKey>,
        /// Whether the cloud has what the node has. If not, it is to ask for a full snapshot.
        agrees: bool,
    },
}

impl NodeStatuses {
    /// Nothing is known of `node` yet.
    pub fn new(node: &NodeName) -> Self {
        Self {
            snapshot: PodStatusSnapshot::new(node),
            counted: BTreeMap::new(),
            closed: None,
            floor: ReportId::default(),
        }
    }

    /// What the node's pods are, as far as the reports go.
    pub fn snapshot(&self) -> &PodStatusSnapshot {
        &self.snapshot
    }

    /// The report that counts for `pod`.
    pub fn accepted(&self, pod: &ResourceKey) -> Option<ReportId> {
        self.counted.get(pod).copied()
    }

    /// The pods whose statuses were reported before `first`, and those reports.
    pub fn reported_before(&self, first: ReportId) -> Vec<(ResourceKey, ReportId)> {
        let told = self.counted.iter().filter(|(pod, _)| self.snapshot.get(pod).is_some());
        told.filter(|(_, id)| **id < first).map(|(pod, id)| (pod.clone(), *id)).collect()
    }

    /// The last closing.
    pub fn closing(&self) -> Option<&Closing> {
        self.closed.as_ref()
    }

    /// Whether the node closed a snapshot that the reports do not add up to, although none
    /// came after it: a full snapshot is to be asked for.
    pub fn differs(&self) -> bool {
        self.closed.as_ref().is_some_and(|closing| {
            !self.agrees_with(&closing.closed) && self.counted.values().all(|id| *id < closing.id)
        })
    }

    /// Folds one report. The same reports in any order and number, each before its closing,
    /// give the same picture.
    pub fn fold(&mut self, id: ReportId, body: &ReportBody) -> ReportOutcome {
        match body {
            ReportBody::PodStatus { pod, uid, status } => {
                self.count(id, pod, Some(StatusDigest::of(uid, status)))
            }
            ReportBody::PodStatusRemoved { pod, .. } => self.count(id, pod, None),
            ReportBody::SnapshotClosed(closed) => self.close(id, closed),
            ReportBody::Node { .. }
            | ReportBody::PodTerminated { .. }
            | ReportBody::Message { .. } => ReportOutcome::NoChange,
        }
    }

    /// Puts back what a fold had counted for `pod`; `None`: it was removed.
    pub(crate) fn restore(&mut self, pod: ResourceKey, id: ReportId, digest: Option<StatusDigest>) {
        self.counted.insert(pod.clone(), id);
        if let Some(digest) = digest {
            self.snapshot.set(pod, digest);
        }
    }

    /// Puts back the last closing.
    pub(crate) fn restore_closing(&mut self, closing: Closing, floor: ReportId) {
        self.closed = Some(closing);
        self.floor = floor;
    }

    /// Below which reports say nothing of a pod that is not known.
    pub(crate) fn floor(&self) -> ReportId {
        self.floor
    }

    fn count(
        &mut self,
        id: ReportId,
        pod: &ResourceKey,
        digest: Option<StatusDigest>,
    ) -> ReportOutcome {
        let order = match self.counted.get(pod) {
            Some(counted) => id.cmp(counted),
            None if id >= self.floor => Ordering::Greater,
            // Removed long ago, as a late removal says too.
            None => Ordering::Equal,
        };
        match (order, self.snapshot.get(pod).is_some(), digest.is_some()) {
            (Ordering::Greater, ..) | (Ordering::Equal, true, false) => {}
            (Ordering::Less, ..) | (Ordering::Equal, false, true) => return ReportOutcome::Stale,
            (Ordering::Equal, ..) => return ReportOutcome::NoChange,
        }
        self.counted.insert(pod.clone(), id);
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
            let removed: Vec<ResourceKey> = self
                .counted
                .iter()
                .filter(|(pod, counted)| **counted < id && self.snapshot.get(pod).is_none())
                .map(|(pod, _)| pod.clone())
                .collect();
            for pod in &removed {
                self.counted.remove(pod);
            }
            forgotten.extend(removed);
        }
        ReportOutcome::Closed { dropped, forgotten, agrees }
    }

    /// Forgets every pod whose report lies below `first`: those that had a status go to
    /// `dropped`, those that were removed already are given.
    fn forget_below(
        &mut self,
        first: ReportId,
        dropped: &mut Vec<ResourceKey>,
    ) -> Vec<ResourceKey> {
        let below: Vec<ResourceKey> = self
            .counted
            .iter()
            .filter(|(_, id)| **id < first)
            .map(|(pod, _)| pod.clone())
            .collect();
        let mut forgotten = Vec::new();
        for pod in below {
            self.counted.remove(&pod);
            match self.snapshot.remove(&pod) {
                Some(_) => dropped.push(pod),
                None => forgotten.push(pod),
            }
        }
        forgotten
    }

    fn agrees_with(&self, closed: &SnapshotClosed) -> bool {
        self.snapshot.hash() == closed.hash && self.snapshot.len() as u64 == closed.pods
    }
}
