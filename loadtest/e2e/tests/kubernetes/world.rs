//! The control plane of these tests, and kubectl.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, free_ports};
use headwater_daemon::output_within;
use headwater_e2e::running::{WAIT, root};
use serde_json::{Value, json};

/// The controller of the manifests, and its user.
const NAMESPACE: &str = "headwater-system";
const ACCOUNT: &str = "headwater-controller";
pub(crate) const USER: &str = "system:serviceaccount:headwater-system:headwater-controller";

/// A control plane with an audit log, and the manifests of a deployment that acts as nodes. Returns also
/// the kubeconfig of the controller's service account.
pub(crate) fn deployed(settings: ControlPlaneSettings) -> (ControlPlane, PathBuf) {
    deployed_as("act-as-node", settings)
}

/// The same with one of the two forms of the manifests.
pub(crate) fn deployed_as(form: &str, settings: ControlPlaneSettings) -> (ControlPlane, PathBuf) {
    let settings = ControlPlaneSettings { audit: true, ..settings };
    let cluster = ControlPlane::start(settings).expect("a control plane");
    let manifests = root().join("ops/deploy/kubernetes").join(form);
    kubectl(&cluster, &["apply", "-k", &manifests.display().to_string()]);
    let kubeconfig = cluster.kubeconfig_of_account(NAMESPACE, ACCOUNT).expect("a token");
    (cluster, kubeconfig)
}

/// Runs kubectl and returns what it prints.
pub(crate) fn kubectl(cluster: &ControlPlane, args: &[&str]) -> String {
    let output = kubectl_output(cluster, args);
    assert!(output.status.success(), "kubectl {args:?}: {}", stderr_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs kubectl, which may fail.
pub(crate) fn kubectl_output(cluster: &ControlPlane, args: &[&str]) -> Output {
    output(cluster.kubectl().args(args))
}

/// Runs a command to its end, with the time limit of every condition.
pub(crate) fn output(command: &mut Command) -> Output {
    output_within(command, WAIT).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Creates an object, and returns it as the server has it.
pub(crate) fn create(cluster: &ControlPlane, object: &Value) -> Value {
    let mut command = cluster.kubectl();
    let created = output(command.args(["create", "-o", "json", "-f", "-"]).stdin(input(object)));
    assert!(created.status.success(), "{object}: {}", stderr_of(&created));
    serde_json::from_slice(&created.stdout).expect("JSON")
}

/// An object as the input of a command.
pub(crate) fn input(object: &Value) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(object.to_string().as_bytes()).expect("written");
    file.rewind().expect("its beginning");
    file
}

/// An edge.
pub(crate) fn node(name: &str) -> Value {
    let labels = json!({"node-role.kubernetes.io/edge": ""});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// A pod as its author writes it: the API server adds the token of its account to it.
pub(crate) fn pod_with_token(name: &str, on: &str) -> Value {
    let mut pod = pod(name, on);
    pod["spec"].as_object_mut().expect("a spec").remove("automountServiceAccountToken");
    pod
}

/// A pod that is bound to an edge, and needs no token.
pub(crate) fn pod(name: &str, on: &str) -> Value {
    let command = json!(["sh", "-c", "echo \"word $WORD\"; while :; do sleep 0.2; done"]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": on,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "example.invalid/main", "command": command,
                "envFrom": [{"configMapRef": {"name": "words"}}],
            }],
        },
    })
}

/// The settings of the kubelet's server of a hub, by which an API server reaches the containers of its nodes.
pub(crate) fn kubelet_table(certificates: &Path, port: u16) -> String {
    let file = |name: &str| certificates.join(name).display().to_string();
    format!(
        "[kubelet]\nlisten = \"127.0.0.1:{port}\"\nclient_ca = {:?}\ntls_cert = {:?}\ntls_key = {:?}\n",
        file("ca.crt"),
        file("server.crt"),
        file("server.key"),
    )
}

/// A port of loopback.
pub(crate) fn free_port() -> u16 {
    let [port] = free_ports().expect("a port");
    port
}

/// Ends the controllers of the manifests: the program of a test is the controller.
pub(crate) fn without_controllers(cluster: &ControlPlane) {
    kubectl(cluster, &["scale", "statefulset", "--all", "--replicas=0", "-n", NAMESPACE]);
}

/// The ConfigMap that pods name.
pub(crate) fn words() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
        "data": {"WORD": "first"},
    })
}

pub(crate) fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
