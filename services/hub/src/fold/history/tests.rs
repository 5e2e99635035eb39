//! What the history keeps of a stream, and what sessions can read of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use headwater_check::State;
use headwater_event::{
    Applied, Change, HashKey, LogId, ObjectHash, Removed, StateHash, WriterEpoch,
};
use headwater_object::patch::apply_patch;
use headwater_session::StreamSource;
use headwater_store::{Durability, MemoryEngine};
use headwater_view::FoldBounds;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::fold::Fold;

mod damaged;
mod first_fold;
mod heads;
mod shared_objects;

/// Long enough to be worth a patch.
const OBJECT_BYTES: usize = 100;

const LOG: LogId = LogId { number: 1, uuid: Uuid::nil() };

/// A stream of a writer: every event, and the state after each.
struct Model {
    stream: StreamId,
    events: Vec<Envelope>,
    states: Vec<State>,
    objects: BTreeMap<EntryKey, ObjectHash>,
    hash: StateHash,
}

impl Model {
    fn new() -> Self {
        Self {
            stream: StreamId::Cluster,
            events: Vec::new(),
            states: vec![State::default()],
            objects: BTreeMap::new(),
            hash: StateHash::EMPTY,
        }
    }

    /// Appends what sets `key` (`Some`), removes it, or is a head.
    fn append(&mut self, key: Option<u8>, object: Option<u8>) {
        let event = key.map_or(Event::Head, |n| {
            let key: EntryKey = format!("d/service/s{n}").parse().expect("a key");
            let uid = format!("u{n}");
            match object {
                None => Event::Removed(Removed { key, uid }),
                Some(object) => {
                    let object = Bytes::from(vec![b'x'; OBJECT_BYTES + usize::from(object)]);
                    let resource_version = String::new();
                    Event::Applied(Applied { key, uid, resource_version, object })
                }
            }
        });
        self.append_event(event);
    }

    fn append_event(&mut self, event: Event) {
        let hash_key = HashKey::new(&LOG);
        if let Some(key) = event.key()
            && let Some(before) = self.objects.remove(key)
        {
            self.hash.subtract(&hash_key, key, &before);
        }
        if let Event::Applied(Applied { key, object, .. }) = &event {
            let of = ObjectHash::of(object);
            self.hash.add(&hash_key, key, &of);
            self.objects.insert(key.clone(), of);
        }
        let mut state = self.states.last().cloned().unwrap_or_default();
        if let Some(change) = event.change() {
            state.apply(&change);
        }
        self.states.push(state);
        self.events.push(Envelope {
            stream: self.stream.clone(),
            seq: Seq(self.events.len() as u64 + 1),
            epoch: WriterEpoch(1),
            epoch_first_seq: Seq(1),
            time_ms: 0,
            hash: self.hash,
            traceparent: None,
            shared: None,
            event,
        });
    }
}

/// Folds events as a follower would, `group` of them in a batch.
fn fold(
    engine: &Arc<MemoryEngine>,
    events: &[Envelope],
    continuity: Continuity,
    group: usize,
    limits: Limits,
) {
    let mut state = StreamState::open(engine.clone(), FoldBounds::default()).expect("opens");
    let (mut rows, mut effects) = (History { limits, ..History::default() }, Vec::new());
    for events in events.chunks(group) {
        for envelope in events {
            rows.derive(envelope, continuity, &mut state).expect("readable");
            state.apply_event(LOG, envelope.clone(), continuity, &mut effects).expect("continues");
        }
        rows.before_commit(&mut state);
        state.commit(Durability::Buffered).expect("commits");
    }
}

/// Checks everything that sessions may read of the stream, for every possible replica.
fn check(engine: &Arc<MemoryEngine>, model: &Model, limits: Limits) {
    let fold = Fold::new(engine.clone());
    fold.assume_log(LOG);
    let source = fold.source();
    let stream = &model.stream;
    let status = source.status(stream).expect("readable");
    let tail = status.checkpoint.seq;
    let now = model.states.last().expect("at least the empty one");
    assert!(status.raw_from <= tail && status.delta_from <= tail, "{status:?}");
    assert!(tail.0 - status.raw_from.0 <= limits.raw_events_max, "{status:?}");
    for since in 0..=tail.0 {
        let before = &model.states[usize::try_from(since).expect("small")];
        if Seq(since) >= status.raw_from {
            let events = source.events(stream, Seq(since), tail, u64::MAX).expect("readable");
            check_tail(events, &model.events, usize::try_from(since).expect("small"));
        }
        if Seq(since) >= status.delta_from {
            let mut state = before.clone();
            let mut delta = source.delta(stream, Seq(since)).expect("readable");
            let mut keys = Vec::new();
            loop {
                let part = delta.next(100).expect("readable");
                for pushed in part.changes {
                    keys.push(pushed.change.key().clone());
                    state.apply(&pushed.change);
                }
                if part.last {
                    break;
                }
            }
            assert_eq!(&state, now, "the delta since {since}");
            let count = keys.len();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), count, "each key once");
        }
    }
    let mut snapshot = source.snapshot(stream).expect("readable");
    let mut state = State::default();
    for pushed in snapshot.next(u64::MAX).expect("readable").changes {
        assert!(matches!(pushed.change, Change::Applied(_)));
        state.apply(&pushed.change);
    }
    assert_eq!(&state, now);
}

/// Checks that the events bring a replica that has the first `since` of `all` to the end.
fn check_tail(events: Vec<TailEvent>, all: &[Envelope], since: usize) {
    let (before, expected) = all.split_at(since);
    let mut held = BTreeMap::new();
    before.iter().for_each(|event| hold(&mut held, event));
    assert_eq!(events.len(), expected.len());
    for (event, expected) in events.into_iter().zip(expected) {
        assert_eq!((event.seq, event.hash), (expected.seq, expected.hash));
        let change = event.change.map(|pushed| match (pushed.change, pushed.base) {
            (Change::Applied(applied), Some(base)) => {
                let before = &held[&base];
                let object = apply_patch(&before.object, &applied.object).expect("a patch of it");
                let uid = if base == applied.key { before.uid.clone() } else { applied.uid };
                Change::Applied(Applied { object, uid, ..applied })
            }
            (change, _) => change,
        });
        assert_eq!(change, expected.event.change(), "{}", event.seq);
        hold(&mut held, expected);
    }
}

fn hold(held: &mut BTreeMap<EntryKey, Applied>, event: &Envelope) {
    match event.event.change() {
        Some(Change::Applied(applied)) => drop(held.insert(applied.key.clone(), applied)),
        Some(Change::Removed(removed)) => drop(held.remove(&removed.key)),
        None => {}
    }
}

#[test]
fn the_epochs_of_a_stream_are_bounded_and_a_replica_of_a_discarded_one_is_compared() {
    let mut model = Model::new();
    let epochs = 3 * EPOCHS_MAX as u64;
    for number in 1..=epochs {
        model.append(Some(1), Some(1));
        let event = model.events.last_mut().expect("appended");
        (event.epoch, event.epoch_first_seq) = (WriterEpoch(number), event.seq);
    }
    let engine = Arc::new(MemoryEngine::new());
    fold(&engine, &model.events, Continuity::Dense, 7, Limits::default());
    let row = STREAMS.get(&*engine, &model.stream).expect("readable");
    let Json(history) = row.expect("folded");
    assert_eq!(history.epochs.len(), EPOCHS_MAX);

    let fold = Fold::new(engine.clone());
    fold.assume_log(LOG);
    let source = fold.source();
    for number in 1..=epochs {
        let next = source.next_epoch_from(&model.stream, WriterEpoch(number)).expect("readable");
        // The next epoch is known, or may have begun anywhere below the replica's position.
        let expected = match number {
            _ if number == epochs => None,
            _ if number >= epochs - EPOCHS_MAX as u64 => Some(Seq(number + 1)),
            _ => Some(Seq::ZERO),
        };
        assert_eq!(next, expected, "the epoch after {number}");
    }
}

#[test]
fn a_row_of_an_earlier_build_has_all_its_epochs() {
    let row = r#"{"seq":3,"raw_from":0,"delta_from":0,"removals":0,"epochs":[[1,1],[4,3]]}"#;
    let history: StreamHistory = serde_json::from_str(row).expect("readable");
    let next = [0, 1, 3, 4].map(|epoch| history.next_epoch_from(WriterEpoch(epoch)));
    assert_eq!(next, [Some(Seq(1)), Some(Seq(3)), Some(Seq(3)), None]);
}

fn changes() -> impl Strategy<Value = Vec<(Option<u8>, Option<u8>)>> {
    let key = proptest::option::weighted(0.95, 0..8u8);
    proptest::collection::vec((key, proptest::option::of(0..20u8)), 1..80)
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..20u64, 0..6u64, 1..4usize).prop_map(|(raw_events_max, removals_max, discarded)| Limits {
        raw_events_max,
        removals_max,
        discarded,
    })
}

proptest! {
    /// I9: state(S) + delta(S) == state(tail) for every S at or above `delta_from`; the raw tail
    /// is dense; whatever was discarded, and however the batches fell.
    #[test]
    fn tail_delta_and_snapshot_agree_for_every_replica(
        changes in changes(), limits in limits(), group in 1..30usize,
    ) {
        let mut model = Model::new();
        changes.iter().for_each(|(key, object)| model.append(*key, *object));
        let engine = Arc::new(MemoryEngine::new());
        fold(&engine, &model.events, Continuity::Dense, group, limits);
        check(&engine, &model, limits);
    }

    /// The same, for a log in which compaction left the last event of each key, and for the events
    /// that follow.
    #[test]
    fn above_a_compacted_gap_no_tail_is_served(
        changes in changes(), more in changes(), limits in limits(), group in 1..30usize,
    ) {
        let mut model = Model::new();
        changes.iter().for_each(|(key, object)| model.append(*key, *object));
        let mut last = BTreeMap::new();
        for envelope in &model.events {
            last.insert(envelope.event.key().cloned(), envelope.seq);
        }
        let kept: Vec<_> = model.events.iter()
            .filter(|event| last.get(&event.event.key().cloned()) == Some(&event.seq))
            .cloned().collect();
        let engine = Arc::new(MemoryEngine::new());
        fold(&engine, &kept, Continuity::Sparse, group, limits);
        check(&engine, &model, limits);
        let from = model.events.len();
        more.iter().for_each(|(key, object)| model.append(*key, *object));
        fold(&engine, &model.events[from..], Continuity::Dense, group, limits);
        check(&engine, &model, limits);
    }
}

#[test]
fn a_fold_that_steps_back_discards_the_events_above() {
    let mut model = Model::new();
    (0..6).for_each(|n| model.append(Some(n), Some(n)));
    let engine = Arc::new(MemoryEngine::new());
    // Seq 3 is lost, 4 to 6 lie behind the hole; the next writer begins at 3.
    let mut events = model.events.clone();
    events.remove(2);
    fold(&engine, &events, Continuity::Sparse, 1, Limits::default());
    let mut back = model.events[2].clone();
    back.epoch = WriterEpoch(2);
    let mut state = StreamState::open(engine.clone(), FoldBounds::default()).expect("opens");
    let mut rows = History::default();
    rows.derive(&back, Continuity::Sparse, &mut state).expect("readable");
    let folded = state.apply_event(LOG, back, Continuity::Sparse, &mut Vec::new());
    folded.expect("a sparse fold may step back");
    rows.before_commit(&mut state);
    state.commit(Durability::Buffered).expect("commits");
    let history = STREAMS.get(&*engine, &StreamId::Cluster).expect("readable").expect("there").0;
    assert_eq!((history.seq, history.raw_from, history.delta_from), (Seq(3), Seq(3), Seq(2)));
}

#[test]
fn while_no_session_is_served_no_event_is_kept() {
    let mut model = Model::new();
    (0..6).for_each(|n| model.append(Some(n), Some(n)));
    let engine = Arc::new(MemoryEngine::new());
    let kept = || EVENTS.rows_of(&*engine, &model.stream).count();
    let (first, rest) = model.events.split_at(2);
    fold(&engine, first, Continuity::Sparse, 1, Limits::default());
    assert_eq!(kept(), 0);
    let (second, third) = rest.split_at(3);
    fold(&engine, second, Continuity::Dense, 1, Limits::default());
    assert_eq!(kept(), 3);
    // The stream is damaged: the events before it go too.
    fold(&engine, third, Continuity::Sparse, 1, Limits::default());
    assert_eq!(kept(), 0);
    check(&engine, &model, Limits::default());
}
