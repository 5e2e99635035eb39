//! The sink: what an edge reports is what the API shows. The edges of these tests are scripted: their
//! reports are appended to the log, and their presence is sent as a hub sends it. All of these tests have
//! one control plane, with scheduler and controllers, or the server in memory; each has nodes of its own.

mod deletion;
mod drivers;
mod edge;
mod events;
mod faults;
mod faulty_proxy;
mod foreign_statuses;
mod kills;
mod mirrors;
mod observer;
mod offline;
mod priority;
mod registration;
mod rights;
mod stale_picture;
mod statuses;
mod twin;
mod worker;
mod writer;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_kubernetes::{ActAs, Right};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use self::edge::Edge;
use crate::deployment::{check_audit, deployed};
use crate::world::{Kubectl, POLL, Running, World, pod};

/// How long a condition may take to hold.
const SOON: Duration = Duration::from_secs(60);

/// The control plane of these tests. It ends with their process.
static CLUSTER: LazyLock<SharedCluster> =
    LazyLock::new(|| SharedCluster::start(ControlPlaneSettings::default()));

/// A control plane that several tests use at once. The controllers act as nodes, under the roles and the
/// policy of the manifests.
struct SharedCluster {
    plane: Mutex<ControlPlane>,
    /// The kubeconfig of an administrator, and that of the controllers.
    kubeconfig: PathBuf,
    account: PathBuf,
}

impl SharedCluster {
    fn start(settings: ControlPlaneSettings) -> Self {
        Self::start_as(settings, ActAs::Node)
    }

    /// A control plane with the manifests of one of the two forms.
    fn start_as(settings: ControlPlaneSettings, act_as: ActAs) -> Self {
        let settings = ControlPlaneSettings { audit: true, ..settings };
        let plane = ControlPlane::start(settings).expect("a control plane");
        let account = deployed(&plane, act_as);
        Self { kubeconfig: plane.kubeconfig().to_owned(), account, plane: Mutex::new(plane) }
    }

    /// The kubeconfig of the controllers.
    fn account(&self) -> &Path {
        &self.account
    }

    /// kubectl as a controller.
    fn account_command(&self) -> Command {
        let mut command = self.command();
        command.arg("--kubeconfig").arg(&self.account);
        command
    }

    /// Stops a controller at the end of a test. No request of any controller was refused until then.
    async fn stop(&self, running: Running) {
        self.stop_needing(running, &[]).await;
    }

    /// Stops a controller, which has used each of these rights.
    async fn stop_needing(&self, running: Running, needed: &[Right]) {
        running.controller.stop().await;
        let plane = self.plane.lock().unwrap_or_else(PoisonError::into_inner);
        check_audit(&plane, needed);
    }
}

impl Kubectl for SharedCluster {
    fn command(&self) -> Command {
        self.plane.lock().unwrap_or_else(PoisonError::into_inner).kubectl()
    }
}

/// A client of the control plane, for the runtime of one test. kubectl costs a process for each look.
struct Api(kube::Client);

impl Api {
    async fn connect() -> Self {
        Self::of(&CLUSTER.kubeconfig).await
    }

    async fn of(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a context");
        Self(kube::Client::try_from(config).expect("a client"))
    }

    /// The object, or null.
    async fn get(&self, kind: &str, name: &str) -> Value {
        let path = match kind {
            "node" => format!("/api/v1/nodes/{name}"),
            "pod" => format!("/api/v1/namespaces/default/pods/{name}"),
            "event" => format!("/api/v1/namespaces/default/events/{name}"),
            "csinode" => format!("/apis/storage.k8s.io/v1/csinodes/{name}"),
            _ => format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"),
        };
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let text = self.0.request_text(request).await;
        text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON"))
    }

    /// The UID of a pod.
    async fn uid(&self, pod: &str) -> String {
        self.get("pod", pod).await["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    /// Creates a pod of a node, and returns its UID.
    async fn create_pod(&self, name: &str, on: &str) -> String {
        CLUSTER.create(&[pod(name, on, "settings")]);
        self.uid(name).await
    }

    /// Creates pods of a node at once, and returns their UIDs.
    async fn create_pods(&self, names: impl Iterator<Item = String>, on: &str) -> Vec<String> {
        let names: Vec<String> = names.collect();
        let pods: Vec<_> = names.iter().map(|name| pod(name, on, "settings")).collect();
        CLUSTER.create(&pods);
        let mut uids = Vec::new();
        for name in &names {
            uids.push(self.uid(name).await);
        }
        uids
    }

    /// Waits until the object is as a test wants it.
    async fn wait_for(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = Instant::now() + SOON;
        loop {
            let object = self.get(kind, name).await;
            if is_so(&object) {
                return object;
            }
            assert!(Instant::now() < end, "{kind} {name}: not {what}: {object:#}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until a Node is there.
    async fn node(&self, name: &str) -> Value {
        self.wait_for("node", name, "there", |node| !node.is_null()).await
    }

    /// Waits until a pod is running.
    async fn running(&self, name: &str) -> Value {
        self.wait_for("pod", name, "running", |pod| pod["status"]["phase"] == "Running").await
    }

    /// Waits until a pod is gone.
    async fn gone(&self, name: &str) {
        self.wait_for("pod", name, "gone", |pod| pod.is_null()).await;
    }
}

/// A test's world: a controller with a sink, and an edge whose Node is there.
struct Fixture {
    api: Api,
    world: World,
    running: Running,
    edge: Edge,
}

impl Fixture {
    async fn start(edge: &str) -> Self {
        let (api, world) = (Api::connect().await, World::new());
        let running = world.start_with_sink(CLUSTER.account()).await;
        running.reconciled().await;
        let edge = Edge::connect(&world, &running, edge).await;
        api.node(edge.name.as_str()).await;
        Self { api, world, running, edge }
    }
}

/// A condition of an object.
fn condition<'o>(object: &'o Value, kind: &str) -> &'o Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}
