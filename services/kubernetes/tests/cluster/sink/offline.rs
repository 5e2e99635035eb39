//! Nodes that are away for longer than the grace of their cluster, which is short here.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use headwater_cluster::{ControlPlaneSettings, Part};
use serde_json::{Value, json};

use super::edge::{Edge, running_status};
use super::{Api, SharedCluster, condition};
use crate::world::{Kubectl as _, World, pod};

/// A control plane that takes a node for lost after 20 s, in which its Lease is renewed twice, and evicts its pods
/// 2 s later.
pub(super) static IMPATIENT: LazyLock<SharedCluster> = LazyLock::new(|| {
    let controllers = ["--node-monitor-grace-period=20s", "--node-monitor-period=1s"];
    let server =
        ["--default-not-ready-toleration-seconds=2", "--default-unreachable-toleration-seconds=2"];
    let flags = |flags: [&str; 2]| flags.map(ToOwned::to_owned).to_vec();
    SharedCluster::start(ControlPlaneSettings {
        parts: vec![Part::ControllerManager],
        flags: BTreeMap::from([
            (Part::ControllerManager, flags(controllers)),
            (Part::ApiServer, flags(server)),
        ]),
        ..ControlPlaneSettings::default()
    })
});

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_node_that_is_away_stay_unless_they_are_to_be_evicted() {
    let (cluster, world) = (&*IMPATIENT, World::new());
    let api = Api::of(&cluster.kubeconfig).await;
    let running = world.start_with_sink(cluster.account()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "gw").await;
    // A cluster evicts nothing while every node of it is away.
    let steady = Edge::connect(&world, &running, "steady").await;
    api.wait_for("node", "gw", "ready", |node| {
        condition(node, "Ready")["status"] == "True" && node["spec"]["taints"].is_null()
    })
    .await;
    api.node("steady").await;
    let mut evicted = pod("evicted", "gw", "settings");
    evicted["metadata"]["annotations"] = json!({"headwater/offline": "evict"});
    // Its limit is that of each taint, so the cluster adds no toleration of an absence.
    let mut keyless = pod("keyless", "gw", "settings");
    keyless["spec"]["tolerations"] =
        json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]);
    let (kept, stopped) = (pod("kept", "gw", "settings"), pod("stopped", "gw", "settings"));
    cluster.create(&[kept, stopped, evicted, keyless]);
    for name in ["kept", "stopped", "evicted", "keyless"] {
        edge.report_status(name, &api.uid(name).await, &running_status("10.2.8.1")).await;
        api.running(name).await;
    }
    let has_no_limit = |pod: &Value| {
        let tolerations = pod["spec"]["tolerations"].as_array().map(Vec::as_slice);
        let tolerations = tolerations.unwrap_or_default();
        tolerations.len() == 2 && tolerations.iter().all(|one| one["tolerationSeconds"].is_null())
    };
    for name in ["kept", "stopped"] {
        api.wait_for("pod", name, "without a limit", has_no_limit).await;
    }
    api.wait_for("pod", "keyless", "tolerant of an absence", |pod| {
        let tolerations = pod["spec"]["tolerations"].as_array().map(Vec::as_slice);
        let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_u64();
        tolerations.unwrap_or_default().iter().map(seconds).eq([None, None, Some(1)])
    })
    .await;
    // The annotation of a Node changes what becomes of the pods that are there.
    cluster.run(&["annotate", "node", "steady", "headwater/offline=evict"]);
    let annotated = |node: &Value| node["metadata"]["annotations"]["headwater/offline"] == "evict";
    api.wait_for("node", "steady", "annotated", annotated).await;
    cluster.create(&[pod("later-kept", "steady", "settings")]);
    let uid = api.uid("later-kept").await;
    steady.report_status("later-kept", &uid, &running_status("10.2.8.9")).await;
    let limited = api.running("later-kept").await;
    assert_eq!(limited["spec"]["tolerations"][0]["tolerationSeconds"], 2);
    cluster.run(&["annotate", "node", "steady", "headwater/offline-"]);
    api.wait_for("pod", "later-kept", "without a limit", has_no_limit).await;

    edge.leave();
    let unknown = |node: &Value| condition(node, "Ready")["status"] == "Unknown";
    api.wait_for("node", "gw", "unknown", unknown).await;
    let is_deleted = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    api.wait_for("pod", "evicted", "evicted", is_deleted).await;
    for name in ["kept", "keyless"] {
        let kept = api.get("pod", name).await;
        assert!(!is_deleted(&kept), "{kept:#}");
    }
    cluster.run(&["delete", "pod", "stopped", "--wait=false"]);
    // What is reported while its hub does not say that it is back is not written.
    let written = running.requests("patch pods/status", "done");
    let (kept, stopped) = (api.uid("kept").await, api.uid("stopped").await);
    edge.report_status("kept", &kept, &running_status("10.2.8.2")).await;
    let node = api.wait_for("node", "gw", "unreachable", |node| {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.into_iter().any(|taint| taint["effect"] == "NoExecute")
    });
    node.await;
    assert_eq!(running.requests("patch pods/status", "done"), written);

    edge.come_back();
    let node =
        api.wait_for("node", "gw", "ready", |node| condition(node, "Ready")["status"] == "True");
    let node = node.await;
    // The time of the condition is not that of the edge's last start.
    let changed = condition(&node, "Ready")["lastTransitionTime"].as_str().expect("a time");
    assert_ne!(changed, "2026-01-01T00:00:00Z");
    let moved = |pod: &Value| {
        pod["status"]["podIP"] == "10.2.8.2" && condition(pod, "Ready")["status"] == "True"
    };
    api.wait_for("pod", "kept", "as it is by now", moved).await;
    edge.report_end("stopped", &stopped).await;
    edge.report_end("evicted", &api.uid("evicted").await).await;
    api.gone("stopped").await;
    api.gone("evicted").await;
    cluster.stop(running).await;
}
