//! The sink: what an edge reports is what the API shows. The edges of these tests are scripted: their
//! reports are appended to the log, and their presence is sent as a hub sends it. All of these tests have
//! one control plane, with scheduler and controllers; each has nodes of its own.

mod deletion;
mod edge;
mod faults;
mod faulty_proxy;
mod offline;
mod registration;
mod statuses;
mod writer;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use self::edge::Edge;
use crate::world::{Kubectl, POLL, Running, World, pod};

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

/// A client of the control plane, for the runtime of one test. kubectl costs a process for each look.
struct Api(kube::Client);

impl Api {
    async fn connect() -> Self {
        Self::of(CLUSTER.kubeconfig()).await
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
        let running = world.start_with_sink(CLUSTER.kubeconfig()).await;
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
