//! A node that reports the status of another node's pod.

use std::sync::Arc;

use serde_json::Value;

use super::edge::{Edge, running_status};
use super::twin::Twin;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_node_that_reports_the_status_of_another_nodes_pod_is_named_until_it_does_not() {
    let (twin, world) = (Twin::new(), World::quick());
    let running = world.start_with_sink_over(twin.connection(), Arc::new(world.upstream.handle()));
    let running = running.await;
    running.reconciled().await;
    let hostile = Edge::connect(&world, &running, "hostile").await;
    let victim = Edge::connect(&world, &running, "victim").await;
    twin.wait_for("two Nodes", |server| server.objects("nodes").len() == 2).await;
    let uid = twin.create_pod("web", "victim");
    // More pods than are read at once, of which none is its own.
    for number in 0..600 {
        hostile.report_status(&format!("p{number}"), "u", &running_status("10.2.3.1")).await;
    }
    // A pod of this name that it had before.
    hostile.report_status("web", "another", &running_status("10.2.3.1")).await;
    victim.report_status("web", &uid, &running_status("10.2.3.2")).await;
    twin.shows("web", "10.2.3.2").await;
    tokio::time::sleep(tokio::time::Duration::from_secs(10)).await;
    running.sink_trouble_ends("reports the status").await;

    hostile.report_status("web", &uid, &running_status("10.2.3.3")).await;
    let named = "Node hostile reports the status of Pod default/web, which is bound to node victim";
    running.sink_trouble(named).await;
    assert_eq!(twin.address("web"), Value::from("10.2.3.2"));
    hostile.report_removal("web", &uid).await;
    running.sink_trouble_ends("reports the status").await;
    running.controller.stop().await;
}
