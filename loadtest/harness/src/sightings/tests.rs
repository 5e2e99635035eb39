//! Sightings that come in order, twice, out of order, and not at all.

use super::*;
use crate::object::{Content, Kind, ObjectSpec};

/// Two edges, a pod of edge 0 and a service of both; a load waits to begin.
fn sightings() -> Sightings {
    let content = Content { bytes: 10, fresh: 10, plain: 0 };
    let object =
        |index, kind: Kind, node| ObjectSpec::new(index, kind, "o".to_owned(), node, content);
    let nodes = ["node-1", "node-2"].map(|node| node.parse().expect("a name"));
    let objects = vec![object(0, Kind::Pod, Some(0)), object(1, Kind::Service, None)];
    let inventory = Inventory { nodes: nodes.into(), objects, seed: 1 };
    let sightings = Sightings::new(Arc::new(inventory), 0);
    sightings.expect([0, 1]);
    sightings
}

/// The pod changes at turns 1, 3 (deleted) and 4, and the service at turn 2. Turn 1 warms up.
fn begin(sightings: &Sightings) -> Arc<Latency> {
    let turn = |at, object, deletes| Turn { at: Duration::from_millis(at), object, deletes };
    let turns = [turn(1, 0, false), turn(2, 1, false), turn(3, 0, true), turn(4, 0, false)];
    let latency = Arc::new(Latency::new(Duration::from_secs(1)));
    let measured_from = Duration::from_millis(2);
    let load = Load { began: Instant::now(), measured_from, latency: latency.clone() };
    sightings.begin(&turns, load);
    latency
}

fn object(sightings: &Sightings, index: usize, turn: u32) -> Object {
    let spec = &sightings.inventory.objects[index];
    let object = spec.value(&[], turn, 1).to_string().into();
    Object { key: spec.key.clone(), object, ..Object::default() }
}

/// Lets an edge see turns of an object; a negative one is its removal.
fn see(sightings: &Sightings, edge: usize, index: usize, turns: &[i64]) {
    for turn in turns {
        match u32::try_from(*turn) {
            Ok(turn) => {
                sightings.applied(edge, &object(sightings, index, turn), Instant::now());
            }
            Err(_) => {
                let key = sightings.inventory.objects[index].key.clone();
                sightings.removed(edge, &key, Instant::now());
            }
        }
    }
}

#[test]
fn all_that_is_seen_in_order_adds_up() {
    let sightings = sightings();
    see(&sightings, 0, 0, &[0]);
    see(&sightings, 0, 1, &[0]);
    assert_eq!((sightings.restless(0..1), sightings.restless(0..2)), (0, 1));
    see(&sightings, 1, 1, &[0]);
    assert_eq!(sightings.restless(0..2), 0);
    let latency = begin(&sightings);
    assert_eq!(sightings.restless(0..2), 3);
    see(&sightings, 0, 0, &[1, -1, 4]);
    see(&sightings, 0, 1, &[2]);
    see(&sightings, 1, 1, &[2, 2]);
    assert_eq!(sightings.restless(0..2), 0);
    let account = Account { intended: 5, seen: 5, overwritten: 0, missing: 0 };
    assert_eq!(sightings.account(), account);
    assert_eq!(sightings.findings().count, 0);
    assert_eq!((latency.count(), sightings.measured()), (4, 4), "turn 1 warms up");
}

#[test]
fn what_a_later_turn_explains_is_overwritten_and_as_late_and_the_rest_is_missing() {
    let sightings = sightings();
    let latency = begin(&sightings);
    see(&sightings, 0, 0, &[0, 4]);
    see(&sightings, 0, 1, &[0]);
    see(&sightings, 1, 1, &[0, 2]);
    assert_eq!(sightings.restless(0..2), 1, "edge 0 has not seen turn 2");
    let account = Account { intended: 5, seen: 2, overwritten: 2, missing: 1 };
    assert_eq!(sightings.account(), account);
    assert_eq!((latency.count(), sightings.measured()), (3, 2), "turn 3 is there with turn 4");
}

#[test]
fn a_second_load_goes_on_with_the_next_turn() {
    let sightings = sightings();
    begin(&sightings);
    see(&sightings, 0, 0, &[0, 1]);
    let latency = begin(&sightings);
    see(&sightings, 0, 0, &[8]);
    assert_eq!(latency.count(), 2, "turns 7 and 8: turn 5 warms up, and the rest is of another");
    let account = Account { intended: 10, seen: 2, overwritten: 4, missing: 4 };
    assert_eq!(sightings.account(), account);
}

#[test]
fn what_must_never_be_seen_is_found() {
    let sightings = sightings();
    begin(&sightings);
    see(&sightings, 1, 0, &[0]);
    assert!(sightings.findings().first[0].contains("another's"));
    see(&sightings, 0, 1, &[2, 0]);
    assert!(sightings.findings().first[1].contains("went back from turn 2 to 0"));
    see(&sightings, 0, 1, &[-1]);
    assert!(sightings.findings().first[2].contains("nobody deleted it"));
}

#[test]
fn an_object_that_a_listing_lacks_is_gone() {
    let sightings = sightings();
    begin(&sightings);
    see(&sightings, 0, 0, &[0, 1]);
    sightings.listed(0, Group::Mesh, &BTreeSet::new(), Instant::now());
    assert_eq!(sightings.count(), 1, "another group's listing says nothing of it");
    sightings.listed(0, Group::Edged, &BTreeSet::new(), Instant::now());
    assert_eq!((sightings.count(), sightings.findings().count), (2, 0));
}
