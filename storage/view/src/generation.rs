//! One generation of a stream's entries, and how a change is folded into it.
//!
//! A change is drafted first: what it would write, how the hash would come out. Only when that
//! is right does the draft enter the batch, so a refused input leaves no trace.

use std::borrow::Cow;
use std::collections::HashMap;

use headwater_event::{
    Applied, Change, EntryKey, HashKey, ObjectHash, Removed, Seq, StateHash, StreamId,
};
use headwater_store::{Batch, Engine, EngineError, Folded};

use crate::effect::Effected;
use crate::entry::{ENTRIES, Entry, Held, RowKey};

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
    held: HashMap<EntryKey, Option<Held>>,
}

/// Changes folded on trial.
#[derive(Debug)]
pub(crate) struct Draft<'g> {
    generation: &'g Generation,
    engine: &'g dyn Engine,
    hash_key: HashKey,
    /// The hash after the changes.
    pub(crate) hash: StateHash,
    /// What they come to so far.
    pub(crate) drafted: Drafted,
}

/// What a draft comes to, once it is found right.
#[derive(Debug, Default)]
pub(crate) struct Drafted {
    held: HashMap<EntryKey, Option<Held>>,
    writes: Vec<(RowKey, Option<Entry>)>,
    /// What the changes did, in order.
    pub(crate) effected: Vec<Effected>,
    /// The bytes of the objects they write.
    pub(crate) bytes: usize,
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
    ) -> Result<Option<Cow<'_, Held>>, EngineError> {
        if let Some(held) = self.held.get(key) {
            return Ok(held.as_ref().map(Cow::Borrowed));
        }
        let entry = ENTRIES.get(engine, &self.rows.entry(key))?;
        Ok(entry.map(|entry| Cow::Owned(Held { uid: entry.uid, object_hash: entry.object_hash })))
    }

    /// Begins to fold changes on trial.
    pub(crate) fn draft<'g>(&'g self, engine: &'g dyn Engine, hash_key: HashKey) -> Draft<'g> {
        Draft { generation: self, engine, hash_key, hash: self.hash, drafted: Drafted::default() }
    }

    /// Takes a draft over: its rows into the batch, its hash, what it holds. Gives what it did.
    pub(crate) fn accept(
        &mut self,
        hash: StateHash,
        drafted: Drafted,
        batch: &mut Batch<Folded>,
    ) -> Vec<Effected> {
        for (row, entry) in &drafted.writes {
            match entry {
                Some(entry) => batch.put(&ENTRIES, row, entry),
                None => batch.delete(&ENTRIES, row),
            }
        }
        self.hash = hash;
        self.held.extend(drafted.held);
        drafted.effected
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

impl Draft<'_> {
    /// Folds one change at `seq`.
    pub(crate) fn fold(&mut self, seq: Seq, change: Change) -> Result<(), EngineError> {
        match change {
            Change::Applied(applied) => self.apply(seq, applied),
            Change::Removed(removed) => self.remove(removed.key),
        }
    }

    /// What the changes come to.
    pub(crate) fn finish(self) -> (StateHash, Drafted) {
        (self.hash, self.drafted)
    }

    fn apply(&mut self, seq: Seq, applied: Applied) -> Result<(), EngineError> {
        let drafted = &mut self.drafted;
        let object_hash = ObjectHash::of(&applied.object);
        let before = drafted.held(self.generation, self.engine, &applied.key)?;
        if before.as_ref().is_none_or(|held| held.object_hash != object_hash) {
            if let Some(held) = &before {
                self.hash.subtract(&self.hash_key, &applied.key, &held.object_hash);
            }
            self.hash.add(&self.hash_key, &applied.key, &object_hash);
        }
        let (left, came) = compare(before.as_deref(), &object_hash, &applied);
        let entry = Entry {
            seq,
            object_hash,
            uid: applied.uid.clone(),
            resource_version: applied.resource_version.clone(),
            object: applied.object.clone(),
        };
        let held = Held { uid: applied.uid.clone(), object_hash };
        drafted.bytes += entry.object.len();
        drafted.writes.push((self.generation.rows.entry(&applied.key), Some(entry)));
        drafted.held.insert(applied.key.clone(), Some(held));
        drafted.effected.extend(left);
        drafted.effected.push(came.effected(applied));
        Ok(())
    }

    /// A removal takes whatever lies under the key, as compaction by a tombstone does.
    fn remove(&mut self, key: EntryKey) -> Result<(), EngineError> {
        let drafted = &mut self.drafted;
        let Some(held) = drafted.held(self.generation, self.engine, &key)? else {
            return Ok(());
        };
        self.hash.subtract(&self.hash_key, &key, &held.object_hash);
        let removed = Removed { key: key.clone(), uid: held.into_owned().uid };
        drafted.effected.push(Effected::Removed(removed));
        drafted.writes.push((self.generation.rows.entry(&key), None));
        drafted.held.insert(key, None);
        Ok(())
    }
}

impl Drafted {
    /// What is held under `key` after the changes so far.
    fn held<'a>(
        &'a self,
        generation: &'a Generation,
        engine: &dyn Engine,
        key: &EntryKey,
    ) -> Result<Option<Cow<'a, Held>>, EngineError> {
        match self.held.get(key) {
            Some(held) => Ok(held.as_ref().map(Cow::Borrowed)),
            None => generation.held(engine, key),
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
    pub(crate) fn effected(self, applied: Applied) -> Effected {
        match self {
            Self::Added => Effected::Added(applied),
            Self::Changed => Effected::Changed(applied),
            Self::Unchanged => Effected::Unchanged(applied.key),
        }
    }
}

/// Compares `applied` with what was held: what left for it, and how it came.
pub(crate) fn compare(
    before: Option<&Held>,
    object_hash: &ObjectHash,
    applied: &Applied,
) -> (Option<Effected>, Came) {
    match before {
        None => (None, Came::Added),
        Some(held) if held.uid != applied.uid => {
            let removed = Removed { key: applied.key.clone(), uid: held.uid.clone() };
            (Some(Effected::Removed(removed)), Came::Added)
        }
        Some(held) if held.object_hash == *object_hash => (None, Came::Unchanged),
        Some(_) => (None, Came::Changed),
    }
}
