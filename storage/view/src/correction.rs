//! Corrections: what a replica holds is said in a few bytes an entry, and what comes back is how it
//! differs from the complete state elsewhere.
//!
//! Both sides of it count the entries of a stream in the order of their rows, reserved ones left
//! out: those are few, small, and always come whole. As long as nothing is folded in between, the
//! places are the same. Were they not, the state hash would come out otherwise: it is made anew
//! of every entry, for a correction may be of a later life of the log, and refuses the whole.

use std::collections::HashSet;
use std::sync::Arc;

use headwater_event::{DigestKey, EntryDigest, EntryKey, Gone, Removed, StateHash, StreamId};
use headwater_store::{Durability, Engine, EngineError};

use crate::advance::Advance;
use crate::entry::{ENTRIES, Entry, RowKey};
use crate::prepared::Prepared;
use crate::projection::FoldError;
use crate::refusal::Refusal;
use crate::slot::Slot;
use crate::stream_reader::StreamReader;
use crate::stream_state::StreamState;

impl StreamReader<'_> {
    /// A digest for each entry of `stream` but reserved ones, in the order of their rows; `None`:
    /// there are more than `max`.
    ///
    /// # Errors
    /// As [`headwater_store::Read::scan`].
    pub fn digests(
        &self,
        stream: &StreamId,
        digest_key: &DigestKey,
        max: usize,
    ) -> Result<Option<Vec<EntryDigest>>, EngineError> {
        let rows = self.generation(stream)?;
        let mut digests = Vec::new();
        for row in ENTRIES.rows_of(self.read(), &rows) {
            let (row, Entry { uid, resource_version, object_hash, .. }) = row?;
            let key = row.entry_key_in(&rows)?;
            if key.resource().is_none() {
                continue;
            }
            if digests.len() == max {
                return Ok(None);
            }
            digests.push(digest_key.digest(&key, &uid, &resource_version, &object_hash));
        }
        Ok(Some(digests))
    }
}

/// What is visible, before a correction's changes are folded into it.
pub(crate) struct Corrected {
    /// The hash of all that is visible, under the key of the log that comes.
    pub(crate) hash: StateHash,
    /// What leaves, but for what the changes bring again.
    pub(crate) leaves: Vec<Prepared>,
}

impl StreamState {
    /// What a whole correction begins with. All that is visible lies in the engine afterwards.
    pub(crate) fn corrected(&mut self, advance: &Advance) -> Result<Corrected, FoldError<Refusal>> {
        let hash_key = self.hash_key(&advance.to.log_id);
        self.write(Durability::Buffered)?;
        let slot = Slot::of(&mut self.slots, &*self.engine, &advance.stream)?;
        let comes: HashSet<&EntryKey> = advance.changes.iter().map(Prepared::key).collect();
        let mut corrected = Corrected { hash: StateHash::EMPTY, leaves: Vec::new() };
        each(&*self.engine, &slot.visible.rows, advance, |key, entry, goes| {
            corrected.hash.add(&hash_key, &key, &entry.object_hash);
            if goes && !comes.contains(&key) {
                let uid = entry.uid;
                corrected.leaves.push(Prepared::Removed(Removed { key, uid }));
            }
            Ok(())
        })?;
        Ok(corrected)
    }

    /// Copies what stays of a generation for a correction that is staged. Gives its hash.
    pub(crate) fn copy_corrected(
        &mut self,
        from: &RowKey,
        to: &RowKey,
        advance: &Advance,
    ) -> Result<StateHash, FoldError<Refusal>> {
        let hash_key = self.hash_key(&advance.to.log_id);
        let engine = Arc::clone(&self.engine);
        let mut hash = StateHash::EMPTY;
        each(&*engine, from, advance, |key, entry, goes| {
            if goes {
                return Ok(());
            }
            hash.add(&hash_key, &key, &entry.object_hash);
            self.copy_entry(to, &key, &entry)
        })?;
        // The copy is read from the engine from here on.
        self.write(Durability::Buffered)?;
        Ok(hash)
    }
}

/// Calls `take` with every entry, and whether it goes.
fn each(
    engine: &dyn Engine,
    rows: &RowKey,
    advance: &Advance,
    mut take: impl FnMut(EntryKey, Entry, bool) -> Result<(), EngineError>,
) -> Result<(), FoldError<Refusal>> {
    let mut goes = advance.gone.goes();
    for row in ENTRIES.rows_of(engine, rows) {
        let (row, entry) = row?;
        let key = row.entry_key_in(rows)?;
        let goes = key.resource().is_none() || goes.next().unwrap_or_default();
        take(key, entry, goes)?;
    }
    if goes.next().is_some() {
        let (stream, seq) = (advance.stream.clone(), advance.to.seq);
        let said = advance.gone.entries();
        return Err(FoldError::Refused(Refusal::Correction { stream, seq, said }));
    }
    Ok(())
}

/// What a correction weighs in a batch beside its objects: a removal is a row's key.
pub(crate) fn gone_bytes(gone: &Gone) -> usize {
    const REMOVAL_BYTES: u64 = 128;
    usize::try_from(gone.count().saturating_mul(REMOVAL_BYTES)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
