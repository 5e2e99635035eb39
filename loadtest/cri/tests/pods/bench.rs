//! The edge and the pod worker of one test, and its pods.

use std::fs;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_cri::CriSettings;
use headwater_cri::client::CriClient;
use headwater_cri::proto::{ListPodSandboxRequest, PodSandbox, StopPodSandboxRequest};
use headwater_cri::spec::Forbidden;
use headwater_cri_lab::{BUSYBOX_IMAGE, FaultRates, Twin};
use headwater_devices::DevicePlugins;
use headwater_edged::runtime::LogQuery;
use headwater_edged::{
    Edged, EdgedConfig, Handle, ImageCollection, NOTICES_MAX, PressureSettings, RuntimeKind,
    Settings,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::fake_edge::FakeEdge;

/// The time limit of what takes containerd several calls.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The pod worker lists, or looks at its pods, so often that a test waits for several times.
pub(crate) const OFTEN: Duration = Duration::from_millis(200);

/// The interval between two looks.
const POLL: Duration = Duration::from_millis(20);

/// Everything one test needs beside the runtime.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) edge: FakeEdge,
    pub(crate) settings: Settings,
    /// The name of the node.
    pub(crate) node: String,
    /// The id of the machine's boot; that of the kernel if it is empty.
    pub(crate) boot_id: String,
    /// The root of the cgroups of its pods; the common one if it is empty.
    pub(crate) cgroup_root: String,
    /// The name servers of the cluster.
    pub(crate) cluster_dns: Vec<IpAddr>,
    /// The folder of device plugins, if any can register.
    pub(crate) device_plugin_dir: Option<PathBuf>,
    /// What the node forbids its pods.
    pub(crate) forbidden: Forbidden,
    /// The folder of the node's own pods, if it has one.
    pub(crate) static_pods: Option<PathBuf>,
    socket: PathBuf,
}

impl Bench {
    pub(crate) fn new(socket: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let edge = FakeEdge::start(&dir.path().join("edge.sock"), &[], true);
        let settings = Settings {
            backoff_base: Duration::from_millis(40),
            backoff_cap: Duration::from_millis(200),
            // The disk of the machine may be full, and no registry has the images.
            image_collection: ImageCollection { high_percent: 100, ..ImageCollection::default() },
            pressure: PressureSettings { evicts: false, ..PressureSettings::default() },
            ..Settings::default()
        };
        let (node, boot_id, cgroup_root) = ("gw-1".to_owned(), String::new(), String::new());
        let (socket, cluster_dns) = (socket.to_owned(), Vec::new());
        Self {
            dir,
            edge,
            settings,
            node,
            boot_id,
            cgroup_root,
            cluster_dns,
            device_plugin_dir: None,
            forbidden: Forbidden::default(),
            static_pods: None,
            socket,
        }
    }

    /// Where the pod worker keeps its things.
    pub(crate) fn edged_dir(&self) -> PathBuf {
        self.dir.path().join("edged")
    }

    pub(crate) async fn edged(&self) -> Handle {
        self.edged_after(|| {}).await
    }

    /// A pod worker that starts after `opened`, which is called once its runtime is open.
    pub(crate) async fn edged_after(&self, opened: impl FnOnce()) -> Handle {
        let node = self.node.parse().expect("a node name");
        let dir = self.edged_dir();
        // The runtime is given; its kind only decides how many pods there is room for.
        let kind = RuntimeKind::Hollow;
        let mut config = EdgedConfig::new(node, self.dir.path().join("edge.sock"), dir, kind);
        config.settings = self.settings.clone();
        config.static_pods.clone_from(&self.static_pods);
        if let Some(dir) = &self.device_plugin_dir {
            config.devices = Some(Arc::new(DevicePlugins::new(dir)));
        }
        let (notices, noticed) = mpsc::channel(NOTICES_MAX);
        let mut cri = CriSettings::new(self.socket.clone());
        cri.cluster_dns.clone_from(&self.cluster_dns);
        cri.has_device_plugins = self.device_plugin_dir.is_some();
        cri.forbidden = self.forbidden;
        if !self.boot_id.is_empty() {
            cri.boot_id.clone_from(&self.boot_id);
        }
        if !self.cgroup_root.is_empty() {
            cri.cgroup_root.clone_from(&self.cgroup_root);
        }
        let runtime =
            headwater_cri::open(&cri, &config.node, &config.dir, &config.settings, notices);
        let runtime = runtime.await.expect("the runtime opens");
        opened();
        Edged::spawn_with(config, runtime, noticed).await.expect("the pod worker starts")
    }

    /// The latest status of a pod that is as wanted.
    pub(crate) async fn status(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let latest = || crate::fake_edge::latest_status(&self.edge.operations(), name);
        let found = until(|| async { latest().filter(&wanted) }).await;
        found.unwrap_or_else(|| panic!("waited {DEADLINE:?} for {what}; at last: {:#?}", latest()))
    }

    /// A pod in the machine's network whose container notes each start and runs the script.
    pub(crate) fn pod(&self, name: &str, script: &str) -> Value {
        let script = format!("echo start >> /notes/{name}; {script}");
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": uid(name)},
            "spec": {
                "nodeName": self.node,
                "hostNetwork": true,
                "terminationGracePeriodSeconds": 2,
                "containers": [{
                    "name": name, "image": BUSYBOX_IMAGE,
                    "command": ["/bin/sh", "-c", script],
                    "volumeMounts": [{"name": "notes", "mountPath": "/notes"}],
                }],
                "volumes": [{"name": "notes", "hostPath": {"path": self.notes()}}],
            },
        })
    }

    pub(crate) fn notes(&self) -> PathBuf {
        let notes = self.dir.path().join("notes");
        fs::create_dir_all(&notes).expect("a folder");
        notes
    }

    /// How many times the pod's container started.
    pub(crate) fn starts(&self, name: &str) -> usize {
        let notes = fs::read_to_string(self.notes().join(name)).unwrap_or_default();
        notes.lines().count()
    }

    /// Waits until the pod's container has noted so many starts: it is reported before it notes anything.
    pub(crate) async fn until_starts(&self, name: &str, starts: usize) {
        let noted = || async { (self.starts(name) >= starts).then_some(()) };
        until(noted).await;
        assert_eq!(self.starts(name), starts, "the starts of {name}");
    }

    /// Asks for the end of the pod, and takes it away once edged says so.
    pub(crate) async fn delete(&self, pod: &Value) {
        self.ask_for_end(pod);
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let asked = until(|| async { self.asks_delete(name).then_some(()) }).await;
        asked.unwrap_or_else(|| {
            let status = crate::fake_edge::latest_status(&self.edge.operations(), name);
            let events = self.pod_events(name);
            panic!("edged does not ask for the delete of {name}: {events:#?}, {status:#?}")
        });
        self.edge.delete(&format!("shop/pod/{name}"));
    }

    /// Asks for the end of the pod.
    pub(crate) fn ask_for_end(&self, pod: &Value) {
        let mut deleting = pod.clone();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        deleting["metadata"]["deletionGracePeriodSeconds"] =
            pod["spec"]["terminationGracePeriodSeconds"].clone();
        self.edge.apply(&deleting);
    }

    /// Whether edged has asked for the delete of the pod's object.
    pub(crate) fn asks_delete(&self, name: &str) -> bool {
        crate::fake_edge::asked_delete(&self.edge.operations(), name).is_some()
    }

    /// The pod's Events so far, each as `reason: message`.
    pub(crate) fn pod_events(&self, name: &str) -> Vec<String> {
        let about = format!("shop/event/{name}.");
        let operations = self.edge.operations().into_iter();
        let events = operations.filter(|it| it.resource.starts_with(&about));
        let events = events.map(|it| serde_json::from_slice::<Value>(&it.content).expect("JSON"));
        let text =
            |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let line =
            |event: Value| format!("{}: {}", text(&event, "reason"), text(&event, "message"));
        events.map(line).collect()
    }
}

/// A twin of a runtime, in a folder that goes with the test.
pub(crate) fn start_twin() -> (TempDir, Twin) {
    let scratch = tempfile::tempdir().expect("a folder");
    let twin = Twin::start(&scratch.path().join("cri.sock")).expect("a twin");
    (scratch, twin)
}

/// A twin in a folder, and the pod worker of one test on it.
pub(crate) async fn on_a_twin() -> (TempDir, Twin, Bench, Handle) {
    on_a_twin_with(|_| {}).await
}

/// The same, with other settings.
pub(crate) async fn on_a_twin_with(
    set: impl FnOnce(&mut Settings),
) -> (TempDir, Twin, Bench, Handle) {
    let (scratch, twin) = start_twin();
    twin.add_image(BUSYBOX_IMAGE);
    let mut bench = Bench::new(twin.socket());
    set(&mut bench.settings);
    let edged = bench.edged().await;
    (scratch, twin, bench, edged)
}

/// The same, with a pod worker that lists [`OFTEN`].
pub(crate) async fn on_a_twin_that_is_listed_often() -> (TempDir, Twin, Bench, Handle) {
    on_a_twin_with(|settings| settings.relist = OFTEN).await
}

/// Only lists find the ends of containers from now on.
pub(crate) fn lose_events(twin: &Twin) {
    twin.set_faults(0, FaultRates { lost_events: 1000, ..FaultRates::default() });
}

/// Another program's stop of a sandbox.
pub(crate) async fn stop_sandbox(client: &CriClient, id: String) {
    let request = StopPodSandboxRequest { pod_sandbox_id: id };
    client.stop_pod_sandbox(request).await.expect("it is stopped");
}

/// The sandboxes of a runtime.
pub(crate) async fn sandboxes(client: &CriClient) -> Vec<PodSandbox> {
    let listed = client.list_pod_sandbox(ListPodSandboxRequest::default()).await;
    listed.expect("a list").items
}

/// The log files of a pod's container, which has the pod's name.
pub(crate) fn log_files(edged: &Handle, name: &str, previous: bool) -> Vec<PathBuf> {
    let (pod, container) = (name.to_owned(), name.to_owned());
    let query = LogQuery { namespace: "shop".to_owned(), pod, container, previous };
    edged.logs().files(&query).expect("logs can be listed")
}

/// A UID of this test in this process: pods of all tests share the machine's control groups, and a pod that goes takes
/// with it what is in the group of its UID.
pub(crate) fn uid(name: &str) -> String {
    let mut test = DefaultHasher::new();
    std::thread::current().name().hash(&mut test);
    format!("{name}-{}-{:016x}", std::process::id(), test.finish())
}

pub(crate) fn is_running(status: &Value) -> bool {
    status["phase"] == "Running" && !status["containerStatuses"][0]["state"]["running"].is_null()
}

/// What `found` finds before the deadline.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    mut found: impl FnMut() -> F,
) -> Option<T> {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        if let Some(found) = found().await {
            return Some(found);
        }
        tokio::time::sleep(POLL).await;
    }
    None
}
