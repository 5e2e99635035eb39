//! The static pods of a node: a mirror of each.

use serde_json::{Value, json};

use super::edge::{Edge, running_status};
use super::{CLUSTER, Fixture};
use crate::world::Kubectl as _;

/// A static pod as a node states it.
pub(super) fn static_pod(name: &str, node: &str, hash: &str) -> Value {
    let annotations = json!({
        "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file",
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "example.invalid/main"}],
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
        },
    })
}

/// Makes the Node state these static pods.
pub(super) fn set_static_pods(node: &mut Value, is_complete: bool, pods: &[Value]) {
    let stated = json!({"complete": is_complete, "pods": pods}).to_string();
    node["metadata"]["annotations"]["headwater/static-pods"] = stated.into();
}

async fn report(edge: &Edge, is_complete: bool, pods: &[Value]) {
    let mut node = edge.node_object();
    set_static_pods(&mut node, is_complete, pods);
    edge.report_node(&node).await;
}

fn hash(pod: &Value) -> &Value {
    &pod["metadata"]["annotations"]["kubernetes.io/config.mirror"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_pod_has_a_mirror_which_goes_with_its_file_and_no_other_way() {
    const NODE: &str = "mirrors";
    const POD: &str = "web-mirrors";
    let Fixture { api, world: _world, running, edge } = Fixture::start(NODE).await;
    let of_file = |hash: &str| static_pod(POD, NODE, hash);
    let mirrors = |of: &'static str| move |pod: &Value| hash(pod) == of;
    report(&edge, true, &[of_file("h1")]).await;
    let mirror = api.wait_for("pod", POD, "a mirror", mirrors("h1")).await;
    let node = api.node(NODE).await;
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    assert!(node["metadata"]["annotations"]["headwater/static-pods"].is_null());
    assert_eq!(mirror["spec"]["tolerations"].as_array().map(Vec::len), Some(1), "{mirror}");
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
    edge.report_status(POD, &uid(&mirror), &running_status("10.9.0.1")).await;
    api.running(POD).await;

    // A person deletes it: it comes back.
    CLUSTER.run(&["delete", "pod", POD, "--wait=false"]);
    let is_new = |of: String| move |pod: &Value| hash(pod) == "h1" && pod["metadata"]["uid"] != of;
    let mirror = api.wait_for("pod", POD, "made again", is_new(uid(&mirror))).await;
    // Another file is another pod.
    report(&edge, true, &[of_file("h2")]).await;
    api.wait_for("pod", POD, "of the other file", mirrors("h2")).await;
    assert_ne!(uid(&api.get("pod", POD).await), uid(&mirror));
    // A statement that is not complete takes none; the next one does.
    report(&edge, false, &[static_pod("db-mirrors", NODE, "h")]).await;
    api.wait_for("pod", "db-mirrors", "a mirror", mirrors("h")).await;
    assert_eq!(hash(&api.get("pod", POD).await), "h2");
    report(&edge, true, &[]).await;
    api.gone(POD).await;
    api.gone("db-mirrors").await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_mirror_is_named_and_harms_nothing() {
    const NODE: &str = "no-mirrors";
    let Fixture { api, world: _world, running, edge } = Fixture::start(NODE).await;
    // A pod of a person has the name of one, another names no image, and a third has no namespace.
    let taken = api.create_pod("taken-no-mirrors", NODE).await;
    let mut wrong = static_pod("wrong-no-mirrors", NODE, "h");
    wrong["spec"]["containers"][0]["image"] = "".into();
    let mut nowhere = static_pod("nowhere-no-mirrors", NODE, "h");
    nowhere["metadata"]["namespace"] = "nowhere".into();
    let good = static_pod("good-no-mirrors", NODE, "h");
    let of_another = static_pod("other-no-mirrors", "other", "h");
    let taken_too = static_pod("taken-no-mirrors", NODE, "h");
    report(&edge, true, &[taken_too, wrong, nowhere, of_another, good]).await;
    api.wait_for("pod", "good-no-mirrors", "a mirror", |pod| hash(pod) == "h").await;
    running.sink_trouble("default/taken-no-mirrors is not written").await;
    running.sink_trouble("default/wrong-no-mirrors is not written").await;
    running.sink_trouble("nowhere/nowhere-no-mirrors is not written").await;
    assert_eq!(api.uid("taken-no-mirrors").await, taken);
    assert!(api.get("pod", "other-no-mirrors").await.is_null());
    // The pod of the person goes: the mirror comes.
    CLUSTER.run(&["delete", "pod", "taken-no-mirrors", "--force", "--grace-period=0"]);
    api.wait_for("pod", "taken-no-mirrors", "a mirror", |pod| hash(pod) == "h").await;
    CLUSTER.stop(running).await;
}
