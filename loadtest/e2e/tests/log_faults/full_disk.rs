//! A broker whose disk is full.

use headwater_broker::ClusterSettings;
use headwater_e2e::small_disk::SmallDisk;

use crate::scene::{CONTROLLER, HUB, Scene};

/// The size of the broker's disk: what a start takes, and some more.
const DISK_MIB: u64 = 96;

#[test]
fn a_full_disk_of_the_broker_is_waited_for_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = SmallDisk::mount(folder.path(), DISK_MIB) else { return };
    let settings =
        ClusterSettings { data: Some(folder.path().to_owned()), ..ClusterSettings::default() };
    let mut scene = Scene::begin(settings, &[]);
    let load = scene.begin_load();
    disk.fill(0);
    for part in [CONTROLLER, HUB] {
        scene.wait_until_reported(part, "Kafka");
    }
    scene.end_load(load);
    disk.make_room();
    // Kafka gives a disk up that failed it, and itself with its last one.
    scene.fleet.kafka.broker(1).kill().expect("it has ended");
    scene.fleet.kafka.broker(1).start().expect("it comes back");
    scene.check();
    // The broker is to have ended before its disk is taken away.
    drop(scene);
}
