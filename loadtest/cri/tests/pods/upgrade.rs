//! A runtime that comes back, as the same or as another one.

use std::time::Duration;

use headwater_cri::client::CriClient;
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, Restart};
use headwater_edged::Settings;
use serde_json::{Value, json};

use crate::bench::{Bench, OFTEN, is_running, on_a_twin_with, sandboxes, start_twin, until};
use crate::classes::{class, pod, waiting};

/// The pod worker reads the facts of its node so often that a test does not wait for them.
const NODE_CHECK: Duration = Duration::from_millis(50);

/// The status of the latest Node.
fn node_status(bench: &Bench) -> Option<Value> {
    let operations = bench.edge.operations();
    let node = operations.iter().rev().find(|it| it.resource == "null/node/gw-1")?;
    let mut node: Value = serde_json::from_slice(&node.content).expect("JSON");
    Some(node["status"].take())
}

/// Waits until the latest Node has the condition `Ready` with this status and reason, and returns its message.
async fn ready(bench: &Bench, status: &str, reason: &str) -> String {
    let stated = || async {
        let node = node_status(bench)?;
        let ready = node["conditions"].as_array()?.iter().find(|it| it["type"] == "Ready")?;
        let is_same = ready["status"] == status && ready["reason"] == reason;
        is_same.then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    };
    let found = until(stated).await;
    found.unwrap_or_else(|| panic!("the node is not {status}, {reason}: {:?}", node_status(bench)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_not_ready_while_its_runtime_is_away_or_has_no_network() {
    if !Containerd::is_possible() {
        return;
    }
    let often = |settings: &mut Settings| settings.node_check = NODE_CHECK;
    let (_scratch, mut twin, bench, edged) = on_a_twin_with(often).await;
    ready(&bench, "True", "EdgedReady").await;
    twin.stop().await;
    let why = ready(&bench, "False", "RuntimeNotReady").await;
    assert!(why.contains(twin.socket().to_str().expect("a path")), "{why}");
    // It comes back before its network.
    twin.set_network(false);
    twin.restart(Restart::Kept).await.expect("it serves again");
    let has_no_network = || async {
        let why = ready(&bench, "False", "RuntimeNotReady").await;
        why.starts_with("NetworkReady is false").then_some(())
    };
    assert!(until(has_no_network).await.is_some(), "the node does not name its network");
    twin.set_network(true);
    ready(&bench, "True", "EdgedReady").await;
    edged.stop().await;
}

/// Waits until the latest Node has this version of the runtime, and returns the handlers that it states.
async fn handlers(bench: &Bench, version: &str) -> Value {
    let stated = || async {
        let status = node_status(bench)?;
        let is_same = status["nodeInfo"]["containerRuntimeVersion"] == version;
        is_same.then(|| status["runtimeHandlers"].clone())
    };
    until(stated).await.unwrap_or_else(|| panic!("the node does not state {version}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_states_the_version_and_the_handlers_of_a_runtime_that_was_upgraded() {
    if !Containerd::is_possible() {
        return;
    }
    let often = |settings: &mut Settings| settings.node_check = NODE_CHECK;
    let (_scratch, mut twin, bench, edged) = on_a_twin_with(often).await;
    assert_eq!(handlers(&bench, "containerd://1.6.20-twin").await, Value::Null);
    twin.stop().await;
    twin.upgrade("2.4.2-twin", &["", "runc"]);
    twin.restart(Restart::Kept).await.expect("it serves again");
    let features = json!({"recursiveReadOnlyMounts": false, "userNamespaces": true});
    let stated = ["", "runc"].map(|name| json!({"name": name, "features": features}));
    assert_eq!(handlers(&bench, "containerd://2.4.2-twin").await, json!(stated));
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_another_runtime_are_followed_once_it_says_what_it_is() {
    if !Containerd::is_possible() {
        return;
    }
    let often = |settings: &mut Settings| settings.node_check = NODE_CHECK;
    let (_scratch, mut twin, bench, edged) = on_a_twin_with(often).await;
    handlers(&bench, "containerd://1.6.20-twin").await;
    assert_eq!(twin.calls("GetContainerEvents"), 0, "containerd has events of its own");
    twin.stop().await;
    twin.rename("cri-o");
    twin.set_cri_events(true);
    twin.restart(Restart::Kept).await.expect("it serves again");
    handlers(&bench, "cri-o://1.6.20-twin").await;
    let follows = || async { (twin.calls("GetContainerEvents") > 0).then_some(()) };
    until(follows).await.expect("its events are followed");
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_for_a_handler_starts_once_the_upgraded_runtime_has_it() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, mut twin) = start_twin();
    twin.add_image(BUSYBOX_IMAGE);
    twin.upgrade("2.4.1-twin", &["", "runc"]);
    let mut bench = Bench::new(twin.socket());
    bench.settings.resync = OFTEN;
    let edged = bench.edged().await;
    bench.edge.apply(&class("own", "second"));
    let own = pod(&bench, "own", "own");
    bench.edge.apply(&own);
    let has_none = |status: &Value| waiting(status).1.contains("has no handler \"second\"");
    bench.status("own", "a pod without a handler", has_none).await;
    twin.stop().await;
    twin.upgrade("2.4.2-twin", &["", "runc", "second"]);
    twin.restart(Restart::Kept).await.expect("it serves again");
    bench.status("own", "a running pod", is_running).await;
    let client = CriClient::new(twin.socket());
    let sandboxes = sandboxes(&client).await.into_iter();
    assert_eq!(sandboxes.map(|it| it.runtime_handler).collect::<Vec<_>>(), ["second"]);
    bench.delete(&own).await;
    edged.stop().await;
}
