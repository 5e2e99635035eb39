//! One generation of a stream's entries, and how a change is folded into it.
//!
//! A change is drafted first: what it would write, how the hash would come out. Only when that
//! is right does the draft enter the batch, so a refused input leaves no trace.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;

use headwater_event::{Applied, EntryKey, HashKey, ObjectHash, Removed, StateHash, StreamId};
use headwater_object::patch::patched;
use headwater_store::{Batch, Engine, EngineError, Folded};

use crate::effect::EffectKind;
use crate::entry::{ENCODED, ENTRIES, EncodedEntry, Entry, EntrySummary, RowKey};
use crate::prepared::Prepared;

/// A generation of a stream's entries as the fold sees it: the stored rows, and over them what
/// the open batch makes of them.
#[derive(Debug)]
pub(crate) struct Generation {
    /// The beginning of its row keys.
    pub(crate) rows: RowKey,
    /// The hash of its entries.
    pub(crate) hash: StateHash,
    /// What is known of entries, `None` of one that is absent. Holds at least every entry that
    /// the open batch writes; the rest is a cache.
    held: HashMap<EntryKey, Option<EntrySummary>>,
}

/// Changes folded on trial: the generation holds what they come to until they are accepted, and
/// is as before when this is dropped instead.
#[derive(Debug)]
pub(crate) struct Draft<'g> {
    generation: &'g mut Generation,
    engine: &'g dyn Engine,
    batch: &'g mut Batch<Folded>,
    hash_key: HashKey,
    /// The hash after the changes.
    pub(crate) hash: StateHash,
    /// The bytes of the objects that they write.
    pub(crate) bytes: usize,
    /// What the generation held before each change, `None` of what it did not know.
    before: Vec<(EntryKey, Option<Option<EntrySummary>>)>,
    writes: Vec<(RowKey, Option<EncodedEntry>)>,
    effected: Vec<EffectKind>,
}

impl Generation {
    pub(crate) fn new(stream: &StreamId, number: u32, hash: StateHash) -> Self {
        Self { rows: RowKey::generation(stream, number), hash, held: HashMap::new() }
    }

    /// What is held under `key`.
    pub(crate) fn held(
        &self,
        engine: &dyn Engine,
        key: &EntryKey,
    ) -> Result<Option<Cow<'_, EntrySummary>>, EngineError> {
        match self.held.get(key) {
            Some(held) => Ok(held.as_ref().map(Cow::Borrowed)),
            None => Ok(stored(engine, &self.rows, key)?.map(Cow::Owned)),
        }
    }

    /// Begins to fold changes on trial.
    pub(crate) fn draft<'g>(
        &'g mut self,
        engine: &'g dyn Engine,
        batch: &'g mut Batch<Folded>,
        hash_key: HashKey,
    ) -> Draft<'g> {
        Draft {
            hash: self.hash,
            generation: self,
            engine,
            batch,
            hash_key,
            bytes: 0,
            before: Vec::new(),
            writes: Vec::new(),
            effected: Vec::new(),
        }
    }

    /// How many entries are held in memory.
    pub(crate) fn held_entries(&self) -> usize {
        self.held.len()
    }

    /// Forgets what is held; only while no open batch writes this generation.
    pub(crate) fn forget_held(&mut self) {
        self.held = HashMap::new();
    }
}

/// What is stored under `key`.
fn stored(
    engine: &dyn Engine,
    rows: &RowKey,
    key: &EntryKey,
) -> Result<Option<EntrySummary>, EngineError> {
    let entry = ENTRIES.get(engine, &rows.entry(key))?;
    Ok(entry.map(|Entry { uid, object_hash, .. }| EntrySummary { uid, object_hash }))
}

impl Draft<'_> {
    /// Folds one change.
    pub(crate) fn fold(&mut self, change: Prepared) -> Result<(), EngineError> {
        match change {
            Prepared::Applied { applied, object_hash, row } => {
                self.apply(applied, object_hash, row)
            }
            Prepared::Patched { applied, base, seq } => {
                let whole = Prepared::whole(seq, self.patch(applied, &base)?);
                self.fold(whole)
            }
            Prepared::Removed(removed) => self.remove(removed.key),
        }
    }

    /// Takes the changes over, their rows into the batch. Gives what they did, in order.
    pub(crate) fn accept(mut self) -> Vec<EffectKind> {
        for (row, entry) in self.writes.drain(..) {
            match entry {
                Some(entry) => self.batch.put(&ENCODED, &row, &entry),
                None => self.batch.delete(&ENCODED, &row),
            }
        }
        self.before.clear();
        self.generation.hash = self.hash;
        std::mem::take(&mut self.effected)
    }

    /// The whole object of which `applied` has a patch. One that cannot be applied stays as it
    /// is: the state hash then comes out otherwise, which refuses the input.
    fn patch(&self, mut applied: Applied, base: &EntryKey) -> Result<Applied, EngineError> {
        let row = self.generation.rows.entry(base);
        let drafted = self.writes.iter().rev().find(|(written, _)| *written == row);
        let entry = match drafted {
            Some((_, entry)) => entry.as_ref().and_then(EncodedEntry::entry),
            None => self.batch.get(self.engine, &ENTRIES, &row)?,
        };
        if let Some(entry) = entry {
            if *base == applied.key {
                applied.uid = entry.uid;
            }
            if let Ok(object) = patched(&entry.object, &applied.object) {
                applied.object = object;
            }
        }
        Ok(applied)
    }

    fn apply(
        &mut self,
        applied: Applied,
        object_hash: ObjectHash,
        row: EncodedEntry,
    ) -> Result<(), EngineError> {
        let now = EntrySummary { uid: applied.uid.clone(), object_hash };
        let before = self.replace(&applied.key, Some(now))?;
        if before.as_ref().is_none_or(|held| held.object_hash != object_hash) {
            if let Some(held) = &before {
                self.hash.subtract(&self.hash_key, &applied.key, &held.object_hash);
            }
            self.hash.add(&self.hash_key, &applied.key, &object_hash);
        }
        let (left, came) = compare(before.as_ref(), &object_hash, &applied);
        self.bytes += applied.object.len();
        self.writes.push((self.generation.rows.entry(&applied.key), Some(row)));
        self.effected.extend(left);
        self.effected.push(came.effected(applied));
        Ok(())
    }

    /// A removal takes whatever lies under the key, as compaction by a tombstone does.
    fn remove(&mut self, key: EntryKey) -> Result<(), EngineError> {
        let Some(held) = self.replace(&key, None)? else { return Ok(()) };
        self.hash.subtract(&self.hash_key, &key, &held.object_hash);
        self.writes.push((self.generation.rows.entry(&key), None));
        self.effected.push(EffectKind::Removed(Removed { key, uid: held.uid }));
        Ok(())
    }

    /// Holds `now` under `key`. Gives what was there before.
    fn replace(
        &mut self,
        key: &EntryKey,
        now: Option<EntrySummary>,
    ) -> Result<Option<EntrySummary>, EngineError> {
        let Generation { rows, held, .. } = &mut *self.generation;
        let (before, known) = match held.entry(key.clone()) {
            MapEntry::Occupied(mut held) => (held.insert(now), true),
            MapEntry::Vacant(vacant) => {
                let before = stored(self.engine, rows, key)?;
                vacant.insert(now);
                (before, false)
            }
        };
        self.before.push((key.clone(), known.then(|| before.clone())));
        Ok(before)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        for (key, before) in self.before.drain(..).rev() {
            match before {
                Some(held) => self.generation.held.insert(key, held),
                None => self.generation.held.remove(&key),
            };
        }
    }
}

/// How an applied object compares with what was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// There was nothing, or another object of the same name.
    Added,
    /// The object was another.
    Changed,
    /// The object was the same.
    Unchanged,
}

impl Came {
    /// The effect of `applied` having come so.
    pub(crate) fn effected(self, applied: Applied) -> EffectKind {
        match self {
            Self::Added => EffectKind::Added(applied),
            Self::Changed => EffectKind::Changed(applied),
            Self::Unchanged => EffectKind::Unchanged(applied.key),
        }
    }
}

/// Compares `applied` with what was held: what left for it, and how it came.
pub(crate) fn compare(
    before: Option<&EntrySummary>,
    object_hash: &ObjectHash,
    applied: &Applied,
) -> (Option<EffectKind>, Came) {
    match before {
        None => (None, Came::Added),
        Some(held) if held.uid != applied.uid => {
            let removed = Removed { key: applied.key.clone(), uid: held.uid.clone() };
            (Some(EffectKind::Removed(removed)), Came::Added)
        }
        Some(held) if held.object_hash == *object_hash => (None, Came::Unchanged),
        Some(_) => (None, Came::Changed),
    }
}
