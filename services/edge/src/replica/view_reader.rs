//! Reads of the replica. The owner is the only writer, and makes everything durable before it reads
//! for others on the node.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::{
    Assignment, DigestKey, EntryDigest, EntryKey, NodeName, ResourceKey, StreamId,
};
use headwater_store::{Engine, EngineError};
use headwater_view::{EffectKind, PositionChanges, Selection, StreamReader};

use super::fold::AppliedEffect;
use super::watch::{Filter, WatchItem};
use crate::meta::object::Object;
use crate::upstream::ViewChange;

/// How many entries one read of a listing takes from the engine.
const LISTING_CHUNK: usize = 64;

/// Reads the view.
#[derive(Debug)]
pub(super) struct ViewReader {
    engine: Arc<dyn Engine>,
    /// The node's own stream.
    private: StreamId,
    /// Whether the durable view has the node's whole private stream.
    complete: bool,
}

impl ViewReader {
    /// A reader of the view in `engine`, which has the streams of `positions`.
    pub(super) fn new<P>(
        engine: Arc<dyn Engine>,
        private: StreamId,
        positions: &BTreeMap<StreamId, P>,
    ) -> Self {
        let complete = positions.contains_key(&private);
        Self { engine, private, complete }
    }

    /// Whether the view becomes complete, or ceases to be, when the streams of `moved` are durable.
    pub(super) fn changes_completeness(&self, moved: &PositionChanges) -> bool {
        moved.get(&self.private).is_some_and(|at| at.is_some() != self.complete)
    }

    /// Takes over which streams are durable.
    pub(super) fn update<P>(&mut self, positions: &BTreeMap<StreamId, P>) {
        self.complete = positions.contains_key(&self.private);
    }

    /// The streams that the private stream assigns to `node`; `None`: the view has nothing of that
    /// stream, or its entry cannot be decoded.
    pub(super) fn assignment(&self, node: &NodeName) -> Result<Option<Assignment>, EngineError> {
        let entry = StreamReader::new(&*self.engine).entry(&self.private, &EntryKey::Streams)?;
        Ok(match entry {
            Some(entry) => Assignment::decode(node, &entry.object).ok(),
            None => self.complete.then(|| Assignment::new(node, [])),
        })
    }

    /// Lists everything of `streams` that a watch sees.
    pub(super) fn listing<'a>(
        &self,
        filter: &Filter,
        streams: impl Iterator<Item = &'a StreamId>,
    ) -> Result<WatchItem, EngineError> {
        let mut objects = Vec::new();
        for stream in streams {
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

    /// The changes that the outbox thread must know of.
    pub(super) fn view_changes(&self, effects: &[AppliedEffect]) -> Vec<ViewChange> {
        let private = effects.iter().filter(|done| done.effect.stream == self.private);
        private.filter_map(|done| view_change(&done.effect.kind)).collect()
    }

    /// Looks up one object in `streams`.
    pub(super) fn find<'a>(
        &self,
        key: ResourceKey,
        streams: impl Iterator<Item = &'a StreamId>,
    ) -> Result<Option<Object>, EngineError> {
        let key = EntryKey::Resource(key);
        for stream in streams {
            if let Some(entry) = self.reader().entry(stream, &key)? {
                return Ok(Object::of_entry(key, entry));
            }
        }
        Ok(None)
    }

    /// Lists the selected objects of `streams`.
    pub(super) fn list<'a>(
        &self,
        selection: Selection<'_>,
        streams: impl Iterator<Item = &'a StreamId>,
    ) -> Result<Vec<Object>, EngineError> {
        let mut objects = Vec::new();
        for stream in streams {
            self.read(stream, selection, |object| objects.push(object))?;
        }
        Ok(objects)
    }

    /// Calls `take` with each selected object of a stream.
    fn read(
        &self,
        stream: &StreamId,
        selection: Selection<'_>,
        mut take: impl FnMut(Object),
    ) -> Result<(), EngineError> {
        for entry in self.reader().all_entries(stream, selection, LISTING_CHUNK) {
            let (key, entry) = entry?;
            Object::of_entry(key, entry).into_iter().for_each(&mut take);
        }
        Ok(())
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
fn view_change(effected: &EffectKind) -> Option<ViewChange> {
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
