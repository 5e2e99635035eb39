//! The pod status snapshot: which status each pod of a node has, and the hash of it all.
//!
//! It holds what is needed to compare two of them, not the statuses: an edge has those in its
//! state, the cloud in its table. The hash is a sum like the state hash, so it is kept up to
//! date in O(1) a pod, and equal hashes mean equal snapshots.

use std::collections::BTreeMap;

use headwater_event::{EntryKey, HashKey, NodeName, ObjectHash, ResourceKey, StateHash};

/// Which status each pod of one node has.
#[derive(Clone, Debug)]
pub struct PodStatusSnapshot {
    hash_key: HashKey,
    pods: BTreeMap<ResourceKey, StatusDigest>,
    hash: StateHash,
}

/// What tells one status of a pod from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusDigest {
    /// UID of the pod: another pod of the same name has another status, even if it reads the
    /// same.
    pub uid: String,
    /// BLAKE3 of the status.
    pub status: ObjectHash,
}

impl StatusDigest {
    /// The digest of a status.
    pub fn of(uid: &str, status: &[u8]) -> Self {
        Self { uid: uid.to_owned(), status: ObjectHash::of(status) }
    }

    /// What stands for the pod in the snapshot's hash.
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

    /// Sets the status of a pod. False: it was that already.
    pub fn set(&mut self, pod: ResourceKey, digest: StatusDigest) -> bool {
        if self.pods.get(&pod) == Some(&digest) {
            return false;
        }
        self.remove(&pod);
        self.hash.add(&self.hash_key, &EntryKey::from(pod.clone()), &digest.term());
        self.pods.insert(pod, digest);
        true
    }

    /// Takes a pod out; gives what it had.
    pub fn remove(&mut self, pod: &ResourceKey) -> Option<StatusDigest> {
        let digest = self.pods.remove(pod)?;
        self.hash.subtract(&self.hash_key, &EntryKey::from(pod.clone()), &digest.term());
        Some(digest)
    }

    /// The status of a pod.
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

    /// The hash of the whole.
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
