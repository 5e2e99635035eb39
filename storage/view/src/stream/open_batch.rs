//! The open batch: what is folded and not yet committed, and the streams that it moves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use headwater_event::{Cursor, HashKey, LogId, Partition, StreamId};
use headwater_store::{Batch, Durability, Engine, EngineError, Folded, StreamCheckpoint};

use super::loaded_stream::LoadedStream;
use super::position::PositionChanges;
use super::stream_row::BatchPosition;

/// How much memory a fold takes beyond what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldBounds {
    /// How many entries are cached between batches (UID and object hash, about 250 bytes each), so
    /// that the fold of their next change reads nothing. A fuller cache is cleared; that is no
    /// error.
    pub cached_entries_max: usize,
    /// The largest tail or delta that is folded in place, in bytes of objects. A larger one is
    /// staged. Bounded by what an engine accepts at once (8 MiB, the open batch included).
    pub direct_bytes_max: usize,
    /// How much is staged between two writes to the engine, in bytes.
    pub staged_batch_bytes_max: usize,
}

impl Default for FoldBounds {
    /// The entries of an edge fit many times into 65,536; a hub spends at most 16 MiB on them.
    /// Staged batches are no larger than those of a live tail, so a staged advance takes no more
    /// memory than steady operation.
    fn default() -> Self {
        Self {
            cached_entries_max: 65_536,
            direct_bytes_max: 2 << 20,
            staged_batch_bytes_max: 1 << 20,
        }
    }
}

/// The open batch over an engine.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) rows: Batch<Folded>,
    pub(crate) streams: HashMap<StreamId, LoadedStream>,
    pub(crate) bounds: FoldBounds,
    /// Streams whose position or row the batch changes.
    pub(crate) dirty: BTreeSet<StreamId>,
    pub(crate) cursors: BTreeMap<Partition, Cursor>,
    /// Summaries in memory of the visible generations.
    pub(crate) cached_entries: usize,
    /// Streams that moved since the last [`OpenBatch::commit`].
    moved: PositionChanges,
    hash_key: Option<(LogId, HashKey)>,
}

impl OpenBatch {
    pub(crate) fn new(engine: Arc<dyn Engine>, bounds: FoldBounds) -> Self {
        Self {
            engine,
            rows: Batch::new(),
            streams: HashMap::new(),
            bounds,
            dirty: BTreeSet::new(),
            cursors: BTreeMap::new(),
            cached_entries: 0,
            moved: PositionChanges::new(),
            hash_key: None,
        }
    }

    /// Returns `stream`, the batch included.
    pub(crate) fn stream(&mut self, stream: &StreamId) -> Result<&mut LoadedStream, EngineError> {
        LoadedStream::of(&mut self.streams, &*self.engine, stream)
    }

    /// The key of the state hash in the log `log_id`.
    pub(crate) fn hash_key(&mut self, log_id: &LogId) -> HashKey {
        match self.hash_key {
            Some((known, key)) if known == *log_id => key,
            _ => {
                let key = HashKey::new(log_id);
                self.hash_key = Some((*log_id, key));
                key
            }
        }
    }

    /// Whether a commit would change nothing.
    pub(crate) fn is_unchanged(&self) -> bool {
        let moves = self.dirty.len() + self.cursors.len() + self.moved.len();
        moves == 0 && self.rows.is_empty()
    }

    /// Commits the batch. Returns the streams that moved since the last commit.
    pub(crate) fn commit(
        &mut self,
        durability: Durability,
    ) -> Result<PositionChanges, EngineError> {
        self.write(durability)?;
        Ok(std::mem::take(&mut self.moved))
    }

    /// Writes the batch with every position that it moves.
    pub(crate) fn write(&mut self, durability: Durability) -> Result<(), EngineError> {
        let mut positions = Vec::new();
        for stream in std::mem::take(&mut self.dirty) {
            let Some(loaded) = self.streams.get_mut(&stream) else { continue };
            if std::mem::take(&mut loaded.row_moved) {
                positions.push(BatchPosition::Row(stream.clone(), loaded.row));
            }
            if std::mem::take(&mut loaded.at_moved) {
                self.moved.insert(stream.clone(), loaded.at);
                positions.push(match loaded.at {
                    Some((checkpoint, hash)) => {
                        BatchPosition::Stream(StreamCheckpoint { stream, checkpoint, hash })
                    }
                    None => BatchPosition::Dropped(stream),
                });
            }
        }
        let cursors = std::mem::take(&mut self.cursors).into_values();
        positions.extend(cursors.map(BatchPosition::Partition));
        if positions.is_empty() {
            if self.rows.is_empty() {
                return if durability == Durability::Synced { self.engine.sync() } else { Ok(()) };
            }
            positions.push(BatchPosition::None);
        }
        let rows = std::mem::take(&mut self.rows);
        if let Err(error) = rows.commit(&*self.engine, &positions, durability) {
            self.abort();
            return Err(error);
        }
        if self.cached_entries > self.bounds.cached_entries_max {
            self.streams.values_mut().for_each(|stream| stream.visible.clear_cache());
            self.cached_entries = 0;
        }
        Ok(())
    }

    /// Discards the batch and what is staged: the state is what is committed.
    pub(crate) fn abort(&mut self) {
        self.rows = Batch::new();
        self.streams.clear();
        self.dirty.clear();
        self.cursors.clear();
        self.cached_entries = 0;
    }
}
