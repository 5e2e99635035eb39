//! Reads of the replica. The owner is the only writer, and makes everything durable before it reads
//! for others on the node.

use std::collections::BTreeMap;

use headwater_event::{DigestKey, EntryDigest, EntryKey, ResourceKey, StreamId};
use headwater_store::EngineError;
use headwater_view::{EffectKind, Selection, StreamReader};

use super::owner::EdgeReplica;
use super::watch::{Filter, WatchItem};
use crate::meta::object::Object;
use crate::upstream::ViewChange;

/// How many entries one read of a listing takes from the engine.
const LISTING_CHUNK: usize = 64;

impl EdgeReplica {
    /// Lists everything that a watch sees.
    pub(super) fn listing(&self, filter: &Filter) -> Result<WatchItem, EngineError> {
        let mut objects = Vec::new();
        for stream in self.positions().keys() {
            let mut take = |object: Object| {
                if filter.sees(&object.key) {
                    objects.push(object);
                }
            };
            if filter.types.is_empty() {
                self.read(stream, Selection::All, &mut take)?;
            }
            for kind in &filter.types {
                self.read(stream, Selection::Kind(kind), &mut take)?;
            }
        }
        Ok(WatchItem::Listing { objects, complete: self.complete })
    }

    /// Lists what the outbox thread must know of the view.
    pub(super) fn list_pods(&self) -> Result<Vec<ViewChange>, EngineError> {
        let mut pods = BTreeMap::new();
        self.read(&self.private, Selection::Kind("pod"), |object| {
            pods.insert(object.key, object.uid);
        })?;
        let mut changes = vec![ViewChange::Listed { pods, complete: self.complete }];
        let reader = self.reader();
        if let Some(entry) = reader.entry(&self.private, &EntryKey::SnapshotRequest)? {
            changes.extend(snapshot_request(&entry.object));
        }
        Ok(changes)
    }

    /// Looks up one object.
    pub(super) fn find(&self, key: ResourceKey) -> Result<Option<Object>, EngineError> {
        let key = EntryKey::Resource(key);
        for stream in self.positions().keys() {
            if let Some(entry) = self.reader().entry(stream, &key)? {
                return Ok(Object::of_entry(key, entry));
            }
        }
        Ok(None)
    }

    /// Calls `take` with each selected object of a stream.
    pub(super) fn read(
        &self,
        stream: &StreamId,
        selection: Selection<'_>,
        mut take: impl FnMut(Object),
    ) -> Result<(), EngineError> {
        let reader = self.reader();
        let mut after = None;
        loop {
            let chunk = reader.entries(stream, selection, after.as_ref(), LISTING_CHUNK)?;
            let is_last = chunk.len() < LISTING_CHUNK;
            after = chunk.last().map(|(key, _)| key.clone());
            for (key, entry) in chunk {
                Object::of_entry(key, entry).into_iter().for_each(&mut take);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// The digests of a stream's entries; empty where there are more than `entries_max`.
    pub(super) fn digests(
        &self,
        stream: &StreamId,
        nonce: u64,
        entries_max: usize,
    ) -> Result<Vec<EntryDigest>, EngineError> {
        let digests = self.reader().digests(stream, &DigestKey::new(nonce), entries_max)?;
        Ok(digests.unwrap_or_default())
    }

    fn reader(&self) -> StreamReader<'_> {
        // No snapshot is needed: the owner is the only writer.
        StreamReader::new(&*self.engine)
    }
}

/// The change that the outbox thread must know of; `None`: it needs none.
pub(super) fn view_change(effected: &EffectKind) -> Option<ViewChange> {
    match effected {
        EffectKind::Added(applied) | EffectKind::Changed(applied) => match &applied.key {
            EntryKey::Resource(key) if key.kind() == "pod" => {
                Some(ViewChange::Pod { pod: key.clone(), uid: applied.uid.clone() })
            }
            EntryKey::SnapshotRequest => snapshot_request(&applied.object),
            EntryKey::Resource(_) | EntryKey::Streams => None,
        },
        EffectKind::Removed(removed) => match &removed.key {
            EntryKey::Resource(key) if key.kind() == "pod" => {
                Some(ViewChange::PodGone { pod: key.clone(), uid: removed.uid.clone() })
            }
            _ => None,
        },
        EffectKind::Unchanged(_) | EffectKind::Replaced => None,
    }
}

/// The number of a snapshot request; `None`: the entry is malformed.
fn snapshot_request(object: &[u8]) -> Option<ViewChange> {
    serde_json::from_slice(object).ok().map(ViewChange::SnapshotRequested)
}
