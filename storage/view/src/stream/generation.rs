//! One generation of a stream's entries, as the fold sees it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;

use headwater_event::{EntryKey, StateHash, StreamId};
use headwater_store::{Engine, EngineError};

use super::entry::{ENTRIES, EntrySummary};
use super::row_key::RowKey;

/// A generation of a stream's entries: the stored rows, and over them the open batch.
#[derive(Debug)]
pub(crate) struct Generation {
    /// The prefix of its row keys.
    pub(crate) rows: RowKey,
    /// The hash of its entries.
    pub(crate) hash: StateHash,
    /// Summaries of entries, `None` for an absent one. Holds at least every entry that the open
    /// batch writes; the rest is a cache.
    summaries: HashMap<EntryKey, Option<EntrySummary>>,
}

impl Generation {
    pub(crate) fn new(stream: &StreamId, number: u32, hash: StateHash) -> Self {
        Self { rows: RowKey::generation(stream, number), hash, summaries: HashMap::new() }
    }

    /// The summary of the entry under `key`.
    pub(crate) fn summary(
        &self,
        engine: &dyn Engine,
        key: &EntryKey,
    ) -> Result<Option<Cow<'_, EntrySummary>>, EngineError> {
        match self.summaries.get(key) {
            Some(summary) => Ok(summary.as_ref().map(Cow::Borrowed)),
            None => Ok(stored(engine, &self.rows, key)?.map(Cow::Owned)),
        }
    }

    /// Sets the summary under `key`. Returns the former one, and whether it was in memory.
    pub(crate) fn replace(
        &mut self,
        engine: &dyn Engine,
        key: &EntryKey,
        now: Option<EntrySummary>,
    ) -> Result<(Option<EntrySummary>, bool), EngineError> {
        match self.summaries.entry(key.clone()) {
            MapEntry::Occupied(mut summary) => Ok((summary.insert(now), true)),
            MapEntry::Vacant(vacant) => {
                let before = stored(engine, &self.rows, key)?;
                vacant.insert(now);
                Ok((before, false))
            }
        }
    }

    /// Undoes a [`replace`](Self::replace). `before` is the former summary; `None`: it was not in
    /// memory.
    pub(crate) fn restore(&mut self, key: EntryKey, before: Option<Option<EntrySummary>>) {
        match before {
            Some(summary) => self.summaries.insert(key, summary),
            None => self.summaries.remove(&key),
        };
    }

    /// How many summaries are in memory.
    pub(crate) fn cached(&self) -> usize {
        self.summaries.len()
    }

    /// Drops the summaries; only while the open batch writes nothing of this generation.
    pub(crate) fn clear_cache(&mut self) {
        self.summaries = HashMap::new();
    }
}

/// The summary of the stored entry under `key`.
fn stored(
    engine: &dyn Engine,
    rows: &RowKey,
    key: &EntryKey,
) -> Result<Option<EntrySummary>, EngineError> {
    Ok(ENTRIES.get(engine, &rows.entry(key))?.map(EntrySummary::from))
}
