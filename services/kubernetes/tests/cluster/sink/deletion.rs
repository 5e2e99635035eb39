//! The end of pods: confirmed once every container has stopped, and only then.

use serde_json::json;

use super::edge::running_status;
use super::{CLUSTER, Fixture};
use crate::world::{Kubectl as _, pod};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_when_its_node_reports_that_it_stopped_also_with_a_finalizer_and_while_it_is_away()
 {
    let Fixture { api, world: _world, running, edge } = Fixture::start("ends").await;
    let mut held = pod("held", "ends", "settings");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    CLUSTER.create(&[pod("ends", "ends", "settings"), held, pod("ends-mark", "ends", "settings")]);
    let (ends, held, mark) =
        (api.uid("ends").await, api.uid("held").await, api.uid("ends-mark").await);
    CLUSTER.run(&["delete", "pod", "ends", "held", "--wait=false"]);
    // Succeeded, but its node has not reported that all containers have stopped.
    let mut status = running_status("10.2.6.1");
    status["phase"] = "Succeeded".into();
    edge.report_status("ends", &ends, &status).await;
    api.wait_for("pod", "ends", "succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(running.requests("delete pods", "done"), 0);
    edge.leave();
    edge.report_end("ends", &ends).await;
    edge.report_end("held", &held).await;
    api.gone("ends").await;
    let confirmed = |pod: &serde_json::Value| pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    api.wait_for("pod", "held", "confirmed", confirmed).await;
    edge.come_back();
    edge.report_status("ends-mark", &mark, &running_status("10.2.6.2")).await;
    api.running("ends-mark").await;
    // No deletion is repeated.
    running.requested("delete pods", "done", 2).await;
    CLUSTER.run(&[
        "patch",
        "pod",
        "held",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    api.gone("held").await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_made_again_under_its_name_is_not_deleted_by_the_end_of_the_first() {
    let Fixture { api, world: _world, running, edge } = Fixture::start("forced").await;
    let first = api.create_pod("forced", "forced").await;
    CLUSTER.run(&["delete", "pod", "forced", "--force", "--grace-period=0"]);
    let second = api.create_pod("forced", "forced").await;
    CLUSTER.run(&["delete", "pod", "forced", "--wait=false"]);
    edge.report_end("forced", &first).await;
    edge.report_status("forced", &second, &running_status("10.2.7.1")).await;
    api.running("forced").await;
    assert_eq!(running.requests("delete pods", "done"), 0);
    edge.report_end("forced", &second).await;
    api.gone("forced").await;
    CLUSTER.stop(running).await;
}
