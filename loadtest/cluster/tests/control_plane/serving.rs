//! What a control plane does for its clients.

use headwater_cluster::{ControlPlane, Part};
use serde_json::Value;

use crate::kubectl::{Kubectl as _, WITHIN, config_map, control_plane, only_api, pod};

#[test]
fn a_control_plane_answers_in_the_version_that_it_was_built_from() {
    let mut cluster = control_plane();
    assert_eq!(cluster.run(&["get", "--raw", "/readyz"]), "ok");
    let versions = cluster.run(&["version", "-o", "json"]);
    let versions: Value = serde_json::from_str(&versions).expect("JSON");
    let wanted = cluster.program().version();
    for side in ["clientVersion", "serverVersion"] {
        assert_eq!(versions[side]["gitVersion"], wanted, "{versions}");
    }
    for part in Part::ALL {
        assert!(cluster.part(part).pid().is_some(), "{part:?}");
    }
}

#[test]
fn a_pod_is_scheduled_to_a_node_of_the_api() {
    let cluster = control_plane();
    cluster.create(&pod("early"));
    cluster.create_node("gw-1");
    cluster.wait_for("pod/early", ".spec.nodeName", "gw-1");
    // The label and the token are of the admission, which waits for the controllers.
    let account = "jsonpath={.spec.serviceAccountName}";
    assert_eq!(cluster.run(&["get", "pod", "early", "-o", account]), "default");
}

#[test]
fn a_deployment_makes_pods_and_its_deletion_removes_them() {
    let cluster = control_plane();
    let image = "--image=example.invalid/main";
    cluster.run(&["create", "deployment", "web", "--replicas=2", image]);
    cluster.wait_for("deployment/web", ".status.replicas", "2");
    let pods = cluster.run(&["get", "pods", "-l", "app=web", "-o", "name"]);
    assert_eq!(pods.lines().count(), 2, "{pods}");
    cluster.run(&["delete", "deployment", "web"]);
    let all = ["wait", "pods", "-l", "app=web", "--for=delete", WITHIN];
    cluster.run(&all);
}

#[test]
fn a_node_may_do_only_what_concerns_it() {
    let cluster = control_plane();
    let user = "system:node:gw-1";
    let file = cluster.kubeconfig_of(user, Some("system:nodes")).expect("a kubeconfig");
    let file = file.display().to_string();
    let as_node = ["--kubeconfig", file.as_str()];
    let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    assert_eq!(cluster.run(&[&as_node[..], &whoami].concat()), user);
    cluster.create_node("gw-1");
    cluster.run(&[&as_node[..], &["get", "node", "gw-1"]].concat());
    cluster.create(&config_map("settings"));
    // A pod that is bound to the node would give it the right.
    let refused = cluster.refused(&[&as_node[..], &["get", "configmap", "settings"]].concat());
    assert!(refused.contains("no relationship found between node"), "{refused}");
    let label = "node-role.kubernetes.io/edge=";
    let refused = cluster.refused(&[&as_node[..], &["label", "node", "gw-1", label]].concat());
    assert!(refused.contains("is not allowed to modify labels"), "{refused}");
}

#[test]
fn two_run_side_by_side_and_share_nothing() {
    let one = ControlPlane::start(only_api()).expect("a control plane");
    let other = ControlPlane::start(only_api()).expect("another one");
    assert_ne!(one.server(), other.server());
    one.create(&config_map("settings"));
    let refused = other.refused(&["get", "configmap", "settings"]);
    assert!(refused.contains("not found"), "{refused}");
    // The one trusts no certificate of the other.
    let foreign = other.kubeconfig().display().to_string();
    let asked = ["--kubeconfig", &foreign, "--server", one.server(), "get", "nodes"];
    let refused = one.refused(&asked);
    assert!(refused.contains("certificate signed by unknown authority"), "{refused}");
}
