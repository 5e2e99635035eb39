//! Finds the entries of the hub's state that an edge already has, according to its summary.

use headwater_event::{DigestKey, EntryDigest, EntryKey, ObjectHash, RemovalRuns};

/// A summary in which a hub looks up its entries.
#[derive(Debug)]
pub struct Comparison {
    digest_key: DigestKey,
    /// Sorted, each with its index in the summary.
    digests: Vec<(EntryDigest, u32)>,
    /// For each index in the summary, whether the hub has that entry too.
    stays: Vec<bool>,
}

impl Comparison {
    /// Begins a comparison with a summary whose digests are keyed with `nonce`.
    pub fn new(nonce: u64, digests: &[EntryDigest]) -> Self {
        let stays = vec![false; digests.len()];
        let mut digests: Vec<_> = digests.iter().copied().zip(0..).collect();
        digests.sort_unstable();
        Self { digest_key: DigestKey::new(nonce), digests, stays }
    }

    /// Whether the edge has this entry. If so, the entry stays at the edge. No summary contains
    /// reserved entries.
    pub fn has(
        &mut self,
        key: &EntryKey,
        uid: &str,
        resource_version: &str,
        object: &ObjectHash,
    ) -> bool {
        if key.resource().is_none() {
            return false;
        }
        let digest = self.digest_key.digest(key, uid, resource_version, object);
        let found = self.digests.binary_search_by_key(&digest, |(digest, _)| *digest);
        let index = found.ok().and_then(|at| self.digests.get(at)).map(|(_, index)| *index);
        match index.and_then(|index| self.stays.get_mut(index as usize)) {
            Some(stays) => {
                *stays = true;
                true
            }
            None => false,
        }
    }

    /// The entries of the summary that no lookup found.
    pub fn gone(&self) -> RemovalRuns {
        RemovalRuns::of(self.stays.iter().map(|stays| !stays))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(digest_key: &DigestKey, name: &str, object: &[u8]) -> EntryDigest {
        let key = format!("d/pod/{name}").parse().expect("a key");
        digest_key.digest(&key, "u", "1", &ObjectHash::of(object))
    }

    #[test]
    fn entries_of_both_ends_stay_and_the_others_are_removed() {
        let digest_key = DigestKey::new(7);
        let edge_entries = [("d", "1"), ("a", "1"), ("c", "1"), ("b", "1")];
        let digests =
            edge_entries.map(|(name, object)| digest(&digest_key, name, object.as_bytes()));
        let mut comparison = Comparison::new(7, &digests);
        let mut has = |key: &str, object: &[u8]| {
            let key = key.parse().expect("a key");
            comparison.has(&key, "u", "1", &ObjectHash::of(object))
        };
        assert!(has("d/pod/a", b"1") && has("d/pod/b", b"1"));
        assert!(!has("d/pod/c", b"2"), "it changed");
        assert!(!has("d/pod/e", b"1"), "it is new");
        assert!(!has("!streams", b"1"), "it is reserved");
        assert_eq!(comparison.gone().removals().collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_repeated_digest_does_no_harm() {
        let digest_key = DigestKey::new(7);
        let one = digest(&digest_key, "a", b"1");
        let mut comparison = Comparison::new(7, &[one, one]);
        let key = "d/pod/a".parse().expect("a key");
        assert!(comparison.has(&key, "u", "1", &ObjectHash::of(b"1")));
        assert_eq!(comparison.gone().count(), 1);
    }
}
