//! The pod status snapshot: a digest of each pod's status, and the hash of them all.
//!
//! It holds what a comparison needs, not the statuses: an edge has those in its state, the cloud in
//! its table. The hash is a sum like the state hash: a change costs O(1) a pod, and equal hashes
//! mean equal snapshots.

use std::collections::BTreeMap;

use headwater_event::{EntryKey, HashKey, NodeName, ObjectHash, ResourceKey, StateHash};

/// The status digests of one node's pods.
#[derive(Clone, Debug)]
pub struct PodStatusSnapshot {
    hash_key: HashKey,
    pods: BTreeMap<ResourceKey, StatusDigest>,
    hash: StateHash,
}

/// Identifies one status of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusDigest {
    /// UID of the pod: another pod of the same name has another status, even with the same bytes.
    pub uid: String,
    /// BLAKE3 of the status.
    pub status: ObjectHash,
}

impl StatusDigest {
    /// The digest of a status.
    pub fn of(uid: &str, status: &[u8]) -> Self {
        Self { uid: uid.to_owned(), status: ObjectHash::of(status) }
    }

    /// The pod's term in the snapshot's hash.
    fn term(&self) -> ObjectHash {
        let mut bytes = Vec::with_capacity(8 + self.uid.len() + 32);
        bytes.extend_from_slice(&(self.uid.len() as u64).to_le_bytes());
        bytes.extend_from_slice(self.uid.as_bytes());
        bytes.extend_from_slice(&self.status.0);
        ObjectHash::of(&bytes)
    }
}

impl PodStatusSnapshot {
    /// The snapshot of a node without pods.
    pub fn new(node: &NodeName) -> Self {
        Self {
            hash_key: HashKey::of_pod_statuses(node),
            pods: BTreeMap::new(),
            hash: StateHash::EMPTY,
        }
    }

    /// Sets the status of a pod. Returns whether it changed.
    pub fn set(&mut self, pod: ResourceKey, digest: StatusDigest) -> bool {
        if self.pods.get(&pod) == Some(&digest) {
            return false;
        }
        self.remove(&pod);
        self.hash.add(&self.hash_key, &EntryKey::from(pod.clone()), &digest.term());
        self.pods.insert(pod, digest);
        true
    }

    /// Removes a pod. Returns its digest.
    pub fn remove(&mut self, pod: &ResourceKey) -> Option<StatusDigest> {
        let digest = self.pods.remove(pod)?;
        self.hash.subtract(&self.hash_key, &EntryKey::from(pod.clone()), &digest.term());
        Some(digest)
    }

    /// The digest of a pod's status.
    pub fn get(&self, pod: &ResourceKey) -> Option<&StatusDigest> {
        self.pods.get(pod)
    }

    /// Every pod, in order.
    pub fn pods(&self) -> impl Iterator<Item = (&ResourceKey, &StatusDigest)> {
        self.pods.iter()
    }

    /// How many pods there are.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there is no pod.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The hash of the snapshot.
    pub fn hash(&self) -> StateHash {
        self.hash
    }
}

impl PartialEq for PodStatusSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.pods == other.pods
    }
}

impl Eq for PodStatusSnapshot {}
