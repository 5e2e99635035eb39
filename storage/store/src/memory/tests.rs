//! The crashes and faults of the in-memory engine.

use super::*;

fn batch(rows: &[(&'static str, &'static str)]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for (key, value) in rows {
        batch.put(*key, *value);
    }
    batch
}

fn rows_of(engine: &MemoryEngine) -> Vec<(String, String)> {
    let text = |bytes: Bytes| String::from_utf8(bytes.into()).expect("text");
    let rows = engine.scan(&Range::all(), usize::MAX).expect("reads");
    rows.into_iter().map(|(key, value)| (text(key), text(value))).collect()
}

/// Writes a row for each number, synced up to and including `synced`.
fn numbered(count: u8, synced: u8) -> MemoryEngine {
    let engine = MemoryEngine::new();
    for n in 1..=count {
        let mut batch = WriteBatch::default();
        batch.put(vec![b'a' + n], vec![n]);
        let durability = if n == synced { Durability::Synced } else { Durability::Buffered };
        engine.write(batch, durability).expect("writes");
    }
    engine
}

#[test]
fn a_process_crash_loses_nothing_and_a_power_cut_what_was_not_synced() {
    let engine = numbered(5, 2);
    assert_eq!(engine.unsynced(), 3);
    assert_eq!(rows_of(&engine.crash(Survival::Everything)).len(), 5);
    assert_eq!(rows_of(&engine.crash(Survival::Synced)).len(), 2);
    // The rows are still unsynced after the restart: a later power cut loses them.
    let reopened = engine.crash(Survival::Everything);
    assert_eq!(rows_of(&reopened.crash(Survival::Synced)).len(), 2);
}

#[test]
fn what_survives_a_power_cut_is_a_prefix_and_every_length_occurs() {
    let engine = numbered(5, 2);
    let all = rows_of(&engine);
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let left = rows_of(&engine.crash(Survival::Some { seed }));
        assert!(all.starts_with(&left), "seed {seed}: {left:?}");
        assert_eq!(left, rows_of(&engine.crash(Survival::Some { seed })), "one seed, one outcome");
        lengths.insert(left.len());
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5]);
}

#[test]
fn a_batch_survives_whole_or_not_at_all() {
    let engine = MemoryEngine::new();
    engine.write(batch(&[("a", "1"), ("b", "1")]), Durability::Buffered).expect("writes");
    for seed in 0..20 {
        let left = rows_of(&engine.crash(Survival::Some { seed })).len();
        assert!(left == 0 || left == 2, "seed {seed}: {left} rows");
    }
}

#[test]
fn after_a_failed_write_the_instance_is_closed_and_the_outcome_open() {
    for took_effect in [false, true] {
        let engine = MemoryEngine::new();
        engine.fail_write(2, Failure { disk_full: true, took_effect });
        engine.write(batch(&[("a", "1")]), Durability::Buffered).expect("the first goes through");
        let error = engine.write(batch(&[("b", "1")]), Durability::Buffered).expect_err("fails");
        assert!(matches!(error, EngineError::Write { disk_full: true, .. }), "{error}");
        let error = engine.write(batch(&[("c", "1")]), Durability::Synced).expect_err("closed");
        assert!(matches!(error, EngineError::Poisoned { .. }), "{error}");
        assert!(matches!(engine.sync(), Err(EngineError::Poisoned { .. })));
        assert_eq!(rows_of(&engine).len(), 1, "reads return the state before the failure");

        let engine = engine.reopen();
        assert_eq!(rows_of(&engine).len(), if took_effect { 2 } else { 1 });
        engine.write(batch(&[("d", "1")]), Durability::Synced).expect("open again");
    }
}

#[test]
fn after_a_failed_sync_nothing_that_was_unsynced_is_promised() {
    let engine = numbered(3, 1);
    engine.fail_sync(1, Failure { disk_full: false, took_effect: false });
    assert!(matches!(engine.sync(), Err(EngineError::Write { disk_full: false, .. })));
    assert!(matches!(engine.sync(), Err(EngineError::Poisoned { .. })), "never retried");
    assert_eq!(rows_of(&engine.crash(Survival::Synced)).len(), 1);
}

#[test]
fn a_crashed_instance_accepts_no_write_from_its_holders() {
    let engine = numbered(1, 0);
    let reopened = engine.crash(Survival::Synced);
    assert!(engine.write(batch(&[("z", "1")]), Durability::Synced).is_err());
    assert_eq!(rows_of(&reopened), []);
}

#[test]
fn what_was_asked_is_counted() {
    let engine = numbered(3, 2);
    engine.sync().expect("syncs");
    assert_eq!(engine.counts(), Counts { writes: 3, syncs: 2, bytes: 6 });
}

#[test]
fn a_sync_that_stalls_returns_at_the_crash_and_makes_nothing_durable() {
    let engine = MemoryEngine::new();
    engine.stall_syncs();
    let mut batch = WriteBatch::default();
    batch.put(&b"key"[..], &b"value"[..]);
    engine.write(batch, Durability::Buffered).expect("a write does not stall");
    let reopened = std::thread::scope(|scope| {
        let sync = scope.spawn(|| engine.sync());
        let reopened = engine.crash(Survival::Synced);
        assert!(matches!(sync.join().expect("returns"), Err(EngineError::Poisoned { .. })));
        reopened
    });
    assert_eq!(reopened.get(b"key").expect("reads"), None);
}
