//! The conformance suite, for both kinds of recovery.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::Mutex;

use bytes::Bytes;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::conformance::Subject;
use headwater_store::{Durability, Engine, EngineError, KeyValue, Range, Read, Schema, WriteBatch};
use tempfile::TempDir;

use crate::files::{copy, files_ending};

/// Any schema. The suite fills the rest of the key space, so the schema row is hidden; see [`Cut`].
const SCHEMA: Schema = headwater_store::schema::NODE_STATE;

struct RocksSubject(Role);

/// An engine that knows which part of its write-ahead log a power cut cannot take.
#[derive(Debug)]
struct Cut {
    engine: RocksEngine,
    directory: TempDir,
    /// The length of each log file when it was last synced.
    synced: Mutex<BTreeMap<PathBuf, u64>>,
}

impl RocksSubject {
    fn open(&self, directory: TempDir) -> Cut {
        let shared = DatabaseMemory::new(Budget::EDGE);
        let engine = RocksEngine::open(directory.path(), self.0, &shared, SCHEMA).expect("opens");
        Cut { engine, directory, synced: Mutex::default() }
    }

    /// Applies `change` to a copy of the files, and opens the copy.
    fn reopen(&self, engine: &Cut, change: impl FnOnce(&TempDir)) -> Cut {
        let directory = tempfile::tempdir().expect("a directory");
        copy(engine.directory.path(), directory.path());
        change(&directory);
        let opened = self.open(directory);
        // Recovery has written all rows into tables and synced them.
        opened.note_synced();
        opened
    }
}

impl Subject for RocksSubject {
    type Engine = Cut;

    fn create(&self) -> Cut {
        self.open(tempfile::tempdir().expect("a directory"))
    }

    fn crash(&self, engine: Cut) -> Cut {
        self.reopen(&engine, |_| {})
    }

    fn cut_power(&self, engine: Cut, seed: u64) -> Cut {
        let synced = engine.synced.lock().expect("no panic holds it").clone();
        self.reopen(&engine, |directory| {
            for file in files_ending(engine.directory.path(), "log") {
                let from = synced.get(&file).copied().unwrap_or(0);
                let to = fs::metadata(&file).expect("there").len();
                let left = from + seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (to - from + 1);
                let copied = directory.path().join(file.file_name().expect("a name"));
                let copied = OpenOptions::new().write(true).open(copied).expect("there");
                copied.set_len(left).expect("cut");
            }
        })
    }
}

impl Cut {
    fn note_synced(&self) {
        let mut synced = self.synced.lock().expect("no panic holds it");
        for file in files_ending(self.directory.path(), "log") {
            let length = fs::metadata(&file).expect("there").len();
            synced.insert(file, length);
        }
    }
}

/// The schema row is at `01`, in the middle of the suite's keys. So the suite has a key space of
/// its own, behind one more byte.
const SPACE: u8 = 0x10;

fn inner(key: &[u8]) -> Bytes {
    [&[SPACE], key].concat().into()
}

fn inner_range(range: &Range) -> Range {
    let to = range.to.as_ref().map_or(Bytes::from_static(&[SPACE + 1]), |to| inner(to));
    Range { from: inner(&range.from), to: Some(to) }
}

fn outer((key, value): KeyValue) -> KeyValue {
    (key.slice(1..), value)
}

struct Inner<R>(R);

impl<R: std::ops::Deref<Target: Read>> Read for Inner<R> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.0.get(&inner(key))
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        Ok(self.0.scan(&inner_range(range), limit)?.into_iter().map(outer).collect())
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        Ok(self.0.last(&inner_range(range))?.map(outer))
    }
}

impl Read for Cut {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Inner(&self.engine).get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        Inner(&self.engine).scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        Inner(&self.engine).last(range)
    }
}

impl Engine for Cut {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        use headwater_store::WriteOp::{Delete, DeleteRange, Put};
        let ops = batch.ops.into_iter().map(|op| match op {
            Put(key, value) => Put(inner(&key), value),
            Delete(key) => Delete(inner(&key)),
            DeleteRange(from, to) => DeleteRange(inner(&from), inner(&to)),
        });
        self.engine.write(WriteBatch { ops: ops.collect() }, durability)?;
        if durability == Durability::Synced {
            self.note_synced();
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()?;
        self.note_synced();
        Ok(())
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        Box::new(Inner(self.engine.snapshot()))
    }

    fn begin_bulk_load(&self) {
        self.engine.begin_bulk_load();
    }

    fn end_bulk_load(&self) {
        self.engine.end_bulk_load();
    }
}

mod state {
    headwater_store::engine_conformance!(super::RocksSubject(headwater_rocks::Role::State));
}

mod log {
    headwater_store::engine_conformance!(super::RocksSubject(headwater_rocks::Role::Log));
}

mod fold {
    headwater_store::engine_conformance!(super::RocksSubject(headwater_rocks::Role::Fold));
}
