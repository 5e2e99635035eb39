//! The sink: what an edge reports is what the API shows. The edges of these tests are scripted: their
//! reports are appended to the log, and their presence is sent as a hub sends it. All of these tests have
//! one control plane, with scheduler and controllers; each has nodes of its own.

mod deletion;
mod edge;
mod registration;
mod statuses;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use serde_json::Value;

use crate::world::{Kubectl, POLL};

/// How long a condition may take to hold.
const SOON: Duration = Duration::from_secs(30);

/// The control plane of these tests. It ends with their process.
static CLUSTER: LazyLock<SharedCluster> = LazyLock::new(|| {
    let plane = ControlPlane::start(ControlPlaneSettings::default()).expect("a control plane");
    SharedCluster { kubeconfig: plane.kubeconfig().to_owned(), plane: Mutex::new(plane) }
});

/// A control plane that several tests use at once.
struct SharedCluster {
    plane: Mutex<ControlPlane>,
    kubeconfig: PathBuf,
}

impl SharedCluster {
    fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Kubectl for SharedCluster {
    fn command(&self) -> Command {
        self.plane.lock().unwrap_or_else(PoisonError::into_inner).kubectl()
    }
}

/// The object, or null.
fn get(kind: &str, name: &str) -> Value {
    let namespace = if kind == "leases" { "kube-node-lease" } else { "default" };
    let args = ["get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "json"];
    serde_json::from_str(&CLUSTER.run(&args)).unwrap_or_default()
}

/// Waits until the object is as a test wants it.
async fn wait_for(kind: &str, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + SOON;
    loop {
        let object = get(kind, name);
        if is_so(&object) {
            return object;
        }
        assert!(Instant::now() < end, "{kind} {name}: not {what}: {object:#}");
        tokio::time::sleep(POLL * 5).await;
    }
}

/// A condition of an object.
fn condition<'o>(object: &'o Value, kind: &str) -> &'o Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}
