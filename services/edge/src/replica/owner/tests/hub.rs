//! What a hub would push of one stream.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::{
    Applied, Change, Checkpoint, EntryDigest, HashKey, LogId, ObjectHash, RemovalRuns, Removed,
    ResourceKey, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_session::Comparison;
use headwater_session::message::{Push, PushMode, PushedChange};
use uuid::Uuid;

use super::key;

pub(super) fn log_id(number: u64) -> LogId {
    LogId { number, uuid: Uuid::from_u128(7) }
}

/// One stream of a log, and what is in it.
#[derive(Clone)]
pub(super) struct Hub {
    pub(super) stream: StreamId,
    pub(super) log: u64,
    pub(super) seq: u64,
    pub(super) hash: StateHash,
    pub(super) objects: BTreeMap<ResourceKey, Applied>,
}

impl Hub {
    pub(super) fn of(stream: StreamId) -> Self {
        Self { stream, log: 1, seq: 0, hash: StateHash::EMPTY, objects: BTreeMap::new() }
    }

    pub(super) fn apply(&mut self, text: &str, uid: &str, object: &str) -> Push {
        let resource_version = self.seq.to_string();
        self.put(text, uid, object, resource_version)
    }

    /// The same, under the resource version that `other` has of it.
    pub(super) fn apply_as(&mut self, text: &str, uid: &str, object: &str, other: &Self) -> Push {
        let held = other.objects.get(&key(text));
        let resource_version = held.map(|held| held.resource_version.clone());
        self.put(text, uid, object, resource_version.unwrap_or_default())
    }

    fn put(&mut self, text: &str, uid: &str, object: &str, resource_version: String) -> Push {
        let applied = Applied {
            key: key(text).into(),
            uid: uid.to_owned(),
            resource_version,
            object: Bytes::copy_from_slice(object.as_bytes()),
        };
        self.forget(text);
        self.hash.add(&self.hash_key(), &applied.key, &ObjectHash::of(&applied.object));
        self.objects.insert(key(text), applied.clone());
        self.tail(Change::Applied(applied))
    }

    pub(super) fn remove(&mut self, text: &str) -> Push {
        let uid = self.forget(text).unwrap_or_default();
        self.tail(Change::Removed(Removed { key: key(text).into(), uid }))
    }

    pub(super) fn snapshot(&self) -> Push {
        let changes = self.objects.values().map(|held| Change::Applied(held.clone()).into());
        self.push(PushMode::Snapshot, Seq::ZERO, changes.collect())
    }

    /// The same in parts of one change each.
    pub(super) fn snapshot_in_parts(&self) -> Vec<Push> {
        parts(&self.snapshot())
    }

    /// What one who says `digests` gets instead, in parts of one change each.
    pub(super) fn correction(&self, nonce: u64, digests: &[EntryDigest]) -> Vec<Push> {
        let mut comparison = Comparison::new(nonce, digests);
        let lacking = self.objects.values().filter(|held| {
            let Applied { key, uid, resource_version, object } = held;
            !comparison.has(key, uid, resource_version, &ObjectHash::of(object))
        });
        let changes = lacking.map(|held| Change::Applied(held.clone()).into()).collect();
        let push = self.push(PushMode::Correction, Seq::ZERO, changes);
        let mut parts = parts(&push);
        if let Some(first) = parts.first_mut() {
            first.gone = comparison.gone();
        }
        parts
    }

    /// Parts as one push.
    pub(super) fn whole(&self, parts: &[Push]) -> Push {
        let changes = parts.iter().flat_map(|part| part.changes.clone()).collect();
        Push { changes, last_part: true, ..parts[0].clone() }
    }

    pub(super) fn tail(&mut self, change: Change) -> Push {
        let from = Seq(self.seq);
        self.seq += 1;
        let traceparent = Some(format!("trace-{}", self.seq));
        self.push(
            PushMode::Tail,
            from,
            vec![PushedChange { traceparent, appended_ms: Some(1), ..change.into() }],
        )
    }

    fn push(&self, mode: PushMode, from: Seq, changes: Vec<PushedChange>) -> Push {
        let (log_id, epoch, seq) = (log_id(self.log), WriterEpoch(1), Seq(self.seq));
        Push {
            stream: self.stream.clone(),
            mode,
            from,
            to: Checkpoint { log_id, epoch, seq },
            gone: RemovalRuns::default(),
            changes,
            hash: self.hash,
            part: 0,
            last_part: true,
        }
    }

    fn forget(&mut self, text: &str) -> Option<String> {
        let held = self.objects.remove(&key(text))?;
        self.hash.subtract(&self.hash_key(), &held.key, &ObjectHash::of(&held.object));
        Some(held.uid)
    }

    fn hash_key(&self) -> HashKey {
        HashKey::new(&log_id(self.log))
    }
}

/// A push in parts of one change each.
fn parts(whole: &Push) -> Vec<Push> {
    let last = whole.changes.len().max(1) - 1;
    if whole.changes.is_empty() {
        return vec![whole.clone()];
    }
    let part = |(at, change): (usize, &PushedChange)| Push {
        changes: vec![change.clone()],
        part: u32::try_from(at).expect("few parts"),
        last_part: at == last,
        ..whole.clone()
    };
    whole.changes.iter().enumerate().map(part).collect()
}
