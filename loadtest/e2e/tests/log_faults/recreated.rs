//! Topics that are deleted and made again.

use std::fs::{self, File};
use std::path::Path;

use headwater_broker::ClusterSettings;
use headwater_e2e::fleet::Fleet;
use serde_json::Value;

use crate::scene::{CONTROLLER, DOWNSTREAM, HUB, NODES, PARTITIONS, Pod, Scene, UPSTREAM, segment};

/// As the page on Kafka says it is to be done: the controller is stopped first, and started when
/// both topics are there again.
#[test]
fn topics_that_are_made_again_are_the_next_life_and_no_edge_drops_anything_for_it() {
    let mut scene = Scene::begin(ClusterSettings::default(), &[]);
    assert_eq!(life(&scene.fleet), Some(1));
    scene.stop(CONTROLLER);
    scene.fleet.kafka.delete(&[DOWNSTREAM, UPSTREAM]).expect("they are deleted");
    scene.wait_until_reported(HUB, "there is no topic");
    scene.fleet.make_topics(PARTITIONS);
    // The new ones are empty, and the hub knows.
    scene.wait_for("a hub at an empty log", |fleet| {
        let status = fleet.part(HUB).status()?;
        let mut troubles = status["troubles"].as_array()?.iter().filter_map(Value::as_str);
        troubles.any(|trouble| trouble.contains("the log is empty")).then_some(())
    });
    // What is removed while there is no log is to be gone all the same.
    let [left, _] = NODES;
    scene.put(&Pod::anchor(left), 1);
    scene.start(CONTROLLER);
    scene.check();
    assert_eq!(life(&scene.fleet), Some(2));
}

/// No part is prepared: all run under load while it happens.
#[test]
fn a_log_that_is_made_again_under_a_running_fleet_is_filled_again() {
    let mut scene = Scene::begin(ClusterSettings::default(), &[]);
    let load = scene.begin_load();
    scene.fleet.kafka.delete(&[DOWNSTREAM]).expect("it is deleted");
    scene.fleet.make_topics(PARTITIONS);
    scene.wait_for("the next life", |fleet| (life(fleet)? == 2).then_some(()));
    scene.end_load(load);
    scene.check();
}

/// The next log loses its tail before any other part has read it: of one partition only the claim is
/// left. The controller is killed, so that no process remembers the tail.
#[test]
fn a_log_that_is_half_filled_makes_no_edge_drop_anything() {
    let data = tempfile::tempdir().expect("a folder");
    let settings =
        ClusterSettings { data: Some(data.path().to_owned()), ..ClusterSettings::default() };
    let mut scene = Scene::begin(settings, &[]);
    scene.fleet.part(HUB).freeze();
    scene.stop(CONTROLLER);
    scene.fleet.kafka.delete(&[DOWNSTREAM, UPSTREAM]).expect("they are deleted");
    scene.fleet.make_topics(PARTITIONS);
    scene.start(CONTROLLER);
    scene.fleet.wait_until_reconciled(CONTROLLER);
    scene.kill(CONTROLLER);
    scene.fleet.kafka.broker(1).kill().expect("it can be killed");
    for partition in 0..PARTITIONS {
        let segment = segment(data.path(), DOWNSTREAM, partition);
        let batches = batches(&segment);
        // The log metadata, a claim, events, and `Reconciled`; then heartbeats.
        let kept = if partition == 0 { batches[batches.len() / 2] } else { batches[0] };
        File::options()
            .write(true)
            .open(&segment)
            .and_then(|file| file.set_len(kept))
            .expect("cut");
    }
    scene.fleet.kafka.broker(1).start().expect("it comes back");
    scene.kill(HUB);
    scene.start(HUB);
    scene.wait_for("an edge at a hub that serves nothing yet", |fleet| {
        let status = fleet.part(HUB).status()?;
        let nodes = status["nodes"].as_array()?;
        let is_one_there = nodes.iter().any(|node| node["connected"] == true);
        (is_one_there && life(fleet)? == 2 && status["reconciled"] == false).then_some(())
    });
    scene.start(CONTROLLER);
    scene.check();
}

/// Where each batch of records in a segment ends: eight bytes are an offset, the next four say how
/// many follow.
fn batches(segment: &Path) -> Vec<u64> {
    let bytes = fs::read(segment).expect("a segment");
    let mut ends = Vec::new();
    let mut at = 0;
    while let Some(length) = bytes.get(at + 8..at + 12) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
        at += 12 + length as usize;
        ends.push(at as u64);
    }
    ends
}

/// The number of the log's life, as the hub follows it.
fn life(fleet: &Fleet) -> Option<u64> {
    let status = fleet.part(HUB).status()?;
    let (number, _) = status["log_id"].as_str()?.split_once('-')?;
    number.parse().ok()
}
