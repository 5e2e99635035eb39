//! One edge that reads a byte a second, beside twenty that read: it is let go, it costs the hub no
//! more than an edge may, and the others do not notice.

use headwater_e2e::fleet::Fleet;
use headwater_e2e::proxy::{Conditions, Proxy};

use crate::site::{Objects, has, invariants, settle, wait_until_has, wait_until_logged};
use crate::{PARTITIONS, PLAIN};

const HEALTHY: usize = 20;

const SLOW: &str = "slow";

/// What the slow one is to have: more than a window.
const LARGE_MAPS: usize = 50;
const LARGE_BYTES: usize = 100_000;

/// The events of its stream: which streams it has, and each object.
const LARGE_EVENTS: usize = 1 + LARGE_MAPS + 1;

/// How often the others change at most. A session of the slow one lasts for 17 s, a change for one.
const CHANGES_MAX: usize = 5;

fn healthy() -> Vec<String> {
    (0..HEALTHY).map(|n| format!("gw-{n:02}")).collect()
}

#[test]
fn an_edge_that_reads_a_byte_a_second_delays_no_other() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    let mut objects = Objects::new(11);
    let nodes = healthy();
    for node in &nodes {
        let map = format!("settings-{node}");
        objects.settings(&map, 500);
        objects.pod(node, &format!("app-{node}"), &[map]);
    }
    let maps: Vec<_> = (0..LARGE_MAPS).map(|n| format!("large-{n:02}")).collect();
    maps.iter().for_each(|map| objects.noise(map, LARGE_BYTES));
    objects.pod(SLOW, "app-slow", &maps);
    objects.write(&fleet);
    fleet.add_controller("controller");
    fleet.add_hub("hub");
    wait_until_logged(&fleet, SLOW, LARGE_EVENTS);
    for node in &nodes {
        fleet.add_edge(node, &["hub"]);
    }
    let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
    nodes.iter().for_each(|node| wait_until_has(&fleet, node, 3));
    let mut invariants = invariants(&[&nodes[..], &[SLOW]].concat());
    settle(&fleet, &mut invariants);

    let hop = Proxy::start(fleet.hub_address("hub"));
    hop.set(Conditions { reads_per_second: Some(1), ..Conditions::default() });
    fleet.add_edge_with(SLOW, &[hop.address()], &PLAIN);
    print_peaks("before the slow one", &fleet);
    fleet.wait_for("the hub serves the slow one", |fleet| {
        let status = fleet.part("hub").status()?;
        let of_slow = status["nodes"].as_array()?.iter().find(|node| node["name"] == SLOW)?;
        (of_slow["connected"] == true).then_some(())
    });
    // All others change, and have it, within one session of the slow one, which has nothing yet. On a
    // busy machine its session may end before that, so they change again.
    let mut events = 3;
    let sessions = loop {
        let sessions = hop.arrivals().len();
        events += 1;
        for node in &nodes {
            objects.settings(&format!("settings-{node}"), 500);
        }
        objects.write(&fleet);
        fleet.wait_for("the change at all others", |fleet| all_have(fleet, &nodes, events));
        assert_eq!(has(&fleet, SLOW, LARGE_EVENTS), Some(false));
        if hop.arrivals().len() == sessions {
            break sessions;
        }
        assert!(events < 3 + CHANGES_MAX, "no change came within one session of the slow one");
    };
    nodes.iter().for_each(|node| drop(wait_until_logged(&fleet, node, events)));

    // Its session ends, because nothing comes in time; the edge retries at the same pace.
    fleet.wait_for("the end of its session", |_| (hop.arrivals().len() > sessions).then_some(()));
    print_peaks("with the slow one", &fleet);
    fleet.check(&mut invariants);
    fleet.check_memory();
    nodes.iter().for_each(|node| assert_eq!(has(&fleet, node, events), Some(true), "{node}"));
    assert_eq!(has(&fleet, SLOW, LARGE_EVENTS), Some(false));
    hop.set(Conditions::default());
    wait_until_has(&fleet, SLOW, LARGE_EVENTS);
    settle(&fleet, &mut invariants);
    print_peaks("in the end", &fleet);
}

/// Whether each of these nodes has acknowledged everything up to this event of its stream.
fn all_have(fleet: &Fleet, nodes: &[&str], seq: usize) -> Option<()> {
    let status = fleet.part("hub").status()?;
    let found = status["nodes"].as_array()?;
    let has = |node: &&str| {
        let stream = format!("node/{node}");
        let own = found.iter().find(|own| own["name"] == **node)?;
        let own = own["streams"].as_array()?.iter().find(|own| own["stream"] == stream.as_str())?;
        Some(own["acked"] == seq as u64)
    };
    nodes.iter().all(|node| has(node) == Some(true)).then_some(())
}

fn print_peaks(when: &str, fleet: &Fleet) {
    let peaks = ["hub", SLOW, "gw-00"].map(|part| (part, fleet.part(part).peak_bytes() >> 10));
    println!("{when}, KiB at most: {peaks:?}");
}
