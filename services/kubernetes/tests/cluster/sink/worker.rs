//! A pod worker that died while its edge lives.

use serde_json::Value;

use super::edge::Edge;
use super::offline::IMPATIENT;
use super::{Api, condition};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_worker_has_died_is_unknown_though_its_edge_is_connected() {
    let (cluster, world) = (&*IMPATIENT, World::new());
    let api = Api::of(&cluster.kubeconfig).await;
    let running = world.start_with_sink(cluster.account()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "worker").await;
    let is =
        |status: &'static str| move |node: &Value| condition(node, "Ready")["status"] == status;
    api.wait_for("node", "worker", "ready", is("True")).await;
    let lease = api.wait_for("leases", "worker", "renewed", |lease| !lease.is_null()).await;
    edge.set_worker(false);
    let node = api.wait_for("node", "worker", "unknown", is("Unknown")).await;
    assert_eq!(condition(&node, "Ready")["reason"], "NodeStatusUnknown");
    let stopped = api.get("leases", "worker").await;
    assert_eq!(lease["spec"]["renewTime"], stopped["spec"]["renewTime"], "it was not renewed");
    edge.set_worker(true);
    api.wait_for("node", "worker", "ready", is("True")).await;
    cluster.stop(running).await;
}
