//! A stream as a test knows it: its events, and the state after each.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::{
    Applied, Change, Checkpoint, EntryKey, Envelope, Event, HashKey, LogId, ObjectHash, Removed,
    Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_object::patch::create_patch;
use headwater_store::Engine;
use proptest::prelude::*;
use uuid::Uuid;

use super::advance::{Advance, AdvanceMode};
use super::change::IncomingChange;
use super::effect::{Effect, EffectKind};
use super::reader::{Selection, StreamReader};

/// What every object says, so that a patch of one is worth its while.
const SPEC: &str = "sixty-four bytes of what is the same in every object of this stream";

/// What a state holds: uid, resource version and object by key.
pub(crate) type Model = BTreeMap<EntryKey, (String, String, Bytes)>;

/// What a writer is made to do next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Apply { key: u8, object: u8 },
    Replace { key: u8, object: u8 },
    Remove { key: u8 },
    Head,
}

/// A stream's events from seq 1, and `states[n]`, the state after seq `n`.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) log_id: LogId,
    pub(crate) stream: StreamId,
    pub(crate) events: Vec<Envelope>,
    pub(crate) states: Vec<Model>,
    pub(crate) hashes: Vec<StateHash>,
}

pub(crate) fn log_id(number: u64) -> LogId {
    LogId { number, uuid: Uuid::from_u128(number.into()) }
}

pub(crate) fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u8..8, 0u8..3).prop_map(|(key, object)| Step::Apply { key, object }),
        1 => (0u8..8, 0u8..3).prop_map(|(key, object)| Step::Replace { key, object }),
        2 => (0u8..8).prop_map(|key| Step::Remove { key }),
        1 => Just(Step::Head),
    ];
    proptest::collection::vec(step, 1..=count)
}

impl History {
    pub(crate) fn new(log_id: LogId, stream: &str, steps: &[Step]) -> Self {
        let stream: StreamId = stream.parse().expect("a stream");
        let hash_key = HashKey::new(&log_id);
        let mut history = Self {
            log_id,
            stream,
            events: Vec::new(),
            states: vec![Model::new()],
            hashes: vec![StateHash::EMPTY],
        };
        for step in steps {
            let seq = Seq(history.states.len() as u64);
            let mut state = history.states[history.states.len() - 1].clone();
            let event = event(seq, step, &mut state);
            let hash = hash_of(&hash_key, &state);
            history.events.push(Envelope {
                stream: history.stream.clone(),
                seq,
                epoch: WriterEpoch(1),
                epoch_first_seq: Seq(1),
                time_ms: 0,
                hash,
                traceparent: None,
                shared: None,
                event,
            });
            history.states.push(state);
            history.hashes.push(hash);
        }
        history
    }

    pub(crate) fn tail_seq(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn checkpoint(&self, seq: usize) -> Checkpoint {
        Checkpoint { log_id: self.log_id, epoch: WriterEpoch(1), seq: Seq(seq as u64) }
    }

    /// What brings a replica from `from` to `to`; in a tail, with patches where there may be.
    pub(crate) fn advance(&self, mode: AdvanceMode, from: usize, to: usize) -> Advance {
        let tail = self.events[from..to].iter().filter_map(|envelope| envelope.event.change());
        let changes: Vec<IncomingChange> = match mode {
            AdvanceMode::Tail => (from..to).filter_map(|before| self.incoming(before)).collect(),
            AdvanceMode::Delta => {
                let latest: BTreeMap<_, _> =
                    tail.map(|change| (change.key().clone(), change)).collect();
                latest.into_values().map(IncomingChange::from).collect()
            }
            AdvanceMode::Snapshot | AdvanceMode::Correction => {
                let entries = self.states[to].iter().map(applied).map(Change::Applied);
                entries.map(IncomingChange::from).collect()
            }
        };
        let (stream, to_hash) = (self.stream.clone(), self.hashes[to]);
        Advance::new(stream, mode, Seq(from as u64), self.checkpoint(to), to_hash, changes)
    }

    /// What `step` makes the event behind the last one.
    pub(crate) fn next_event(&self, step: &Step) -> Envelope {
        let mut state = self.states[self.tail_seq()].clone();
        let seq = Seq(self.states.len() as u64);
        let event = event(seq, step, &mut state);
        Envelope {
            stream: self.stream.clone(),
            seq,
            epoch: WriterEpoch(1),
            epoch_first_seq: Seq(1),
            time_ms: 0,
            hash: hash_of(&HashKey::new(&self.log_id), &state),
            traceparent: None,
            shared: None,
            event,
        }
    }

    /// The event behind seq `before`, as a patch against what is there, of the same entry or else
    /// of any other.
    fn incoming(&self, before: usize) -> Option<IncomingChange> {
        let state = &self.states[before];
        let change = self.events[before].event.change()?;
        let Change::Applied(applied) = &change else { return Some(change.into()) };
        let itself = state.get_key_value(&applied.key);
        let base = itself.filter(|(_, (uid, ..))| *uid == applied.uid);
        let base = base.or_else(|| state.iter().find(|(key, _)| **key != applied.key));
        let patched = base.and_then(|(key, (.., object))| {
            let object = create_patch(object, &applied.object)?;
            let uid = if *key == applied.key { String::new() } else { applied.uid.clone() };
            let change = Change::Applied(Applied { uid, object, ..applied.clone() });
            Some(IncomingChange { change, base: Some(key.clone()) })
        });
        patched.or(Some(change.into()))
    }

    /// Asserts that `engine` holds exactly the state after the position it says it has, and
    /// gives that position.
    pub(crate) fn assert_prefix(&self, engine: &dyn Engine) -> usize {
        let snapshot = engine.snapshot();
        let reader = StreamReader::new(&*snapshot);
        let position = reader.position(&self.stream).expect("reads");
        let at = position.map_or(0, |(checkpoint, _)| checkpoint.seq.0 as usize);
        let mut found = Model::new();
        for entry in reader.all_entries(&self.stream, Selection::All, 3) {
            let (key, entry) = entry.expect("reads");
            assert!(entry.seq.0 as usize <= at, "{key} is from above the position {at}");
            found.insert(key, (entry.uid, entry.resource_version, entry.object));
        }
        assert_eq!(found, self.states[at], "the state at seq {at} is not the fold of the log");
        if let Some((checkpoint, hash)) = position {
            assert_eq!(checkpoint, self.checkpoint(at));
            assert_eq!(hash, self.hashes[at], "at seq {at}");
            let verified = reader.verify(&self.stream).expect("reads").expect("is there");
            assert!(verified.agrees(), "at seq {at}: {verified:?}");
        }
        at
    }
}

/// Cuts an advance into parts of `size` changes.
pub(crate) fn parts(advance: &Advance, size: usize) -> Vec<Advance> {
    let mut chunks: Vec<Vec<_>> = advance.changes.chunks(size).map(<[_]>::to_vec).collect();
    if chunks.is_empty() {
        chunks.push(Vec::new());
    }
    let last = chunks.len() - 1;
    let part = |(part, changes)| Advance {
        changes,
        part: u32::try_from(part).expect("few parts"),
        last_part: part == last,
        ..advance.clone()
    };
    chunks.into_iter().enumerate().map(part).collect()
}

/// What someone who only follows effects believes the state to be. Asserts that each says what
/// is so: nothing is added twice, nothing changes that does not.
pub(crate) fn follow(believed: &mut Model, effects: &[Effect], truth: &Model) {
    for effect in effects {
        match &effect.kind {
            EffectKind::Added(applied) => {
                let before = believed.insert(applied.key.clone(), value(applied));
                assert_eq!(before, None, "{} came twice", applied.key);
            }
            EffectKind::Changed(applied) => {
                let before = believed.insert(applied.key.clone(), value(applied));
                let before = before.expect("what changes was there");
                assert_eq!(before.0, applied.uid);
                assert_ne!(before.2, applied.object, "{} did not change", applied.key);
            }
            EffectKind::Unchanged(key) => {
                let held = believed.get_mut(key).expect("what is unchanged is there");
                held.1.clone_from(&truth.get(key).map_or(String::new(), |now| now.1.clone()));
            }
            EffectKind::Removed(removed) => {
                let before = believed.remove(&removed.key).expect("what leaves was there");
                assert_eq!(before.0, removed.uid);
            }
            EffectKind::Replaced => believed.clone_from(truth),
        }
    }
}

fn value(applied: &Applied) -> (String, String, Bytes) {
    (applied.uid.clone(), applied.resource_version.clone(), applied.object.clone())
}

fn applied(
    (key, (uid, resource_version, object)): (&EntryKey, &(String, String, Bytes)),
) -> Applied {
    Applied {
        key: key.clone(),
        uid: uid.clone(),
        resource_version: resource_version.clone(),
        object: object.clone(),
    }
}

fn event(seq: Seq, step: &Step, state: &mut Model) -> Event {
    let key_of = |key: u8| -> EntryKey {
        let text = match key {
            0 => "!streams".to_owned(),
            1..=4 => format!("ns/pod/p{key}"),
            _ => format!("ns{key}/configmap/c"),
        };
        text.parse().expect("well-formed")
    };
    match *step {
        Step::Apply { key, object } | Step::Replace { key, object } => {
            let key = key_of(key);
            let known = state.get(&key).map(|held| held.0.clone());
            let uid = match (step, known) {
                (Step::Apply { .. }, Some(uid)) => uid,
                _ => format!("uid-{seq}"),
            };
            let object = Bytes::from(format!("{{\"{key}\":{object},\"spec\":\"{SPEC}\"}}"));
            state.insert(key.clone(), (uid, seq.to_string(), object));
            Event::Applied(applied((&key, &state[&key])))
        }
        Step::Remove { key } => match state.remove_entry(&key_of(key)) {
            Some((key, (uid, ..))) => Event::Removed(Removed { key, uid }),
            None => Event::Head,
        },
        Step::Head => Event::Head,
    }
}

fn hash_of(hash_key: &HashKey, state: &Model) -> StateHash {
    let mut hash = StateHash::EMPTY;
    for (key, (_, _, object)) in state {
        hash.add(hash_key, key, &ObjectHash::of(object));
    }
    hash
}
