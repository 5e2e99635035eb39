//! The comparison of two replicas: a digest of six bytes for each entry, and the removals that
//! result.
//!
//! An edge sends the digests of its entries. The hub compares them with its own entries and returns
//! which ones the edge removes, as [`RemovalRuns`].

use crate::hash::ObjectHash;
use crate::key::EntryKey;

/// The context string of the key derivation.
const CONTEXT: &str = "headwater 2026-11 entry digest v1";

/// A short digest of one entry: key, UID, resource version and object. Two different entries have
/// the same digest once in 2^48 pairs, so the state hash verifies the result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryDigest([u8; Self::BYTES]);

impl EntryDigest {
    /// The length of a digest, in bytes.
    pub const BYTES: usize = 6;

    /// Reads the digest from its bytes.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes on the wire.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }
}

/// The key of the digests of one comparison. Two entries with the same digest in one comparison
/// have different digests in the next.
#[derive(Clone, Copy)]
pub struct DigestKey([u8; 32]);

impl DigestKey {
    /// Derives the key of the comparison with this nonce.
    pub fn new(nonce: u64) -> Self {
        Self(blake3::derive_key(CONTEXT, &nonce.to_le_bytes()))
    }

    /// Computes the digest of an entry.
    pub fn digest(
        &self,
        key: &EntryKey,
        uid: &str,
        resource_version: &str,
        object: &ObjectHash,
    ) -> EntryDigest {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for text in [key.as_str(), uid, resource_version] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.update(&object.0);
        let mut bytes = [0; EntryDigest::BYTES];
        hasher.finalize_xof().fill(&mut bytes);
        EntryDigest(bytes)
    }
}

impl std::fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestKey")
    }
}

/// The entries of a summary that the replica removes, as run lengths in the order of the summary:
/// the first run is kept, the next removed, and so on alternately. Entries after the last run are
/// kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalRuns {
    runs: Vec<u32>,
}

impl RemovalRuns {
    /// Encodes one flag for each entry of the summary: whether the replica removes it.
    pub fn of(removals: impl IntoIterator<Item = bool>) -> Self {
        let mut runs = Vec::new();
        let (mut run, mut run_is_removed) = (0_u32, false);
        for is_removed in removals {
            if is_removed != run_is_removed {
                runs.push(run);
                (run, run_is_removed) = (0, is_removed);
            }
            // The bound of a summary is far below the maximum.
            run = run.saturating_add(1);
        }
        if run_is_removed {
            runs.push(run);
        }
        Self { runs }
    }

    /// Takes run lengths from the wire, unchecked.
    pub fn from_runs(runs: Vec<u32>) -> Self {
        Self { runs }
    }

    /// The run lengths.
    pub fn runs(&self) -> &[u32] {
        &self.runs
    }

    /// Whether no entry is removed.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The number of removed entries.
    pub fn count(&self) -> u64 {
        self.runs.iter().skip(1).step_by(2).map(|run| u64::from(*run)).sum()
    }

    /// The number of entries that the runs cover.
    pub fn entries(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(*run)).sum()
    }

    /// For each entry that the runs cover: whether it is removed.
    pub fn removals(&self) -> impl Iterator<Item = bool> + '_ {
        let removals = [false, true].into_iter().cycle();
        let runs = self.runs.iter().zip(removals);
        runs.flat_map(|(run, is_removed)| std::iter::repeat_n(is_removed, *run as usize))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_digest_covers_every_part_of_an_entry_and_the_nonce() {
        let digest = |nonce, key: &str, uid, version, object: &[u8]| {
            let key = key.parse().expect("a key");
            DigestKey::new(nonce).digest(&key, uid, version, &ObjectHash::of(object))
        };
        let all = [
            digest(1, "d/pod/a", "u", "1", b"{}"),
            digest(2, "d/pod/a", "u", "1", b"{}"),
            digest(1, "d/pod/b", "u", "1", b"{}"),
            digest(1, "d/pod/a", "v", "1", b"{}"),
            digest(1, "d/pod/a", "u", "2", b"{}"),
            digest(1, "d/pod/a", "u1", "", b"{}"),
            digest(1, "d/pod/a", "u", "1", b"[]"),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(digest(1, "d/pod/a", "u", "1", b"{}"), all[0]);
        assert_eq!(EntryDigest::from_bytes(all[0].to_bytes()), all[0]);
    }

    #[test]
    fn removals_are_encoded_as_runs() {
        let of = |text: &str| RemovalRuns::of(text.chars().map(|c| c == 'x'));
        assert_eq!(of("").runs(), [0; 0]);
        assert_eq!(of("......").runs(), [0; 0]);
        assert_eq!(of("xxxxxx").runs(), [0, 6]);
        assert_eq!(of("..x...xx.").runs(), [2, 1, 3, 2]);
        assert_eq!((of("..x...xx.").count(), of("..x...xx.").entries()), (3, 8));
        assert!(of("...").is_empty() && !of("x").is_empty());
    }

    proptest! {
        #[test]
        fn runs_survive_encoding(removals in proptest::collection::vec(any::<bool>(), 0..60)) {
            let runs = RemovalRuns::of(removals.clone());
            let last = removals.iter().rposition(|removed| *removed).map_or(0, |last| last + 1);
            prop_assert_eq!(runs.removals().collect::<Vec<_>>(), &removals[..last]);
            prop_assert_eq!(runs.count(), removals.iter().filter(|removed| **removed).count() as u64);
            prop_assert_eq!(RemovalRuns::from_runs(runs.runs().to_vec()), runs);
        }

        #[test]
        fn runs_of_any_length_are_iterable(runs: Vec<u32>) {
            let runs = RemovalRuns::from_runs(runs);
            prop_assert!(runs.count() <= runs.entries());
            prop_assert!(runs.removals().take(100).count() as u64 <= runs.entries());
        }
    }
}
