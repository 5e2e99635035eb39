//! Parts that start before their broker: they say so and wait, and then they are what they are.

use headwater_e2e::fleet::Fleet;

use crate::PARTITIONS;
use crate::site::{Objects, invariants, settle, wait_until_has, wait_until_logged};

#[test]
fn a_part_that_starts_before_its_broker_waits_for_it() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    let mut objects = Objects::new(19);
    objects.settings("settings", 500);
    objects.pod("gw-1", "app-gw-1", &["settings".to_owned()]);
    objects.write(&fleet);
    fleet.add_controller("controller");
    fleet.add_hub("hub");
    fleet.add_edge("gw-1", &["hub"]);
    let mut invariants = invariants(&["gw-1"]);
    wait_until_logged(&fleet, "gw-1", 3);
    wait_until_has(&fleet, "gw-1", 3);
    settle(&fleet, &mut invariants);

    // The machines of the cloud come up in any order.
    for part in ["controller", "hub"] {
        fleet.part_mut(part).kill();
    }
    fleet.kafka.brokers().for_each(|broker| broker.stop().expect("it stops"));
    let before = ["controller", "hub"].map(|part| fleet.part(part).output().len());
    for part in ["controller", "hub"] {
        fleet.part_mut(part).start_again();
    }
    for (part, before) in ["controller", "hub"].into_iter().zip(before) {
        fleet.wait_for(&format!("{part} logs what it waits for"), |fleet| {
            let output = fleet.part(part).output();
            output[before..].contains("Kafka does not respond").then_some(())
        });
    }
    objects.settings("settings", 500);
    objects.write(&fleet);
    fleet.kafka.brokers().for_each(|broker| broker.start().expect("it starts"));
    // The edge has found its hub away again and again, so its next attempt may be minutes away. A start
    // of the edge connects at once.
    fleet.wait_until_reconciled("hub");
    fleet.part_mut("gw-1").kill();
    fleet.part_mut("gw-1").start_again();
    wait_until_logged(&fleet, "gw-1", 4);
    wait_until_has(&fleet, "gw-1", 4);
    settle(&fleet, &mut invariants);
}
