//! Advances that exceed one batch: staged beside the visible entries, visible at
//! once.
//!
//! ```text
//!              part 0                parts                 last part, hash agrees
//!  visible n ---------> visible n ---------> visible n -------------------------> visible n+1
//!                       staged n+1           staged n+1                           n removed
//!                                                          (one batch)
//! ```
//!
//! Entries are stored under a generation number. One small row says which generation is visible.
//! Such an advance is written under an unused number, in as many batches as it takes. Then one
//! batch switches the row, moves the position and removes the former generation, so neither a
//! reader nor a crash can see half of it. Opening the state removes an unfinished generation. The
//! last batch is no more durable than any other: if it is lost, so is the position, and the former
//! state is visible again.
//!
//! A staged tail or delta starts from a copy of the visible generation, a correction from a copy of
//! the entries that it keeps. That writes the whole state. Only an advance larger than a batch
//! pays it; in return readers look in one place, and recovery redoes nothing.

use std::sync::Arc;

use headwater_event::{EntryKey, ObjectHash, Removed, Seq, StateHash, StreamId};
use headwater_store::{Durability, Engine, EngineError};

use super::admission::admit_advance;
use super::advance::{Advance, AdvanceMode};
use super::change::PreparedChange;
use super::draft::{Draft, compare};
use super::effect::{Effect, EffectKind, extend};
use super::entry::{ENTRIES, StoredEntry};
use super::fold_error::FoldError;
use super::generation::Generation;
use super::open_batch::OpenBatch;
use super::refusal::Refusal;
use super::row_key::RowKey;
use super::staged_advance::StagedAdvance;
use super::stream_row::STREAM_ROWS;

impl OpenBatch {
    /// Stages one part of an advance; the last part makes it visible.
    ///
    /// The staged entries of a refused advance stay, hidden, until the next one begins or the
    /// state is opened.
    pub(crate) fn stage(
        &mut self,
        advance: Advance,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let stream = self.stream(&advance.stream)?;
        let staged = stream.staged.take();
        admit_advance(stream.checkpoint(), &advance).map_err(FoldError::Refused)?;
        let mut staged = match staged {
            _ if advance.part == 0 => self.begin(&advance)?,
            Some(staged) if staged.continues_with(&advance) => staged,
            _ => {
                let Advance { stream, to, part: found, .. } = advance;
                return Err(FoldError::Refused(Refusal::Parts { stream, to: to.seq, found }));
            }
        };
        let is_whole = advance.is_whole();
        let Advance { stream, changes, last_part, .. } = advance;
        let kinds = self.fold_part(&stream, &mut staged, changes, is_whole)?;
        if !last_part {
            staged.next_part += 1;
            self.stream(&stream)?.staged = Some(staged);
            return Ok(());
        }
        if staged.generation.hash != staged.hash {
            let (expected, found) = (staged.hash, staged.generation.hash);
            let seq = staged.to.seq;
            return Err(FoldError::Refused(Refusal::Diverged { stream, seq, expected, found }));
        }
        self.show(stream, staged, is_whole.then_some(kinds), effects)?;
        Ok(())
    }

    /// Removes what unfinished advances left.
    pub(crate) fn remove_abandoned(&mut self) -> Result<(), EngineError> {
        let engine = Arc::clone(&self.engine);
        for row in STREAM_ROWS.rows(&*engine) {
            let (stream, row) = row?;
            if let Some(abandoned) = row.staged {
                self.rows.delete_of(&ENTRIES, &RowKey::generation(&stream, abandoned));
                let loaded = self.stream(&stream)?;
                loaded.row.staged = None;
                loaded.row_moved = true;
                self.dirty.insert(stream);
            }
        }
        self.write(Durability::Buffered)
    }

    /// Copies one entry to another generation. Writes the batch when it is large.
    pub(crate) fn copy_entry(
        &mut self,
        to: &RowKey,
        key: &EntryKey,
        stored: &StoredEntry,
    ) -> Result<(), EngineError> {
        self.rows.put(&ENTRIES, &to.entry(key), stored);
        if self.rows.bytes() > self.bounds.staged_batch_bytes_max {
            self.write(Durability::Buffered)?;
        }
        Ok(())
    }

    fn begin(&mut self, advance: &Advance) -> Result<StagedAdvance, FoldError<Refusal>> {
        let stream = &advance.stream;
        let loaded = self.stream(stream)?;
        let abandoned = loaded.row.staged;
        let number = loaded.row.unused_generation();
        loaded.row.staged = Some(number);
        loaded.row_moved = true;
        let (visible, visible_hash) = (loaded.visible.rows.clone(), loaded.visible.hash);
        if let Some(abandoned) = abandoned {
            self.rows.delete_of(&ENTRIES, &RowKey::generation(stream, abandoned));
        }
        self.dirty.insert(stream.clone());
        // All visible entries are in the engine afterwards, none in the open batch.
        self.write(Durability::Buffered)?;
        let mut generation = Generation::new(stream, number, StateHash::EMPTY);
        match advance.mode {
            AdvanceMode::Snapshot => {}
            AdvanceMode::Tail | AdvanceMode::Delta => {
                self.copy(&visible, &generation.rows)?;
                generation.hash = visible_hash;
            }
            AdvanceMode::Correction => {
                generation.hash = self.copy_kept(&visible, &generation.rows, advance)?;
            }
        }
        Ok(StagedAdvance::new(advance, number, generation))
    }

    fn copy(&mut self, from: &RowKey, to: &RowKey) -> Result<(), EngineError> {
        let engine = Arc::clone(&self.engine);
        for row in ENTRIES.rows_of(&*engine, from) {
            let (row, stored) = row?;
            self.copy_entry(to, &row.entry_key_in(from)?, &stored)?;
        }
        // The copy is read from the engine afterwards.
        self.write(Durability::Buffered)
    }

    /// Folds the changes of one part. Returns their effects if `keep_effects`.
    fn fold_part(
        &mut self,
        stream: &StreamId,
        staged: &mut StagedAdvance,
        changes: Vec<PreparedChange>,
        keep_effects: bool,
    ) -> Result<Vec<EffectKind>, FoldError<Refusal>> {
        let hash_key = self.hash_key(&staged.to.log_id);
        let engine = Arc::clone(&self.engine);
        let mut kept = Vec::new();
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let mut draft = Draft::new(&mut staged.generation, &*engine, &mut self.rows, hash_key);
            while draft.bytes < self.bounds.staged_batch_bytes_max
                && let Some(change) = changes.next()
            {
                check(stream, staged.mode, staged.to.seq, &change)?;
                draft.fold(change)?;
            }
            let kinds = draft.accept();
            if let Some(key) = staged.repeated(&kinds) {
                return Err(malformed(stream, staged.to.seq, key));
            }
            if keep_effects {
                kept.extend(kinds);
            }
            if self.rows.bytes() > self.bounds.staged_batch_bytes_max {
                self.write(Durability::Buffered)?;
                staged.generation.clear_cache();
            }
        }
        Ok(kept)
    }

    /// Makes the staged generation the visible one. `kinds` are the effects of a whole advance on
    /// the staged generation; without them, only removals are reported one by one.
    fn show(
        &mut self,
        stream: StreamId,
        staged: StagedAdvance,
        kinds: Option<Vec<EffectKind>>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EngineError> {
        // Both generations are in the engine afterwards, where they can be compared.
        self.write(Durability::Buffered)?;
        let engine = Arc::clone(&self.engine);
        let loaded = self.stream(&stream)?;
        let (before, after) = (&loaded.visible, &staged.generation);
        let kinds = match (staged.mode, kinds) {
            (AdvanceMode::Tail | AdvanceMode::Delta, Some(kinds)) => kinds,
            (AdvanceMode::Snapshot | AdvanceMode::Correction, Some(added)) => {
                let mut kinds = removals(&*engine, before, Some(after))?;
                for added in added {
                    kinds.push(against(&*engine, before, added)?);
                }
                kinds
            }
            (_, None) => {
                let mut kinds = removals(&*engine, before, Some(after))?;
                kinds.push(EffectKind::Replaced);
                kinds
            }
        };
        extend(effects, &stream, staged.to.seq, kinds);
        let former = loaded.visible.rows.clone();
        loaded.row.visible = staged.number;
        loaded.row.staged = None;
        loaded.row_moved = true;
        loaded.visible = staged.generation;
        loaded.move_to(staged.to, staged.hash, staged.hash);
        self.rows.delete_of(&ENTRIES, &former);
        self.dirty.insert(stream);
        Ok(())
    }
}

/// Checks a change against the mode: a complete state contains entries, and no removals.
fn check(
    stream: &StreamId,
    mode: AdvanceMode,
    to: Seq,
    change: &PreparedChange,
) -> Result<(), FoldError<Refusal>> {
    match (mode, change) {
        (mode, PreparedChange::Removed(removed)) if mode.begins_anew() => {
            Err(malformed(stream, to, &removed.key))
        }
        _ => Ok(()),
    }
}

fn malformed(stream: &StreamId, seq: Seq, key: &EntryKey) -> FoldError<Refusal> {
    let (stream, key) = (stream.clone(), key.clone());
    FoldError::Refused(Refusal::Snapshot { stream, seq, key })
}

/// The removals that lead from `before` to `after`. Both are in the engine.
pub(crate) fn removals(
    engine: &dyn Engine,
    before: &Generation,
    after: Option<&Generation>,
) -> Result<Vec<EffectKind>, EngineError> {
    let mut removals = Vec::new();
    for row in ENTRIES.rows_of(engine, &before.rows) {
        let (row, StoredEntry { entry, .. }) = row?;
        let (uid, key) = (entry.uid, row.entry_key_in(&before.rows)?);
        let stays = match after {
            Some(after) => after.summary(engine, &key)?.is_some_and(|entry| entry.uid == uid),
            None => false,
        };
        if !stays {
            removals.push(EffectKind::Removed(Removed { key, uid }));
        }
    }
    Ok(removals)
}

/// The effect of an entry that was added to a new generation, compared with `before`.
fn against(
    engine: &dyn Engine,
    before: &Generation,
    added: EffectKind,
) -> Result<EffectKind, EngineError> {
    let EffectKind::Added(applied) = added else { return Ok(added) };
    let summary = before.summary(engine, &applied.key)?;
    let object_hash = ObjectHash::of(&applied.object);
    let (_, novelty) = compare(summary.as_deref(), &object_hash, &applied);
    Ok(novelty.effect(applied))
}

#[cfg(test)]
mod tests;
