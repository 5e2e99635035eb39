//! Staging: an advance in parts is visible whole or not at all, whatever fails between.

use std::sync::Arc;

use headwater_store::{Failure, MemoryEngine, Range, Read, Survival};
use proptest::prelude::*;

use super::*;
use crate::stream::history::{History, log_id, parts, steps};
use crate::stream::{FoldBounds, StreamState};

fn open(engine: &Arc<MemoryEngine>) -> StreamState {
    // Every entry is a batch of its own, so that there are many moments to crash at.
    let bounds =
        FoldBounds { cached_entries_max: 3, direct_bytes_max: 0, staged_batch_bytes_max: 1 };
    StreamState::open(engine.clone(), bounds).expect("opens")
}

/// How many rows lie in the entries' table, hidden ones included.
fn rows(engine: &MemoryEngine) -> usize {
    engine.scan(&Range::prefix(vec![ENTRIES.id().prefix()]), 1000).expect("reads").len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_crash_at_any_write_shows_all_of_an_advance_or_nothing(
        steps in steps(24),
        from in 0usize..24,
        mode in prop_oneof![Just(AdvanceMode::Tail), Just(AdvanceMode::Delta), Just(AdvanceMode::Snapshot)],
        part_size in 1usize..5,
        took_effect: bool,
        seed: u64,
    ) {
        let history = History::new(log_id(1), "node/gw-1", &steps);
        let to = history.tail_seq();
        let from = from.min(to);
        let parts = parts(&history.advance(mode, from, to), part_size);
        // The nth write fails, for every n until there is none.
        for nth in 1.. {
            let engine = Arc::new(MemoryEngine::new());
            let mut state = open(&engine);
            state.apply_advance(history.advance(AdvanceMode::Tail, 0, from), &mut Vec::new()).expect("begins");
            state.commit(Durability::Synced).expect("commits");

            engine.fail_write(nth, Failure { disk_full: false, took_effect });
            let mut run = || -> Result<(), EngineError> {
                for part in parts.iter().cloned() {
                    match state.apply_advance(part, &mut Vec::new()) {
                        Err(FoldError::Engine(error)) => return Err(error),
                        outcome => outcome.expect("not refused"),
                    }
                }
                state.commit(Durability::Buffered).map(drop)
            };
            let outcome = run();
            let at = history.assert_prefix(&*engine);
            prop_assert!(at == from || at == to, "half of it is visible: {at}");

            let engine = Arc::new(engine.crash(Survival::Some { seed }));
            let at = history.assert_prefix(&*engine);
            prop_assert!(at == from || at == to, "half of it is visible after the crash: {at}");
            let mut state = open(&engine);
            prop_assert_eq!(history.assert_prefix(&*engine), at, "opening changes nothing visible");
            prop_assert_eq!(rows(&engine), history.states[at].len(), "something is left behind");
            if at == from {
                for part in parts.iter().cloned() {
                    state.apply_advance(part, &mut Vec::new()).expect("begins again");
                }
                state.commit(Durability::Buffered).expect("commits");
            }
            prop_assert_eq!(history.assert_prefix(&*engine), to);
            prop_assert_eq!(rows(&engine), history.states[to].len(), "something is left behind");
            if outcome.is_ok() {
                break;
            }
        }
    }

    #[test]
    fn an_advance_that_was_cut_off_begins_again(steps in steps(24), stop in 1usize..6, live: bool) {
        let history = History::new(log_id(1), "node/gw-1", &steps);
        let (engine, to) = (Arc::new(MemoryEngine::new()), history.tail_seq());
        let mut state = open(&engine);
        let broken = parts(&history.advance(AdvanceMode::Snapshot, 0, to), 2);
        let stop = stop.min(broken.len() - 1);
        for part in broken[..stop].iter().cloned() {
            state.apply_advance(part, &mut Vec::new()).expect("begins");
        }
        if live {
            let event = history.events[0].clone();
            state
                .apply_event(history.log_id, event, crate::Continuity::Dense, &mut Vec::new())
                .expect("the visible state goes on");
            if let Some(part) = broken.get(stop).filter(|_| stop > 0).cloned() {
                let outcome = state.apply_advance(part, &mut Vec::new());
                let is_refused = matches!(outcome, Err(FoldError::Refused(Refusal::Parts { .. })));
                prop_assert!(is_refused, "what was staged on a former state was taken");
            }
        }
        let from = usize::from(live);
        state.apply_advance(history.advance(AdvanceMode::Delta, from, to), &mut Vec::new()).expect("anew");
        state.commit(Durability::Buffered).expect("commits");
        prop_assert_eq!(history.assert_prefix(&*engine), to);
        prop_assert_eq!(rows(&engine), history.states[to].len(), "something is left behind");
    }
}

#[test]
fn a_part_of_another_advance_is_refused() {
    let steps: Vec<_> =
        (1..5).map(|key| crate::stream::history::Step::Apply { key, object: key }).collect();
    let history = History::new(log_id(1), "node/gw-1", &steps);
    let first_and_second = parts(&history.advance(AdvanceMode::Tail, 0, 4), 2);
    let wrongs: [fn(&mut Advance); 5] = [
        |part| part.mode = AdvanceMode::Delta,
        |part| part.to.seq = part.to.seq.next(),
        |part| part.to.epoch = part.to.epoch.next(),
        |part| part.hash = StateHash::EMPTY,
        |part| part.part = 2,
    ];
    for wrong in wrongs {
        let engine = Arc::new(MemoryEngine::new());
        let mut state = open(&engine);
        state.apply_advance(first_and_second[0].clone(), &mut Vec::new()).expect("begins");
        let mut second = first_and_second[1].clone();
        wrong(&mut second);
        for second in [second, first_and_second[1].clone()] {
            let outcome = state.apply_advance(second, &mut Vec::new());
            let is_refused = matches!(outcome, Err(FoldError::Refused(Refusal::Parts { .. })));
            assert!(is_refused, "{outcome:?}: one wrong part voids the whole");
        }
        state.commit(Durability::Buffered).expect("commits");
        assert_eq!(history.assert_prefix(&*engine), 0);
    }
}
