//! What a replica says of its entries so that another can tell which of them differ: six bytes
//! each, and the answer to that.

use crate::hash::ObjectHash;
use crate::key::EntryKey;

/// The context string of the key derivation.
const CONTEXT: &str = "headwater 2026-11 entry digest v1";

/// Tells one entry from another: key, UID, resource version and object. Short, so that two that
/// differ may have the same one, once in 2^48 pairs; what is made of a comparison is checked by
/// the state hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryDigest([u8; Self::BYTES]);

impl EntryDigest {
    /// How long it is.
    pub const BYTES: usize = 6;

    /// The digest from its bytes.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }
}

/// The key under which the digests of one comparison are made: two entries that look alike in
/// one do not in the next.
#[derive(Clone, Copy)]
pub struct DigestKey([u8; 32]);

impl DigestKey {
    /// The key of the comparison with this nonce.
    pub fn new(nonce: u64) -> Self {
        Self(blake3::derive_key(CONTEXT, &nonce.to_le_bytes()))
    }

    /// The digest of an entry.
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

/// Which entries of a summary leave: the lengths of runs of entries that stay and that go, by
/// turns, in the order of the summary. What is behind the last run stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    runs: Vec<u32>,
}

impl Gone {
    /// The entries of which this says that they go.
    pub fn of(goes: impl IntoIterator<Item = bool>) -> Self {
        let mut runs = Vec::new();
        let (mut run, mut going) = (0_u32, false);
        for goes in goes {
            if goes != going {
                runs.push(run);
                (run, going) = (0, goes);
            }
            // A summary is bounded far below.
            run = run.saturating_add(1);
        }
        if going {
            runs.push(run);
        }
        Self { runs }
    }

    /// From its runs, whatever they say.
    pub fn from_runs(runs: Vec<u32>) -> Self {
        Self { runs }
    }

    /// Its runs.
    pub fn runs(&self) -> &[u32] {
        &self.runs
    }

    /// Whether nothing goes.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many entries go.
    pub fn count(&self) -> u64 {
        self.runs.iter().skip(1).step_by(2).map(|run| u64::from(*run)).sum()
    }

    /// How many entries it speaks of.
    pub fn entries(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(*run)).sum()
    }

    /// Of each entry that it speaks of, whether it goes.
    pub fn goes(&self) -> impl Iterator<Item = bool> + '_ {
        let goes = [false, true].into_iter().cycle();
        let runs = self.runs.iter().zip(goes);
        runs.flat_map(|(run, goes)| std::iter::repeat_n(goes, *run as usize))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_part_of_an_entry_and_the_nonce_count() {
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
    fn what_goes_is_said_in_runs() {
        let of = |text: &str| Gone::of(text.chars().map(|c| c == 'x'));
        assert_eq!(of("").runs(), [0; 0]);
        assert_eq!(of("......").runs(), [0; 0]);
        assert_eq!(of("xxxxxx").runs(), [0, 6]);
        assert_eq!(of("..x...xx.").runs(), [2, 1, 3, 2]);
        assert_eq!((of("..x...xx.").count(), of("..x...xx.").entries()), (3, 8));
        assert!(of("...").is_empty() && !of("x").is_empty());
    }

    proptest! {
        #[test]
        fn runs_say_which(goes in proptest::collection::vec(any::<bool>(), 0..60)) {
            let gone = Gone::of(goes.clone());
            let last = goes.iter().rposition(|goes| *goes).map_or(0, |last| last + 1);
            prop_assert_eq!(gone.goes().collect::<Vec<_>>(), &goes[..last]);
            prop_assert_eq!(gone.count(), goes.iter().filter(|goes| **goes).count() as u64);
            prop_assert_eq!(Gone::from_runs(gone.runs().to_vec()), gone);
        }

        #[test]
        fn no_runs_are_too_long_to_look_at(runs: Vec<u32>) {
            let gone = Gone::from_runs(runs);
            prop_assert!(gone.count() <= gone.entries());
            prop_assert!(gone.goes().take(100).count() as u64 <= gone.entries());
        }
    }
}
