//! The control plane of these tests, and kubectl.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, free_ports};
use headwater_e2e::running::{Running, root};
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
    let output = cluster.kubectl().args(args).output().expect("kubectl starts");
    assert!(output.status.success(), "kubectl {args:?}: {}", stderr_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Creates an object, and returns it as the server has it.
pub(crate) fn create(cluster: &ControlPlane, object: &Value) -> Value {
    let mut command = cluster.kubectl();
    command.args(["create", "-o", "json", "-f", "-"]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kubectl starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(object.to_string().as_bytes()).expect("written");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{object}: {}", stderr_of(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
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

/// The answer of `up` to a request for its health.
pub(crate) fn health(running: &Running, path: &str) -> Option<String> {
    let address = std::fs::read_to_string(running.data().join("metrics.addr")).ok()?;
    let mut stream = TcpStream::connect(address.trim()).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: up\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

pub(crate) fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
