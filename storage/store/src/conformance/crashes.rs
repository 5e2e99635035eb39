//! Cases of crashes: the state after them.

use super::{Subject, put};
use crate::engine::{Durability, Engine, Range, WriteBatch};

/// The moments of a power cut that each case tries.
const CUTS: u64 = 8;

/// Writes the batches `from..=to`: each has two rows, so that a torn batch is noticed.
fn write_numbered(engine: &impl Engine, from: u8, to: u8) {
    for n in from..=to {
        engine.write(numbered(n), Durability::Buffered).expect("writes");
    }
}

fn numbered(n: u8) -> WriteBatch {
    let mut batch = WriteBatch::default();
    batch.put(vec![b'a', n], vec![n; 100]);
    batch.put(vec![b'z', n], vec![n; 100]);
    batch
}

/// Returns the number of batches. Panics unless they are a prefix of whole batches.
fn prefix_length(engine: &impl Engine) -> u8 {
    let numbers = |prefix: &'static [u8]| -> Vec<u8> {
        let rows = engine.scan(&Range::prefix(prefix), usize::MAX).expect("reads");
        rows.into_iter().map(|(key, _)| key[1]).collect()
    };
    let (first, second) = (numbers(b"a"), numbers(b"z"));
    assert_eq!(first, second, "a batch is torn");
    let length = u8::try_from(first.len()).expect("few batches");
    assert_eq!(first, (1..=length).collect::<Vec<_>>(), "a batch before the last is lost");
    length
}

/// When the process dies, every write that returned survives, synced or not.
pub fn a_crashed_process_loses_nothing(subject: &impl Subject) {
    let engine = subject.create();
    write_numbered(&engine, 1, 20);
    assert_eq!(prefix_length(&subject.crash(engine)), 20);
}

/// A synced write survives a power cut, and so does every write before it.
pub fn a_synced_write_covers_every_write_before(subject: &impl Subject) {
    for seed in 0..CUTS {
        let engine = subject.create();
        write_numbered(&engine, 1, 9);
        engine.write(numbered(10), Durability::Synced).expect("writes");
        assert_eq!(prefix_length(&subject.cut_power(engine, seed)), 10, "seed {seed}");
    }
}

/// A sync that returned covers every write before it.
pub fn a_later_sync_covers_every_write_before(subject: &impl Subject) {
    for seed in 0..CUTS {
        let engine = subject.create();
        write_numbered(&engine, 1, 10);
        engine.sync().expect("syncs");
        engine.sync().expect("syncs again, with nothing to do");
        assert_eq!(prefix_length(&subject.cut_power(engine, seed)), 10, "seed {seed}");
    }
}

/// After a power cut, a prefix of whole batches is left that includes the synced ones.
pub fn a_power_cut_leaves_a_prefix_from_the_synced_on(subject: &impl Subject) {
    for seed in 0..CUTS {
        let engine = subject.create();
        write_numbered(&engine, 1, 5);
        engine.sync().expect("syncs");
        write_numbered(&engine, 6, 12);
        let left = prefix_length(&subject.cut_power(engine, seed));
        assert!((5..=12).contains(&left), "seed {seed}: {left} batches are left");
    }
}

/// After a crash the engine takes writes, and they survive the next crash.
pub fn an_opened_engine_goes_on(subject: &impl Subject) {
    let mut engine = subject.create();
    for round in 0..3 {
        write_numbered(&engine, round * 5 + 1, round * 5 + 5);
        engine = subject.crash(engine);
        assert_eq!(prefix_length(&engine), round * 5 + 5);
    }
    engine.sync().expect("syncs");
    put(&engine, b"other", b"row");
    engine = subject.cut_power(engine, 3);
    assert_eq!(prefix_length(&engine), 15, "the open lost a synced write");
}
