//! The log loses its tail below what edges have applied.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use headwater_broker::ClusterSettings;

use crate::scene::{
    CONTROLLER, DOWNSTREAM, HUB, NODES, PARTITIONS, Place, Pod, Scene, UPSTREAM, segment,
};

/// What every broker had not synced when all of them lost power: the logs are cut where they were
/// a while ago, so that edges are ahead of the one, and what they were acknowledged is not in the
/// other.
#[test]
fn edges_ahead_of_a_log_that_lost_its_tail_follow_its_new_tail() {
    let data = tempfile::tempdir().expect("a folder");
    let settings =
        ClusterSettings { data: Some(data.path().to_owned()), ..ClusterSettings::default() };
    let mut scene = Scene::begin(settings, &[]);
    let [left, right] = NODES;
    let (leaves, comes, stays) =
        (Pod::of(left, "leaves"), Pod::of(left, "comes"), Pod::of(right, "stays"));
    scene.put(&leaves, 0);
    scene.wait_until_settled();
    let kept = lengths(data.path());

    // The lost tail: a change, a removed pod, and two new pods that were reported as running.
    scene.put(&Pod::anchor(left), 1);
    scene.remove(&leaves);
    scene.put(&comes, 0);
    scene.put(&stays, 0);
    scene.wait_until_settled();
    scene.fleet.kafka.broker(1).kill().expect("it can be killed");
    for (segment, length) in &kept {
        let segment = File::options().write(true).open(segment).expect("a segment");
        assert!(segment.metadata().expect("there").len() > *length, "nothing is lost");
        segment.set_len(*length).expect("it can be cut");
    }
    // The log is to go on differently from what edges have: they must see that it is another past.
    scene.put(&Pod::anchor(left), 2);
    scene.remove(&comes);
    scene.fleet.kafka.broker(1).start().expect("it comes back");
    for part in [CONTROLLER, HUB] {
        scene.wait_until_reported(part, "the log was truncated");
    }
    scene.check();
}

/// A broker that lacks what the leader alone had becomes the leader: what an operator allows who
/// prefers any log to none.
#[test]
fn an_unclean_leader_that_lacks_the_tail_is_followed_and_edges_are_set_right() {
    let settings = ClusterSettings { brokers: 3, ..ClusterSettings::default() };
    let kafka_settings =
        ["topic.replication.factor=2", "topic.min.insync.replicas=1", "allow.unsafe.topics=true"];
    let mut scene = Scene::over(1, settings, &kafka_settings);
    let unclean = [["unclean.leader.election.enable", "true"]];
    scene.fleet.kafka.set(DOWNSTREAM, &unclean).expect("Kafka takes it");
    let place = Place::of(&scene.fleet, DOWNSTREAM, 0).expect("it is there");
    let leader = place.leader.expect("it is written");
    let lacks = place.replicas.into_iter().find(|broker| *broker != leader).expect("two have it");
    scene.fleet.kafka.broker(lacks).kill().expect("it can be killed");
    scene.wait_for("one broker alone", |fleet| {
        (Place::of(fleet, DOWNSTREAM, 0)?.in_sync == [leader]).then_some(())
    });
    let [left, _] = NODES;
    let comes = Pod::of(left, "comes");
    scene.put(&Pod::anchor(left), 1);
    scene.put(&comes, 0);
    scene.wait_until_settled();
    scene.fleet.kafka.broker(leader).kill().expect("it can be killed");
    scene.put(&Pod::anchor(left), 2);
    scene.remove(&comes);
    scene.fleet.kafka.broker(lacks).start().expect("it comes back");
    for part in [CONTROLLER, HUB] {
        scene.wait_until_reported(part, "the log was truncated");
    }
    scene.fleet.kafka.broker(leader).start().expect("it comes back");
    scene.check();
}

/// The open segment of each partition, and how long it is.
fn lengths(data: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for topic in [DOWNSTREAM, UPSTREAM] {
        for partition in 0..PARTITIONS {
            let segment = segment(data, topic, partition);
            let length = fs::metadata(&segment).expect("a segment").len();
            found.push((segment, length));
        }
    }
    found
}
