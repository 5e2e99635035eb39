//! Nodes: their registration, labels, statuses and Leases.

use serde_json::json;

use super::edge::{Edge, running_status};
use super::{CLUSTER, Fixture, condition};
use crate::world::{Kubectl as _, object};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_scheduled_to_the_node_of_an_edge_and_runs() {
    let Fixture { api, world: _world, running, edge } = Fixture::start("story").await;
    let node = api
        .wait_for("node", "story", "ready", |node| {
            condition(node, "Ready")["status"] == "True" && node["spec"]["taints"].is_null()
        })
        .await;
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "story");
    assert_eq!(node["metadata"]["labels"]["node-role.kubernetes.io/edge"], "");
    assert_eq!(node["status"]["addresses"][0]["address"], "10.1.0.7");
    assert_eq!(node["status"]["allocatable"]["pods"], "110", "{node:#}");
    let lease = api.wait_for("leases", "story", "renewed", |lease| !lease.is_null()).await;
    assert_eq!(lease["spec"]["holderIdentity"], "story");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);

    let container = json!({"name": "main", "image": "example.invalid/main"});
    let spec = json!({
        "nodeSelector": {"kubernetes.io/hostname": "story"}, "containers": [container],
    });
    CLUSTER.create(&[object("v1", "Pod", "story", json!({ "spec": spec }))]);
    let pod = api.wait_for("pod", "story", "bound", |pod| pod["spec"]["nodeName"] == "story").await;
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    edge.report_status("story", uid, &running_status("10.2.0.1")).await;
    let pod = api.running("story").await;
    assert_eq!(pod["status"]["podIP"], "10.2.0.1");
    assert_eq!(condition(&pod, "Ready")["status"], "True");
    // A new address takes the place of the old one.
    edge.report_status("story", uid, &running_status("10.2.0.2")).await;
    let pod =
        api.wait_for("pod", "story", "moved", |pod| pod["status"]["podIP"] == "10.2.0.2").await;
    assert_eq!(pod["status"]["podIPs"], json!([{"ip": "10.2.0.2"}]));

    CLUSTER.run(&["delete", "pod", "story", "--wait=false"]);
    edge.report_end("story", uid).await;
    api.gone("story").await;
    running.requested("delete pods", "done", 1).await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_adds_the_labels_that_a_node_may_set_and_leaves_those_of_others() {
    let Fixture { api, world: _world, running, edge } = Fixture::start("labels").await;
    CLUSTER.run(&["label", "node", "labels", "team=a"]);
    let mut node = edge.node_object();
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "z".into();
    node["metadata"]["labels"]["team"] = "b".into();
    node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into();
    node["metadata"]["annotations"] = json!({"example.com/note": "n"});
    edge.report_node(&node).await;
    let shown = api
        .wait_for("node", "labels", "labelled", |node| {
            node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z"
        })
        .await;
    let labels = &shown["metadata"]["labels"];
    assert_eq!(labels["team"], "a");
    assert!(labels["node-role.kubernetes.io/control-plane"].is_null());
    assert_eq!(shown["metadata"]["annotations"]["example.com/note"], "n");
    running
        .sink_trouble("Node labels reports labels that a node may not set; they are left out: team")
        .await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_deleted_at_the_api_stays_deleted_until_its_edge_starts_again() {
    let Fixture { api, world, mut running, mut edge } = Fixture::start("deleted").await;
    let first = api.node("deleted").await;
    CLUSTER.run(&["delete", "node", "deleted"]);
    // It reports itself, and another node that comes later is created: the sink has looked.
    edge.report_node(&edge.node_object()).await;
    let _other = Edge::connect(&world, &running, "not-deleted").await;
    api.node("not-deleted").await;
    assert!(api.get("node", "deleted").await.is_null());
    // Nor does another start of the controller create it, nor a controller that knows nothing but the logs.
    let elsewhere = world.beside();
    for (world, later) in [(&world, "created-later"), (&elsewhere, "created-elsewhere")] {
        running.controller.stop().await;
        running = world.start_with_sink(CLUSTER.account()).await;
        running.reconciled().await;
        edge = Edge::unreported(world, &running, "deleted");
        let _later = Edge::connect(world, &running, later).await;
        api.node(later).await;
        assert!(api.get("node", "deleted").await.is_null());
    }
    edge.restart().await;
    let second = api.node("deleted").await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    CLUSTER.stop(running).await;
}
