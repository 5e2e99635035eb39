//! Pods to measure with.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_e2e::running::Running;
use serde_json::{Value, json};

/// What a node of Kubernetes has at most, unless it is told otherwise.
pub(crate) const PODS_PER_NODE: usize = 110;

/// A pod of about 1 KiB on a node; `turn` makes it another than before.
pub(crate) fn pod(node: usize, number: usize, turn: u64) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("web-{node}-{number}"),
            "namespace": "default",
            "annotations": { "turn": turn.to_string(), "note": "x".repeat(400) },
        },
        "spec": {
            "nodeName": format!("node-{node}"),
            "containers": [{
                "name": "web",
                "image": "registry.example/shop/web:1.27",
                "ports": [{ "containerPort": 8080 }],
                "env": [{ "name": "MODE", "value": "y".repeat(200) }],
                "resources": { "limits": { "memory": "64Mi", "cpu": "100m" } },
            }],
        },
    })
}

/// A folder of manifests: [`PODS_PER_NODE`] pods on each of `nodes` nodes.
pub(crate) fn manifests(folder: &Path, nodes: usize) -> PathBuf {
    let path = folder.join("manifests");
    fs::create_dir_all(&path).expect("a folder");
    for node in 1..=nodes {
        let pods: Vec<_> = (0..PODS_PER_NODE).map(|number| pod(node, number, 0)).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
        let text = serde_json::to_string_pretty(&list).expect("JSON");
        fs::write(path.join(format!("node-{node}.json")), text).expect("written");
    }
    path
}

/// `headwater up` with so many nodes of hollow pods, all of them running and in step.
pub(crate) fn hollow(folder: &Path, nodes: usize) -> Running {
    let manifests = manifests(folder, nodes);
    let (manifests, count) = (manifests.display().to_string(), nodes.to_string());
    let running = Running::start(&[&manifests, "--nodes", &count, "--runtime", "hollow"]);
    running.wait_for_pods(nodes * PODS_PER_NODE, |status| status == "Running");
    running.wait_until_in_step();
    running
}
