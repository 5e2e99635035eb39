//! The storage drivers of a node: its CSINode.

use serde_json::{Value, json};

use super::edge::Edge;
use super::{CLUSTER, Fixture};
use crate::world::Kubectl as _;

/// A driver as a node states it.
pub(super) fn driver(name: &str, node_id: &str) -> Value {
    let keys = ["topology.kubernetes.io/zone"];
    json!({"name": name, "nodeID": node_id, "topologyKeys": keys, "allocatable": {"count": 3}})
}

/// Makes the Node state these drivers.
pub(super) fn set_drivers(node: &mut Value, drivers: &[Value]) {
    node["metadata"]["annotations"]["headwater/csi-drivers"] = json!(drivers).to_string().into();
}

async fn report(edge: &Edge, drivers: &[Value]) {
    let mut node = edge.node_object();
    set_drivers(&mut node, drivers);
    edge.report_node(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_drivers_of_a_node_are_its_csi_node() {
    let Fixture { api, world: _world, running, edge } = Fixture::start("drivers").await;
    let shows = |drivers: Value| move |node: &Value| node["spec"]["drivers"] == drivers;
    let (disk, nfs) = (driver("disk.example.com", "n-1"), driver("nfs.example.com", "n-1"));
    report(&edge, std::slice::from_ref(&disk)).await;
    let found = api.wait_for("csinode", "drivers", "with a driver", shows(json!([disk]))).await;
    let node = api.node("drivers").await;
    assert_eq!(found["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    let annotations = &node["metadata"]["annotations"];
    assert!(annotations["headwater/csi-drivers"].is_null(), "{annotations}");

    report(&edge, &[nfs.clone(), disk.clone()]).await;
    api.wait_for("csinode", "drivers", "with both", shows(json!([disk, nfs]))).await;
    // The API server refuses that a driver changes: it has to go first.
    let moved = driver("disk.example.com", "n-2");
    report(&edge, std::slice::from_ref(&moved)).await;
    api.wait_for("csinode", "drivers", "with the other name of the node", shows(json!([moved])))
        .await;
    // What is no driver is named, and a later report is taken.
    report(&edge, &[driver("no/driver", "n-1")]).await;
    running.sink_trouble("no/driver").await;
    report(&edge, &[]).await;
    let is_empty = |node: &Value| node["spec"]["drivers"].as_array().is_none_or(Vec::is_empty);
    api.wait_for("csinode", "drivers", "without drivers", is_empty).await;

    // It is the node's next one that is there after the Node was made again.
    CLUSTER.run(&["delete", "node", "drivers"]);
    edge.restart().await;
    let node = api.node("drivers").await;
    report(&edge, std::slice::from_ref(&disk)).await;
    let found = api.wait_for("csinode", "drivers", "of the new node", |found| {
        found["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
            && found["spec"]["drivers"][0] == disk
    });
    found.await;
    CLUSTER.stop(running).await;
}
