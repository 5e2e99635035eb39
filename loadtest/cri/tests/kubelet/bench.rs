//! One containerd, a pod worker on it, and the server beside it.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use headwater_cri::CriSettings;
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings};
use headwater_edged::{Edged, EdgedConfig, NOTICES_MAX, PressureSettings, RuntimeKind, Settings};
use headwater_kubelet::client::{NodeClient, SOCKET};
use headwater_kubelet::{Door, Kubelet, KubeletLimits, listen_local};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fake_edge::{FakeEdge, latest_status};

/// The time limit of what takes containerd several calls.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The interval between two looks.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Runs until it is asked to end.
pub(crate) const FOREVER: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

/// What a test uses.
pub(crate) struct Bench {
    pub(crate) edge: FakeEdge,
    pub(crate) client: NodeClient,
    socket: PathBuf,
    _dir: TempDir,
}

impl Bench {
    /// The path of the server's local socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs pods, and returns once they run.
    pub(crate) async fn run(&self, pods: &[Value]) {
        for pod in pods {
            self.edge.apply(pod);
        }
        for pod in pods {
            let name = pod["metadata"]["name"].as_str().expect("a name");
            let latest = || latest_status(&self.edge.operations(), name);
            let runs = |status: &Value| {
                let containers = status["containerStatuses"].as_array();
                containers
                    .is_some_and(|all| all.iter().all(|one| one["state"]["running"].is_object()))
            };
            until(name, || latest().filter(runs)).await;
        }
    }
}

/// Runs a test in the network of a containerd, on threads of its own: runtimes offer streams on
/// loopback alone. `doors` listen in the network of the machine. Returns without a containerd.
pub(crate) fn with_bench<F>(
    doors: impl FnOnce() -> Vec<Door> + Send,
    test: impl FnOnce(Bench) -> F + Send,
) where
    F: Future<Output = ()>,
{
    if !Containerd::is_possible() {
        return;
    }
    thread::scope(|scope| {
        let in_network = scope.spawn(|| {
            let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
            containerd.machine().enter_network().expect("the network is there");
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async { in_network(containerd.socket(), doors(), test).await });
        });
        if let Err(panic) = in_network.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

async fn in_network<F>(runtime_socket: &Path, doors: Vec<Door>, test: impl FnOnce(Bench) -> F)
where
    F: Future<Output = ()>,
{
    let dir = tempfile::tempdir().expect("a folder");
    let edge_socket = dir.path().join("edge.sock");
    let edge = FakeEdge::start(&edge_socket, &[], true);
    let node = "gw-1".parse().expect("a node name");
    // The runtime is given; its kind only decides how many pods there is room for.
    let mut config =
        EdgedConfig::new(node, edge_socket, dir.path().join("edged"), RuntimeKind::Hollow);
    config.settings = Settings {
        backoff_base: Duration::from_millis(40),
        backoff_cap: Duration::from_millis(200),
        // The disk of the machine is not the test's.
        pressure: PressureSettings { evicts: false, ..PressureSettings::default() },
        ..Settings::default()
    };
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let cri = CriSettings::new(runtime_socket.to_owned());
    let runtime = headwater_cri::open(&cri, &config.node, &config.dir, &config.settings, notices);
    let runtime = runtime.await.expect("the runtime opens");
    let edged = Edged::spawn_with(config, runtime, noticed).await.expect("the pod worker starts");
    let socket = dir.path().join(SOCKET);
    let local = Door::Local(listen_local(&socket).expect("a socket"));
    let (kubelet, stop) =
        (Kubelet::new(edged.pods(), KubeletLimits::default()), CancellationToken::new());
    let serve = |door| tokio::spawn(kubelet.clone().serve(door, stop.clone()));
    let serving: Vec<_> = std::iter::once(local).chain(doors).map(serve).collect();
    test(Bench { edge, client: NodeClient::new("gw-1", &socket), socket, _dir: dir }).await;
    stop.cancel();
    for one in serving {
        one.await.expect("it serves to its end");
    }
    edged.stop_pods(Duration::ZERO).await;
}

/// A pod whose one container runs the script.
pub(crate) fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": uid(name)},
        "spec": {
            "nodeName": "gw-1",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": BUSYBOX_IMAGE, "command": ["/bin/sh", "-c", script],
            }],
        },
    })
}

/// A UID of this process: pods of all labs share the machine's control groups.
pub(crate) fn uid(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// What `found` finds before the deadline.
pub(crate) async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        tokio::time::sleep(POLL).await;
    }
}
