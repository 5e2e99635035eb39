//! Changes folded on trial, so that a refused input leaves no trace.
//!
//! A draft collects the rows that its changes write and computes the state hash after them. Only
//! an accepted draft enters the open batch.

use headwater_event::{Applied, BodyAddress, EntryKey, HashKey, ObjectHash, Removed, StateHash};
use headwater_object::patch::apply_patch;
use headwater_store::{Batch, Engine, EngineError, Folded};

use super::change::PreparedChange;
use super::effect::EffectKind;
use super::entry::{ENCODED, ENTRIES, EncodedEntry, EntrySummary};
use super::generation::Generation;
use super::row_key::RowKey;

/// Changes on trial. The generation holds their results until they are accepted; when the draft
/// is dropped instead, the generation is as before.
pub(crate) struct Draft<'g> {
    generation: &'g mut Generation,
    engine: &'g dyn Engine,
    batch: &'g mut Batch<Folded>,
    hash_key: HashKey,
    /// The hash after the changes.
    pub(crate) hash: StateHash,
    /// The bytes of the objects that the changes write.
    pub(crate) bytes: usize,
    /// The generation's summary before each change; `None`: it was not in memory.
    undo: Vec<(EntryKey, Option<Option<EntrySummary>>)>,
    writes: Vec<(RowKey, Option<EncodedEntry>)>,
    effects: Vec<EffectKind>,
}

impl<'g> Draft<'g> {
    /// Begins a draft on `generation`.
    pub(crate) fn new(
        generation: &'g mut Generation,
        engine: &'g dyn Engine,
        batch: &'g mut Batch<Folded>,
        hash_key: HashKey,
    ) -> Self {
        Self {
            hash: generation.hash,
            generation,
            engine,
            batch,
            hash_key,
            bytes: 0,
            undo: Vec::new(),
            writes: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Folds one change.
    pub(crate) fn fold(&mut self, change: PreparedChange) -> Result<(), EngineError> {
        match change {
            PreparedChange::Applied { applied, object_hash, body, row } => {
                self.apply(applied, (object_hash, body), row)
            }
            PreparedChange::Patched { applied, base, seq } => {
                let whole = PreparedChange::whole(seq, self.patch(applied, &base)?);
                self.fold(whole)
            }
            PreparedChange::Removed(removed) => self.remove(removed.key),
        }
    }

    /// Accepts the changes: their rows enter the batch. Returns their effects, in order.
    pub(crate) fn accept(mut self) -> Vec<EffectKind> {
        for (row, entry) in self.writes.drain(..) {
            match entry {
                Some(entry) => self.batch.put(&ENCODED, &row, &entry),
                None => self.batch.delete(&ENCODED, &row),
            }
        }
        self.undo.clear();
        self.generation.hash = self.hash;
        std::mem::take(&mut self.effects)
    }

    /// Returns the whole object for the patch in `applied`. A patch that cannot be applied stays
    /// as it is: the state hash then differs, which refuses the input.
    fn patch(&self, mut applied: Applied, base: &EntryKey) -> Result<Applied, EngineError> {
        let row = self.generation.rows.entry(base);
        let drafted = self.writes.iter().rev().find(|(written, _)| *written == row);
        let entry = match drafted {
            Some((_, entry)) => entry.as_ref().and_then(EncodedEntry::entry),
            None => self.batch.get(self.engine, &ENTRIES, &row)?,
        };
        if let Some(stored) = entry {
            let entry = stored.resolve_in(self.batch, self.engine)?;
            if *base == applied.key {
                applied.uid = entry.uid;
            }
            if let Ok(object) = apply_patch(&entry.object, &applied.object) {
                applied.object = object;
            }
        }
        Ok(applied)
    }

    fn apply(
        &mut self,
        applied: Applied,
        (object_hash, body): (ObjectHash, Option<BodyAddress>),
        row: EncodedEntry,
    ) -> Result<(), EngineError> {
        let now = EntrySummary { uid: applied.uid.clone(), object_hash, body };
        let before = self.replace(&applied.key, Some(now))?;
        if before.as_ref().is_none_or(|before| before.object_hash != object_hash) {
            if let Some(before) = &before {
                self.hash.subtract(&self.hash_key, &applied.key, &before.object_hash);
            }
            self.hash.add(&self.hash_key, &applied.key, &object_hash);
        }
        self.bytes += applied.object.len();
        self.writes.push((self.generation.rows.entry(&applied.key), Some(row)));
        let (removal, novelty) = compare(before.as_ref(), &object_hash, &applied);
        self.effects.extend(removal);
        self.effects.push(novelty.effect(applied));
        Ok(())
    }

    /// Removes the entry under `key`, whatever its UID, as compaction by a tombstone does.
    fn remove(&mut self, key: EntryKey) -> Result<(), EngineError> {
        let Some(before) = self.replace(&key, None)? else { return Ok(()) };
        self.hash.subtract(&self.hash_key, &key, &before.object_hash);
        self.writes.push((self.generation.rows.entry(&key), None));
        self.effects.push(EffectKind::Removed(Removed { key, uid: before.uid }));
        Ok(())
    }

    fn replace(
        &mut self,
        key: &EntryKey,
        now: Option<EntrySummary>,
    ) -> Result<Option<EntrySummary>, EngineError> {
        let (before, was_cached) = self.generation.replace(self.engine, key, now)?;
        self.undo.push((key.clone(), was_cached.then(|| before.clone())));
        Ok(before)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        for (key, before) in self.undo.drain(..).rev() {
            self.generation.restore(key, before);
        }
    }
}

/// How an applied object compares with the former entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    /// There was no entry, or another object of the same name.
    Added,
    /// The object had other bytes.
    Changed,
    /// The object had the same bytes.
    Unchanged,
}

impl Novelty {
    /// The effect of `applied`.
    pub(crate) fn effect(self, applied: Applied) -> EffectKind {
        match self {
            Self::Added => EffectKind::Added(applied),
            Self::Changed => EffectKind::Changed(applied),
            Self::Unchanged => EffectKind::Unchanged(applied.key),
        }
    }
}

/// Compares `applied` with the former entry. Returns the removal of another object of the same
/// name, if there was one.
pub(crate) fn compare(
    before: Option<&EntrySummary>,
    object_hash: &ObjectHash,
    applied: &Applied,
) -> (Option<EffectKind>, Novelty) {
    match before {
        None => (None, Novelty::Added),
        Some(before) if before.uid != applied.uid => {
            let removed = Removed { key: applied.key.clone(), uid: before.uid.clone() };
            (Some(EffectKind::Removed(removed)), Novelty::Added)
        }
        Some(before) if before.object_hash == *object_hash => (None, Novelty::Unchanged),
        Some(_) => (None, Novelty::Changed),
    }
}
