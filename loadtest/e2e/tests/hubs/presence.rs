//! The presence of nodes in the cloud while their hub dies and returns.

use headwater_e2e::fleet::Fleet;

use crate::PARTITIONS;
use crate::site::Objects;

/// The arguments of a controller that listens for hubs.
const LISTENING: [&str; 3] = ["--listen", "127.0.0.1:0", "--insecure-loopback"];

#[test]
fn the_node_of_a_killed_hub_is_not_ready_long_before_its_next_position_is_due() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    let mut objects = Objects::new(23);
    objects.pod("gw-1", "app-gw-1", &[]);
    objects.write(&fleet);
    fleet.add_controller_with("controller", &LISTENING);
    fleet.add_hub("hub");
    fleet.add_edge("gw-1", &["hub"]);
    fleet.wait_for("the lane", |fleet| {
        fleet.part("hub").output().contains("the lane to the controller is up").then_some(())
    });
    fleet.wait_for("a node that is ready", |fleet| is_ready(fleet, "True"));
    // Without the lane the node would be ready for more than five minutes.
    fleet.part_mut("hub").kill();
    fleet.wait_for("a node that is not ready", |fleet| is_ready(fleet, "Unknown"));
    fleet.part_mut("hub").start_again();
    // The edge found its hub away for 40 s, so its next attempt may be minutes away. A start of the
    // edge connects at once.
    fleet.part_mut("gw-1").kill();
    fleet.part_mut("gw-1").start_again();
    fleet.wait_for("a node that is ready again", |fleet| is_ready(fleet, "True"));
}

/// Whether the Ready condition of the node in the cloud's picture has this status.
fn is_ready(fleet: &Fleet, status: &str) -> Option<()> {
    let node = fleet.part("controller").json(&["get", "node", "gw-1", "-o", "json"])?;
    let conditions = node["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
    (ready["status"] == status).then_some(())
}
