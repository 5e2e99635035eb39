//! Catch-ups that do not fit one batch, and snapshots: written aside, visible at once.
//!
//! ```text
//!              part 0                parts                 last part, hash agrees
//!  visible n ---------> visible n ---------> visible n -------------------------> visible n+1
//!                       staged n+1           staged n+1                           n removed
//!                                                          (one batch)
//! ```
//!
//! Entries lie under a generation number, and which generation readers see is one small row.
//! A catch-up is written under an unused number in as many batches as it takes; then one batch
//! moves the row and the position and removes the former generation. So there is no moment at
//! which a reader, or a crash, could find half of it: nothing has to be redone, and what a
//! crash leaves of an unfinished one is removed when the state is opened. That batch is no
//! more durable than any other: if it is lost, so is the position, and the former state is
//! there again.
//!
//! A tail or delta that must be staged starts from a copy of the visible generation, a correction
//! from one of what stays of it. That
//! costs a write of the whole state; it is paid only by what is larger than a batch, and in
//! return readers need no second place to look and a crash no log to redo.

use std::sync::Arc;

use headwater_event::{Checkpoint, EntryKey, ObjectHash, Removed, Seq, StateHash, StreamId};
use headwater_store::{Durability, Engine, EngineError};

use crate::admission::admit_advance;
use crate::advance::{Advance, AdvanceMode};
use crate::effect::{Effect, EffectKind, extend};
use crate::entry::{ENTRIES, Entry, RowKey};
use crate::generation::{Generation, compare};
use crate::prepared::Prepared;
use crate::projection::FoldError;
use crate::refusal::Refusal;
use crate::slot::Slot;
use crate::stream_row::STREAM_ROWS;
use crate::stream_state::StreamState;

/// A catch-up under way.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) generation: Generation,
    number: u32,
    mode: AdvanceMode,
    from: Seq,
    to: Checkpoint,
    hash: StateHash,
    next_part: u32,
}

impl StreamState {
    /// Takes one part of a catch-up; the last makes it visible.
    ///
    /// What is written of a refused one stays behind, hidden, until the next begins or the
    /// state is opened.
    pub(crate) fn stage(
        &mut self,
        advance: Advance,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        let slot = Slot::of(&mut self.slots, &*self.engine, &advance.stream)?;
        let staged = slot.staged.take();
        admit_advance(slot.checkpoint(), &advance).map_err(FoldError::Refused)?;
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
        let effected = self.take_part(&stream, &mut staged, changes, is_whole)?;
        if !last_part {
            staged.next_part += 1;
            Slot::of(&mut self.slots, &*self.engine, &stream)?.staged = Some(staged);
            return Ok(());
        }
        if staged.generation.hash != staged.hash {
            let (expected, found) = (staged.hash, staged.generation.hash);
            let seq = staged.to.seq;
            return Err(FoldError::Refused(Refusal::Diverged { stream, seq, expected, found }));
        }
        self.show(stream, staged, is_whole.then_some(effected), effects)?;
        Ok(())
    }

    /// Removes what earlier catch-ups left behind.
    pub(crate) fn remove_abandoned(&mut self) -> Result<(), EngineError> {
        let engine = Arc::clone(&self.engine);
        for row in STREAM_ROWS.rows(&*engine) {
            let (stream, row) = row?;
            if let Some(abandoned) = row.staged {
                self.batch.delete_of(&ENTRIES, &RowKey::generation(&stream, abandoned));
                let slot = Slot::of(&mut self.slots, &*engine, &stream)?;
                slot.row.staged = None;
                slot.row_moved = true;
                self.dirty.insert(stream);
            }
        }
        self.write(Durability::Buffered)
    }

    fn begin(&mut self, advance: &Advance) -> Result<Staged, FoldError<Refusal>> {
        let stream = &advance.stream;
        let slot = Slot::of(&mut self.slots, &*self.engine, stream)?;
        if let Some(abandoned) = slot.row.staged {
            self.batch.delete_of(&ENTRIES, &RowKey::generation(stream, abandoned));
        }
        let number = slot.row.unused_generation();
        slot.row.staged = Some(number);
        slot.row_moved = true;
        let visible = slot.visible.rows.clone();
        let visible_hash = slot.visible.hash;
        self.dirty.insert(stream.clone());
        // From here on all that is visible lies in the engine, not in the open batch.
        self.write(Durability::Buffered)?;
        let mut generation = Generation::new(stream, number, StateHash::EMPTY);
        match advance.mode {
            AdvanceMode::Snapshot => {}
            AdvanceMode::Tail | AdvanceMode::Delta => {
                self.copy(&visible, &generation.rows)?;
                generation.hash = visible_hash;
            }
            AdvanceMode::Correction => {
                generation.hash = self.copy_corrected(&visible, &generation.rows, advance)?;
            }
        }
        let Advance { mode, from, to, hash, .. } = *advance;
        Ok(Staged { generation, number, mode, from, to, hash, next_part: 0 })
    }

    fn copy(&mut self, from: &RowKey, to: &RowKey) -> Result<(), EngineError> {
        let engine = Arc::clone(&self.engine);
        for row in ENTRIES.rows_of(&*engine, from) {
            let (row, entry) = row?;
            self.copy_entry(to, &row.entry_key_in(from)?, &entry)?;
        }
        // The copy is read from the engine from here on.
        self.write(Durability::Buffered)
    }

    /// Copies one entry, and writes what has gathered when that is much.
    pub(crate) fn copy_entry(
        &mut self,
        to: &RowKey,
        key: &EntryKey,
        entry: &Entry,
    ) -> Result<(), EngineError> {
        self.batch.put(&ENTRIES, &to.entry(key), entry);
        if self.batch.bytes() > self.bounds.staged_batch_bytes_max {
            self.write(Durability::Buffered)?;
        }
        Ok(())
    }

    /// Folds the changes of one part; gives what they did if `keep_effected`.
    fn take_part(
        &mut self,
        stream: &StreamId,
        staged: &mut Staged,
        changes: Vec<Prepared>,
        keep_effected: bool,
    ) -> Result<Vec<EffectKind>, FoldError<Refusal>> {
        let hash_key = self.hash_key(&staged.to.log_id);
        let engine = Arc::clone(&self.engine);
        let mut kept = Vec::new();
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let mut draft = staged.generation.draft(&*engine, &mut self.batch, hash_key);
            while draft.bytes < self.bounds.staged_batch_bytes_max
                && let Some(change) = changes.next()
            {
                check(stream, staged.mode, staged.to.seq, &change)?;
                draft.fold(change)?;
            }
            let effected = draft.accept();
            staged.check_effected(stream, &effected)?;
            if keep_effected {
                kept.extend(effected);
            }
            if self.batch.bytes() > self.bounds.staged_batch_bytes_max {
                self.write(Durability::Buffered)?;
                staged.generation.forget_held();
            }
        }
        Ok(kept)
    }

    /// Makes what is staged the visible generation. With `effected`, what the changes of the
    /// whole did to the staged generation, every entry's effect is told; else only removals.
    fn show(
        &mut self,
        stream: StreamId,
        staged: Staged,
        effected: Option<Vec<EffectKind>>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EngineError> {
        // Both generations lie in the engine whole: they can be compared there.
        self.write(Durability::Buffered)?;
        let slot = Slot::of(&mut self.slots, &*self.engine, &stream)?;
        let told = match (staged.mode, effected) {
            (AdvanceMode::Tail | AdvanceMode::Delta, Some(effected)) => effected,
            (AdvanceMode::Snapshot | AdvanceMode::Correction, Some(came)) => {
                let mut told = left(&*self.engine, &slot.visible, Some(&staged.generation))?;
                for came in came {
                    told.push(against(&*self.engine, &slot.visible, came)?);
                }
                told
            }
            (_, None) => {
                let mut told = left(&*self.engine, &slot.visible, Some(&staged.generation))?;
                told.push(EffectKind::Replaced);
                told
            }
        };
        extend(effects, &stream, staged.to.seq, told);
        self.batch.delete_of(&ENTRIES, &slot.visible.rows);
        slot.row.visible = staged.number;
        slot.row.staged = None;
        slot.row_moved = true;
        slot.visible = staged.generation;
        slot.move_to(staged.to, staged.hash, staged.hash);
        self.dirty.insert(stream);
        Ok(())
    }
}

impl Staged {
    /// Whether `advance` is the part that comes next.
    fn continues_with(&self, advance: &Advance) -> bool {
        self.next_part == advance.part
            && self.mode == advance.mode
            && self.from == advance.from
            && self.to == advance.to
            && self.hash == advance.hash
    }

    /// A snapshot says every entry once.
    fn check_effected(
        &self,
        stream: &StreamId,
        effected: &[EffectKind],
    ) -> Result<(), FoldError<Refusal>> {
        if self.mode != AdvanceMode::Snapshot {
            return Ok(());
        }
        let twice = effected.iter().find_map(|effected| match effected {
            EffectKind::Added(_) | EffectKind::Replaced => None,
            EffectKind::Changed(applied) => Some(&applied.key),
            EffectKind::Unchanged(key) => Some(key),
            EffectKind::Removed(removed) => Some(&removed.key),
        });
        twice.map_or(Ok(()), |key| Err(malformed(stream, self.to.seq, key)))
    }
}

/// What begins anew says what is there, and not what is gone.
fn check(
    stream: &StreamId,
    mode: AdvanceMode,
    to: Seq,
    change: &Prepared,
) -> Result<(), FoldError<Refusal>> {
    match (mode, change) {
        (mode, Prepared::Removed(removed)) if mode.begins_anew() => {
            Err(malformed(stream, to, &removed.key))
        }
        _ => Ok(()),
    }
}

fn malformed(stream: &StreamId, seq: Seq, key: &EntryKey) -> FoldError<Refusal> {
    let (stream, key) = (stream.clone(), key.clone());
    FoldError::Refused(Refusal::Snapshot { stream, seq, key })
}

/// What `before` has and `after` has not, as removals. Both lie in the engine.
pub(crate) fn left(
    engine: &dyn Engine,
    before: &Generation,
    after: Option<&Generation>,
) -> Result<Vec<EffectKind>, EngineError> {
    let mut left = Vec::new();
    for row in ENTRIES.rows_of(engine, &before.rows) {
        let (row, Entry { uid, .. }) = row?;
        let key = row.entry_key_in(&before.rows)?;
        let stays = match after {
            Some(after) => after.held(engine, &key)?.is_some_and(|held| held.uid == uid),
            None => false,
        };
        if !stays {
            left.push(EffectKind::Removed(Removed { key, uid }));
        }
    }
    Ok(left)
}

/// What an entry that came into a new generation did compared with `before`.
fn against(
    engine: &dyn Engine,
    before: &Generation,
    came: EffectKind,
) -> Result<EffectKind, EngineError> {
    let EffectKind::Added(applied) = came else { return Ok(came) };
    let held = before.held(engine, &applied.key)?;
    let object_hash = ObjectHash::of(&applied.object);
    let (_, came) = compare(held.as_deref(), &object_hash, &applied);
    Ok(came.effected(applied))
}

#[cfg(test)]
mod tests;
