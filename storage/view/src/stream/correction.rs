//! Corrections: a replica reports a few bytes an entry, and receives the difference from the
//! complete state.
//!
//! Both sides number the entries of a stream in the order of their rows, without reserved entries:
//! those are few, small, and always sent whole. While nothing is folded in between, the numbers
//! agree. If they did not, the state hash would differ and refuse the correction: the hash is
//! computed anew from every entry, because a correction may be of a later life of the log.

use std::collections::HashSet;
use std::sync::Arc;

use headwater_event::{
    DigestKey, EntryDigest, EntryKey, RemovalRuns, Removed, StateHash, StreamId,
};
use headwater_store::{Durability, Engine, EngineError};

use super::advance::Advance;
use super::change::PreparedChange;
use super::entry::{ENTRIES, Entry, StoredEntry};
use super::fold_error::FoldError;
use super::open_batch::OpenBatch;
use super::reader::StreamReader;
use super::refusal::Refusal;
use super::row_key::RowKey;

impl StreamReader<'_> {
    /// A digest of each entry of `stream` that is not reserved, in the order of their rows; `None`:
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
            let (row, StoredEntry { entry, .. }) = row?;
            let Entry { uid, resource_version, object_hash, .. } = entry;
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

/// The visible state, before the changes of a correction are folded into it.
pub(crate) struct CorrectionBase {
    /// The hash of all visible entries, under the key of the correction's log.
    pub(crate) hash: StateHash,
    /// The removals, without those of entries that the changes add again.
    pub(crate) removals: Vec<PreparedChange>,
}

impl OpenBatch {
    /// Returns the base of a whole correction. All visible entries are in the engine afterwards.
    pub(crate) fn correction_base(
        &mut self,
        advance: &Advance,
    ) -> Result<CorrectionBase, FoldError<Refusal>> {
        let hash_key = self.hash_key(&advance.to.log_id);
        self.write(Durability::Buffered)?;
        let rows = self.stream(&advance.stream)?.visible.rows.clone();
        let added: HashSet<&EntryKey> = advance.changes.iter().map(PreparedChange::key).collect();
        let mut base = CorrectionBase { hash: StateHash::EMPTY, removals: Vec::new() };
        for_each(&*self.engine, &rows, advance, |key, stored, is_gone| {
            base.hash.add(&hash_key, &key, &stored.entry.object_hash);
            if is_gone && !added.contains(&key) {
                let uid = stored.entry.uid;
                base.removals.push(PreparedChange::Removed(Removed { key, uid }));
            }
            Ok(())
        })?;
        Ok(base)
    }

    /// Copies the entries of a generation that a correction keeps. Returns their hash.
    pub(crate) fn copy_kept(
        &mut self,
        from: &RowKey,
        to: &RowKey,
        advance: &Advance,
    ) -> Result<StateHash, FoldError<Refusal>> {
        let hash_key = self.hash_key(&advance.to.log_id);
        let engine = Arc::clone(&self.engine);
        let mut hash = StateHash::EMPTY;
        for_each(&*engine, from, advance, |key, stored, is_gone| {
            if is_gone {
                return Ok(());
            }
            hash.add(&hash_key, &key, &stored.entry.object_hash);
            self.copy_entry(to, &key, &stored)
        })?;
        // The copy is read from the engine afterwards.
        self.write(Durability::Buffered)?;
        Ok(hash)
    }
}

/// Calls `visit` with every entry, and whether the correction removes it.
fn for_each(
    engine: &dyn Engine,
    rows: &RowKey,
    advance: &Advance,
    mut visit: impl FnMut(EntryKey, StoredEntry, bool) -> Result<(), EngineError>,
) -> Result<(), FoldError<Refusal>> {
    let mut goes = advance.gone.removals();
    for row in ENTRIES.rows_of(engine, rows) {
        let (row, stored) = row?;
        let key = row.entry_key_in(rows)?;
        let is_gone = key.resource().is_none() || goes.next().unwrap_or_default();
        visit(key, stored, is_gone)?;
    }
    if goes.next().is_some() {
        let (stream, seq) = (advance.stream.clone(), advance.to.seq);
        let covered = advance.gone.entries();
        return Err(FoldError::Refused(Refusal::Correction { stream, seq, covered }));
    }
    Ok(())
}

/// The bytes that the removals of a correction take in a batch: a row's key each.
pub(crate) fn gone_bytes(gone: &RemovalRuns) -> usize {
    const REMOVAL_BYTES: u64 = 128;
    usize::try_from(gone.count().saturating_mul(REMOVAL_BYTES)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
