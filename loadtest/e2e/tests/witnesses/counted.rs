//! A database on disk that counts what is asked of it.

use std::ops::{Deref, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Durability, Engine, EngineError, KeyValue, Range, Read, Schema, WriteBatch};
use tempfile::TempDir;

/// See the module.
#[derive(Debug)]
pub(crate) struct CountingEngine {
    engine: RocksEngine,
    calls: Calls,
    _folder: TempDir,
}

#[derive(Debug, Default)]
struct Calls {
    writes: AtomicU64,
    syncs: AtomicU64,
    gets: AtomicU64,
    scans: AtomicU64,
}

/// How often what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineCounts {
    /// Batches written.
    pub(crate) writes: u64,
    /// Syncs of the write-ahead log, those of synced writes included.
    pub(crate) syncs: u64,
    /// Values looked up.
    pub(crate) gets: u64,
    /// Chunks of ranges read.
    pub(crate) scans: u64,
}

/// The engine or a snapshot of it: what either is asked counts.
struct Reading<'c, R> {
    read: R,
    calls: &'c Calls,
}

impl CountingEngine {
    /// An empty database of this role.
    pub(crate) fn new(role: Role, budget: Budget, schema: Schema) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = DatabaseMemory::new(budget);
        let engine = RocksEngine::open(folder.path().join("db"), role, &shared, schema);
        Self { engine: engine.expect("opens"), calls: Calls::default(), _folder: folder }
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> EngineCounts {
        let Calls { writes, syncs, gets, scans } = &self.calls;
        let [writes, syncs, gets, scans] =
            [writes, syncs, gets, scans].map(|count| count.load(Ordering::Relaxed));
        EngineCounts { writes, syncs, gets, scans }
    }

    fn reading(&self) -> Reading<'_, &RocksEngine> {
        Reading { read: &self.engine, calls: &self.calls }
    }
}

impl EngineCounts {
    /// Everything that was read.
    pub(crate) fn reads(&self) -> u64 {
        self.gets + self.scans
    }
}

impl Sub for EngineCounts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            syncs: self.syncs - before.syncs,
            gets: self.gets - before.gets,
            scans: self.scans - before.scans,
        }
    }
}

fn count(one: &AtomicU64) {
    one.fetch_add(1, Ordering::Relaxed);
}

impl<R: Deref<Target: Read>> Read for Reading<'_, R> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        count(&self.calls.gets);
        self.read.get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        count(&self.calls.scans);
        self.read.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        count(&self.calls.scans);
        self.read.last(range)
    }
}

impl Read for CountingEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.reading().get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.reading().scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.reading().last(range)
    }
}

impl Engine for CountingEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        count(&self.calls.writes);
        if durability == Durability::Synced {
            count(&self.calls.syncs);
        }
        self.engine.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        count(&self.calls.syncs);
        self.engine.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        Box::new(Reading { read: self.engine.snapshot(), calls: &self.calls })
    }
}
