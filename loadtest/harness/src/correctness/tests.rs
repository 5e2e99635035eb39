//! A box over a log and databases in memory: right as they are, and wrong with each thing broken.

use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{Applied, EntryKey, Event, WriterEpoch};
use headwater_store::{Batch, Durability, MemoryEngine};
use headwater_view::{Continuity, FoldBounds, PodStatusFold, StreamState};

use super::*;

fn log_id() -> headwater_event::LogId {
    headwater_event::LogId { number: 1, uuid: uuid::Uuid::from_u128(7) }
}

fn stream() -> StreamId {
    StreamId::node(&node())
}

fn node() -> NodeName {
    "node-1".parse().expect("a name")
}

/// Events that apply pods, as a log has them.
fn events(count: u64) -> Vec<Envelope> {
    let key = HashKey::new(&log_id());
    let mut hash = StateHash::EMPTY;
    let event = |seq: u64| {
        let entry: EntryKey = format!("d/pod/web-{seq}").parse().expect("a key");
        let object = Bytes::from(format!("{{\"seq\":{seq}}}"));
        hash.add(&key, &entry, &ObjectHash::of(&object));
        Envelope {
            stream: stream(),
            seq: Seq(seq),
            epoch: WriterEpoch(1),
            epoch_first_seq: Seq(1),
            time_ms: 0,
            hash,
            traceparent: None,
            shared: None,
            event: Event::Applied(Applied {
                key: entry,
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                object,
            }),
        }
    };
    (1..=count).map(event).collect()
}

/// The databases of a node that has folded `events`.
fn disks(events: &[Envelope]) -> NodeDisks {
    let state = Arc::new(MemoryEngine::new());
    let mut fold = StreamState::open(state.clone(), FoldBounds::default()).expect("opens");
    for event in events {
        fold.apply_event(log_id(), event.clone(), Continuity::Dense, &mut Vec::new())
            .expect("folds");
    }
    fold.commit(Durability::Synced).expect("commits");
    NodeDisks { node: node(), state, outbox: Arc::new(MemoryEngine::new()) }
}

/// The box of a node that holds `held` of a log that has `logged`.
fn boxed(held: &[Envelope], logged: &[Envelope]) -> Correctness {
    let mut check = Check::default();
    check.node(&disks(held), &Picture::Shown(BTreeMap::new())).expect("readable");
    let (key, mut folds) = (HashKey::new(&log_id()), BTreeMap::new());
    for event in logged {
        check.event(event, &key, &mut folds);
    }
    check.rest(&folds);
    check.done()
}

#[test]
fn a_replica_that_is_the_fold_where_it_stands_is_right() {
    let log = events(5);
    for held in [3, 5] {
        let found = boxed(&log[..held], &log);
        assert!(found.right, "{found:?}");
        assert_eq!((found.edges, found.replicas, found.events), (1, 1, 5));
    }
}

#[test]
fn another_object_makes_the_box_wrong() {
    let log = events(5);
    let mut other = events(4);
    let key = HashKey::new(&log_id());
    let mut hash = other[2].hash;
    let Event::Applied(applied) = &mut other[3].event else { panic!("an object") };
    applied.object = Bytes::from_static(b"{}");
    hash.add(&key, &applied.key, &ObjectHash::of(&applied.object));
    other[3].hash = hash;
    let found = boxed(&other, &log);
    assert!(!found.right && found.findings.first[0].contains("the log makes"), "{found:?}");
}

#[test]
fn a_replica_that_is_ahead_of_the_log_or_holds_nothing_is_wrong() {
    let log = events(5);
    let found = boxed(&log, &log[..4]);
    assert!(found.findings.first[0].contains("stand at 5, the log ends at 4"), "{found:?}");
    let found = boxed(&[], &log);
    assert!(found.findings.first[0].contains("no replica was there"), "{found:?}");
}

#[test]
fn what_was_found_on_the_way_makes_it_wrong() {
    let right = Answers { lines: 3, accepted: 3, ..Answers::default() };
    let missing = Account { intended: 3, seen: 2, missing: 1, overwritten: 0 };
    let whole = Account { intended: 3, seen: 3, ..Account::default() };
    let refused = Answers { refused: 1, refusals: vec!["no".to_owned()], ..right.clone() };
    let went_back = Findings { count: 1, first: vec!["went back".to_owned()] };
    let none = Findings::default();
    for (account, answers, seen, is_right) in [
        (whole.clone(), right.clone(), none.clone(), true),
        (missing, right.clone(), none.clone(), false),
        (whole.clone(), refused, none, false),
        (whole, right, went_back, false),
    ] {
        let mut check = Check::default();
        check.run(account, &answers, seen);
        assert_eq!(check.done().right, is_right, "{answers:?}");
    }
}

#[test]
fn a_status_that_the_cloud_does_not_have_makes_it_wrong() {
    let (key, log) = (HashKey::new(&log_id()), events(1));
    let disks = disks(&log);
    let picture = Arc::new(MemoryEngine::new());
    let mut fold = PodStatusFold::default();
    let mut batch = Batch::new();
    let id =
        headwater_event::ReportId { incarnation: headwater_event::Incarnation(1), boot: 1, seq: 1 };
    let body = headwater_event::ReportBody::PodStatus {
        pod: "d/pod/web-1".parse().expect("a key"),
        uid: "u".to_owned(),
        status: Bytes::from_static(b"{}"),
    };
    fold.fold(&node(), id, &body, &mut batch);
    // A folded state moves only with a position; which one does not matter here.
    let somewhere = headwater_store::StreamCheckpoint {
        stream: stream(),
        checkpoint: headwater_event::Checkpoint {
            log_id: log_id(),
            epoch: WriterEpoch(1),
            seq: Seq(1),
        },
        hash: StateHash::EMPTY,
    };
    batch.commit(&*picture, &[somewhere], Durability::Synced).expect("commits");
    let mut check = Check::default();
    check.node(&disks, &Picture::Stored(picture)).expect("readable");
    check.event(&log[0], &key, &mut BTreeMap::new());
    let found = check.done();
    assert!(!found.right, "the node never said it: {found:?}");
}
