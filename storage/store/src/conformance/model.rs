//! Random histories, compared with a sorted map.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Subject;
use crate::engine::{Durability, Engine, Range, Read, WriteBatch, WriteOp};

/// The number of histories: the opens of a database on disk dominate the time.
const HISTORIES: u32 = 24;

type Map = BTreeMap<Bytes, Bytes>;

#[derive(Clone, Debug)]
enum Step {
    Write(WriteBatch, bool),
    Sync,
    Load(bool),
    Crash,
    CutPower(u64),
}

/// After any history of batches, syncs, loads, crashes and power cuts, the engine equals a sorted map that
/// may fall back to any state since its last sync: at a power cut, and at a crash during a load.
pub fn an_engine_behaves_as_a_sorted_map_that_can_fall_back(subject: &impl Subject) {
    let config = Config { cases: HISTORIES, failure_persistence: None, ..Config::default() };
    let histories = proptest::collection::vec(step(), 0..24);
    let outcome = TestRunner::new(config).run(&histories, |steps| {
        run(subject, steps);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn run<S: Subject>(subject: &S, steps: Vec<Step>) {
    let mut engine = subject.create();
    // The possible states after a power cut, oldest first; reads see the last.
    let mut states = vec![Map::new()];
    let mut is_loading = false;
    for step in steps {
        match step {
            Step::Write(batch, synced) => {
                let mut state = states.last().cloned().unwrap_or_default();
                apply(&mut state, &batch);
                let durability = if synced { Durability::Synced } else { Durability::Buffered };
                engine.write(batch, durability).expect("writes");
                if synced {
                    states.clear();
                }
                states.push(state);
            }
            Step::Sync => {
                engine.sync().expect("syncs");
                states.drain(..states.len() - 1);
            }
            Step::Load(true) => {
                engine.begin_bulk_load();
                is_loading = true;
            }
            Step::Load(false) => {
                engine.end_bulk_load();
                is_loading = false;
            }
            Step::Crash => {
                engine = subject.crash(engine);
                if is_loading {
                    fall_back(&engine, &mut states);
                }
                is_loading = false;
            }
            Step::CutPower(seed) => {
                engine = subject.cut_power(engine, seed);
                fall_back(&engine, &mut states);
                is_loading = false;
            }
        }
        let state = states.last().cloned().unwrap_or_default();
        assert_eq!(scan(&engine), state);
        let last = engine.last(&Range::all()).expect("reads");
        assert_eq!(last, state.last_key_value().map(|(k, v)| (k.clone(), v.clone())));
        for key in (0..8_u8).map(|n| vec![n]) {
            assert_eq!(engine.get(&key).expect("reads").as_ref(), state.get(key.as_slice()));
        }
    }
}

/// Takes over the state that is left of `states`. Those after it never come back.
fn fall_back(engine: &impl Engine, states: &mut Vec<Map>) {
    let left: Map = scan(engine);
    let kept = states.iter().rposition(|state| *state == left);
    let kept = kept.unwrap_or_else(|| panic!("{left:?} was never a state since the sync"));
    states.truncate(kept + 1);
}

fn scan(engine: &impl Engine) -> Map {
    engine.scan(&Range::all(), usize::MAX).expect("reads").into_iter().collect()
}

fn apply(state: &mut Map, batch: &WriteBatch) {
    for op in &batch.ops {
        match op {
            WriteOp::Put(key, value) => {
                state.insert(key.clone(), value.clone());
            }
            WriteOp::Delete(key) => {
                state.remove(key);
            }
            WriteOp::DeleteRange(from, to) => state.retain(|key, _| key < from || key >= to),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (proptest::collection::vec(op(), 1..6), prop::bool::weighted(0.2))
            .prop_map(|(ops, synced)| Step::Write(WriteBatch { ops }, synced)),
        2 => Just(Step::Sync),
        1 => any::<bool>().prop_map(Step::Load),
        1 => Just(Step::Crash),
        1 => any::<u64>().prop_map(Step::CutPower),
    ]
}

fn op() -> impl Strategy<Value = WriteOp> {
    // Few keys, so that writes collide.
    let key = || (0..8_u8).prop_map(|n| Bytes::from(vec![n]));
    let value = proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    prop_oneof![
        6 => (key(), value).prop_map(|(key, value)| WriteOp::Put(key, value)),
        2 => key().prop_map(WriteOp::Delete),
        1 => (key(), key()).prop_map(|(from, to)| WriteOp::DeleteRange(from, to)),
    ]
}
