//! The state of streams: entries, state hash and position, folded into an engine in one batch.
//!
//! The open batch gathers many inputs (group commit). The next fold sees it; readers see it once
//! it is committed. One task owns a [`StreamState`]; readers use a
//! [`StreamReader`](crate::StreamReader) over the engine or a snapshot of it.

use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{
    BodyAddress, BodyHeader, Checkpoint, Cursor, EntryKey, Envelope, Event, LogId, Partition, Seq,
    StreamId,
};
use headwater_store::{Batch, Durability, Engine, EngineError, Folded, Table, TableId};

use super::admission::{admit_advance, admit_event};
use super::advance::{Advance, AdvanceMode, Continuity};
use super::body::BODIES;
use super::change::PreparedChange;
use super::correction::{CorrectionBase, gone_bytes};
use super::draft::Draft;
use super::effect::{Effect, extend};
use super::entry::{ENTRIES, Entry, EntrySummary, StoredEntry};
use super::fold_error::FoldError;
use super::loaded_stream::LoadedStream;
use super::open_batch::{FoldBounds, OpenBatch};
use super::position::{PositionChanges, StatePosition};
use super::refusal::Refusal;
use super::row_key::RowKey;
use super::staging::removals;
use super::stream_row::{STREAM_ROWS, StreamRow};

/// What the reader of a log remembers of each partition to accept its next record. It moves in one
/// batch with the partition's cursor. Only the reader knows the format of the bytes.
pub const ACCEPTANCE: Table<Partition, Bytes, Folded> = Table::new(TableId::Acceptance);

/// Streams folded into an engine, and the open batch.
#[derive(Debug)]
pub struct StreamState {
    open: OpenBatch,
}

impl StreamState {
    /// Opens the state in `engine`. Removes what a crash left of an advance, and syncs: when this
    /// returns, every position is durable.
    ///
    /// # Errors
    /// As [`Engine::write`] and [`headwater_store::Read::get`].
    pub fn open(engine: Arc<dyn Engine>, bounds: FoldBounds) -> Result<Self, EngineError> {
        let mut open = OpenBatch::new(engine, bounds);
        open.remove_abandoned()?;
        open.engine.sync()?;
        Ok(Self { open })
    }

    /// The engine, to read from. It does not have the open batch yet.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.open.engine
    }

    /// The open batch, for rows that are derived from the folded input and must move with it.
    pub fn batch(&mut self) -> &mut Batch<Folded> {
        &mut self.open.rows
    }

    /// The position of `stream`, the open batch included; `None` before its first event.
    ///
    /// # Errors
    /// As [`headwater_store::Read::get`].
    pub fn position(&mut self, stream: &StreamId) -> Result<Option<StatePosition>, EngineError> {
        Ok(self.open.stream(stream)?.at)
    }

    /// The summary of the entry under `key`, the open batch included.
    ///
    /// # Errors
    /// As [`headwater_store::Read::get`].
    pub fn entry_summary(
        &mut self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<EntrySummary>, EngineError> {
        let OpenBatch { streams, engine, .. } = &mut self.open;
        let loaded = LoadedStream::of(streams, &**engine, stream)?;
        Ok(loaded.visible.summary(&**engine, key)?.map(std::borrow::Cow::into_owned))
    }

    /// The entry under `key`, the open batch included.
    ///
    /// # Errors
    /// As [`headwater_store::Read::get`].
    pub fn entry(
        &mut self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<Entry>, EngineError> {
        let row = self.open.stream(stream)?.visible.rows.entry(key);
        let OpenBatch { rows, engine, .. } = &self.open;
        let stored = rows.get(&**engine, &ENTRIES, &row)?;
        stored.map(|stored| stored.resolve_in(rows, &**engine)).transpose()
    }

    /// The body at `at`, the open batch included: its header and its object.
    ///
    /// # Errors
    /// As [`headwater_store::Read::get`].
    pub fn body(&self, at: &BodyAddress) -> Result<Option<(BodyHeader, Bytes)>, EngineError> {
        let stored = self.open.rows.get(&*self.open.engine, &BODIES, at)?;
        Ok(stored.map(|StoredEntry { entry, .. }| {
            let Entry { object_hash, uid, resource_version, object, .. } = entry;
            (BodyHeader { uid, resource_version, object_hash }, object)
        }))
    }

    /// Keeps a body, to which entries may refer from now on.
    pub fn put_body(&mut self, at: &BodyAddress, header: BodyHeader, object: Bytes) {
        let BodyHeader { uid, resource_version, object_hash } = header;
        let entry = Entry { seq: Seq::ZERO, object_hash, uid, resource_version, object };
        self.open.rows.put(&BODIES, at, &StoredEntry { entry, body: None });
    }

    /// Removes a body, to which no entry refers.
    pub fn remove_body(&mut self, at: &BodyAddress) {
        self.open.rows.delete(&BODIES, at);
    }

    /// Folds one event of the log `log_id`. An event that refers to a body stores the reference; see
    /// [`StreamState::put_body`].
    ///
    /// # Errors
    /// See [`FoldError`] and [`Refusal`]. An engine error discards the open batch.
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

    /// Folds a tail, delta, snapshot or correction, or one part of it. A part before the last
    /// changes nothing visible. Writes to the engine by itself when much is staged.
    ///
    /// # Errors
    /// See [`FoldError`] and [`Refusal`]. A refused part refuses the whole advance, which may
    /// begin again with part 0. An engine error discards the open batch.
    pub fn apply_advance(
        &mut self,
        advance: Advance,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let object_bytes: usize = advance.changes.iter().map(PreparedChange::object_bytes).sum();
        let bytes = object_bytes.saturating_add(gone_bytes(&advance.gone));
        let fits = advance.is_whole() && bytes <= self.open.bounds.direct_bytes_max;
        let outcome = if fits && advance.mode != AdvanceMode::Snapshot {
            self.fold_changes(advance, effects)
        } else {
            self.open.stage(advance, effects)
        };
        self.abort_if_failed(outcome)
    }

    /// Drops a stream that the replica no longer has: all its entries are removed.
    ///
    /// # Errors
    /// As [`Engine::write`]; the open batch is then discarded.
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

    /// Records that a partition is folded up to `cursor`, and what its reader remembers there.
    pub fn read_up_to(&mut self, cursor: Cursor, acceptance: Bytes) {
        self.open.rows.put(&ACCEPTANCE, &cursor.partition, &acceptance);
        self.open.cursors.insert(cursor.partition, cursor);
    }

    /// Streams whose state hash differs from the log's at their position. Right after a sparse
    /// fold these are damaged; during one the difference means nothing.
    ///
    /// # Errors
    /// As [`headwater_store::Read::scan`]; reads committed rows.
    pub fn differing(&self) -> Result<Vec<StreamId>, EngineError> {
        let mut differing = Vec::new();
        for row in STREAM_ROWS.rows(&*self.open.engine) {
            let (stream, row) = row?;
            differing.extend(row.claimed.map(|_| stream));
        }
        Ok(differing)
    }

    /// Whether a commit would change nothing.
    pub fn is_unchanged(&self) -> bool {
        self.open.is_unchanged()
    }

    /// The size of the open batch, in bytes.
    pub fn batch_bytes(&self) -> usize {
        self.open.rows.bytes()
    }

    /// Commits the open batch: entries, positions and derived rows together. Returns the streams
    /// that moved since the last commit.
    ///
    /// # Errors
    /// As [`Engine::write`]; the open batch is then discarded, and whether it took effect is
    /// unknown until the engine is opened again.
    pub fn commit(&mut self, durability: Durability) -> Result<PositionChanges, EngineError> {
        self.open.commit(durability)
    }

    /// Discards the open batch and what is staged: the state is what is committed.
    pub fn abort(&mut self) {
        self.open.abort();
    }

    fn fold_event(
        &mut self,
        log_id: LogId,
        envelope: Envelope,
        continuity: Continuity,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let hash_key = self.open.hash_key(&log_id);
        let OpenBatch { engine, rows, streams, dirty, cached_entries, .. } = &mut self.open;
        let loaded = LoadedStream::of(streams, &**engine, &envelope.stream)?;
        admit_event(loaded.checkpoint(), &log_id, &envelope, continuity)
            .map_err(FoldError::Refused)?;
        let Envelope { stream, seq, epoch, hash: claimed, event, shared, .. } = envelope;
        let to = Checkpoint { log_id, epoch, seq };
        let cached_before = loaded.visible.cached();
        let mut draft = Draft::new(&mut loaded.visible, &**engine, rows, hash_key);
        match event {
            Event::Applied(applied) => draft.fold(match shared {
                Some(shared) => PreparedChange::shared(seq, applied, shared),
                None => PreparedChange::whole(seq, applied),
            })?,
            Event::Removed(removed) => draft.fold(PreparedChange::Removed(removed))?,
            Event::Head => {}
        }
        let hash = draft.hash;
        if hash != claimed && continuity == Continuity::Dense {
            let (expected, found) = (claimed, hash);
            return Err(FoldError::Refused(Refusal::Diverged { stream, seq, expected, found }));
        }
        let kinds = draft.accept();
        *cached_entries += loaded.visible.cached() - cached_before;
        loaded.move_to(to, hash, claimed);
        extend(effects, &stream, seq, kinds);
        dirty.insert(stream);
        Ok(())
    }

    /// Folds a whole tail, delta or correction into the visible generation.
    fn fold_changes(
        &mut self,
        advance: Advance,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let hash_key = self.open.hash_key(&advance.to.log_id);
        let loaded = self.open.stream(&advance.stream)?;
        admit_advance(loaded.checkpoint(), &advance).map_err(FoldError::Refused)?;
        let base = match advance.mode {
            AdvanceMode::Correction => self.open.correction_base(&advance)?,
            _ => CorrectionBase { hash: loaded.visible.hash, removals: Vec::new() },
        };
        let Advance { stream, to, hash: expected, changes, .. } = advance;
        let OpenBatch { engine, rows, streams, dirty, cached_entries, .. } = &mut self.open;
        let loaded = LoadedStream::of(streams, &**engine, &stream)?;
        let cached_before = loaded.visible.cached();
        let mut draft = Draft::new(&mut loaded.visible, &**engine, rows, hash_key);
        draft.hash = base.hash;
        for change in base.removals.into_iter().chain(changes) {
            draft.fold(change)?;
        }
        let hash = draft.hash;
        if hash != expected {
            let (seq, found) = (to.seq, hash);
            return Err(FoldError::Refused(Refusal::Diverged { stream, seq, expected, found }));
        }
        let kinds = draft.accept();
        *cached_entries += loaded.visible.cached() - cached_before;
        loaded.move_to(to, hash, hash);
        extend(effects, &stream, to.seq, kinds);
        dirty.insert(stream);
        Ok(())
    }

    fn fold_drop(
        &mut self,
        stream: &StreamId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EngineError> {
        // All entries are in the engine afterwards, none in the open batch.
        self.open.write(Durability::Buffered)?;
        let OpenBatch { engine, rows, streams, dirty, .. } = &mut self.open;
        let loaded = LoadedStream::of(streams, &**engine, stream)?;
        let Some((checkpoint, _)) = loaded.at else { return Ok(()) };
        extend(effects, stream, checkpoint.seq, removals(&**engine, &loaded.visible, None)?);
        rows.delete_of(&ENTRIES, &loaded.visible.rows);
        if let Some(staged) = loaded.row.staged {
            rows.delete_of(&ENTRIES, &RowKey::generation(stream, staged));
        }
        let visible = loaded.row.unused_generation();
        *loaded = LoadedStream::new(stream, StreamRow { visible, ..StreamRow::FIRST }, None);
        loaded.at_moved = true;
        loaded.row_moved = true;
        dirty.insert(stream.clone());
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
}

#[cfg(test)]
mod tests;
