//! kubectl as a client of tests.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use serde_json::{Value, json};

/// The time limit of a condition, for `kubectl wait`. After an outage the parts ask the API server again at
/// intervals of up to a minute.
pub(crate) const WITHIN: &str = "--timeout=120s";

/// A control plane with every part.
pub(crate) fn control_plane() -> ControlPlane {
    ControlPlane::start(ControlPlaneSettings::default()).expect("a control plane")
}

/// The settings of a control plane that only stores objects, which starts sooner.
pub(crate) fn only_api() -> ControlPlaneSettings {
    ControlPlaneSettings { parts: Vec::new(), ..ControlPlaneSettings::default() }
}

/// Clients of a control plane.
pub(crate) trait Kubectl {
    /// Runs kubectl and returns what it prints.
    ///
    /// # Panics
    /// It fails.
    fn run(&self, args: &[&str]) -> String;

    /// Runs kubectl, which fails, and returns its complaint.
    ///
    /// # Panics
    /// It succeeds.
    fn refused(&self, args: &[&str]) -> String;

    /// Creates an object, and returns its UID.
    fn create(&self, object: &Value) -> String;

    /// Waits until a field of an object has a value.
    fn wait_for(&self, object: &str, field: &str, value: &str) {
        self.run(&["wait", object, &format!("--for=jsonpath={{{field}}}={value}"), WITHIN]);
    }

    /// The UID of an object.
    fn uid(&self, object: &str) -> String {
        self.run(&["get", object, "-o", "jsonpath={.metadata.uid}"])
    }

    /// Creates a Node that is ready, as a kubelet would.
    fn create_node(&self, name: &str) {
        self.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let room = json!({"cpu": "4", "memory": "4Gi", "pods": "10"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
        let status = json!({"capacity": room, "allocatable": room, "conditions": [ready]});
        let patch = json!({"status": status}).to_string();
        self.run(&["patch", "node", name, "--subresource=status", "--type=merge", "-p", &patch]);
    }
}

impl Kubectl for ControlPlane {
    fn run(&self, args: &[&str]) -> String {
        let output = self.kubectl().args(args).output().expect("kubectl starts");
        printed(args, output)
    }

    fn refused(&self, args: &[&str]) -> String {
        let output = self.kubectl().args(args).output().expect("kubectl starts");
        assert!(!output.status.success(), "kubectl {args:?} succeeds");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn create(&self, object: &Value) -> String {
        let args = ["create", "-f", "-", "-o", "jsonpath={.metadata.uid}"];
        printed(&args, fed(self.kubectl().args(args), &object.to_string()))
    }
}

/// A pod that a node with room can have.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "example.invalid/main"}]},
    })
}

/// A ConfigMap.
pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

/// Runs a command to its end with `input`.
fn fed(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kubectl starts");
    // It is closed when it is dropped.
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    child.wait_with_output().expect("it ends")
}

fn printed(args: &[&str], output: Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {args:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
