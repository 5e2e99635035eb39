//! Streams folded into an engine: every state is a prefix of the log.

use std::collections::BTreeSet;

use headwater_event::{LogId, Seq, StateHash, WriterEpoch};
use headwater_store::{MemoryEngine, Survival};
use proptest::prelude::*;

use super::*;
use crate::stream::EffectKind;
use crate::stream::history::{History, Model, follow, log_id, parts, steps};
use crate::stream::{Selection, StreamReader};

const NODE: &str = "node/gw-1";

fn open(engine: &Arc<MemoryEngine>) -> StreamState {
    // Small bounds, so that each of them is met.
    let bounds =
        FoldBounds { cached_entries_max: 5, direct_bytes_max: 400, staged_batch_bytes_max: 600 };
    StreamState::open(engine.clone(), bounds).expect("opens")
}

fn refusal(outcome: Result<(), FoldError<Refusal>>) -> Refusal {
    match outcome {
        Err(FoldError::Refused(refusal)) => refusal,
        other => panic!("should be refused: {other:?}"),
    }
}

fn mode() -> impl Strategy<Value = AdvanceMode> {
    prop_oneof![Just(AdvanceMode::Tail), Just(AdvanceMode::Delta), Just(AdvanceMode::Snapshot)]
}

proptest! {
    #[test]
    fn every_committed_state_is_a_prefix_of_its_stream(steps in steps(40), group in 1usize..9) {
        let history = History::new(log_id(1), NODE, &steps);
        let engine = Arc::new(MemoryEngine::new());
        let mut state = open(&engine);
        let (mut believed, mut effects) = (Model::new(), Vec::new());
        for envelopes in history.events.chunks(group) {
            for envelope in envelopes {
                state
                    .apply_event(history.log_id, envelope.clone(), Continuity::Dense, &mut effects)
                    .expect("continues");
            }
            state.commit(Durability::Buffered).expect("commits");
            let at = history.assert_prefix(&*engine);
            follow(&mut believed, &std::mem::take(&mut effects), &history.states[at]);
            let again = envelopes[envelopes.len() - 1].clone();
            let again = state.apply_event(history.log_id, again, Continuity::Dense, &mut effects);
            let is_stale = matches!(refusal(again), Refusal::Stale { .. });
            prop_assert!(is_stale, "applied twice");
        }
        prop_assert_eq!(history.assert_prefix(&*engine), history.tail_seq());
        prop_assert_eq!(&believed, &history.states[history.tail_seq()]);
    }

    /// I1, I5 and I9: however a replica is brought forward, and wherever it crashes.
    #[test]
    fn tails_deltas_and_snapshots_in_any_mix_give_the_same_state(
        steps in steps(40),
        moves in proptest::collection::vec((mode(), 1usize..12, 1usize..6, any::<bool>(), any::<u64>()), 1..12),
    ) {
        let history = History::new(log_id(1), NODE, &steps);
        let mut engine = Arc::new(MemoryEngine::new());
        let mut state = open(&engine);
        let (mut believed, mut removed) = (Model::new(), BTreeSet::new());
        for (mode, distance, part_size, synced, seed) in moves {
            let from = history.assert_prefix(&*engine);
            let to = (from + distance).min(history.tail_seq());
            let advance = history.advance(mode, from, to);
            let mut effects = Vec::new();
            for part in parts(&advance, part_size) {
                prop_assert_eq!(history.assert_prefix(&*engine), from, "half of it was visible");
                state.apply_advance(part, &mut effects).expect("continues");
            }
            state.commit(if synced { Durability::Synced } else { Durability::Buffered }).expect("commits");
            prop_assert_eq!(history.assert_prefix(&*engine), to);
            follow(&mut believed, &effects, &history.states[to]);
            prop_assert_eq!(&believed, &history.states[to]);
            for effect in effects {
                if let EffectKind::Removed(gone) = effect.kind {
                    removed.insert(gone.uid);
                }
            }
            let back = believed.values().find(|held| removed.contains(&held.0));
            prop_assert_eq!(back, None, "a removed UID came back");
            if seed % 3 == 0 {
                engine = Arc::new(engine.crash(Survival::Some { seed }));
                state = open(&engine);
                let at = history.assert_prefix(&*engine);
                prop_assert!(!synced || at == to, "a synced commit was lost");
                believed = history.states[at].clone();
                removed.clear();
            }
        }
    }

    /// What compaction leaves is enough, and a hash that does not come out is noticed.
    #[test]
    fn a_sparse_fold_of_the_compacted_log_ends_in_the_same_state(steps in steps(40), damage in any::<bool>()) {
        let mut history = History::new(log_id(1), NODE, &steps);
        let count = history.tail_seq();
        let superseded = |(at, envelope): (usize, &Envelope)| {
            let key = envelope.event.key();
            history.events[at + 1..].iter().any(|later| later.event.key() == key)
        };
        let gone: Vec<bool> = history.events.iter().enumerate().map(superseded).collect();
        let mut kept = gone.into_iter().map(|gone| !gone);
        history.events.retain(|_| kept.next().expect("one each"));
        if damage {
            let last = history.events.len() - 1;
            history.events[last].hash = StateHash::from_bytes(&[7; 32]);
        }
        let engine = Arc::new(MemoryEngine::new());
        let mut state = open(&engine);
        let mut effects = Vec::new();
        for envelope in &history.events {
            state
                .apply_event(history.log_id, envelope.clone(), Continuity::Sparse, &mut effects)
                .expect("goes on");
        }
        state.commit(Durability::Buffered).expect("commits");
        let differing = state.differing().expect("reads");
        prop_assert_eq!(differing.len(), usize::from(damage), "{:?}", differing);
        prop_assert_eq!(history.assert_prefix(&*engine), count);
    }
}

#[test]
fn a_patch_against_another_base_is_refused_as_what_it_is() {
    let (history, engine, mut state) = replica(5);
    let mut advance = history.advance(AdvanceMode::Tail, 5, 6);
    let [PreparedChange::Patched { base, .. }] = &mut advance.changes[..] else {
        panic!("no patch: {advance:?}")
    };
    *base = "ns/pod/p9".parse().expect("a key");
    let refused = refusal(state.apply_advance(advance, &mut Vec::new()));
    assert!(matches!(refused, Refusal::Diverged { .. }), "{refused:?}");
    state.commit(Durability::Synced).expect("commits");
    assert_eq!(history.assert_prefix(&*engine), 5, "nothing of it is there");
}

/// Ten events of distinct objects, folded into a fresh engine up to `at`.
fn replica(at: usize) -> (History, Arc<MemoryEngine>, StreamState) {
    let steps: Vec<_> =
        (0..10).map(|n| crate::stream::history::Step::Apply { key: n % 5, object: n }).collect();
    let history = History::new(log_id(2), NODE, &steps);
    let engine = Arc::new(MemoryEngine::new());
    let mut state = open(&engine);
    state
        .apply_advance(history.advance(AdvanceMode::Tail, 0, at), &mut Vec::new())
        .expect("continues");
    state.commit(Durability::Synced).expect("commits");
    (history, engine, state)
}

#[test]
fn what_does_not_continue_the_state_is_refused_and_leaves_no_trace() {
    let (history, engine, mut state) = replica(5);
    let tail = |from, to| history.advance(AdvanceMode::Tail, from, to);
    let foreign = LogId { uuid: uuid::Uuid::from_u128(9), ..history.log_id };
    let with_log = |mut advance: Advance, log_id| {
        advance.to.log_id = log_id;
        advance
    };
    let fenced = {
        let mut advance = tail(5, 7);
        advance.to.epoch = WriterEpoch(0);
        advance
    };
    let diverged = Advance { hash: StateHash::EMPTY, ..tail(5, 7) };
    let middle = parts(&tail(5, 9), 2).remove(1);
    let cases = [
        (tail(6, 8), "seq 6 is missing, the input has 7"),
        (tail(4, 8), "already at seq 5, the input has 4"),
        (history.advance(AdvanceMode::Snapshot, 0, 4), "already at seq 5, the input has 4"),
        (with_log(tail(5, 7), log_id(3)), "the state is of log 2-"),
        (
            with_log(history.advance(AdvanceMode::Snapshot, 0, 9), log_id(1)),
            "the state is of log 2-",
        ),
        (with_log(history.advance(AdvanceMode::Snapshot, 0, 9), foreign), "the state is of log 2-"),
        (fenced, "at writer epoch 1, the input has 0"),
        (diverged.clone(), "at seq 7 the state hashes to"),
        (Advance { mode: AdvanceMode::Snapshot, ..diverged }, "at seq 7 the state hashes to"),
        (middle, "part 1 of an advance to seq 9 does not continue"),
        (Advance { mode: AdvanceMode::Snapshot, ..tail(0, 10) }, "malformed at !streams"),
    ];
    for (advance, expected) in cases {
        let mut effects = Vec::new();
        let text = refusal(state.apply_advance(advance, &mut effects)).to_string();
        assert!(text.contains(expected), "{text:?} should contain {expected:?}");
        assert_eq!(effects, []);
        state.commit(Durability::Buffered).expect("commits");
        assert_eq!(history.assert_prefix(&*engine), 5, "after: {text}");
    }
    let gap = history.events[7].clone();
    let gap = state.apply_event(history.log_id, gap, Continuity::Dense, &mut Vec::new());
    let stream = history.stream.clone();
    assert_eq!(refusal(gap), Refusal::Gap { stream, expected: Seq(6), found: Seq(8) });
    state.apply_advance(tail(5, 10), &mut Vec::new()).expect("the state still continues");
    state.commit(Durability::Buffered).expect("commits");
    assert_eq!(history.assert_prefix(&*engine), 10);
}

#[test]
fn a_snapshot_takes_a_replica_over_to_a_later_log_and_a_later_writer() {
    let (history, engine, mut state) = replica(9);
    let mut shorter = history.advance(AdvanceMode::Snapshot, 0, 6);
    shorter.to.epoch = WriterEpoch(2);
    state.apply_advance(shorter, &mut Vec::new()).expect("a higher epoch may go back");
    state.commit(Durability::Buffered).expect("commits");
    let next =
        History::new(log_id(3), NODE, &[crate::stream::history::Step::Apply { key: 1, object: 0 }]);
    let mut effects = Vec::new();
    state
        .apply_advance(next.advance(AdvanceMode::Snapshot, 0, 1), &mut effects)
        .expect("a later log");
    state.commit(Durability::Buffered).expect("commits");
    assert_eq!(next.assert_prefix(&*engine), 1);
    let mut believed = history.states[6].clone();
    follow(&mut believed, &effects, &next.states[1]);
    assert_eq!(believed, next.states[1]);
}

#[test]
fn a_dropped_stream_is_gone_and_may_begin_again() {
    let (history, engine, mut state) = replica(5);
    let mut effects = Vec::new();
    state.drop_stream(&history.stream, &mut effects).expect("drops");
    state
        .apply_advance(history.advance(AdvanceMode::Tail, 0, 3), &mut effects)
        .expect("begins again");
    let moved = state.commit(Durability::Buffered).expect("commits");
    assert_eq!(moved[&history.stream], Some((history.checkpoint(3), history.hashes[3])));
    assert_eq!(history.assert_prefix(&*engine), 3);
    let mut believed = history.states[5].clone();
    follow(&mut believed, &effects, &history.states[3]);
    assert_eq!(believed, history.states[3]);

    state.drop_stream(&history.stream, &mut effects).expect("drops");
    let moved = state.commit(Durability::Buffered).expect("commits");
    assert_eq!(moved[&history.stream], None);
    assert_eq!(StreamReader::new(&*engine).streams().expect("reads"), []);
    assert_eq!(history.assert_prefix(&*engine), 0);
}

#[test]
fn the_pods_of_a_stream_are_read_without_the_rest() {
    let (history, engine, _) = replica(10);
    let reader = StreamReader::new(&*engine);
    let keys = |selection| -> Vec<String> {
        let entries = reader.entries(&history.stream, selection, None, 100).expect("reads");
        entries.into_iter().map(|(key, _)| key.to_string()).collect()
    };
    let pods = ["ns/pod/p1", "ns/pod/p2", "ns/pod/p3", "ns/pod/p4"];
    assert_eq!(keys(Selection::Kind("pod")), pods);
    assert_eq!(keys(Selection::KindIn("pod", "ns")), pods);
    assert_eq!(keys(Selection::KindIn("pod", "n")), [""; 0]);
    assert_eq!(keys(Selection::All)[0], "!streams");
    let key = "ns/pod/p1".parse().expect("well-formed");
    let entry = reader.entry(&history.stream, &key).expect("reads").expect("is there");
    assert_eq!(entry.object, history.states[10][&key].2);
}
