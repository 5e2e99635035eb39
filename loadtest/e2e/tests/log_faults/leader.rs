//! Three brokers: the leader of each partition dies in turn, or each broker restarts in turn.

use headwater_broker::ClusterSettings;
use headwater_e2e::fleet::Fleet;

use crate::scene::{DOWNSTREAM, NODES, PARTITIONS, Place, Scene, held};

/// Rounds of change that must come through while a broker is away.
const ROUNDS: u64 = 3;

#[test]
fn a_leader_that_is_killed_under_load_costs_a_pause_and_nothing_else() {
    let settings = ClusterSettings { brokers: 3, ..ClusterSettings::default() };
    let mut scene = Scene::begin(settings, &[]);
    let load = scene.begin_load();
    for partition in 0..PARTITIONS {
        let leader = leader(&scene.fleet, partition).expect("it was written a moment ago");
        scene.fleet.kafka.broker(leader).kill().expect("it can be killed");
        // Two brokers are enough: what is changed now comes to every node now.
        wait_for_rounds(&scene);
        scene.fleet.kafka.broker(leader).start().expect("it comes back");
        // The next one must not be the second that is away.
        scene.wait_for("every broker in step", |fleet| is_in_sync(fleet).then_some(()));
    }
    scene.end_load(load);
    scene.check();
}

#[test]
fn a_rolling_restart_of_the_brokers_costs_no_session() {
    let settings = ClusterSettings { brokers: 3, ..ClusterSettings::default() };
    let mut scene = Scene::begin(settings, &[]);
    let load = scene.begin_load();
    let before = connections(&scene.fleet);
    assert!(before.iter().all(|count| *count > 0), "edges log their connections: {before:?}");
    for broker in 1..=3 {
        scene.fleet.kafka.broker(broker).stop().expect("it stops");
        wait_for_rounds(&scene);
        scene.fleet.kafka.broker(broker).start().expect("it comes back");
        scene.wait_for("every broker in step", |fleet| is_in_sync(fleet).then_some(()));
    }
    wait_for_rounds(&scene);
    assert_eq!(connections(&scene.fleet), before);
    scene.end_load(load);
    scene.check();
}

/// Waits until every node has several rounds of change more than now.
fn wait_for_rounds(scene: &Scene) {
    let before = round(&scene.fleet).expect("edges answer");
    scene.wait_for("changes", |fleet| (round(fleet)? >= before + ROUNDS).then_some(()));
}

/// How often each node has connected to the hub.
fn connections(fleet: &Fleet) -> [usize; 2] {
    NODES.map(|node| fleet.part(node).output().matches(r#""message":"connected""#).count())
}

/// The leader of a partition of the downstream log.
fn leader(fleet: &Fleet, partition: u32) -> Option<u32> {
    Place::of(fleet, DOWNSTREAM, partition)?.leader
}

/// Whether every partition of the downstream log is on all its brokers.
fn is_in_sync(fleet: &Fleet) -> bool {
    (0..PARTITIONS).all(|partition| {
        Place::of(fleet, DOWNSTREAM, partition)
            .is_some_and(|place| place.in_sync.len() == place.replicas.len())
    })
}

/// The last round that every node has seen.
fn round(fleet: &Fleet) -> Option<u64> {
    let seen = NODES.into_iter().map(|node| {
        let held = held(fleet.part(node))?;
        held.into_iter().map(|(_, round)| round).min()
    });
    seen.collect::<Option<Vec<_>>>()?.into_iter().min()
}
