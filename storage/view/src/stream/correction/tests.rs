//! Any state is corrected to any other, whole or not at all, whatever fails between.

use headwater_event::{Applied, Change};
use headwater_store::{Failure, MemoryEngine, Survival};
use proptest::prelude::*;

use super::*;
use crate::stream::AdvanceMode;
use crate::stream::Selection;
use crate::stream::history::{History, Model, Step, follow, log_id, parts, steps};
use crate::stream::{FoldBounds, StreamState};

const NODE: &str = "node/gw-1";

/// Two lives of a log, whose first events are the same.
fn lives(common: &[Step], one: &[Step], other: &[Step]) -> (History, History) {
    let of = |number, rest| History::new(log_id(number), NODE, &[common, rest].concat());
    (of(1, one), of(2, other))
}

fn open(engine: &Arc<MemoryEngine>, is_staged: bool) -> StreamState {
    let bounds = if is_staged {
        // Every entry is a batch of its own, so that there are many moments to crash at.
        FoldBounds { cached_entries_max: 3, direct_bytes_max: 0, staged_batch_bytes_max: 1 }
    } else {
        FoldBounds::default()
    };
    StreamState::open(engine.clone(), bounds).expect("opens")
}

/// A replica at the end of `history`.
fn replica(history: &History, is_staged: bool) -> (Arc<MemoryEngine>, StreamState) {
    let engine = Arc::new(MemoryEngine::new());
    let mut state = open(&engine, is_staged);
    let all = history.advance(AdvanceMode::Tail, 0, history.tail_seq());
    state.apply_advance(all, &mut Vec::new()).expect("begins");
    state.commit(Durability::Synced).expect("commits");
    (engine, state)
}

/// What leads a replica that says `digests` to the end of `history`.
fn correction(history: &History, digests: &[EntryDigest], nonce: u64) -> Advance {
    let digest_key = DigestKey::new(nonce);
    let to = history.tail_seq();
    let (mut changes, mut stays) = (Vec::new(), HashSet::new());
    for (key, (uid, resource_version, object)) in &history.states[to] {
        let object_hash = headwater_event::ObjectHash::of(object);
        let digest = digest_key.digest(key, uid, resource_version, &object_hash);
        if key.resource().is_some() && digests.contains(&digest) {
            stays.insert(digest);
            continue;
        }
        changes.push(Change::Applied(Applied {
            key: key.clone(),
            uid: uid.clone(),
            resource_version: resource_version.clone(),
            object: object.clone(),
        }));
    }
    let gone = RemovalRuns::of(digests.iter().map(|digest| !stays.contains(digest)));
    let (stream, at, hash) = (history.stream.clone(), history.checkpoint(to), history.hashes[to]);
    let from = headwater_event::Seq::ZERO;
    Advance::new(stream, AdvanceMode::Correction, from, at, hash, changes).with_gone(gone)
}

fn digests(engine: &MemoryEngine, history: &History, nonce: u64) -> Vec<EntryDigest> {
    let digests = StreamReader::new(engine).digests(&history.stream, &DigestKey::new(nonce), 99);
    digests.expect("reads").expect("few")
}

/// Which of the two lives is there, the second or not; asserts that it is so whole.
fn is_second(engine: &MemoryEngine, first: &History, second: &History) -> bool {
    let reader = StreamReader::new(engine);
    let (at, hash) = reader.position(&first.stream).expect("reads").expect("it is there");
    let is_second = at.log_id == second.log_id;
    let history = if is_second { second } else { first };
    let end = history.tail_seq();
    assert_eq!((at, hash), (history.checkpoint(end), history.hashes[end]));
    let entries = reader.entries(&first.stream, Selection::All, None, 99).expect("reads");
    let found: Model = entries
        .into_iter()
        .map(|(key, entry)| (key, (entry.uid, entry.resource_version, entry.object)))
        .collect();
    assert_eq!(found, history.states[end]);
    let verified = reader.verify(&first.stream).expect("reads").expect("it is there");
    assert!(verified.agrees(), "{verified:?}");
    is_second
}

proptest! {
    #[test]
    fn any_state_is_corrected_to_any_other(
        (common, one, other) in (steps(12), steps(8), steps(8)),
        (is_staged, part_size, nonce) in (any::<bool>(), 1usize..6, any::<u64>()),
    ) {
        let (first, second) = lives(&common, &one, &other);
        let (engine, mut state) = replica(&first, is_staged);
        let advance = correction(&second, &digests(&engine, &first, nonce), nonce);
        let mut effects = Vec::new();
        for part in parts(&advance, part_size) {
            prop_assert!(!is_second(&engine, &first, &second), "half of it was visible");
            state.apply_advance(part, &mut effects).expect("fits");
        }
        state.commit(Durability::Buffered).expect("commits");
        prop_assert!(is_second(&engine, &first, &second));
        let (mut believed, truth) =
            (first.states[first.tail_seq()].clone(), &second.states[second.tail_seq()]);
        follow(&mut believed, &effects, truth);
        prop_assert_eq!(&believed, truth);
        // What is there goes on as if it had always been.
        drop(state);
        let mut state = open(&engine, is_staged);
        let event = second.next_event(&Step::Apply { key: 1, object: 7 });
        let dense = crate::Continuity::Dense;
        state.apply_event(second.log_id, event, dense, &mut Vec::new()).expect("goes on");
    }

    #[test]
    fn a_crash_at_any_write_shows_all_of_a_correction_or_nothing(
        (common, one, other) in (steps(8), steps(5), steps(5)),
        (is_staged, part_size, took_effect, seed) in
            (any::<bool>(), 1usize..5, any::<bool>(), any::<u64>()),
    ) {
        let (first, second) = lives(&common, &one, &other);
        // The nth write fails, for every n until there is none.
        for nth in 1.. {
            let (engine, mut state) = replica(&first, is_staged);
            let advance = correction(&second, &digests(&engine, &first, 7), 7);
            engine.fail_write(nth, Failure { disk_full: false, took_effect });
            let mut run = || -> Result<(), EngineError> {
                for part in parts(&advance, part_size) {
                    match state.apply_advance(part, &mut Vec::new()) {
                        Err(FoldError::Engine(error)) => return Err(error),
                        outcome => outcome.expect("not refused"),
                    }
                }
                state.commit(Durability::Buffered).map(drop)
            };
            let outcome = run();
            is_second(&engine, &first, &second);
            let engine = Arc::new(engine.crash(Survival::Some { seed }));
            let was_second = is_second(&engine, &first, &second);
            let mut state = open(&engine, is_staged);
            prop_assert_eq!(is_second(&engine, &first, &second), was_second);
            if !was_second {
                let again = correction(&second, &digests(&engine, &first, 8), 8);
                state.apply_advance(again, &mut Vec::new()).expect("begins again");
                state.commit(Durability::Buffered).expect("commits");
            }
            prop_assert!(is_second(&engine, &first, &second));
            if outcome.is_ok() {
                break;
            }
        }
    }

    /// Whatever a correction says, and of whatever state: it comes out as its hash, or is refused
    /// without a trace.
    #[test]
    fn a_correction_that_does_not_fit_leaves_no_trace(
        (common, one, other) in (steps(12), steps(8), steps(8)),
        (is_staged, runs) in (any::<bool>(), proptest::collection::vec(0u32..9, 0..6)),
    ) {
        let (first, second) = lives(&common, &one, &other);
        let (engine, mut state) = replica(&first, is_staged);
        let advance = correction(&second, &digests(&engine, &first, 7), 7);
        let fits = advance.clone().with_gone(RemovalRuns::from_runs(runs));
        let outcome = state.apply_advance(fits, &mut Vec::new());
        state.commit(Durability::Buffered).expect("commits");
        let is_refused = matches!(
            outcome,
            Err(FoldError::Refused(Refusal::Diverged { .. } | Refusal::Correction { .. }))
        );
        prop_assert_eq!(is_second(&engine, &first, &second), outcome.is_ok());
        prop_assert!(outcome.is_ok() || is_refused, "{:?}", outcome);
        if is_refused {
            state.apply_advance(advance, &mut Vec::new()).expect("this one fits");
            state.commit(Durability::Buffered).expect("commits");
            prop_assert!(is_second(&engine, &first, &second));
        }
    }
}

#[test]
fn a_summary_is_bounded_and_of_objects_alone() {
    let all: Vec<_> = (0..5).map(|key| Step::Apply { key, object: key }).collect();
    let (first, _) = lives(&all, &[], &[]);
    let (engine, _) = replica(&first, false);
    let sizes = |max| {
        let reader = StreamReader::new(&*engine);
        let digests = reader.digests(&first.stream, &DigestKey::new(1), max).expect("reads");
        digests.map(|digests| digests.len())
    };
    assert_eq!((sizes(3), sizes(4), sizes(99)), (None, Some(4), Some(4)));
    let absent = StreamReader::new(&*engine).digests(&StreamId::Cluster, &DigestKey::new(1), 4);
    assert_eq!(absent.expect("reads"), Some(Vec::new()));
}

#[test]
fn nothing_but_the_position_moves_where_nothing_differs() {
    let all: Vec<_> = (0..5).map(|key| Step::Apply { key, object: key }).collect();
    let (first, second) = lives(&all, &[], &[Step::Head]);
    let (engine, mut state) = replica(&first, false);
    let advance = correction(&second, &digests(&engine, &first, 1), 1);
    assert_eq!((advance.changes(), advance.gone.is_empty()), (1, true), "the reserved entry");
    let mut effects = Vec::new();
    state.apply_advance(advance, &mut effects).expect("fits");
    state.commit(Durability::Buffered).expect("commits");
    assert!(is_second(&engine, &first, &second));
    assert!(effects.iter().all(|effect| !effect.wakes()), "{effects:?}");
}
