//! The engine: RocksDB behind the [`Engine`] contract.

mod read_through;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use headwater_store::{
    Durability, Engine, EngineError, KeyValue, Range, Read, Schema, WriteBatch, WriteOp,
};
use rocksdb::{
    DB, DBPinnableSlice, DBRawIterator, ReadOptions, SnapshotWithThreadMode, WriteOptions,
    properties,
};

use crate::error;
use crate::memory::DatabaseMemory;
use crate::open;
use crate::role::{BULK_LOAD_FILES, Role, STEADY_FILES};

/// The most rows for which a scan allocates beforehand: most scans end below their limit.
const SCAN_CAPACITY_MAX: usize = 256;

/// A RocksDB database. One process has it open at a time.
///
/// A drop syncs its writes and closes it.
pub struct RocksEngine {
    db: DB,
    path: PathBuf,
    /// The first failure of a write. RocksDB recovers from some failures and not from others, and
    /// reports neither reliably. So an instance that failed once refuses further writes.
    poisoned: OnceLock<String>,
    /// Whether a bulk load goes on. Its writes are in no write-ahead log: they would be written twice, and the load can
    /// be made again. A write is made under the lock, so that none with a log follows one without before the flush that
    /// ends the load: the recovery would find the second without the first.
    is_loading: RwLock<bool>,
}

/// The resources that a database uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of its memtables, in memory.
    pub memtable_bytes: u64,
    /// Bytes that its open tables hold in memory outside the cache.
    pub table_reader_bytes: u64,
    /// Bytes of its write-ahead log, on disk.
    pub wal_bytes: u64,
    /// Bytes of its tables, on disk, with obsolete tables that reads still use.
    pub sst_bytes: u64,
    /// Files of level 0, each of which a read looks into.
    pub level_0_files: u64,
    /// Open snapshots.
    pub snapshots: u64,
    /// Bytes that compaction has yet to rewrite, estimated.
    pub pending_compaction_bytes: u64,
    /// Whether writes wait until compaction has caught up.
    pub writes_stopped: bool,
    /// The limit to which writes are slowed, in bytes a second; 0: no limit.
    pub delayed_write_bytes_per_second: u64,
    /// Flushes and compactions that failed since it was opened.
    pub background_errors: u64,
    /// Whether a write failed, so that the instance refuses writes.
    pub poisoned: bool,
}

impl RocksEngine {
    /// Opens the database in the directory `path`. Creates one if the directory is empty or
    /// missing.
    ///
    /// # Errors
    /// - [`EngineError::Locked`]: it is open already, in this process or another one.
    /// - [`EngineError::Corrupt`]: it is damaged, and unchanged; see
    ///   [`move_aside`](crate::move_aside).
    /// - [`EngineError::Unsupported`]: another build wrote it, or it is of another kind.
    /// - [`EngineError::Write`]: the open could not write; if `disk_full`, release the
    ///   [`Ballast`](crate::Ballast).
    /// - [`EngineError::Read`]: the disk could not be read.
    pub fn open(
        path: impl AsRef<Path>,
        role: Role,
        memory: &DatabaseMemory,
        schema: Schema,
    ) -> Result<Self, EngineError> {
        let path = path.as_ref();
        let db = open::open(path, role, memory)?;
        let (poisoned, is_loading) = (OnceLock::new(), RwLock::new(false));
        let engine = Self { db, path: path.to_owned(), poisoned, is_loading };
        schema.check(&engine)?;
        Ok(engine)
    }

    /// Returns the directory of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the resources that the database uses.
    ///
    /// # Errors
    /// [`EngineError::Read`] when its directory cannot be read.
    pub fn stats(&self) -> Result<Stats, EngineError> {
        let property = |name| {
            let value = self.db.property_int_value(name).map_err(|error| error::of_read(&error))?;
            Ok(value.unwrap_or(0))
        };
        Ok(Stats {
            memtable_bytes: property(properties::CUR_SIZE_ALL_MEM_TABLES)?,
            table_reader_bytes: property(properties::ESTIMATE_TABLE_READERS_MEM)?,
            wal_bytes: self.wal_bytes()?,
            sst_bytes: property(properties::TOTAL_SST_FILES_SIZE)?,
            level_0_files: property(&properties::num_files_at_level(0))?,
            snapshots: property(properties::NUM_SNAPSHOTS)?,
            pending_compaction_bytes: property(properties::ESTIMATE_PENDING_COMPACTION_BYTES)?,
            writes_stopped: property(properties::IS_WRITE_STOPPED)? > 0,
            delayed_write_bytes_per_second: property(properties::ACTUAL_DELAYED_WRITE_RATE)?,
            background_errors: property(properties::BACKGROUND_ERRORS)?,
            poisoned: self.poisoned.get().is_some(),
        })
    }

    /// RocksDB has no property for this.
    fn wal_bytes(&self) -> Result<u64, EngineError> {
        let unreadable = |error: std::io::Error| {
            let reason = format!("{}: {error}", self.path.display());
            EngineError::Read { reason }
        };
        let mut bytes = 0;
        for entry in fs::read_dir(&self.path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.path().extension().is_some_and(|end| end == "log") {
                // A file may be deleted meanwhile: it counts no bytes.
                bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            }
        }
        Ok(bytes)
    }

    /// Returns the first failure of a write, after which the instance refuses writes.
    pub fn failure(&self) -> Option<&str> {
        self.poisoned.get().map(String::as_str)
    }

    fn refuse_if_poisoned(&self) -> Result<(), EngineError> {
        match self.poisoned.get() {
            Some(reason) => Err(EngineError::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn loading(&self) -> RwLockReadGuard<'_, bool> {
        // A flag is whole at every moment.
        self.is_loading.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn loading_mut(&self) -> RwLockWriteGuard<'_, bool> {
        self.is_loading.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every write so far durable.
    fn make_durable(&self) -> Result<(), rocksdb::Error> {
        let is_loading = self.loading();
        if *is_loading { self.db.flush() } else { self.db.flush_wal(true) }
    }

    /// Makes the writes of a load durable, unless one failed.
    fn flush_load(&self) {
        if self.poisoned.get().is_none()
            && let Err(error) = self.db.flush()
        {
            let error = self.poison(&error);
            tracing::error!(path = %self.path.display(), %error, "the end of a load is not on the disk");
        }
    }

    /// Lets level 0 have this many files before a compaction merges them.
    fn merge_from(&self, files: i32) {
        let files = files.to_string();
        let option = [("level0_file_num_compaction_trigger", files.as_str())];
        // Without the option a load is slower, and nothing else.
        if let Err(error) = self.db.set_options(&option) {
            tracing::warn!(path = %self.path.display(), %error, "an option of a database cannot be set");
        }
    }

    /// Makes the instance refuse further writes.
    fn poison(&self, error: &rocksdb::Error) -> EngineError {
        let error = error::of_write(error);
        self.poisoned.get_or_init(|| error.to_string());
        error
    }
}

impl Read for RocksEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        value(self.db.get_pinned(key))
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        scan(range, limit, |options| self.db.raw_iterator_opt(options))
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        last(range, |options| self.db.raw_iterator_opt(options))
    }
}

impl Engine for RocksEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        self.refuse_if_poisoned()?;
        let is_loading = self.loading();
        let is_synced = durability == Durability::Synced;
        let mut options = WriteOptions::default();
        #[expect(
            clippy::disallowed_methods,
            reason = "a batch is in one memtable, and memtables are flushed in order: state and position stay together"
        )]
        options.disable_wal(*is_loading);
        options.set_sync(is_synced && !*is_loading);
        let mut written = self.db.write_opt(to_rocks(batch), &options);
        if written.is_ok() && is_synced && *is_loading {
            written = self.db.flush();
        }
        written.map_err(|error| self.poison(&error))
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.refuse_if_poisoned()?;
        self.make_durable().map_err(|error| self.poison(&error))
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        Box::new(RocksSnapshot(self.db.snapshot()))
    }

    fn begin_bulk_load(&self) {
        *self.loading_mut() = true;
        self.merge_from(BULK_LOAD_FILES);
    }

    fn end_bulk_load(&self) {
        // A flush may wait for compactions, and writes wait for the lock: most is flushed without it.
        let was_loading = *self.loading();
        if was_loading {
            self.flush_load();
        }
        let mut is_loading = self.loading_mut();
        if std::mem::take(&mut *is_loading) {
            self.flush_load();
        }
        drop(is_loading);
        self.merge_from(STEADY_FILES);
    }
}

impl Drop for RocksEngine {
    fn drop(&mut self) {
        // A failed instance must not be synced: the outcome of the failed write is unknown.
        if self.poisoned.get().is_none()
            && let Err(error) = self.make_durable()
        {
            tracing::warn!(path = %self.path.display(), %error, "a database closed without a sync");
        }
    }
}

impl fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksEngine")
            .field("path", &self.path)
            .field("poisoned", &self.poisoned.get())
            .finish_non_exhaustive()
    }
}

struct RocksSnapshot<'a>(SnapshotWithThreadMode<'a, DB>);

impl Read for RocksSnapshot<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        value(self.0.get_pinned(key))
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        scan(range, limit, |options| self.0.raw_iterator_opt(options))
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        last(range, |options| self.0.raw_iterator_opt(options))
    }
}

fn value(
    found: Result<Option<DBPinnableSlice<'_>>, rocksdb::Error>,
) -> Result<Option<Bytes>, EngineError> {
    let found = found.map_err(|error| error::of_read(&error))?;
    Ok(found.map(|value| Bytes::copy_from_slice(&value)))
}

fn scan<'a>(
    range: &Range,
    limit: usize,
    iterate: impl FnOnce(ReadOptions) -> DBRawIterator<'a>,
) -> Result<Vec<KeyValue>, EngineError> {
    if limit == 0 || range.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = Vec::with_capacity(limit.min(SCAN_CAPACITY_MAX));
    let mut iterator = iterate(within(range));
    iterator.seek_to_first();
    while rows.len() < limit
        && let Some(row) = row(&iterator)
    {
        rows.push(row);
        iterator.next();
    }
    checked(&iterator)?;
    Ok(rows)
}

fn last<'a>(
    range: &Range,
    iterate: impl FnOnce(ReadOptions) -> DBRawIterator<'a>,
) -> Result<Option<KeyValue>, EngineError> {
    if range.is_empty() {
        return Ok(None);
    }
    let mut iterator = iterate(within(range));
    iterator.seek_to_last();
    let row = row(&iterator);
    checked(&iterator)?;
    Ok(row)
}

fn within(range: &Range) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(range.from.to_vec());
    if let Some(to) = &range.to {
        options.set_iterate_upper_bound(to.to_vec());
    }
    options
}

fn row(iterator: &DBRawIterator<'_>) -> Option<KeyValue> {
    let (key, value) = iterator.item()?;
    Some((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
}

/// An iterator that failed looks like one at its end: only its status distinguishes them.
fn checked(iterator: &DBRawIterator<'_>) -> Result<(), EngineError> {
    iterator.status().map_err(|error| error::of_read(&error))
}

fn to_rocks(batch: WriteBatch) -> rocksdb::WriteBatch {
    let mut rocks = rocksdb::WriteBatch::default();
    for op in batch.ops {
        match op {
            WriteOp::Put(key, value) => rocks.put(key, value),
            WriteOp::Delete(key) => rocks.delete(key),
            // RocksDB returns an error for a reversed range.
            WriteOp::DeleteRange(from, to) if from < to => rocks.delete_range(from, to),
            WriteOp::DeleteRange(..) => {}
        }
    }
    rocks
}
