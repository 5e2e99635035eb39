//! Statuses of pods: whose they are, what others own of them, times.

use serde_json::json;

use super::edge::{Edge, running_status};
use super::{CLUSTER, Fixture, condition};
use crate::world::Kubectl as _;

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_others_stay_and_times_are_in_whole_seconds() {
    let Fixture { api, world: _world, running, edge } = Fixture::start("owned").await;
    let uid = api.create_pod("owned", "owned").await;
    let gate = json!({"status": {"conditions": [
        {"type": "example.com/gate", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}});
    let patch = ["patch", "pod", "owned", "--subresource=status", "-p", &gate.to_string()];
    CLUSTER.run(&patch);
    let mut status = running_status("10.2.1.1");
    let noted = json!({"type": "headwater/ProbeFailing", "status": "True", "reason": "r",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    status["conditions"].as_array_mut().expect("a list").push(noted);
    edge.report_status("owned", &uid, &status).await;
    let shown = api.running("owned").await;
    assert_eq!(condition(&shown, "example.com/gate")["status"], "True");
    assert_eq!(condition(&shown, "headwater/ProbeFailing")["status"], "True");
    assert_eq!(shown["status"]["startTime"], "2026-01-01T00:00:01Z");
    assert_eq!(condition(&shown, "Ready")["lastTransitionTime"], "2026-01-01T00:00:01Z");
    // A condition of Headwater's own goes when it is not reported any more.
    edge.report_status("owned", &uid, &running_status("10.2.1.1")).await;
    let shown = api
        .wait_for("pod", "owned", "without it", |pod| {
            condition(pod, "headwater/ProbeFailing").is_null()
        })
        .await;
    assert_eq!(condition(&shown, "example.com/gate")["status"], "True");
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_shown_is_not_written_again_also_by_another_controller() {
    let Fixture { api, world, running, edge } = Fixture::start("once").await;
    let uid = api.create_pod("once", "once").await;
    edge.report_status("once", &uid, &running_status("10.2.2.1")).await;
    api.running("once").await;
    running.requested("patch pods/status", "done", 1).await;
    drop(edge);
    running.controller.stop().await;
    let running = world.start_with_sink(CLUSTER.account()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "once").await;
    let mark = api.create_pod("mark", "once").await;
    edge.report_status("mark", &mark, &running_status("10.2.2.2")).await;
    api.running("mark").await;
    // Only that of the new pod.
    running.requested("patch pods/status", "done", 1).await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_of_another_uid_or_of_another_nodes_pod_is_not_written() {
    let Fixture { api, world, running, edge } = Fixture::start("hostile").await;
    let other = Edge::connect(&world, &running, "victim").await;
    api.node("victim").await;
    let first = api.create_pod("again", "hostile").await;
    CLUSTER.run(&["delete", "pod", "again", "--force", "--grace-period=0"]);
    let second = api.create_pod("again", "hostile").await;
    assert_ne!(first, second);
    let of_victim = api.create_pod("of-victim", "victim").await;
    edge.report_status("again", &first, &running_status("10.2.3.1")).await;
    edge.report_status("of-victim", &of_victim, &running_status("10.2.3.2")).await;
    edge.report_end("of-victim", &of_victim).await;
    let mark = api.create_pod("hostile-mark", "hostile").await;
    edge.report_status("hostile-mark", &mark, &running_status("10.2.3.3")).await;
    api.running("hostile-mark").await;
    for name in ["again", "of-victim"] {
        assert_eq!(api.get("pod", name).await["status"]["phase"], "Pending", "{name}");
    }
    let named =
        "Node hostile reports the status of Pod default/of-victim, which is bound to node victim";
    running.sink_trouble(named).await;
    edge.report_status("again", &second, &running_status("10.2.3.4")).await;
    other.report_status("of-victim", &of_victim, &running_status("10.2.3.5")).await;
    for name in ["again", "of-victim"] {
        api.running(name).await;
    }
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_too_large_or_has_wrong_types_is_refused_by_name_and_delays_no_other() {
    let Fixture { api, world: _world, running, edge } = Fixture::start("refused").await;
    let large = api.create_pod("large", "refused").await;
    let wrong = api.create_pod("wrong", "refused").await;
    let good = api.create_pod("good", "refused").await;
    let mut status = running_status("10.2.4.1");
    status["message"] = "x".repeat(1_500_000).into();
    edge.report_status("large", &large, &status).await;
    let mut status = running_status("10.2.4.2");
    status["containerStatuses"] = json!({"not": "a list"});
    edge.report_status("wrong", &wrong, &status).await;
    let mut status = running_status("10.2.4.3");
    status["notAField"] = json!({"a": 1});
    status["containerStatuses"][0]["notAField"] = 7.into();
    edge.report_status("good", &good, &status).await;
    api.running("good").await;
    running.sink_trouble("the status of Pod default/large is not written").await;
    running.sink_trouble("the status of Pod default/wrong is not written").await;
    running.requested("patch pods/status", "refused", 1).await;
    for (name, uid) in [("large", large), ("wrong", wrong)] {
        edge.report_status(name, &uid, &running_status("10.2.4.4")).await;
        api.running(name).await;
    }
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_overwrite_is_put_right_while_the_node_is_present_alone() {
    let Fixture { api, world, running, edge } = Fixture::start("right").await;
    let uid = api.create_pod("right", "right").await;
    edge.report_status("right", &uid, &running_status("10.2.5.1")).await;
    api.running("right").await;
    let overwrite = |message: &str| {
        let status = json!({"status": {"phase": "Pending", "message": message}}).to_string();
        CLUSTER.run(&["patch", "pod", "right", "--subresource=status", "-p", &status]);
    };
    overwrite("by another");
    api.wait_for("pod", "right", "put right", |pod| pod["status"]["phase"] == "Running").await;
    edge.leave();
    overwrite("while it is away");
    let written = running.requests("patch pods/status", "done");
    // The pod of another edge comes later on the same watch and is written: the sink has looked.
    let other = Edge::connect(&world, &running, "right-other").await;
    api.node("right-other").await;
    let mark = api.create_pod("right-mark", "right-other").await;
    other.report_status("right-mark", &mark, &running_status("10.2.5.2")).await;
    api.running("right-mark").await;
    assert_eq!(api.get("pod", "right").await["status"]["message"], "while it is away");
    running.requested("patch pods/status", "done", written + 1).await;
    edge.come_back();
    let shown =
        api.wait_for("pod", "right", "put right", |pod| pod["status"]["phase"] == "Running").await;
    assert!(shown["status"]["message"].is_null());
    CLUSTER.stop(running).await;
}
