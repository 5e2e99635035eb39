//! The engine of a first fold, which begins with empty tables.
//!
//! A fold reads each key before it writes it. In a first fold almost every answer is "nothing", for which a database
//! looks into each of its sorted runs. A Bloom filter of the keys that the fold has written gives this answer from
//! memory: it is sometimes wrong about a key that was not written, and the database then answers, but never about one
//! that was.

use std::fmt;
use std::ops::Range as Bounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fastbloom::BloomFilter;
use headwater_store::{
    Durability, Engine, EngineError, KeyValue, Range, Read, WriteBatch, WriteOp,
};

/// The size of the filter, 4 MiB. A hub writes three keys for an object: for a million objects that is 11 bits a key, and
/// at their end one answer in a hundred comes from the database; with ten million objects most answers do, at their end.
/// The kernel gives memory for the pages that a smaller fold touches.
const FILTER_BITS: usize = 4 << 23;

/// Hash functions: the best number for the keys of two million objects.
const FILTER_HASHES: u32 = 4;

/// An engine whose folded tables were empty when the value was made. One task reads and writes these tables through
/// it, until [`FirstFoldEngine::end`].
pub(crate) struct FirstFoldEngine {
    engine: Arc<dyn Engine>,
    /// The first byte of the keys of the tables.
    tables: Bounds<u8>,
    /// The keys that were written since; `None`: the first fold has ended.
    written: Mutex<Option<BloomFilter>>,
}

impl FirstFoldEngine {
    /// The engine, in which the tables whose keys begin with one of `tables` are empty. Its bulk load begins.
    pub(crate) fn new(engine: Arc<dyn Engine>, tables: Bounds<u8>) -> Self {
        engine.begin_bulk_load();
        let filter = BloomFilter::with_num_bits(FILTER_BITS).seed(&0).hashes(FILTER_HASHES);
        Self { engine, tables, written: Mutex::new(Some(filter)) }
    }

    /// The first fold has ended. The filter goes, and every read is the engine's from now on.
    pub(crate) fn end(&self) {
        if self.written().take().is_some() {
            self.engine.end_bulk_load();
        }
    }

    /// Whether the fold has not written `key`.
    fn lacks(&self, key: &[u8]) -> bool {
        let is_folded = key.first().is_some_and(|table| self.tables.contains(table));
        is_folded && self.written().as_ref().is_some_and(|written| !written.contains(key))
    }

    fn written(&self) -> MutexGuard<'_, Option<BloomFilter>> {
        // No code here panics while it holds the lock; a poisoned filter is still whole.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FirstFoldEngine {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for FirstFoldEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_first = self.written().is_some();
        f.debug_struct("FirstFoldEngine")
            .field("engine", &self.engine)
            .field("is_first", &is_first)
            .finish()
    }
}

impl Read for FirstFoldEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        if self.lacks(key) { Ok(None) } else { self.engine.get(key) }
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.engine.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.engine.last(range)
    }
}

impl Engine for FirstFoldEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        if let Some(written) = self.written().as_mut() {
            for op in &batch.ops {
                if let WriteOp::Put(key, _) = op {
                    written.insert(&key[..]);
                }
            }
        }
        self.engine.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::MemoryEngine;

    use super::*;

    fn put(engine: &dyn Engine, key: &'static [u8]) {
        let mut batch = WriteBatch::default();
        batch.put(key, &b"1"[..]);
        engine.write(batch, Durability::Buffered).expect("writes");
    }

    /// The keys of the tables 2 to 4 that the database is not asked for are those that were not written.
    #[test]
    fn only_what_the_fold_wrote_is_read() {
        let inner = Arc::new(MemoryEngine::new());
        // A row that the first fold does not know of: a read that reaches the engine finds it.
        put(&*inner, b"\x03hidden");
        put(&*inner, b"\x05other");
        let engine = FirstFoldEngine::new(inner, 2..5);
        let has = |key: &[u8]| engine.get(key).expect("reads").is_some();
        assert!(!has(b"\x03hidden"), "the tables were empty");
        assert!(has(b"\x05other"), "another table");
        put(&engine, b"\x03a");
        put(&engine, b"\x02b");
        assert!(has(b"\x03a") && has(b"\x02b") && !has(b"\x03b"));
        engine.end();
        assert!(has(b"\x03hidden") && has(b"\x03a"));
    }

    #[test]
    fn the_keys_of_a_million_objects_leave_few_reads() {
        let engine = FirstFoldEngine::new(Arc::new(MemoryEngine::new()), 0..255);
        let mut written = engine.written();
        let filter = written.as_mut().expect("the first fold");
        for key in 0..3_000_000_u32 {
            filter.insert(&key.to_be_bytes()[..]);
        }
        let of =
            |keys: Bounds<u32>| keys.filter(|key| filter.contains(&key.to_be_bytes()[..])).count();
        assert_eq!(of(0..10_000), 10_000, "a key that was written is always found");
        let wrong = of(4_000_000..4_010_000);
        assert!(wrong < 300, "{wrong} of 10000 keys that were not written seem to be");
    }
}
