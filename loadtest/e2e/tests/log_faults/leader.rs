//! Three brokers: the leader of each partition dies in turn, or each broker restarts in turn.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use headwater_broker::ClusterSettings;
use headwater_e2e::fleet::Fleet;
use headwater_e2e::running::{headwater, output};

use crate::scene::{CONTROLLER, DOWNSTREAM, HUB, NODES, PARTITIONS, Place, Scene, held};

/// Rounds of change that must come through while a broker is away.
const ROUNDS: u64 = 3;

/// The pause between two looks at the status of all parts.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// A silence counts from then on. A broker that is killed is missed for 9 s, its session; one that starts may take the
/// processors for seconds.
const UNREACHABLE_AFTER: [&str; 2] = ["unreachable.after=8s", "delivery.timeout=8s"];

/// Looks at the status of every part, and keeps the silences that it names.
struct SilenceWatch {
    has_ended: Arc<AtomicBool>,
    looking: JoinHandle<BTreeSet<String>>,
}

impl SilenceWatch {
    fn start(fleet: &Fleet) -> Self {
        let parts = [CONTROLLER, HUB].into_iter().chain(NODES);
        let folders: Vec<PathBuf> = parts.map(|part| fleet.part(part).data().to_owned()).collect();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let looking = thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                for folder in &folders {
                    let status = output(headwater().args(["status", "--data"]).arg(folder));
                    let text = String::from_utf8_lossy(&status.stdout).into_owned();
                    let silent = text.lines().filter(|line| line.contains("has not a"));
                    seen.extend(silent.map(str::to_owned));
                }
                thread::sleep(LOOK_INTERVAL);
            }
            seen
        });
        Self { has_ended, looking }
    }

    fn end(self) -> BTreeSet<String> {
        self.has_ended.store(true, Ordering::Relaxed);
        self.looking.join().expect("it only looks")
    }
}

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
    let mut scene = Scene::begin(settings, &UNREACHABLE_AFTER);
    let load = scene.begin_load();
    let before = connections(&scene.fleet);
    assert!(before.iter().all(|count| *count > 0), "edges log their connections: {before:?}");
    let watch = SilenceWatch::start(&scene.fleet);
    for broker in 1..=3 {
        scene.fleet.kafka.broker(broker).stop().expect("it stops");
        wait_for_rounds(&scene);
        scene.fleet.kafka.broker(broker).start().expect("it comes back");
        scene.wait_for("every broker in step", |fleet| is_in_sync(fleet).then_some(()));
    }
    wait_for_rounds(&scene);
    assert_eq!(connections(&scene.fleet), before);
    assert_eq!(watch.end(), BTreeSet::new(), "an orderly restart is no silence");
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
