//! How the cost of an action grows with the fleet: records, bytes and allocations at 10, 100 and 1,000
//! nodes, and the exponent that fits them.
//!
//! A controller and a hub run over RocksDB and logs in memory, on one thread whose clock is paused: the
//! counts are of work, and no neighbour moves them. Allocations of RocksDB are not counted.

mod counted_log;
mod exponent;
mod fleet;
mod source;

use crate::exponent::{Cost, Growth, assert_growth};
use crate::fleet::Fleet;

/// Fleets, a decade apart.
const NODES: [u32; 3] = [10, 100, 1_000];

/// An action repeats; its cheapest turn counts. A turn in which a container of a fleet's size grew is
/// more expensive, and says nothing about the action.
const TURNS: u32 = 4;

/// The most bytes that a changed object of every node adds to the log for each node, besides itself.
const REFERENCE_BYTES_MAX: u64 = 100;

/// The most records that a part with its disk reads at its start: batches of 512 from the start of a
/// log, which has its metadata. The logs of the largest fleet have 9,000 records.
const RESTART_READS_MAX: u64 = 4 * 512;

/// The cost of `action` in each fleet.
fn costs(mut action: impl FnMut(&mut Fleet, u32)) -> [Cost; NODES.len()] {
    NODES.map(|nodes| {
        let mut fleet = Fleet::start(nodes);
        (0..TURNS)
            .map(|turn| fleet.cost(|fleet| action(fleet, turn)))
            .reduce(Cost::min)
            .expect("an action has turns")
    })
}

#[test]
fn a_change_of_one_pod_costs_the_same_in_every_fleet() {
    let costs = costs(|fleet, turn| fleet.change_pod(turn));
    assert!(costs.iter().all(|cost| cost.records == 1), "{costs:?}");
    assert_growth("a change of one pod", Growth::None, &NODES, &costs);
}

#[test]
fn a_report_of_one_node_costs_the_same_in_every_fleet() {
    let costs = costs(|fleet, turn| fleet.report(turn));
    assert_growth("a report of one node", Growth::None, &NODES, &costs);
}

#[test]
fn a_change_of_one_service_costs_the_same_in_every_fleet() {
    let costs = costs(|fleet, turn| fleet.change_service(turn));
    assert!(costs.iter().all(|cost| cost.records == 1), "{costs:?}");
    assert_growth("a change of one Service", Growth::None, &NODES, &costs);
}

#[test]
fn a_changed_object_of_every_node_is_appended_once_and_named_by_each() {
    let mut object_bytes = 0;
    let costs = costs(|fleet, turn| object_bytes = fleet.change_shared_config(turn));
    assert_growth("a change of a shared object", Growth::Fleet, &NODES, &costs);
    for (nodes, cost) in NODES.map(u64::from).into_iter().zip(costs) {
        assert_eq!(cost.records, nodes + 1, "a body, and an event of each node");
        let most = object_bytes + nodes * REFERENCE_BYTES_MAX;
        assert!(cost.bytes <= most, "{} bytes, at most {most}", cost.bytes);
    }
}

#[test]
fn a_hub_that_has_its_disk_costs_at_most_one_pass_over_the_fleet_to_start() {
    let costs = costs(|fleet, _| fleet.restart_hub());
    assert_growth("a restart of the hub", Growth::Fleet, &NODES, &costs);
    assert!(costs.iter().all(|cost| cost.read <= RESTART_READS_MAX), "{costs:?}");
}

#[test]
fn a_controller_that_has_its_disk_costs_at_most_one_pass_over_the_fleet_to_start() {
    let costs = costs(|fleet, _| fleet.restart_controller());
    assert_growth("a restart of the controller", Growth::Fleet, &NODES, &costs);
    assert!(costs.iter().all(|cost| cost.records == costs[0].records), "{costs:?}");
    assert!(costs.iter().all(|cost| cost.read <= RESTART_READS_MAX), "{costs:?}");
}
