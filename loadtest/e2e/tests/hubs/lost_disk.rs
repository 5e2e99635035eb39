//! A hub whose disk is lost folds the log again, serves no edge before that is done, and sends
//! nothing that its edges have.

use std::fs;

use headwater_e2e::fleet::Fleet;
use headwater_e2e::proxy::Proxy;

use crate::site::{Objects, invariants, settle, wait_until_has, wait_until_logged};
use crate::{PARTITIONS, PLAIN};

const NODES: [&str; 3] = ["gw-0", "gw-1", "gw-2"];

/// ConfigMaps of each node.
const MAPS: usize = 200;

/// Bytes of a ConfigMap's settings.
const MAP_BYTES: usize = 2_000;

/// What an edge may be sent when all but two objects are as they were, beats included: they take
/// less than 3,000 bytes.
const RESUMED_BYTES_MAX: u64 = 4 << 10;

#[test]
fn a_hub_that_lost_its_disk_sends_nothing_again() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    let mut objects = Objects::new(13);
    let map = |node: &str, n: usize| format!("settings-{node}-{n:03}");
    for node in NODES {
        let maps: Vec<_> = (0..MAPS).map(|n| map(node, n)).collect();
        maps.iter().for_each(|map| objects.settings(map, MAP_BYTES));
        objects.pod(node, &format!("app-{node}"), &maps);
    }
    objects.write(&fleet);
    fleet.add_controller("controller");
    fleet.add_hub("hub");
    let mut events = 1 + MAPS + 1;
    NODES.iter().for_each(|node| drop(wait_until_logged(&fleet, node, events)));
    let hop = Proxy::start(fleet.hub_address("hub"));
    for node in NODES {
        fleet.add_edge_with(node, &[hop.address()], &PLAIN);
    }
    let mut invariants = invariants(&NODES);
    NODES.iter().for_each(|node| wait_until_has(&fleet, node, events));
    settle(&fleet, &mut invariants);
    let whole = hop.traffic();

    // With a disk that is there, and with an empty one, it is the same to its edges. What changed
    // meanwhile comes, and no more.
    for (n, disk) in ["kept", "lost"].into_iter().enumerate() {
        fleet.part_mut("hub").kill();
        if disk == "lost" {
            fs::remove_dir_all(fleet.part("hub").data()).expect("the disk is gone");
        }
        for node in NODES {
            objects.settings(&map(node, 0), MAP_BYTES);
            objects.remove(&map(node, MAPS - 1 - n));
        }
        objects.write(&fleet);
        events += 2;
        NODES.iter().for_each(|node| drop(wait_until_logged(&fleet, node, events)));
        let before = hop.traffic();
        fleet.part_mut("hub").start_again();
        NODES.iter().for_each(|node| wait_until_has(&fleet, node, events));
        settle(&fleet, &mut invariants);
        let resumed = hop.traffic().since(before);
        println!("{disk}: {resumed:?} of {whole:?}");
        let edges = NODES.len() as u64;
        assert!(resumed.down <= edges * RESUMED_BYTES_MAX, "{disk}: {resumed:?} of {whole:?}");
    }
}
