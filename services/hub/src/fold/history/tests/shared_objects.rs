//! Events whose object is in a body of the partition.

use headwater_event::{BodyHeader, BodyId, Partition, SharedObject};
use headwater_store::Value;

use super::*;

/// Bytes of an object, and of a row that refers to it.
const SHARED_BYTES: usize = 100_000;
const ROW_BYTES_MAX: usize = 200;

fn body(number: u64) -> BodyAddress {
    BodyAddress { partition: Partition(0), id: BodyId { epoch: WriterEpoch(1), number } }
}

/// Appends a version of the one key. Its object is in `body(version)`.
fn append(model: &mut Model, version: u8) {
    let object = Bytes::from([vec![b'x'; SHARED_BYTES], vec![version; OBJECT_BYTES]].concat());
    let object_hash = ObjectHash::of(&object);
    let key = "d/configmap/c".parse().expect("a key");
    let (uid, resource_version) = ("u".to_owned(), version.to_string());
    model.append_event(Event::Applied(Applied { key, uid, resource_version, object }));
    let event = model.events.last_mut().expect("appended");
    event.shared = Some(SharedObject { body: body(version.into()), object_hash });
}

/// Folds the last event, and what happens to bodies with it.
fn fold_last(engine: &Arc<MemoryEngine>, model: &Model, retired: Option<u64>) {
    let mut state = StreamState::open(engine.clone(), FoldBounds::default()).expect("opens");
    let event = model.events.last().expect("appended").clone();
    let (Some(shared), Event::Applied(applied)) = (event.shared, &event.event) else {
        panic!("an event that refers to a body");
    };
    let header = BodyHeader {
        uid: applied.uid.clone(),
        resource_version: applied.resource_version.clone(),
        object_hash: shared.object_hash,
    };
    state.put_body(&shared.body, header, applied.object.clone());
    let mut rows = History::default();
    rows.derive(&event, Continuity::Dense, &mut state).expect("readable");
    state.apply_event(LOG, event, Continuity::Dense, &mut Vec::new()).expect("continues");
    if let Some(number) = retired {
        state.remove_body(&body(number));
    }
    rows.before_commit(&mut state);
    state.commit(Durability::Buffered).expect("commits");
}

#[test]
fn an_event_refers_to_its_body_and_a_delta_replaces_one_whose_body_is_retired() {
    let (mut model, engine) = (Model::new(), Arc::new(MemoryEngine::new()));
    append(&mut model, 1);
    fold_last(&engine, &model, None);
    for row in EVENTS.rows_of(&*engine, &model.stream) {
        let (_, row) = row.expect("readable");
        let bytes = row.encode().expect("encodes").len();
        assert!(bytes <= ROW_BYTES_MAX, "{bytes} bytes");
    }
    check(&engine, &model, Limits::default());

    append(&mut model, 2);
    fold_last(&engine, &model, Some(1));
    let fold = Fold::new(engine.clone());
    fold.assume_log(LOG);
    let source = fold.source();
    let events =
        |from| source.events(&model.stream, Seq(from), Seq(2), u64::MAX).expect("readable");
    assert_eq!(events(0), [], "the object is gone");
    check_tail(events(1), &model.events, 1);
    let mut state = State::default();
    let mut delta = source.delta(&model.stream, Seq(0)).expect("readable");
    for pushed in delta.next(u64::MAX).expect("readable").changes {
        state.apply(&pushed.change);
    }
    assert_eq!(Some(&state), model.states.last());
}
