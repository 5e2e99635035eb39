//! Batches: coalescing, bounds, and the commit with its position.

use headwater_event::{
    Checkpoint, Cursor, LeaderEpoch, LogId, Offset, Partition, Seq, StateHash, StreamId, TopicId,
    WriterEpoch,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::codec::Json;
use crate::memory::{Failure, MemoryEngine, Survival};
use crate::position::{CHECKPOINTS, CURSORS, StreamCheckpoint};
use crate::registry::TableId;

const STATE: Table<(String, u64), u64, Folded> = Table::new(TableId::Entries);
const NOTES: Table<String, u64> = Table::new(TableId::PodStatuses);

fn cursor(next: u64) -> Cursor {
    Cursor {
        topic: TopicId(Uuid::from_u128(1)),
        partition: Partition(3),
        next: Offset(next),
        leader_epoch: LeaderEpoch(0),
    }
}

fn position(stream: &str, seq: u64) -> StreamCheckpoint {
    StreamCheckpoint {
        stream: stream.parse().expect("well-formed"),
        checkpoint: Checkpoint {
            log_id: LogId { number: 1, uuid: Uuid::from_u128(9) },
            epoch: WriterEpoch(1),
            seq: Seq(seq),
        },
        hash: StateHash::EMPTY,
    }
}

fn row(n: u64) -> (String, u64) {
    ("a".to_owned(), n)
}

#[test]
fn state_and_position_fall_back_together() {
    for seed in 0..50 {
        let engine = MemoryEngine::new();
        for n in 1..=5 {
            let mut batch = Batch::new();
            batch.put(&STATE, &row(n), &n);
            batch.commit(&engine, &[cursor(n)], Durability::Buffered).expect("commits");
        }
        let engine = engine.crash(Survival::Some { seed });
        let at = CURSORS.get(&engine, &Partition(3)).expect("reads").map_or(0, |c| c.next.0);
        let rows = STATE.rows(&engine).count() as u64;
        assert_eq!(rows, at, "seed {seed}: the state is the fold up to the cursor");
    }
}

#[test]
fn one_batch_may_move_several_streams() {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    batch.put(&STATE, &row(1), &1);
    let positions = [position("cluster", 4), position("node/a", 7)];
    batch.commit(&engine, &positions, Durability::Buffered).expect("commits");
    assert_eq!(engine.counts().writes, 1);
    let seq = |stream: StreamId| {
        CHECKPOINTS.get(&engine, &stream).expect("reads").map(|(checkpoint, _)| checkpoint.seq.0)
    };
    assert_eq!(seq(StreamId::Cluster), Some(4));
    assert_eq!(seq("node/a".parse().expect("well-formed")), Some(7));
}

#[test]
fn state_without_its_position_is_refused() {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    batch.put(&STATE, &row(1), &1);
    let none: [Cursor; 0] = [];
    let error = batch.commit(&engine, &none, Durability::Buffered).expect_err("refused");
    assert!(matches!(error, EngineError::Refused { .. }), "{error}");
    assert_eq!(engine.counts().writes, 0);
}

#[test]
fn a_batch_that_is_too_large_or_has_no_encoding_writes_nothing() {
    let engine = MemoryEngine::new();
    const LARGE: Table<u64, Bytes> = Table::new(TableId::Staging);
    let mut batch = Batch::new();
    for n in 0..=8 {
        batch.put(&LARGE, &n, &Bytes::from(vec![0; BATCH_BYTES_MAX / 8]));
    }
    let error = batch.write(&engine, Durability::Buffered).expect_err("refused");
    assert!(matches!(&error, EngineError::Refused { reason } if reason.contains("the maximum is")));

    type NoText = Json<BTreeMap<(u8, u8), u8>>;
    const ODD: Table<u64, NoText> = Table::new(TableId::Staging);
    let mut batch = Batch::new();
    batch.put(&NOTES, &"kept out as well".to_owned(), &1);
    batch.put(&ODD, &1, &Json(BTreeMap::from([((1, 2), 3)])));
    assert!(!batch.is_empty());
    let error = batch.write(&engine, Durability::Buffered).expect_err("refused");
    assert!(matches!(&error, EngineError::Refused { reason } if reason.contains("Staging")));
    assert_eq!(engine.counts().writes, 0);

    Batch::new().write(&engine, Durability::Synced).expect("the engine takes further writes");
}

#[test]
fn a_failed_commit_is_not_seen() {
    let engine = MemoryEngine::new();
    engine.fail_write(1, Failure { disk_full: false, took_effect: false });
    let mut batch = Batch::new();
    batch.put(&NOTES, &"a".to_owned(), &1);
    assert!(batch.write(&engine, Durability::Buffered).is_err());
    assert_eq!(NOTES.get(&engine, &"a".to_owned()).expect("reads"), None);
}

/// One write of a batch, for the comparison with a sorted map.
#[derive(Clone, Debug)]
enum Step {
    Put((String, u64), u64),
    Delete((String, u64)),
    DeleteOf(String),
    DeleteBetween((String, u64), (String, u64)),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || ("[ab]{1}", 0u64..4);
    prop_oneof![
        6 => (key(), any::<u64>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::Delete),
        1 => "[ab]{1}".prop_map(Step::DeleteOf),
        1 => (key(), key()).prop_map(|(first, end)| Step::DeleteBetween(first, end)),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn a_batch_shows_before_the_commit_what_the_engine_shows_after(
        batches in proptest::collection::vec(proptest::collection::vec(step(), 0..12), 1..5)
    ) {
        let engine = MemoryEngine::new();
        let mut model = BTreeMap::new();
        for steps in batches {
            let mut batch = Batch::<Folded>::new();
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        batch.put(&STATE, &key, &value);
                        model.insert(key, value);
                    }
                    Step::Delete(key) => {
                        batch.delete(&STATE, &key);
                        model.remove(&key);
                    }
                    Step::DeleteOf(text) => {
                        batch.delete_of(&STATE, &text);
                        model.retain(|key: &(String, u64), _| key.0 != text);
                    }
                    Step::DeleteBetween(first, end) => {
                        batch.delete_between(&STATE, &first, &end);
                        model.retain(|key, _| *key < first || *key >= end);
                    }
                    Step::Clear => {
                        batch.clear(&STATE);
                        model.clear();
                    }
                }
            }
            for key in ["a", "b"].into_iter().flat_map(|text| (0..4).map(move |n| (text.to_owned(), n))) {
                let seen = batch.get(&engine, &STATE, &key).expect("reads");
                prop_assert_eq!(seen, model.get(&key).copied(), "{:?}", key);
            }
            batch.commit(&engine, &[cursor(1)], Durability::Buffered).expect("commits");
            let rows: Vec<_> = STATE.rows(&engine).collect::<Result<_, _>>().expect("reads");
            prop_assert_eq!(rows, model.clone().into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_weight_of_a_batch_is_that_of_what_it_writes() {
    let mut batch = Batch::<Folded>::new();
    batch.put(&STATE, &row(1), &1);
    let one = batch.bytes();
    batch.put(&STATE, &row(1), &2);
    assert_eq!(batch.bytes(), one, "the later write replaces the earlier");
    batch.put(&STATE, &row(2), &1);
    assert_eq!(batch.bytes(), 2 * one);
    batch.clear(&STATE);
    assert_eq!(batch.bytes(), 2, "removed rows count no bytes");
}
