//! Reads of committed streams, in bounded chunks.

use std::collections::HashMap;

use bytes::Bytes;
use headwater_event::{
    BodyAddress, Checkpoint, EntryKey, HashKey, ObjectHash, StateHash, StreamId,
};
use headwater_store::position::CHECKPOINTS;
use headwater_store::{EngineError, Read, StreamCheckpoint};

use super::body::BODIES;
use super::entry::{ENTRIES, Entry, EntrySummary, StoredEntry};
use super::position::StatePosition;
use super::row_key::RowKey;
use super::stream_row::{STREAM_ROWS, StreamRow};

/// Reads streams from an engine or a snapshot of one.
///
/// Over a snapshot all calls see one state. Over an engine each call sees the state of its own
/// moment, and a staged advance may become visible between two calls.
pub struct StreamReader<'r> {
    from: &'r dyn Read,
}

/// Which entries of a stream to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// All of them, ordered by type, namespace and name; reserved entries first.
    All,
    /// Those of one type, lower-case singular: one range; nothing else is read.
    Kind(&'a str),
    /// Those of one type in one namespace (`null` for a cluster-scoped type): one range as well.
    KindIn(&'a str, &'a str),
}

/// The result of recomputing the state hash of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The stream's position.
    pub checkpoint: Checkpoint,
    /// The hash that is stored with the position.
    pub kept: StateHash,
    /// The hash of the stored objects.
    pub recomputed: StateHash,
    /// How many entries there are.
    pub entries: u64,
}

impl Verification {
    /// Whether the stored objects are the folded ones.
    pub fn agrees(&self) -> bool {
        self.kept == self.recomputed
    }
}

impl<'r> StreamReader<'r> {
    /// Reads from `from`.
    pub fn new(from: &'r dyn Read) -> Self {
        Self { from }
    }

    /// The position of `stream`; `None`: it has no state.
    ///
    /// # Errors
    /// As [`Read::get`].
    pub fn position(&self, stream: &StreamId) -> Result<Option<StatePosition>, EngineError> {
        CHECKPOINTS.get(self.from, stream)
    }

    /// The positions of all streams, in order.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn streams(&self) -> Result<Vec<StreamCheckpoint>, EngineError> {
        let position = |row| {
            let (stream, (checkpoint, hash)) = row?;
            Ok(StreamCheckpoint { stream, checkpoint, hash })
        };
        CHECKPOINTS.rows(self.from).map(position).collect()
    }

    /// The entry under `key`.
    ///
    /// # Errors
    /// As [`Read::get`].
    pub fn entry(&self, stream: &StreamId, key: &EntryKey) -> Result<Option<Entry>, EngineError> {
        let stored = ENTRIES.get(self.from, &self.generation(stream)?.entry(key))?;
        stored.map(|stored| stored.resolve(self.from)).transpose()
    }

    /// The object of a body; `None`: it is retired.
    ///
    /// # Errors
    /// As [`Read::get`].
    pub fn body(&self, at: &BodyAddress) -> Result<Option<Bytes>, EngineError> {
        Ok(BODIES.get(self.from, at)?.map(|stored| stored.entry.object))
    }

    /// An entry without its object.
    ///
    /// # Errors
    /// As [`Read::get`].
    pub fn summary(
        &self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<EntrySummary>, EngineError> {
        let stored = ENTRIES.get(self.from, &self.generation(stream)?.entry(key))?;
        Ok(stored.map(EntrySummary::from))
    }

    /// The first `limit` selected entries after `after`. Fewer: there are no more.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn entries(
        &self,
        stream: &StreamId,
        selection: Selection<'_>,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Vec<(EntryKey, Entry)>, EngineError> {
        let rows = self.rows(stream, selection, after, limit)?;
        rows.into_iter().map(|(key, stored)| Ok((key, stored.resolve(self.from)?))).collect()
    }

    /// All selected entries, in order, read `chunk` at a time; at least 1. The iterator ends after an
    /// error.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn all_entries<'s>(
        &self,
        stream: &'s StreamId,
        selection: Selection<'s>,
        chunk: usize,
    ) -> impl Iterator<Item = Result<(EntryKey, Entry), EngineError>> + use<'r, 's> {
        let reader = Self { from: self.from };
        let (mut read, mut after, mut is_last) = (Vec::new().into_iter(), None, false);
        std::iter::from_fn(move || {
            loop {
                if let Some(entry) = read.next() {
                    return Some(Ok(entry));
                }
                if is_last {
                    return None;
                }
                match reader.entries(stream, selection, after.as_ref(), chunk) {
                    Ok(entries) => {
                        is_last = entries.len() < chunk;
                        after = entries.last().map(|(key, _)| key.clone());
                        read = entries.into_iter();
                    }
                    Err(error) => {
                        is_last = true;
                        return Some(Err(error));
                    }
                }
            }
        })
    }

    /// The first `limit` entries after `after`, without their objects. Fewer: there are no more.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn summaries(
        &self,
        stream: &StreamId,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Vec<(EntryKey, EntrySummary)>, EngineError> {
        let rows = self.rows(stream, Selection::All, after, limit)?;
        Ok(rows.into_iter().map(|(key, stored)| (key, EntrySummary::from(stored))).collect())
    }

    fn rows(
        &self,
        stream: &StreamId,
        selection: Selection<'_>,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Vec<(EntryKey, StoredEntry)>, EngineError> {
        let generation = self.generation(stream)?;
        let selected = match selection {
            Selection::All => generation.clone(),
            Selection::Kind(kind) => generation.of_kind(kind, None),
            Selection::KindIn(kind, namespace) => generation.of_kind(kind, Some(namespace)),
        };
        let first = match after {
            Some(key) => generation.entry(key).successor(),
            None => selected.clone(),
        };
        let rows = ENTRIES.rows_of_from(self.from, &selected, &first).take(limit);
        rows.map(|row| row.and_then(|(row, stored)| Ok((row.entry_key_in(&generation)?, stored))))
            .collect()
    }

    /// Recomputes the state hash of `stream` from the bytes of the stored objects; `None`: it has
    /// no state. Reads the whole stream, so use it over a snapshot.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn verify(&self, stream: &StreamId) -> Result<Option<Verification>, EngineError> {
        self.verify_with(stream, &mut BodyHashes::default())
    }

    fn verify_with(
        &self,
        stream: &StreamId,
        bodies: &mut BodyHashes,
    ) -> Result<Option<Verification>, EngineError> {
        let Some((checkpoint, kept)) = self.position(stream)? else { return Ok(None) };
        let generation = self.generation(stream)?;
        let hash_key = HashKey::new(&checkpoint.log_id);
        let (mut recomputed, mut entries) = (StateHash::EMPTY, 0);
        for row in ENTRIES.rows_of(self.from, &generation) {
            let (row, stored) = row?;
            let key = row.entry_key_in(&generation)?;
            recomputed.add(&hash_key, &key, &bodies.hash_of(stored, self.from)?);
            entries += 1;
        }
        Ok(Some(Verification { checkpoint, kept, recomputed, entries }))
    }

    /// Returns the first stream whose stored objects are not the folded ones; `None`: every stream
    /// is intact. Reads every object, so use it over a snapshot.
    ///
    /// RocksDB finds a corrupt byte when it reads it, and a missing file when it opens. A truncated
    /// list of files can pass for a shorter one, so objects may be missing. The state hash that is
    /// stored with the position reveals that.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn find_damage(&self) -> Result<Option<(StreamId, Verification)>, EngineError> {
        let mut bodies = BodyHashes::default();
        for position in self.streams()? {
            let verification = self.verify_with(&position.stream, &mut bodies)?;
            if let Some(found) = verification.filter(|found| !found.agrees()) {
                return Ok(Some((position.stream, found)));
            }
        }
        Ok(None)
    }

    pub(crate) fn read(&self) -> &dyn Read {
        self.from
    }

    pub(crate) fn generation(&self, stream: &StreamId) -> Result<RowKey, EngineError> {
        let row = STREAM_ROWS.get(self.from, stream)?.unwrap_or(StreamRow::FIRST);
        Ok(RowKey::generation(stream, row.visible))
    }
}

/// The hashes of the bodies that were read: entries of many streams refer to one.
#[derive(Default)]
struct BodyHashes(HashMap<BodyAddress, ObjectHash>);

impl BodyHashes {
    /// The hash of an entry's object, from its bytes.
    fn hash_of(&mut self, stored: StoredEntry, from: &dyn Read) -> Result<ObjectHash, EngineError> {
        let body = stored.body;
        if let Some(hash) = body.and_then(|body| self.0.get(&body)) {
            return Ok(*hash);
        }
        let hash = ObjectHash::of(&stored.resolve(from)?.object);
        if let Some(body) = body {
            self.0.insert(body, hash);
        }
        Ok(hash)
    }
}

impl std::fmt::Debug for StreamReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamReader")
    }
}
