//! The statuses of the node's pods as the pod worker reported them, and what of them the cloud
//! has been told.
//!
//! *Told* is what the cloud has once the outbox is empty: it is written together with the
//! outbox, so MetaSync is the difference between the two, however many reports are still on
//! their way.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use headwater_event::{NodeName, ObjectHash, ResourceKey};
use headwater_object::status::same_status;
use headwater_store::{Batch, DecodeError, Engine, EngineError, Proto, Table, TableId};
use headwater_view::metasync::{Difference, diff, full};
use headwater_view::{PodStatusSnapshot, StatusDigest};

const STATUSES: Table<ResourceKey, Proto<StatusRow>> = Table::new(TableId::PodStatuses);
const TOLD: Table<ResourceKey, Proto<ToldRow>> = Table::new(TableId::AcknowledgedStatuses);

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
    /// The snapshot of `statuses`.
    current: PodStatusSnapshot,
    told: PodStatusSnapshot,
    /// The pods that the two differ in, so that no change is looked for among all of them.
    open: BTreeSet<ResourceKey>,
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
struct ToldRow {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(bytes = "bytes", tag = "2")]
    hash: Bytes,
}

impl PodStatuses {
    /// The statuses of `node` as `engine` has them.
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
        let mut told = PodStatusSnapshot::new(node);
        for row in TOLD.rows(engine) {
            let (pod, Proto(ToldRow { uid, hash })) = row?;
            let hash = <[u8; 32]>::try_from(hash.as_ref()).map_err(|error| {
                let error = DecodeError::malformed("the hash of a status", &error);
                EngineError::Corrupt { reason: format!("the outbox: {error}") }
            })?;
            told.set(pod, StatusDigest { uid, status: ObjectHash(hash) });
        }
        let Difference { changed, removed } = diff(&told, &current);
        let open = changed.into_iter().chain(removed.into_iter().map(|(pod, _)| pod)).collect();
        Ok(Self { statuses, current, told, open })
    }

    /// What the cloud has been told.
    pub(crate) fn into_told(self) -> PodStatusSnapshot {
        self.told
    }

    /// Every status, by pod.
    pub(crate) fn all(&self) -> &BTreeMap<ResourceKey, PodStatus> {
        &self.statuses
    }

    /// The pod status snapshot.
    pub(crate) fn snapshot(&self) -> &PodStatusSnapshot {
        &self.current
    }

    /// Notes the status of a pod. False: it says what was noted already.
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

    /// Forgets the status of a pod. False: there was none.
    pub(crate) fn remove(&mut self, batch: &mut Batch, pod: &ResourceKey) -> bool {
        batch.delete(&STATUSES, pod);
        self.current.remove(pod);
        self.compare(pod);
        self.statuses.remove(pod).is_some()
    }

    /// Forgets the status of a pod that is not among `pods`, a map of their UIDs.
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

    /// What the cloud has not been told.
    pub(crate) fn news(&self) -> Difference {
        let mut news = Difference::default();
        for pod in &self.open {
            match (self.current.get(pod), self.told.get(pod)) {
                (None, Some(told)) => news.removed.push((pod.clone(), told.uid.clone())),
                _ => news.changed.push(pod.clone()),
            }
        }
        news
    }

    /// What a full snapshot tells.
    pub(crate) fn everything(&self) -> Difference {
        full(&self.current)
    }

    /// Notes that the report of the pod's status is in the outbox.
    pub(crate) fn tell(&mut self, batch: &mut Batch, pod: &ResourceKey) {
        let Some(digest) = self.current.get(pod).cloned() else { return };
        let hash = Bytes::copy_from_slice(&digest.status.0);
        batch.put(&TOLD, pod, &Proto(ToldRow { uid: digest.uid.clone(), hash }));
        self.told.set(pod.clone(), digest);
        self.compare(pod);
    }

    /// Notes that the report that the pod has no status is in the outbox.
    pub(crate) fn tell_removed(&mut self, batch: &mut Batch, pod: &ResourceKey) {
        batch.delete(&TOLD, pod);
        self.told.remove(pod);
        self.compare(pod);
    }

    /// Notes that a full snapshot has been told to its end: it named no other pods.
    pub(crate) fn tell_end(&mut self, batch: &mut Batch) {
        for (pod, _) in self.news().removed {
            self.tell_removed(batch, &pod);
        }
    }

    fn compare(&mut self, pod: &ResourceKey) {
        if self.current.get(pod) == self.told.get(pod) {
            self.open.remove(pod);
        } else {
            self.open.insert(pod.clone());
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
    fn a_status_that_says_the_same_is_no_change() {
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
    fn news_are_what_the_cloud_was_not_told_also_after_a_crash() {
        let engine = MemoryEngine::new();
        let mut statuses = open(&engine);
        let mut batch = Batch::new();
        for name in ["a", "b", "c"] {
            statuses.set(&mut batch, pod(name), status("u", "{}"));
            statuses.tell(&mut batch, &pod(name));
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
            let news = statuses.news();
            assert_eq!(news.changed, [pod("a")]);
            assert_eq!(news.removed, [(pod("c"), "u".to_owned())]);
            assert_eq!(news, diff(&statuses.told, &statuses.current));
            assert_eq!(statuses.everything().changed, [pod("a"), pod("b")]);
        }
    }

    proptest! {
        #[test]
        fn news_are_the_difference_whatever_came(steps in vec((0..5_u8, 0..4_u8, 0..3_u8), 0..40)) {
            let engine = MemoryEngine::new();
            let mut statuses = open(&engine);
            let mut batch = Batch::new();
            for (step, name, text) in steps {
                let name = pod(&name.to_string());
                match step {
                    0 => drop(statuses.set(&mut batch, name, status("u", &format!("[{text}]")))),
                    1 => drop(statuses.remove(&mut batch, &name)),
                    2 => statuses.tell(&mut batch, &name),
                    3 => statuses.tell_removed(&mut batch, &name),
                    _ => statuses.tell_end(&mut batch),
                }
                prop_assert_eq!(statuses.news(), diff(&statuses.told, &statuses.current));
            }
            batch.write(&engine, Durability::Synced).expect("writes");
            prop_assert_eq!(open(&engine).news(), statuses.news());
        }
    }
}
