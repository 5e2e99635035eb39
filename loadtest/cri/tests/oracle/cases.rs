//! The pods that a kubelet and the pod worker are given.

use serde::Deserialize;
use serde_json::{Value, json};

/// The variations. The first one is the plain pod.
const PODS: &str = include_str!("pods.yaml");

/// The namespace of the pods, and of what they name.
pub(crate) const NAMESPACE: &str = "oracle";

/// The node of the pods.
pub(crate) const NODE: &str = "gw-1";

/// The image of most pods, and its other names.
pub(crate) const IMAGES: [&str; 4] = [
    "registry.example.com/library/busybox:1.36",
    "registry.example.com/library/busybox:latest",
    "registry.example.com/library/busybox",
    "registry.example.com/library/busybox@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Init containers with such a name end at once; every other container runs for ever.
pub(crate) const INIT: [&str; 3] = ["init-1", "init-2", "init-3"];

/// A variation of the plain pod.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    #[serde(default)]
    container: Value,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    metadata: Value,
}

/// Every pod, as its author writes it.
pub(crate) fn pods() -> Vec<Value> {
    let cases: Vec<Case> = serde_saphyr::from_str(PODS).expect("cases");
    cases.into_iter().map(pod).collect()
}

fn pod(case: Case) -> Value {
    let Case { case: name, container, spec, metadata } = case;
    let script = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": NODE, "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": IMAGES[0], "command": ["/bin/sh", "-c", script],
            }],
        },
    });
    merge(&mut pod["spec"]["containers"][0], &container);
    merge(&mut pod["spec"], &spec);
    merge(&mut pod["metadata"], &metadata);
    pod
}

/// What the pods name.
pub(crate) fn objects() -> Vec<Value> {
    let object = |version: &str, kind: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        merge(&mut object, &rest);
        object
    };
    let storage = json!({"storage": "1Gi"});
    let claim = json!({"namespace": NAMESPACE, "name": "data"});
    let settings = json!({"COLOR": "blue", "SIZE": "7", "conf.yaml": "a: b\n", "bad-key.1": "x"});
    vec![
        object("v1", "ConfigMap", "settings", json!({ "data": settings })),
        object("v1", "ConfigMap", "more", json!({"data": {"COLOR": "red", "EXTRA": "e"}})),
        object("v1", "Secret", "keys", json!({"data": {"TOKEN": "dDBrZW4=", "USER": "YWRtaW4="}})),
        object("v1", "ServiceAccount", "robot", json!({})),
        object(
            "v1",
            "PersistentVolume",
            "oracle-disk",
            json!({"spec": {
                "hostPath": {"path": "/tmp"}, "claimRef": claim, "capacity": storage,
                "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            }}),
        ),
        object(
            "v1",
            "PersistentVolumeClaim",
            "data",
            json!({"spec": {
                "volumeName": "oracle-disk", "storageClassName": "",
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": storage},
            }}),
        ),
        object("node.k8s.io/v1", "RuntimeClass", "second", json!({"handler": "runc"})),
    ]
}

/// A merge patch (RFC 7386).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().and_then(|object| object.remove(key))),
            Value::Object(_) if target[key].is_object() => merge(&mut target[key], value),
            _ => target[key] = value.clone(),
        }
    }
}
