//! Streams folded into an engine: entries, state hash and position, in one batch.
//!
//! ```text
//!  event, push --admit--> draft --hash agrees--> open batch --commit--> applied --sync--> durable
//!                 |                    |
//!              Refusal              Refusal        (nothing of it anywhere)
//! ```
//!
//! The open batch gathers many inputs (group commit). It is seen by the next fold, by readers
//! only once committed. [`StreamState`] is owned by one task; readers use a
//! [`StreamReader`](crate::StreamReader) over the engine or a snapshot of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{
    Checkpoint, Cursor, EntryKey, Envelope, Event, HashKey, LogId, Partition, StreamId,
};
use headwater_store::{
    Batch, Durability, Engine, EngineError, Folded, StreamPosition, Table, TableId,
};

use crate::admission::{admit_advance, admit_event};
use crate::advance::{Advance, AdvanceMode, Continuity};
use crate::correction::{Corrected, gone_bytes};
use crate::effect::{Effect, extend};
use crate::entry::{ENTRIES, Entry, EntrySummary, RowKey};
use crate::position::{PositionChanges, StatePosition};
use crate::prepared::Prepared;
use crate::projection::FoldError;
use crate::refusal::Refusal;
use crate::slot::Slot;
use crate::staging::left;
use crate::stream_row::{Moved, STREAM_ROWS, StreamRow};

/// What a reader of the log must remember of each partition to accept its next record, moved
/// together with the partition's cursor. The bytes are the reader's own.
pub const ACCEPTANCE: Table<Partition, Bytes, Folded> = Table::new(TableId::Acceptance);

/// How much memory a fold takes for what it could do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldBounds {
    /// How many entries are remembered between batches (UID and object hash, about 250 bytes
    /// each), so that they need not be read to fold their next change. Above it all are
    /// forgotten, never an error.
    pub cached_entries_max: usize,
    /// The largest tail or delta that is folded in place, in bytes of objects. A larger one is
    /// staged. What an engine takes at once bounds it (8 MiB, the open batch included).
    pub direct_bytes_max: usize,
    /// How much is staged between two writes to the engine, in bytes.
    pub staged_batch_bytes_max: usize,
}

impl Default for FoldBounds {
    /// The entries of an edge fit many times into 65,536, and a hub spends at most 16 MiB on
    /// them. Staged batches are no larger than those of a live tail, so that a catch-up takes no
    /// more memory than steady operation.
    fn default() -> Self {
        Self {
            cached_entries_max: 65_536,
            direct_bytes_max: 2 << 20,
            staged_batch_bytes_max: 1 << 20,
        }
    }
}

/// Streams folded into an engine, and the open batch.
#[derive(Debug)]
pub struct StreamState {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) batch: Batch<Folded>,
    pub(crate) slots: HashMap<StreamId, Slot>,
    hash_key: Option<(LogId, HashKey)>,
    /// Streams whose position or row the open batch moves.
    pub(crate) dirty: BTreeSet<StreamId>,
    cursors: BTreeMap<Partition, Cursor>,
    /// Streams that moved since the last [`StreamState::commit`], and where they are now.
    moved: PositionChanges,
    held_entries: usize,
    pub(crate) bounds: FoldBounds,
}

impl StreamState {
    /// Opens the state in `engine`. What a crash left of a catch-up is removed, and what is
    /// there is synced: when this returns, every position is durable.
    ///
    /// # Errors
    /// As [`Engine::write`] and [`headwater_store::Read::get`].
    pub fn open(engine: Arc<dyn Engine>, bounds: FoldBounds) -> Result<Self, EngineError> {
        let mut state = Self {
            engine,
            batch: Batch::new(),
            slots: HashMap::new(),
            hash_key: None,
            dirty: BTreeSet::new(),
            cursors: BTreeMap::new(),
            moved: BTreeMap::new(),
            held_entries: 0,
            bounds,
        };
        state.remove_abandoned()?;
        state.engine.sync()?;
        Ok(state)
    }

    /// The engine, to read from. What the open batch holds is not yet there.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The open batch, for rows that are derived from what is folded and must move with it.
    pub fn batch(&mut self) -> &mut Batch<Folded> {
        &mut self.batch
    }

    /// Where `stream` stands and the state hash there, the open batch included; `None` before
    /// its first event.
    ///
    /// # Errors
    /// As [`headwater_store::Read::get`].
    pub fn position(&mut self, stream: &StreamId) -> Result<Option<StatePosition>, EngineError> {
        Ok(Slot::of(&mut self.slots, &*self.engine, stream)?.at)
    }

    /// What `stream` holds under `key`, the open batch included.
    ///
    /// # Errors
    /// As [`headwater_store::Read::get`].
    pub fn entry_summary(
        &mut self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<EntrySummary>, EngineError> {
        let slot = Slot::of(&mut self.slots, &*self.engine, stream)?;
        Ok(slot.visible.held(&*self.engine, key)?.map(std::borrow::Cow::into_owned))
    }

    /// The entry that `stream` holds under `key`, the open batch included.
    ///
    /// # Errors
    /// As [`headwater_store::Read::get`].
    pub fn entry(
        &mut self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<Entry>, EngineError> {
        let slot = Slot::of(&mut self.slots, &*self.engine, stream)?;
        self.batch.get(&*self.engine, &ENTRIES, &slot.visible.rows.entry(key))
    }

    /// Folds one event of the log `log_id`.
    ///
    /// # Errors
    /// See [`FoldError`] and [`Refusal`]. After an engine error the open batch is gone.
    pub fn apply_event(
        &mut self,
        log_id: LogId,
        envelope: Envelope,
        continuity: Continuity,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let outcome = self.fold_event(log_id, envelope, continuity, effects);
        self.abort_if_failed(outcome)
    }

    /// Folds a tail, delta, snapshot or correction, or one part of it. A part before the last changes
    /// nothing that can be seen. Writes to the engine on its own when much is staged.
    ///
    /// # Errors
    /// See [`FoldError`] and [`Refusal`]; a refused part refuses the whole catch-up, which may
    /// begin again with part 0. After an engine error the open batch is gone.
    pub fn apply_advance(
        &mut self,
        advance: Advance,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let object_bytes: usize = advance.changes.iter().map(Prepared::object_bytes).sum();
        let bytes = object_bytes.saturating_add(gone_bytes(&advance.gone));
        let fits = advance.is_whole() && bytes <= self.bounds.direct_bytes_max;
        let outcome = if fits && advance.mode != AdvanceMode::Snapshot {
            self.fold_changes(advance, effects)
        } else {
            self.stage(advance, effects)
        };
        self.abort_if_failed(outcome)
    }

    /// Drops a stream that the replica no longer has: every entry leaves.
    ///
    /// # Errors
    /// As [`Engine::write`]; the open batch is then gone.
    pub fn drop_stream(
        &mut self,
        stream: &StreamId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EngineError> {
        let outcome = self.fold_drop(stream, effects);
        if outcome.is_err() {
            self.abort();
        }
        outcome
    }

    /// Notes that a partition is folded up to `cursor`, and what its reader must remember.
    pub fn read_up_to(&mut self, cursor: Cursor, acceptance: Bytes) {
        self.batch.put(&ACCEPTANCE, &cursor.partition, &acceptance);
        self.cursors.insert(cursor.partition, cursor);
    }

    /// Streams whose state hash is not what the log said at their position. Right after a
    /// sparse fold these are damaged; during one it means nothing.
    ///
    /// # Errors
    /// As [`headwater_store::Read::scan`]; reads what is committed.
    pub fn differing(&self) -> Result<Vec<StreamId>, EngineError> {
        let mut differing = Vec::new();
        for row in STREAM_ROWS.rows(&*self.engine) {
            let (stream, row) = row?;
            differing.extend(row.claimed.map(|_| stream));
        }
        Ok(differing)
    }

    /// Whether a commit would change nothing.
    pub fn is_unchanged(&self) -> bool {
        let moves = self.dirty.len() + self.cursors.len() + self.moved.len();
        moves == 0 && self.batch.is_empty()
    }

    /// What the open batch weighs, in bytes.
    pub fn batch_bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Commits the open batch: entries, positions and derived rows together. Gives the streams
    /// that moved since the last commit, and where they are now with their state hash (`None`:
    /// dropped).
    ///
    /// # Errors
    /// As [`Engine::write`]; the open batch is then gone, and whether it took effect is unknown
    /// until the engine is opened again.
    pub fn commit(&mut self, durability: Durability) -> Result<PositionChanges, EngineError> {
        self.write(durability)?;
        Ok(std::mem::take(&mut self.moved))
    }

    /// Gives the open batch up, and with it what was staged: the state is what is committed.
    pub fn abort(&mut self) {
        self.batch = Batch::new();
        self.slots.clear();
        self.dirty.clear();
        self.cursors.clear();
        self.held_entries = 0;
    }

    /// Writes the open batch with every position it moves.
    pub(crate) fn write(&mut self, durability: Durability) -> Result<(), EngineError> {
        let mut positions = Vec::new();
        for stream in std::mem::take(&mut self.dirty) {
            let Some(slot) = self.slots.get_mut(&stream) else { continue };
            if std::mem::take(&mut slot.row_moved) {
                positions.push(Moved::Row(stream.clone(), slot.row));
            }
            if std::mem::take(&mut slot.at_moved) {
                self.moved.insert(stream.clone(), slot.at);
                positions.push(match slot.at {
                    Some((checkpoint, hash)) => {
                        Moved::Stream(StreamPosition { stream, checkpoint, hash })
                    }
                    None => Moved::Dropped(stream),
                });
            }
        }
        positions.extend(std::mem::take(&mut self.cursors).into_values().map(Moved::Partition));
        if positions.is_empty() {
            if self.batch.is_empty() {
                return if durability == Durability::Synced { self.engine.sync() } else { Ok(()) };
            }
            positions.push(Moved::Nothing);
        }
        let batch = std::mem::take(&mut self.batch);
        if let Err(error) = batch.commit(&*self.engine, &positions, durability) {
            self.abort();
            return Err(error);
        }
        self.forget_held_above_bound();
        Ok(())
    }

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

    fn fold_event(
        &mut self,
        log_id: LogId,
        envelope: Envelope,
        continuity: Continuity,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let hash_key = self.hash_key(&log_id);
        let slot = Slot::of(&mut self.slots, &*self.engine, &envelope.stream)?;
        admit_event(slot.checkpoint(), &log_id, &envelope, continuity)
            .map_err(FoldError::Refused)?;
        let Envelope { stream, seq, epoch, hash: claimed, event, .. } = envelope;
        let to = Checkpoint { log_id, epoch, seq };
        let held_before = slot.visible.held_entries();
        let mut draft = slot.visible.draft(&*self.engine, &mut self.batch, hash_key);
        match event {
            Event::Applied(applied) => draft.fold(Prepared::whole(seq, applied))?,
            Event::Removed(removed) => draft.fold(Prepared::Removed(removed))?,
            Event::Head => {}
        }
        let hash = draft.hash;
        if hash != claimed && continuity == Continuity::Dense {
            let (expected, found) = (claimed, hash);
            return Err(FoldError::Refused(Refusal::Diverged { stream, seq, expected, found }));
        }
        let effected = draft.accept();
        self.held_entries += slot.visible.held_entries() - held_before;
        slot.move_to(to, hash, claimed);
        extend(effects, &stream, seq, effected);
        self.dirty.insert(stream);
        Ok(())
    }

    /// Folds a whole tail, delta or correction into the visible generation.
    fn fold_changes(
        &mut self,
        advance: Advance,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let hash_key = self.hash_key(&advance.to.log_id);
        let slot = Slot::of(&mut self.slots, &*self.engine, &advance.stream)?;
        admit_advance(slot.checkpoint(), &advance).map_err(FoldError::Refused)?;
        let Corrected { hash: before, leaves } = match advance.mode {
            AdvanceMode::Correction => self.corrected(&advance)?,
            _ => Corrected { hash: slot.visible.hash, leaves: Vec::new() },
        };
        let Advance { stream, to, hash: expected, changes, .. } = advance;
        let slot = Slot::of(&mut self.slots, &*self.engine, &stream)?;
        let held_before = slot.visible.held_entries();
        let mut draft = slot.visible.draft(&*self.engine, &mut self.batch, hash_key);
        draft.hash = before;
        for change in leaves.into_iter().chain(changes) {
            draft.fold(change)?;
        }
        let hash = draft.hash;
        if hash != expected {
            let (seq, found) = (to.seq, hash);
            return Err(FoldError::Refused(Refusal::Diverged { stream, seq, expected, found }));
        }
        let effected = draft.accept();
        self.held_entries += slot.visible.held_entries() - held_before;
        slot.move_to(to, hash, hash);
        extend(effects, &stream, to.seq, effected);
        self.dirty.insert(stream);
        Ok(())
    }

    fn fold_drop(
        &mut self,
        stream: &StreamId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EngineError> {
        // Every entry lies in the engine then, not in the open batch.
        self.write(Durability::Buffered)?;
        let slot = Slot::of(&mut self.slots, &*self.engine, stream)?;
        let Some((checkpoint, _)) = slot.at else { return Ok(()) };
        extend(effects, stream, checkpoint.seq, left(&*self.engine, &slot.visible, None)?);
        self.batch.delete_of(&ENTRIES, &slot.visible.rows);
        if let Some(staged) = slot.row.staged {
            self.batch.delete_of(&ENTRIES, &RowKey::generation(stream, staged));
        }
        let visible = slot.row.unused_generation();
        *slot = Slot::new(stream, StreamRow { visible, ..StreamRow::FIRST }, None);
        slot.at_moved = true;
        slot.row_moved = true;
        self.dirty.insert(stream.clone());
        Ok(())
    }

    fn abort_if_failed(
        &mut self,
        outcome: Result<(), FoldError<Refusal>>,
    ) -> Result<(), FoldError<Refusal>> {
        if matches!(outcome, Err(FoldError::Engine(_))) {
            self.abort();
        }
        outcome
    }

    fn forget_held_above_bound(&mut self) {
        if self.held_entries > self.bounds.cached_entries_max {
            self.slots.values_mut().for_each(|slot| slot.visible.forget_held());
            self.held_entries = 0;
        }
    }
}

#[cfg(test)]
mod tests;
