//! Bare RocksDB with the options of the edge's state, and batches made beforehand.

use std::path::Path;
use std::time::Instant;

use headwater_loadtest::failure::{Attempt, Failure};
use headwater_rocks::{Budget, DatabaseMemory, Role};
use headwater_store::WriteOp;
use rocksdb::{DB, WriteBatch, WriteOptions};

use crate::limit::{Taken, Written};
use crate::thread_time::ThreadTime;

/// Writes what an edge wrote, perhaps with its syncs, until nothing of it lies in memory alone.
///
/// # Errors
/// When RocksDB cannot write.
pub(crate) fn write(written: &[Written], syncs: bool) -> Result<Taken, Failure> {
    let folder = tempfile::tempdir().tried("making a folder")?;
    let db = open(folder.path())?;
    let batches: Vec<_> = written.iter().map(|one| (batch(one), one.synced)).collect();
    let mut unsynced = WriteOptions::default();
    unsynced.set_sync(false);
    let me = ThreadTime::current();
    let (began, processor) = (Instant::now(), me.taken());
    for (batch, synced) in batches {
        db.write_opt(batch, &unsynced).tried("writing to RocksDB")?;
        if syncs && synced {
            db.flush_wal(true).tried("syncing RocksDB")?;
        }
    }
    Ok(Taken { wall: began.elapsed(), processor: me.taken().saturating_sub(processor) })
}

/// Opens the database in `folder`, with the options of an edge's state, or makes one.
///
/// # Errors
/// When RocksDB cannot open it.
pub(crate) fn open(folder: &Path) -> Result<DB, Failure> {
    let mut options = Role::State.options(&DatabaseMemory::new(Budget::EDGE));
    options.create_if_missing(true);
    DB::open(&options, folder).tried("opening RocksDB")
}

fn batch(written: &Written) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for op in &written.batch.ops {
        match op {
            WriteOp::Put(key, value) => batch.put(key, value),
            WriteOp::Delete(key) => batch.delete(key),
            WriteOp::DeleteRange(from, to) if from < to => batch.delete_range(from, to),
            WriteOp::DeleteRange(..) => {}
        }
    }
    batch
}
