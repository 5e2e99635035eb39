//! The state of a stream in its plainest form: what every fold is compared with.

use std::collections::BTreeMap;

use headwater_event::{
    Change, DigestKey, EntryDigest, EntryKey, Envelope, HashKey, LogId, ObjectHash, RemovalRuns,
    Seq, StateHash,
};

/// The entries of a stream at one position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The entries by key.
    pub entries: BTreeMap<EntryKey, Entry>,
}

/// What of an entry matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object's UID.
    pub uid: String,
    /// The hash of the object's bytes.
    pub object: ObjectHash,
}

impl State {
    /// `fold(log[..=at])`: the state after every event of `log` up to `at`.
    pub fn fold<'a>(log: impl IntoIterator<Item = &'a Envelope>, at: Seq) -> Self {
        let mut state = Self::default();
        for change in
            log.into_iter().filter(|event| event.seq <= at).filter_map(|event| event.event.change())
        {
            state.apply(&change);
        }
        state
    }

    /// One change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Applied(applied) => {
                let object = ObjectHash::of(&applied.object);
                let entry = Entry { uid: applied.uid.clone(), object };
                self.entries.insert(applied.key.clone(), entry);
            }
            Change::Removed(removed) => {
                self.entries.remove(&removed.key);
            }
        }
    }

    /// The state hash in the log `log_id`.
    pub fn hash(&self, log_id: &LogId) -> StateHash {
        let key = HashKey::new(log_id);
        let mut hash = StateHash::EMPTY;
        for (entry_key, entry) in &self.entries {
            hash.add(&key, entry_key, &entry.object);
        }
        hash
    }

    /// What a replica with this state says of it, an entry of an object a digest, where all have
    /// this resource version.
    pub fn digests(&self, digest_key: &DigestKey, resource_version: &str) -> Vec<EntryDigest> {
        let objects = self.entries.iter().filter(|(key, _)| key.resource().is_some());
        let digest = |key, entry: &Entry| {
            digest_key.digest(key, &entry.uid, resource_version, &entry.object)
        };
        objects.map(|(key, entry)| digest(key, entry)).collect()
    }

    /// What stays of it for a correction: reserved entries come anew.
    pub fn retain(&mut self, gone: &RemovalRuns) {
        let mut goes = gone.removals();
        self.entries.retain(|key, _| key.resource().is_some() && !goes.next().unwrap_or_default());
    }

    /// The first key whose entries differ, with both.
    pub fn difference<'a>(
        &'a self,
        other: &'a Self,
    ) -> Option<(&'a EntryKey, Option<&'a Entry>, Option<&'a Entry>)> {
        self.entries
            .keys()
            .chain(other.entries.keys())
            .map(|key| (key, self.entries.get(key), other.entries.get(key)))
            .find(|(_, mine, theirs)| mine != theirs)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use headwater_event::{Applied, Event, Removed, StreamId, WriterEpoch};

    use super::*;

    /// A log of the cluster stream: `Some` applies pod `p<n>` with that content, `None` removes.
    pub(crate) fn log(changes: &[(u8, Option<u8>)]) -> Vec<Envelope> {
        let mut seq = Seq::ZERO;
        let envelope = |(pod, content): &(u8, Option<u8>)| {
            seq = seq.next();
            let key: EntryKey = format!("ns/pod/p{pod}").parse().expect("well-formed");
            let uid = format!("u{pod}");
            let event = match content {
                Some(content) => Event::Applied(Applied {
                    key,
                    uid,
                    resource_version: String::new(),
                    object: Bytes::copy_from_slice(&[*content]),
                }),
                None => Event::Removed(Removed { key, uid }),
            };
            Envelope {
                stream: StreamId::Cluster,
                seq,
                epoch: WriterEpoch(1),
                epoch_first_seq: Seq(1),
                time_ms: 0,
                hash: StateHash::EMPTY,
                traceparent: None,
                shared: None,
                event,
            }
        };
        changes.iter().map(envelope).collect()
    }

    #[test]
    fn a_fold_ends_at_its_bound() {
        let log = log(&[(1, Some(1)), (2, Some(2)), (1, None)]);
        assert_eq!(State::fold(&log, Seq(2)).entries.len(), 2);
        assert_eq!(State::fold(&log, Seq(3)).entries.len(), 1);
    }
}
