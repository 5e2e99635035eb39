//! Cases of writes without failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;

use super::{Subject, batch, put};
use crate::engine::{Durability, Engine, Range, Read, WriteBatch};

fn rows(engine: &impl Engine) -> Vec<(String, String)> {
    let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
    let rows = engine.scan(&Range::all(), usize::MAX).expect("reads");
    rows.into_iter().map(|(key, value)| (text(key), text(value))).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// The changes of a batch apply in order.
pub fn changes_of_a_batch_apply_in_order(subject: &impl Subject) {
    let engine = subject.create();
    engine.write(batch(&[("b", "old"), ("c", "old")]), Durability::Buffered).expect("writes");
    let mut changes = WriteBatch::default();
    changes.put("a", "1");
    changes.put("a", "2");
    changes.put("bb", "gone with its range");
    changes.delete_range("b", "d");
    changes.put("c", "back");
    changes.put("e", "gone");
    changes.delete("e");
    changes.delete("f");
    engine.write(changes, Durability::Buffered).expect("writes");
    assert_eq!(rows(&engine), [pair("a", "2"), pair("c", "back")]);
    engine.write(WriteBatch::default(), Durability::Synced).expect("an empty batch is a batch");
}

/// A deletion covers its range from the first key, inclusive, to the end, exclusive; a reversed
/// range is empty.
pub fn a_range_is_deleted_to_its_end(subject: &impl Subject) {
    let engine = subject.create();
    engine
        .write(batch(&[("a", ""), ("b", ""), ("b\0", ""), ("c", "")]), Durability::Buffered)
        .expect("writes");
    let delete = |from: &'static str, to: &'static str| {
        let mut batch = WriteBatch::default();
        batch.delete_range(from, to);
        engine.write(batch, Durability::Buffered).expect("writes");
    };
    delete("c", "a");
    delete("b", "b");
    assert_eq!(rows(&engine).len(), 4, "reversed and empty ranges remove nothing");
    delete("b", "c");
    assert_eq!(rows(&engine), [pair("a", ""), pair("c", "")]);
    put(&engine, b"b", b"again");
    assert_eq!(engine.get(b"b").expect("reads").as_deref(), Some(&b"again"[..]));
}

/// The engine keeps a value of the largest size that the log takes, and a key of the greatest
/// length.
pub fn a_large_value_is_kept(subject: &impl Subject) {
    let engine = subject.create();
    let key = vec![b'k'; 2048];
    let value: Vec<u8> = (0..2_u32 << 20).map(|n| (n % 251) as u8).collect();
    put(&engine, &key, &value);
    let engine = subject.crash(engine);
    assert!(engine.get(&key).expect("reads").is_some_and(|found| found == value));
}

/// While one thread writes, no snapshot and no scan ever shows part of a batch.
pub fn a_batch_is_seen_whole_or_not_at_all<S: Subject>(subject: &S) {
    const ROUNDS: u64 = 500;
    const VIEWS: u64 = 50;
    let engine = subject.create();
    let views = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while views.fetch_add(1, Ordering::Relaxed) < VIEWS {
                let rows = engine.scan(&Range::all(), usize::MAX).expect("reads");
                assert!(rows.is_empty() || rows.len() == 4, "{} rows of four", rows.len());
                assert!(rows.iter().all(|(_, value)| value == &rows[0].1), "{rows:?}");
                let snapshot = engine.snapshot();
                assert_eq!(snapshot.get(b"a").expect("reads"), snapshot.get(b"d").expect("reads"));
            }
        });
        // A failed reader stops counting; its panic then reaches the scope through the bound.
        for round in 0..ROUNDS * VIEWS {
            if round >= ROUNDS && views.load(Ordering::Relaxed) >= VIEWS {
                break;
            }
            let mut batch = WriteBatch::default();
            for key in ["a", "b", "c", "d"] {
                batch.put(key, round.to_be_bytes().to_vec());
            }
            engine.write(batch, Durability::Buffered).expect("writes");
        }
    });
}

/// The batches of several threads are all present in the end.
pub fn writers_do_not_lose_each_other<S: Subject>(subject: &S) {
    const WRITERS: u8 = 4;
    const BATCHES: u8 = 50;
    let engine = subject.create();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let engine = &engine;
            scope.spawn(move || {
                for n in 0..BATCHES {
                    put(engine, &[writer, n], &[n]);
                }
                engine.sync().expect("syncs");
            });
        }
    });
    let engine = subject.cut_power(engine, 1);
    let count = engine.scan(&Range::all(), usize::MAX).expect("reads").len();
    assert_eq!(count, usize::from(WRITERS) * usize::from(BATCHES));
}
