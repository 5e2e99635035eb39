//! The rights of the manifests: a controller needs each of them, and no other.

use headwater_event::RequestVerb;
use headwater_kubernetes::{Access, ActAs, KubernetesCloud};
use serde_json::{Value, json};

use super::drivers::{driver, set_drivers};
use super::edge::{Edge, running_status, warning};
use super::mirrors::{set_static_pods, static_pod};
use super::{Api, SharedCluster, condition};
use crate::cloud::{csr, get, json_of, request, token};
use crate::deployment::needed;
use crate::world::{Kubectl as _, World, config, object, only_api};

const NODE: &str = "rights";

/// What the pod names, what attaches its volume, and what all nodes may read.
fn named() -> Vec<Value> {
    let storage = json!({"storage": "1Gi"});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "claim"});
    let volume = json!({"spec": {
        "capacity": storage, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"},
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": claim,
    }});
    let claim = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": storage},
        "storageClassName": "", "volumeName": "disk",
    }});
    let source = json!({"persistentVolumeName": "disk"});
    let attachment =
        json!({"spec": {"attacher": "csi.example.org", "nodeName": NODE, "source": source}});
    vec![
        object("v1", "ServiceAccount", "robot", json!({})),
        config("settings", "1"),
        object("v1", "Secret", "key", json!({})),
        object("v1", "Endpoints", "shared", json!({})),
        object("v1", "PersistentVolume", "disk", volume),
        object("v1", "PersistentVolumeClaim", "claim", claim),
        object("storage.k8s.io/v1", "VolumeAttachment", "attached", attachment),
        object("storage.k8s.io/v1", "CSIDriver", "csi.example.org", json!({"spec": {}})),
        object("node.k8s.io/v1", "RuntimeClass", "second", json!({"handler": "runc2"})),
    ]
}

/// A pod that names all of that.
fn naming_pod() -> Value {
    let sources = json!([{"serviceAccountToken": {"path": "token", "audience": "vault"}}]);
    let volumes = json!([
        {"name": "disk", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "driven", "csi": {"driver": "csi.example.org"}},
        {"name": "key", "secret": {"secretName": "key"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "token", "projected": {"sources": sources}},
    ]);
    let containers = json!([{"name": "main", "image": "example.invalid/main"}]);
    let spec = json!({
        "nodeName": NODE, "serviceAccountName": "robot", "runtimeClassName": "second",
        "containers": containers, "volumes": volumes,
    });
    object("v1", "Pod", "named", json!({ "spec": spec }))
}

/// A pod runs and goes, its node reports what it may, and asks for what it may.
async fn use_all_rights(act_as: ActAs) {
    let (cluster, world) = (SharedCluster::start_as(only_api(), act_as), World::new());
    let api = Api::of(&cluster.kubeconfig).await;
    cluster.create(&named());
    let running = world.start_with_sink_as(cluster.account(), act_as).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, NODE).await;
    api.node(NODE).await;
    cluster.create(&[naming_pod()]);
    let uid = api.uid("named").await;
    let mut node = edge.node_object();
    node["metadata"]["annotations"] = json!({"example.com/note": "n"});
    set_drivers(&mut node, &[driver("disk.example.com", "n-1")]);
    set_static_pods(&mut node, true, &[static_pod("web-rights", NODE, "h")]);
    edge.report_node(&node).await;
    api.wait_for("pod", "web-rights", "a mirror", |pod| !pod.is_null()).await;
    // Created, then patched.
    api.wait_for("csinode", NODE, "there", |node| !node.is_null()).await;
    set_drivers(&mut node, &[]);
    set_static_pods(&mut node, true, &[]);
    edge.report_node(&node).await;
    api.gone("web-rights").await;
    let is_empty = |node: &Value| !node.is_null() && node["spec"]["drivers"].is_null();
    api.wait_for("csinode", NODE, "without drivers", is_empty).await;
    edge.report_status("named", &uid, &running_status("10.6.0.1")).await;
    let pod = api.running("named").await;
    assert_eq!(condition(&pod, "Ready")["status"], "True");
    edge.report_event("named.1", &warning("named", &uid, 1)).await;
    api.wait_for("event", "named.1", "there", |event| event["count"] == 1).await;
    edge.report_event("named.1", &warning("named", &uid, 2)).await;
    api.wait_for("event", "named.1", "counted", |event| event["count"] == 2).await;

    let access = Access::Kubeconfig { file: cluster.account().to_owned(), context: None };
    let cloud = KubernetesCloud::new(access.connect().await.expect("a client"), act_as);
    let mut asks: Vec<_> = [
        "default/configmap/settings",
        "default/endpoints/shared",
        "default/secret/key",
        "default/persistentvolumeclaim/claim",
        "null/persistentvolume/disk",
        "null/volumeattachment/attached",
        "null/node/rights",
    ]
    .map(|key| get(NODE, key))
    .into();
    asks.push(token(NODE, "named", &uid, "vault"));
    if act_as == ActAs::Node {
        // Created, then found.
        let (name, body) = ("null/certificatesigningrequest/csr-rights", csr(NODE));
        let ask = || request(NODE, RequestVerb::Csr, name, body.clone());
        asks.extend([ask(), ask()]);
    }
    for ask in asks {
        let key = ask.key.clone();
        json_of(&cloud, ask).await.unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    cluster.run(&["delete", "pod", "named", "--wait=false"]);
    edge.report_end("named", &uid).await;
    api.gone("named").await;
    // The first renewal of a Lease creates it; the next one comes after ten seconds.
    running.requested_at_least("patch leases", "done", 2).await;
    cluster.stop_needing(running, &needed(act_as)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_a_node_a_controller_needs_each_right_of_its_roles_and_no_other() {
    use_all_rights(ActAs::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_itself_a_controller_needs_each_right_of_its_roles_and_no_other() {
    use_all_rights(ActAs::Controller).await;
}
