//! The statuses of the node's pods: the current ones, and the reported ones.
//!
//! The current statuses come from the pod worker. The reported statuses are those that the cloud
//! has once the outbox is empty. They are written together with the outbox, so MetaSync is the
//! difference between the two, however many reports are still in flight.
//!
//! A status that the cloud never takes leaves the snapshot until it changes: otherwise the snapshot
//! would never match, and each full one that the cloud requests would have that status again. Which
//! statuses these are is not stored, so a start reports each of them once more.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use headwater_event::{NodeName, ObjectHash, ResourceKey};
use headwater_object::status::same_status;
use headwater_store::{Batch, DecodeError, Engine, EngineError, Proto, Table, TableId};
use headwater_view::metasync::{Difference, diff, full};
use headwater_view::{PodStatusSnapshot, StatusDigest};

const STATUSES: Table<ResourceKey, Proto<StatusRow>> = Table::new(TableId::PodStatuses);
const REPORTED: Table<ResourceKey, Proto<ReportedRow>> = Table::new(TableId::AcknowledgedStatuses);

/// The status of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodStatus {
    pub(crate) uid: String,
    pub(crate) status: Bytes,
}

/// The statuses of all pods, in memory and on disk.
#[derive(Debug)]
pub(crate) struct PodStatuses {
    statuses: BTreeMap<ResourceKey, PodStatus>,
    /// The snapshot of `statuses`, without those that the cloud has refused.
    current: PodStatusSnapshot,
    /// The snapshot that the reports in the outbox lead to.
    reported: PodStatusSnapshot,
    /// The pods in which the two differ: the difference needs no scan of all pods.
    differing: BTreeSet<ResourceKey>,
}

/// Field numbers are never reused.
#[derive(Clone, PartialEq, prost::Message)]
struct StatusRow {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(bytes = "bytes", tag = "2")]
    status: Bytes,
}

/// Field numbers are never reused.
#[derive(Clone, PartialEq, prost::Message)]
struct ReportedRow {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(bytes = "bytes", tag = "2")]
    hash: Bytes,
}

impl PodStatuses {
    /// Reads the statuses of `node` from `engine`.
    ///
    /// # Errors
    /// As the engine.
    pub(crate) fn open(engine: &dyn Engine, node: &NodeName) -> Result<Self, EngineError> {
        let mut statuses = BTreeMap::new();
        let mut current = PodStatusSnapshot::new(node);
        for row in STATUSES.rows(engine) {
            let (pod, Proto(StatusRow { uid, status })) = row?;
            current.set(pod.clone(), StatusDigest::of(&uid, &status));
            statuses.insert(pod, PodStatus { uid, status });
        }
        let mut reported = PodStatusSnapshot::new(node);
        for row in REPORTED.rows(engine) {
            let (pod, Proto(ReportedRow { uid, hash })) = row?;
            let hash = <[u8; 32]>::try_from(hash.as_ref()).map_err(|error| {
                let error = DecodeError::malformed("the hash of a status", &error);
                EngineError::Corrupt { reason: format!("the outbox: {error}") }
            })?;
            reported.set(pod, StatusDigest { uid, status: ObjectHash(hash) });
        }
        let Difference { changed, removed } = diff(&reported, &current);
        let differing =
            changed.into_iter().chain(removed.into_iter().map(|(pod, _)| pod)).collect();
        Ok(Self { statuses, current, reported, differing })
    }

    /// The reported snapshot.
    pub(crate) fn into_reported(self) -> PodStatusSnapshot {
        self.reported
    }

    /// Every status, by pod.
    pub(crate) fn all(&self) -> &BTreeMap<ResourceKey, PodStatus> {
        &self.statuses
    }

    /// The current snapshot.
    pub(crate) fn snapshot(&self) -> &PodStatusSnapshot {
        &self.current
    }

    /// Stores the status of a pod. False: it did not change.
    pub(crate) fn set(&mut self, batch: &mut Batch, pod: ResourceKey, status: PodStatus) -> bool {
        let same = self.statuses.get(&pod).is_some_and(|held| {
            held.uid == status.uid && same_status(&held.status, &status.status)
        });
        if same {
            return false;
        }
        let row = StatusRow { uid: status.uid.clone(), status: status.status.clone() };
        batch.put(&STATUSES, &pod, &Proto(row));
        self.current.set(pod.clone(), StatusDigest::of(&status.uid, &status.status));
        self.compare(&pod);
        self.statuses.insert(pod, status);
        true
    }

    /// Removes the status of a pod. False: there was none.
    pub(crate) fn remove(&mut self, batch: &mut Batch, pod: &ResourceKey) -> bool {
        batch.delete(&STATUSES, pod);
        self.current.remove(pod);
        self.compare(pod);
        self.statuses.remove(pod).is_some()
    }

    /// Removes the status of a pod that is not in `pods`, a map of their UIDs.
    pub(crate) fn drop_orphan(
        &mut self,
        batch: &mut Batch,
        pod: &ResourceKey,
        pods: &BTreeMap<ResourceKey, String>,
    ) {
        if self.statuses.get(pod).is_some_and(|status| pods.get(pod) != Some(&status.uid)) {
            self.remove(batch, pod);
        }
    }

    /// What differs from the reported snapshot.
    pub(crate) fn difference(&self) -> Difference {
        let mut difference = Difference::default();
        for pod in &self.differing {
            match (self.current.get(pod), self.reported.get(pod)) {
                (None, Some(reported)) => {
                    difference.removed.push((pod.clone(), reported.uid.clone()))
                }
                _ => difference.changed.push(pod.clone()),
            }
        }
        difference
    }

    /// All of the current snapshot, as a difference.
    pub(crate) fn everything(&self) -> Difference {
        full(&self.current)
    }

    /// Records that the outbox has the report of the pod's status.
    pub(crate) fn reported(&mut self, batch: &mut Batch, pod: &ResourceKey) {
        let Some(digest) = self.current.get(pod).cloned() else { return };
        let hash = Bytes::copy_from_slice(&digest.status.0);
        batch.put(&REPORTED, pod, &Proto(ReportedRow { uid: digest.uid.clone(), hash }));
        self.reported.set(pod.clone(), digest);
        self.compare(pod);
    }

    /// Takes a pod's status out of the snapshot: the cloud never takes its last report. False: the
    /// status is another one by now, or the pod has none.
    pub(crate) fn refuse(&mut self, pod: &ResourceKey) -> bool {
        let refused = self.reported.get(pod);
        if refused.is_none() || self.current.get(pod) != refused {
            return false;
        }
        self.current.remove(pod);
        self.compare(pod);
        true
    }

    /// Records that the outbox has the report that the pod has no status.
    pub(crate) fn removal_reported(&mut self, batch: &mut Batch, pod: &ResourceKey) {
        batch.delete(&REPORTED, pod);
        self.reported.remove(pod);
        self.compare(pod);
    }

    /// Records that the outbox has a full snapshot with its end: it removes all other pods.
    pub(crate) fn full_reported(&mut self, batch: &mut Batch) {
        for (pod, _) in self.difference().removed {
            self.removal_reported(batch, &pod);
        }
    }

    fn compare(&mut self, pod: &ResourceKey) {
        if self.current.get(pod) == self.reported.get(pod) {
            self.differing.remove(pod);
        } else {
            self.differing.insert(pod.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::{Durability, MemoryEngine, Survival};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pod(name: &str) -> ResourceKey {
        format!("d/pod/{name}").parse().expect("a key")
    }

    fn status(uid: &str, text: &str) -> PodStatus {
        PodStatus { uid: uid.to_owned(), status: Bytes::copy_from_slice(text.as_bytes()) }
    }

    fn open(engine: &MemoryEngine) -> PodStatuses {
        PodStatuses::open(engine, &"gw-1".parse().expect("a name")).expect("opens")
    }

    #[test]
    fn an_equivalent_status_is_no_change() {
        let mut statuses = open(&MemoryEngine::new());
        let mut batch = Batch::new();
        let running = r#"{"phase":"Running","conditions":[{"type":"Ready"}]}"#;
        let probed = r#"{"phase":"Running","conditions":[{"type":"Ready","lastProbeTime":"x"}]}"#;
        assert!(statuses.set(&mut batch, pod("a"), status("u1", running)));
        assert!(!statuses.set(&mut batch, pod("a"), status("u1", running)));
        assert!(!statuses.set(&mut batch, pod("a"), status("u1", probed)));
        assert!(statuses.set(&mut batch, pod("a"), status("u2", running)), "another pod");
    }

    #[test]
    fn the_difference_is_what_was_not_reported_also_after_a_crash() {
        let engine = MemoryEngine::new();
        let mut statuses = open(&engine);
        let mut batch = Batch::new();
        for name in ["a", "b", "c"] {
            statuses.set(&mut batch, pod(name), status("u", "{}"));
            statuses.reported(&mut batch, &pod(name));
        }
        statuses.set(&mut batch, pod("a"), status("u", r#"{"phase":"Running"}"#));
        let pods = [("a", "u"), ("b", "u"), ("c", "another")]
            .map(|(name, uid)| (pod(name), uid.to_owned()))
            .into();
        for name in ["a", "b", "c", "d"] {
            statuses.drop_orphan(&mut batch, &pod(name), &pods);
        }
        batch.write(&engine, Durability::Synced).expect("writes");
        let found = open(&engine.crash(Survival::Synced));
        for statuses in [&statuses, &found] {
            let difference = statuses.difference();
            assert_eq!(difference.changed, [pod("a")]);
            assert_eq!(difference.removed, [(pod("c"), "u".to_owned())]);
            assert_eq!(difference, diff(&statuses.reported, &statuses.current));
            assert_eq!(statuses.everything().changed, [pod("a"), pod("b")]);
        }
    }

    #[test]
    fn a_refused_status_is_no_part_of_the_snapshot_until_it_changes_or_the_edge_starts_again() {
        let engine = MemoryEngine::new();
        let mut statuses = open(&engine);
        let mut batch = Batch::new();
        let (large, small) = (status("u", r#"{"phase":"Running"}"#), status("u", "{}"));
        assert!(!statuses.refuse(&pod("a")), "it has none");
        statuses.set(&mut batch, pod("a"), large.clone());
        assert!(!statuses.refuse(&pod("a")), "it was not reported");
        statuses.reported(&mut batch, &pod("a"));
        assert!(statuses.refuse(&pod("a")) && !statuses.refuse(&pod("a")));
        assert_eq!(statuses.difference().removed, [(pod("a"), "u".to_owned())]);
        statuses.removal_reported(&mut batch, &pod("a"));
        assert!(!statuses.set(&mut batch, pod("a"), large), "the same one again");
        assert!(statuses.difference().is_empty() && statuses.everything().is_empty());
        batch.write(&engine, Durability::Synced).expect("writes");
        assert_eq!(open(&engine).difference().changed, [pod("a")]);
        let mut batch = Batch::new();
        assert!(statuses.set(&mut batch, pod("a"), small));
        assert_eq!(statuses.difference().changed, [pod("a")]);
        // A refusal of the earlier one that comes late.
        statuses.reported(&mut batch, &pod("a"));
        statuses.set(&mut batch, pod("a"), status("u", "[]"));
        assert!(!statuses.refuse(&pod("a")));
    }

    proptest! {
        #[test]
        fn the_kept_difference_is_the_computed_one(steps in vec((0..5_u8, 0..4_u8, 0..3_u8), 0..40)) {
            let engine = MemoryEngine::new();
            let mut statuses = open(&engine);
            let mut batch = Batch::new();
            for (step, name, text) in steps {
                let name = pod(&name.to_string());
                match step {
                    0 => drop(statuses.set(&mut batch, name, status("u", &format!("[{text}]")))),
                    1 => drop(statuses.remove(&mut batch, &name)),
                    2 => statuses.reported(&mut batch, &name),
                    3 => statuses.removal_reported(&mut batch, &name),
                    _ => statuses.full_reported(&mut batch),
                }
                prop_assert_eq!(statuses.difference(), diff(&statuses.reported, &statuses.current));
            }
            batch.write(&engine, Durability::Synced).expect("writes");
            prop_assert_eq!(open(&engine).difference(), statuses.difference());
        }
    }
}
