//! The end of pods: confirmed once every container has stopped, and only then.

use serde_json::json;

use super::edge::{Edge, running_status};
use super::{CLUSTER, get, wait_for};
use crate::world::{Kubectl as _, World, pod};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_when_its_node_reports_that_it_stopped_also_with_a_finalizer_and_while_it_is_away()
 {
    let world = World::new();
    let running = world.start_with_sink(CLUSTER.kubeconfig()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "ends").await;
    wait_for("node", "ends", "there", |node| !node.is_null()).await;
    let mut held = pod("held", "ends", "settings");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    CLUSTER.create(&[pod("ends", "ends", "settings"), held, pod("ends-mark", "ends", "settings")]);
    let uid = |name: &str| get("pod", name)["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let (ends, held) = (uid("ends"), uid("held"));
    CLUSTER.run(&["delete", "pod", "ends", "held", "--wait=false"]);
    // Succeeded, but it has not said that all containers have stopped.
    let mut status = running_status("10.2.6.1");
    status["phase"] = "Succeeded".into();
    edge.report_status("ends", &ends, &status).await;
    wait_for("pod", "ends", "succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(running.requests("delete pods", "done"), 0);
    edge.leave();
    edge.report_end("ends", &ends).await;
    edge.report_end("held", &held).await;
    wait_for("pod", "ends", "gone", |pod| pod.is_null()).await;
    let confirmed = |pod: &serde_json::Value| pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    wait_for("pod", "held", "confirmed", confirmed).await;
    edge.come_back();
    edge.report_status("ends-mark", &uid("ends-mark"), &running_status("10.2.6.2")).await;
    wait_for("pod", "ends-mark", "running", |pod| pod["status"]["phase"] == "Running").await;
    assert_eq!(running.requests("delete pods", "done"), 2, "no deletion is repeated");
    CLUSTER.run(&[
        "patch",
        "pod",
        "held",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    wait_for("pod", "held", "gone", |pod| pod.is_null()).await;
    running.controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_made_again_under_its_name_is_not_deleted_by_the_end_of_the_first() {
    let world = World::new();
    let running = world.start_with_sink(CLUSTER.kubeconfig()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "forced").await;
    wait_for("node", "forced", "there", |node| !node.is_null()).await;
    CLUSTER.create(&[pod("forced", "forced", "settings")]);
    let uid = || get("pod", "forced")["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let first = uid();
    CLUSTER.run(&["delete", "pod", "forced", "--force", "--grace-period=0"]);
    CLUSTER.create(&[pod("forced", "forced", "settings")]);
    let second = uid();
    CLUSTER.run(&["delete", "pod", "forced", "--wait=false"]);
    edge.report_end("forced", &first).await;
    edge.report_status("forced", &second, &running_status("10.2.7.1")).await;
    wait_for("pod", "forced", "running", |pod| pod["status"]["phase"] == "Running").await;
    assert_eq!(running.requests("delete pods", "done"), 0);
    edge.report_end("forced", &second).await;
    wait_for("pod", "forced", "gone", |pod| pod.is_null()).await;
    running.controller.stop().await;
}
