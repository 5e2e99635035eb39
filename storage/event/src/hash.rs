//! The state hash: a sum over the entries of a stream's state. Each event updates it in O(1).
//!
//! `hash(state) = sum over entries of BLAKE3_keyed(len(key) ‖ key ‖ BLAKE3(object)) mod 2^256`.
//! A new entry adds its term, a removed entry subtracts it. Only the resulting set of entries
//! counts, not the order of events or keys. The hash key is derived from the log id, so two lives
//! of a log never agree by chance. The hashed object is what the writer received, uncompressed
//! and unsealed.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::key::EntryKey;
use crate::name::NodeName;
use crate::position::LogId;

/// The context string of the key derivation. A change of it changes every state hash.
const CONTEXT: &str = "headwater 2026-11 state hash v1";

/// The context string for pod status snapshots.
const POD_STATUS_CONTEXT: &str = "headwater 2026-11 pod status snapshot v1";

/// The BLAKE3 hash of one object's bytes. A store keeps it with the entry, so that it can subtract
/// the entry's term without reading the object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectHash(pub [u8; 32]);

impl ObjectHash {
    /// Hashes an object's bytes.
    pub fn of(object: &[u8]) -> Self {
        Self(*blake3::hash(object).as_bytes())
    }
}

/// The key of the state hashes of one log.
#[derive(Clone, Copy)]
pub struct HashKey([u8; 32]);

impl HashKey {
    /// Derives the key from `log_id`.
    pub fn new(log_id: &LogId) -> Self {
        let mut material = [0; 24];
        material[..8].copy_from_slice(&log_id.number.to_le_bytes());
        material[8..].copy_from_slice(log_id.uuid.as_bytes());
        Self(blake3::derive_key(CONTEXT, &material))
    }

    /// Derives the key for the pod status snapshots of `node`. It is independent of the log, so an
    /// edge and any cloud compute the same hash for one snapshot.
    pub fn of_pod_statuses(node: &NodeName) -> Self {
        Self(blake3::derive_key(POD_STATUS_CONTEXT, node.as_str().as_bytes()))
    }

    fn term(&self, key: &EntryKey, object: &ObjectHash) -> [u64; 4] {
        let key = key.as_str().as_bytes();
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&(key.len() as u64).to_le_bytes());
        hasher.update(key);
        hasher.update(&object.0);
        limbs(hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// The hash of a stream's state at one position. The empty state hashes to zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StateHash([u64; 4]);

impl StateHash {
    /// The hash of the empty state.
    pub const EMPTY: Self = Self([0; 4]);

    /// Adds the term of a new entry.
    pub fn add(&mut self, hash_key: &HashKey, key: &EntryKey, object: &ObjectHash) {
        let term = hash_key.term(key, object);
        let mut carry = false;
        for (limb, term) in self.0.iter_mut().zip(term) {
            let (sum, first) = limb.overflowing_add(term);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = first || second;
        }
    }

    /// Subtracts the term of a removed entry.
    pub fn subtract(&mut self, hash_key: &HashKey, key: &EntryKey, object: &ObjectHash) {
        let term = hash_key.term(key, object);
        let mut borrow = false;
        for (limb, term) in self.0.iter_mut().zip(term) {
            let (difference, first) = limb.overflowing_sub(term);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            *limb = difference;
            borrow = first || second;
        }
    }

    /// The hash as 32 little-endian bytes: its form on disk and on the wire.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, limb) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&limb.to_le_bytes());
        }
        bytes
    }

    /// Reads the hash from its 32 bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(limbs(bytes))
    }
}

fn limbs(bytes: &[u8; 32]) -> [u64; 4] {
    let mut limbs = [0; 4];
    for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        *limb = u64::from_le_bytes(word);
    }
    limbs
}

impl fmt::Display for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        blake3::Hash::from_bytes(self.to_bytes()).fmt(f)
    }
}

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateHash({self})")
    }
}

impl FromStr for StateHash {
    type Err = blake3::HexError;

    fn from_str(text: &str) -> Result<Self, blake3::HexError> {
        Ok(Self::from_bytes(blake3::Hash::from_hex(text)?.as_bytes()))
    }
}

impl Serialize for StateHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StateHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn hash_key() -> HashKey {
        HashKey::new(&LogId { number: 1, uuid: Uuid::from_u128(7) })
    }

    fn entry(n: u8) -> (EntryKey, ObjectHash) {
        (format!("ns/pod/p{n}").parse().expect("well-formed"), ObjectHash::of(&[n]))
    }

    #[test]
    fn the_hash_survives_text_and_bytes() {
        let (key, object) = entry(1);
        let mut hash = StateHash::EMPTY;
        hash.add(&hash_key(), &key, &object);
        assert_eq!(hash.to_string().parse::<StateHash>().expect("hexadecimal"), hash);
        assert_eq!(StateHash::from_bytes(&hash.to_bytes()), hash);
        assert_ne!(hash, StateHash::EMPTY);
    }

    #[test]
    fn two_lives_of_a_log_never_agree() {
        let (key, object) = entry(1);
        let other = HashKey::new(&LogId { number: 2, uuid: Uuid::from_u128(7) });
        let (mut a, mut b) = (StateHash::EMPTY, StateHash::EMPTY);
        a.add(&hash_key(), &key, &object);
        b.add(&other, &key, &object);
        assert_ne!(a, b);
    }

    proptest! {
        #[test]
        fn only_the_set_that_is_left_matters(mut added in proptest::collection::btree_set(0u8..40, 0..20), removed in proptest::collection::btree_set(0u8..40, 0..20)) {
            let key = hash_key();
            let mut walked = StateHash::EMPTY;
            for n in added.union(&removed) { let (k, o) = entry(*n); walked.add(&key, &k, &o); }
            for n in removed.iter().rev() { let (k, o) = entry(*n); walked.subtract(&key, &k, &o); }
            added.retain(|n| !removed.contains(n));
            let mut direct = StateHash::EMPTY;
            for n in added.iter().rev() { let (k, o) = entry(*n); direct.add(&key, &k, &o); }
            prop_assert_eq!(walked, direct);
        }
    }
}
