//! Hubs restarted one after the other, over TLS: nothing is lost, and the edges go to the other one
//! no faster than it takes them.

use std::time::{Duration, Instant};

use headwater_e2e::authority::Authority;
use headwater_e2e::fleet::Fleet;
use headwater_e2e::part::Part;
use headwater_e2e::proxy::{Conditions, Proxy};
use tempfile::TempDir;

use crate::PARTITIONS;
use crate::site::{Objects, invariants, settle, wait_until_has, wait_until_logged};

const EDGES: usize = 12;

const HUBS: [&str; 2] = ["hub-0", "hub-1"];

/// How many edges a second a hub of this test lets in, once all have come.
const HELLOS_PER_SECOND: u32 = 4;

fn as_str(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Waits until the hub serves all of these.
fn wait_until_served(fleet: &Fleet, hub: &str, nodes: &[&str]) {
    fleet.wait_for(&format!("all edges at {hub}"), |fleet| {
        let status = fleet.part(hub).status()?;
        let served = status["nodes"].as_array()?.iter().filter(|node| node["connected"] == true);
        (served.count() == nodes.len()).then_some(())
    });
}

#[test]
fn hubs_restart_one_after_the_other_and_nothing_is_lost() {
    let authority = Authority::new();
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    let mut objects = Objects::new(17);
    let nodes: Vec<_> = (0..EDGES).map(|n| format!("gw-{n:02}")).collect();
    let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
    let mut change = |fleet: &Fleet| {
        nodes.iter().for_each(|node| objects.settings(&format!("settings-{node}"), 500));
        for node in &nodes {
            objects.pod(node, &format!("app-{node}"), &[format!("settings-{node}")]);
        }
        objects.write(fleet);
    };
    change(&fleet);
    fleet.add_controller("controller");
    let settings = authority.settings(&format!(
        "hellos_per_second = {HELLOS_PER_SECOND}\nhellos_at_once = {}\n",
        2 * EDGES
    ));
    for hub in HUBS {
        let identity = authority.issue("hub", hub);
        let args = [as_str(&identity), vec!["--config", &settings]].concat();
        fleet.add_hub_with(hub, &args);
    }
    let hops = HUBS.map(|hub| Proxy::start(fleet.hub_address(hub)));
    let addresses = hops.each_ref().map(Proxy::address);
    for node in &nodes {
        let identity = authority.issue("node", node);
        fleet.add_edge_with(node, &addresses, &as_str(&identity));
    }
    let (mut invariants, mut events) = (invariants(&nodes), 3);
    nodes.iter().for_each(|node| wait_until_has(&fleet, node, events));
    settle(&fleet, &mut invariants);

    for (at, hub) in HUBS.iter().enumerate() {
        let (here, there) = (&hops[at], &hops[1 - at]);
        // All are at this one to begin with.
        there.set(Conditions { closed: true, ..Conditions::default() });
        there.cut();
        wait_until_served(&fleet, hub, &nodes);
        there.set(Conditions::default());

        let before = there.arrivals().len();
        let stopped = Instant::now();
        change(&fleet);
        events += 1;
        let status = fleet.part_mut(hub).stop().expect("it ran");
        assert_eq!(status.code(), Some(0), "{}", fleet.outputs());
        wait_until_served(&fleet, HUBS[1 - at], &nodes);
        // One after the other, at twice the rate at which a hub lets edges in: none comes sooner
        // than it was asked to, however late it was asked.
        let between = Duration::from_secs(1) / (2 * HELLOS_PER_SECOND);
        let came = there.arrivals().split_off(before);
        assert!(came.len() >= EDGES, "{came:?}");
        for (n, at) in (0..).zip(&came) {
            assert!(*at >= stopped + between * n, "{hub}: edge {n} came after {:?}", *at - stopped);
        }
        // The hub named another one, so they did not try the one that stopped.
        assert_eq!(came.len(), EDGES, "each came once");
        let gone = here.traffic();
        fleet.part_mut(hub).start_again();
        change(&fleet);
        events += 1;
        nodes.iter().for_each(|node| drop(wait_until_logged(&fleet, node, events)));
        nodes.iter().for_each(|node| wait_until_has(&fleet, node, events));
        settle(&fleet, &mut invariants);
        assert_eq!(here.traffic().connections, gone.connections, "nobody was sent back");
    }
}

#[test]
fn a_certificate_is_good_for_its_own_node_alone() {
    let authority = Authority::new();
    let mut args = ["edge", "--node", "gw-2", "--hub", "127.0.0.1:1", "--runtime", "hollow"]
        .map(str::to_owned)
        .to_vec();
    args.extend(authority.issue("node", "gw-1"));
    let folder = TempDir::new().expect("a temporary folder");
    let mut edge = Part::start(folder.path(), "gw-2", args);
    let status = edge.ended().expect("it ran");
    let output = edge.output();
    assert!(!status.success(), "{output}");
    assert!(output.contains("gw-1") && output.contains("gw-2"), "{output}");
}
