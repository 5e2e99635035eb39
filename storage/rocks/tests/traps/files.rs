//! The files of a database as tests change them: copies, cuts and flipped bits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Durability, Engine, EngineError, Range, Read, WriteBatch, schema};

/// Opens a state database with memory of its own, so that no block is cached.
pub(crate) fn open_state(path: &Path) -> Result<RocksEngine, EngineError> {
    RocksEngine::open(path, Role::State, &DatabaseMemory::new(Budget::EDGE), schema::NODE_STATE)
}

/// Opens an outbox with memory of its own.
pub(crate) fn open_outbox(path: &Path) -> Result<RocksEngine, EngineError> {
    RocksEngine::open(path, Role::Outbox, &DatabaseMemory::new(Budget::EDGE), schema::OUTBOX)
}

/// The files in `path` that end with `.<end>`, by name.
pub(crate) fn files_ending(path: &Path, end: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(path)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| file.extension().is_some_and(|found| found == end))
        .collect();
    files.sort();
    files
}

/// The copies that are begun: an open database removes old files now and then, not all the time.
const COPIES_MAX: usize = 100;

/// Copies the files of a database: the state that a killed process leaves. A copy that misses a file,
/// because the database has just removed it, begins again.
pub(crate) fn copy(from: &Path, to: &Path) {
    for _ in 0..COPIES_MAX {
        match copy_once(from, to) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::remove_dir_all(to).expect("it is removed");
            }
            Err(error) => panic!("no copy: {error}"),
        }
    }
    panic!("no copy of {} is whole", from.display());
}

fn copy_once(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Flips one bit of the byte at `offset`.
pub(crate) fn flip_bit(file: &Path, offset: usize) {
    let mut bytes = fs::read(file).expect("reads");
    bytes[offset] ^= 0x10;
    fs::write(file, bytes).expect("writes");
}

/// The batch `n` of a history: two rows, so that half a batch is noticed.
pub(crate) fn numbered(n: u32) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for table in [b'a', b'z'] {
        batch.put([&[table], n.to_be_bytes().as_slice()].concat(), value(n));
    }
    batch
}

/// The value of both rows: 200 bytes that do not compress to nothing and say which they are.
pub(crate) fn value(n: u32) -> Bytes {
    (0..50).flat_map(|i| n.wrapping_mul(2_654_435_761).rotate_left(i).to_be_bytes()).collect()
}

pub(crate) fn write(
    engine: &RocksEngine,
    numbers: std::ops::RangeInclusive<u32>,
    durability: Durability,
) {
    for n in numbers {
        engine.write(numbered(n), durability).expect("writes");
    }
}

/// Returns the number of batches, which must be a prefix of whole batches with unchanged values.
///
/// # Panics
/// When a batch is torn, out of order, or holds other values.
pub(crate) fn prefix_length(engine: &RocksEngine) -> Result<u32, EngineError> {
    let table = |prefix: &'static [u8]| engine.scan(&Range::prefix(prefix), usize::MAX);
    let (first, second) = (table(b"a")?, table(b"z")?);
    assert_eq!(first.len(), second.len(), "a batch is torn");
    for rows in [&first, &second] {
        for (n, (key, found)) in (1_u32..).zip(rows) {
            assert_eq!(key[1..], n.to_be_bytes(), "a batch before the last is missing");
            assert_eq!(*found, value(n), "wrong data in batch {n}");
        }
    }
    Ok(u32::try_from(first.len()).expect("few batches"))
}

/// A database whose `count` batches lie in a table file, closed.
pub(crate) fn in_a_table(
    path: &Path,
    open: fn(&Path) -> Result<RocksEngine, EngineError>,
    count: u32,
) {
    let engine = open(path).expect("opens");
    write(&engine, 1..=count, Durability::Synced);
    drop(engine);
    // Opening writes the write-ahead log into a table.
    drop(open(path).expect("opens"));
    assert!(!files_ending(path, "sst").is_empty());
}
