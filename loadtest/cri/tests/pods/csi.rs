//! Volumes of storage drivers: over the runtime in memory with every fault of a driver, and in a real container.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_cri::CriSettings;
use headwater_cri_lab::{
    BUSYBOX_IMAGE, Driver, DriverFault, DriverSettings, LoopDevice, VOLUME_BYTES,
    VOLUME_BYTES_USED, VOLUME_FILE,
};
use headwater_csi::{CsiSettings, CsiVolumes};
use headwater_edged::runtime::NodeRuntime;
use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::{Edged, EdgedConfig, Handle, NOTICES_MAX, RuntimeKind};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Bench, is_running, uid, until};
use crate::life::{FOREVER, gone, start};

const DRIVER: &str = "disk.example.com";

/// The time of a call to a driver that hangs: it is given up soon. On a busy machine one that does not hang may take longer.
const CALL_WITHIN: Duration = Duration::from_millis(700);

/// More calls than a test makes.
const MANY: usize = 1000;

/// A node with storage drivers.
struct Node {
    bench: Bench,
    /// The container runtime; `None`: the one in memory.
    socket: Option<PathBuf>,
    /// The time of a call to a driver; `None`: as a kubelet.
    call_within: Option<Duration>,
}

impl Node {
    fn new() -> Self {
        Self { bench: Bench::new("/nowhere".as_ref()), socket: None, call_within: None }
    }

    /// A node whose pods run in this runtime.
    fn on(socket: &Path) -> Self {
        Self { bench: Bench::new(socket), socket: Some(socket.to_owned()), call_within: None }
    }

    /// The tree that drivers know as a kubelet's.
    fn root(&self) -> PathBuf {
        self.bench.dir.path().join("kubelet")
    }

    fn registrations(&self) -> PathBuf {
        let folder = self.root().join("plugins_registry");
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn driver(&self, settings: DriverSettings) -> Driver {
        Driver::start(settings, &self.registrations()).expect("a driver")
    }

    async fn edged(&self) -> Handle {
        let bench = &self.bench;
        let name = "gw-1".parse().expect("a node name");
        let socket = bench.dir.path().join("edge.sock");
        let dir = bench.edged_dir();
        let mut config = EdgedConfig::new(name, socket, dir, RuntimeKind::Hollow);
        let node = config.node.clone();
        config.settings = bench.settings.clone();
        let (notices, noticed) = mpsc::channel(NOTICES_MAX);
        let csi = CsiSettings { root: self.root(), call_within: self.call_within };
        let drivers = CsiVolumes::open(csi, node.clone(), notices.clone()).expect("they open");
        let runtime: NodeRuntime = match &self.socket {
            Some(socket) => {
                let cri = CriSettings::new(socket.clone());
                let opened =
                    headwater_cri::open(&cri, &node, &config.dir, &config.settings, notices);
                opened.await.expect("the runtime opens")
            }
            None => MemoryRuntime::new(notices).node_runtime(),
        };
        let runtime = runtime.with_drivers(Arc::new(drivers));
        Edged::spawn_with(config, runtime, noticed).await.expect("the pod worker starts")
    }

    /// A pod with a volume of the claim `data`.
    fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": uid(name)},
            "spec": {
                "nodeName": "gw-1", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": name, "image": BUSYBOX_IMAGE,
                    "command": ["/bin/sh", "-c", FOREVER],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        })
    }

    /// The view has the driver, the claim `data` and its volume.
    fn claim(&self) {
        let edge = &self.bench.edge;
        edge.apply(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {
                "attachRequired": false, "podInfoOnMount": true,
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            },
        }));
        edge.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"},
            "spec": {"csi": {"driver": DRIVER, "volumeHandle": "h-1"}, "accessModes": ["ReadWriteOnce"]},
        }));
        edge.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop", "uid": "c1"},
            "spec": {"volumeName": "pv-1"},
        }));
    }

    async fn runs(&self, name: &str) {
        self.bench.status(name, "a running pod", is_running).await;
    }

    /// Waits for a status whose container waits with these words. Another status may follow it at once.
    async fn waits(&self, name: &str, words: &str) {
        let told = |status: &Value| {
            let waiting = &status["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "ContainerCreating"
                && waiting["message"].as_str().is_some_and(|message| message.contains(words))
        };
        let statuses = || crate::fake_edge::statuses(&self.bench.edge.operations(), name);
        let found = until(|| async { statuses().iter().any(told).then_some(()) }).await;
        assert!(found.is_some(), "no status has {words:?}; at last: {:#?}", statuses().last());
    }

    /// Where the volume is published for the pod.
    fn target(&self, name: &str, spec_name: &str) -> PathBuf {
        let volumes = self.root().join("pods").join(uid(name)).join("volumes");
        volumes.join("kubernetes.io~csi").join(spec_name).join("mount")
    }
}

/// Waits until the driver holds so many staged and published volumes.
async fn holds(driver: &Driver, expected: (usize, usize)) {
    let held = until(|| async { (driver.holds() == expected).then_some(()) }).await;
    assert!(held.is_some(), "{:?} instead of {expected:?}", driver.holds());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_staged_once_published_to_each_pod_and_taken_back_after_the_last_one() {
    let node = Node::new();
    let driver = node.driver(DriverSettings::new(DRIVER));
    node.claim();
    let edged = node.edged().await;
    let (a, b) = (node.pod("a"), node.pod("b"));
    node.bench.edge.apply(&a);
    node.runs("a").await;
    node.bench.edge.apply(&b);
    node.runs("b").await;
    assert_eq!((driver.holds(), driver.calls("NodeStageVolume")), ((1, 2), 1));
    let file = fs::read_to_string(node.target("a", "pv-1").join(VOLUME_FILE));
    assert_eq!(file.expect("published"), "h-1");
    let publish = driver.last_publish().expect("a call");
    assert_eq!(publish.volume_context["csi.storage.k8s.io/pod.name"], "b");
    node.bench.delete(&a).await;
    holds(&driver, (1, 1)).await;
    node.bench.delete(&b).await;
    holds(&driver, (0, 0)).await;
    let changes = [
        "NodeStageVolume",
        "NodePublishVolume",
        "NodePublishVolume",
        "NodeUnpublishVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
    ];
    assert_eq!(driver.changes(), changes);
    let none = || async { (!node.root().join("pods").join(uid("a")).exists()).then_some(()) };
    assert!(until(none).await.is_some(), "its folder is removed");
    assert_eq!(driver.wrongs(), [""; 0]);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_driver_by_name_and_starts_when_it_comes_and_comes_again() {
    let node = Node::new();
    node.claim();
    let edged = node.edged().await;
    let pod = node.pod("a");
    node.bench.edge.apply(&pod);
    let words = "MountVolume.SetUp failed for volume \"pv-1\" : driver name disk.example.com not \
                 found in the list of registered CSI drivers";
    node.waits("a", words).await;
    let mut driver = node.driver(DriverSettings::new(DRIVER));
    node.runs("a").await;
    let answered = || async { (!driver.answers().is_empty()).then_some(()) };
    assert!(until(answered).await.is_some(), "the driver learns that it is registered");
    assert_eq!(driver.answers(), [Ok(())]);
    // It goes: what is published stays, and is taken back when it comes again.
    driver.stop();
    let other = node.pod("b");
    node.bench.edge.apply(&other);
    node.waits("b", "not found in the list of registered CSI drivers").await;
    node.bench.ask_for_end(&pod);
    let tried = || async {
        let sent = node.bench.edge.operations();
        let says = |it: &Vec<u8>| String::from_utf8_lossy(it).contains("FailedUnmount");
        sent.iter().any(|it| says(&it.content.to_vec())).then_some(())
    };
    assert!(until(tried).await.is_some(), "edged says why the pod stays");
    assert_eq!((driver.holds(), node.bench.asks_delete("a")), ((1, 1), false));
    driver.serve().expect("it comes again");
    node.bench.delete(&pod).await;
    node.runs("b").await;
    holds(&driver, (1, 1)).await;
    assert!(!node.target("a", "pv-1").exists());
    node.bench.delete(&other).await;
    holds(&driver, (0, 0)).await;
    assert_eq!(driver.wrongs(), [""; 0]);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_delays_no_other_pod_and_its_own_pod_can_go() {
    let node = Node { call_within: Some(CALL_WITHIN), ..Node::new() };
    let driver = node.driver(DriverSettings::new(DRIVER));
    for _ in 0..MANY {
        driver.fail_next("NodeStageVolume", DriverFault::Hangs);
    }
    node.claim();
    let edged = node.edged().await;
    // More than there are places for pods that start.
    let names: Vec<String> = (0..8).map(|number| format!("hangs-{number}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| node.pod(name)).collect();
    pods.iter().for_each(|pod| node.bench.edge.apply(pod));
    let called = || async { (driver.calls("NodeStageVolume") > 0).then_some(()) };
    assert!(until(called).await.is_some());
    let mut plain = node.pod("plain");
    plain["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    node.bench.edge.apply(&plain);
    node.runs("plain").await;
    node.waits(&names[0], "NodeStageVolume: the driver did not answer within").await;
    for pod in &pods {
        node.bench.delete(pod).await;
    }
    holds(&driver, (0, 0)).await;
    let staged = node.root().join("plugins/kubernetes.io/csi").join(DRIVER);
    let empty = || async { fs::read_dir(&staged).ok()?.next().is_none().then_some(()) };
    assert!(until(empty).await.is_some(), "a call with an unknown outcome is undone");
    assert!(driver.calls("NodeUnstageVolume") > 0);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_fail_are_tried_again_and_a_lost_answer_acts_once_more() {
    let node = Node::new();
    let driver = node.driver(DriverSettings::new(DRIVER));
    driver.fail_next("NodeStageVolume", DriverFault::Pending);
    driver.fail_next("NodeStageVolume", DriverFault::Lost);
    driver.fail_next("NodePublishVolume", DriverFault::Slow(Duration::from_millis(100)));
    driver.fail_next("NodeUnpublishVolume", DriverFault::Lost);
    driver.fail_next("NodeUnpublishVolume", DriverFault::Refused);
    driver.fail_next("NodeUnstageVolume", DriverFault::Lost);
    node.claim();
    let edged = node.edged().await;
    let pod = node.pod("a");
    node.bench.edge.apply(&pod);
    node.waits("a", "MountVolume.MountDevice failed for volume \"pv-1\" : NodeStageVolume").await;
    node.runs("a").await;
    assert_eq!((driver.calls("NodeStageVolume"), driver.calls("NodePublishVolume")), (3, 1));
    node.bench.delete(&pod).await;
    holds(&driver, (0, 0)).await;
    let again = || async { (driver.calls("NodeUnstageVolume") == 2).then_some(()) };
    assert!(until(again).await.is_some(), "its answer was lost");
    assert_eq!(driver.calls("NodeUnpublishVolume"), 3);
    assert_eq!(driver.wrongs(), [""; 0]);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_refused_leaves_nothing_and_a_driver_that_babbles_is_named() {
    let node = Node::new();
    let mut driver = node.driver(DriverSettings::new(DRIVER));
    for _ in 0..MANY {
        driver.fail_next("NodeStageVolume", DriverFault::Refused);
    }
    node.claim();
    let mut edged = node.edged().await;
    let pod = node.pod("a");
    node.bench.edge.apply(&pod);
    node.waits("a", "a test asked").await;
    let folder = || async { (!node.target("a", "pv-1").parent()?.exists()).then_some(()) };
    assert!(until(folder).await.is_some(), "nothing was done");
    driver.forget_faults();
    node.runs("a").await;
    driver.babble().expect("it babbles");
    // What it held is asked for again by the next pod worker.
    edged.stop().await;
    edged = node.edged().await;
    let other = node.pod("b");
    node.bench.edge.apply(&other);
    node.waits("b", "not found in the list of registered CSI drivers").await;
    driver.stop();
    driver.serve().expect("it comes again");
    node.runs("b").await;
    for pod in [&pod, &other] {
        node.bench.delete(pod).await;
    }
    holds(&driver, (0, 0)).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_pod_worker_has_staged_the_next_one_takes_back() {
    let node = Node::new();
    let driver = node.driver(DriverSettings::new(DRIVER));
    node.claim();
    let edged = node.edged().await;
    let pod = node.pod("a");
    node.bench.edge.apply(&pod);
    node.runs("a").await;
    // The answer is lost, and the pod worker with it.
    driver.fail_next("NodeUnstageVolume", DriverFault::Hangs);
    node.bench.delete(&pod).await;
    let called = || async { (driver.calls("NodeUnstageVolume") == 1).then_some(()) };
    assert!(until(called).await.is_some());
    edged.stop().await;
    assert_eq!(driver.holds(), (1, 0));
    let edged = node.edged().await;
    holds(&driver, (0, 0)).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_without_stages_and_an_inline_volume_are_published_only() {
    let node = Node::new();
    let driver = node.driver(DriverSettings { stages: false, ..DriverSettings::new(DRIVER) });
    node.claim();
    let edged = node.edged().await;
    let (claimed, mut inline) = (node.pod("claimed"), node.pod("inline"));
    inline["spec"]["volumes"] = json!([{"name": "data", "csi": {"driver": DRIVER}}]);
    for (pod, name) in [(&claimed, "claimed"), (&inline, "inline")] {
        node.bench.edge.apply(pod);
        node.runs(name).await;
    }
    let publish = driver.last_publish().expect("a call");
    assert!(publish.volume_id.starts_with("csi-") && publish.volume_id.len() == 68);
    assert_eq!(publish.volume_context["csi.storage.k8s.io/ephemeral"], "true");
    assert_eq!((driver.holds(), driver.calls("NodeStageVolume")), ((0, 2), 0));
    for pod in [&claimed, &inline] {
        node.bench.delete(pod).await;
    }
    holds(&driver, (0, 0)).await;
    assert_eq!(driver.calls("NodeUnstageVolume"), 0);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_a_second_driver_of_a_name_are_refused_by_name() {
    let node = Node::new();
    let first = node.driver(DriverSettings::new(DRIVER));
    let edged = node.edged().await;
    let told = |driver: &Driver| driver.answers().into_iter().next();
    assert_eq!(until(|| async { told(&first) }).await, Some(Ok(())));
    for (name, versions, word) in [
        (DRIVER, ["0.9.0"], "none of the versions"),
        (DRIVER, ["1.0.0"], "another driver with the same name is already registered"),
        ("../up", ["1.0.0"], "no name of a driver"),
        ("kubernetes.io/csi", ["1.0.0"], "kubernetes.io/ is reserved"),
    ] {
        let versions = versions.map(str::to_owned).to_vec();
        let settings = DriverSettings { versions, ..DriverSettings::new(name) };
        let other = Driver::start_at(settings, &node.registrations().join("other.sock"));
        let other = other.expect("a driver");
        let answer = until(|| async { told(&other) }).await.expect("an answer");
        let why = answer.expect_err(word);
        assert!(why.contains(word) && why.contains(name), "{why}");
        drop(other);
    }
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_container_reads_the_mounted_volume_and_the_driver_takes_it_back() {
    let Some(containerd) = start() else { return };
    let node = Node::on(containerd.socket());
    // The driver mounts where containerd sees it, as one in a container does by propagation.
    let mounts_in = Some(containerd.machine().pid());
    let driver = node.driver(DriverSettings { mounts_in, ..DriverSettings::new(DRIVER) });
    node.claim();
    let edged = node.edged().await;
    let mut pod =
        node.bench.pod("reads", &format!("cat /data/{VOLUME_FILE} > /notes/content; {FOREVER}"));
    let mounts = &mut pod["spec"]["containers"][0]["volumeMounts"];
    mounts.as_array_mut().expect("mounts").push(json!({"name": "data", "mountPath": "/data"}));
    let volumes = &mut pod["spec"]["volumes"];
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
    volumes.as_array_mut().expect("volumes").push(volume);
    node.bench.edge.apply(&pod);
    node.runs("reads").await;
    let read = || async {
        let content = fs::read_to_string(node.bench.notes().join("content")).ok()?;
        (content == "h-1").then_some(())
    };
    assert!(until(read).await.is_some(), "the container reads the volume");
    let (pod_uid, names) = (uid("reads").try_into().expect("a UID"), ["data".to_owned()]);
    let measured = edged.pods().runtime().volume_usage(&pod_uid, &names).await;
    let found = measured.get("data").map(|it| (it.capacity.bytes, it.used.bytes));
    let expected = [VOLUME_BYTES, VOLUME_BYTES_USED].map(|it| it.try_into().expect("a size"));
    assert_eq!(found, Some((expected[0], expected[1])), "as the driver measures it");
    let outside = node.target("reads", "pv-1").join(VOLUME_FILE);
    assert!(!outside.exists(), "it is mounted there, and here is the folder below");
    node.bench.delete(&pod).await;
    holds(&driver, (0, 0)).await;
    gone(&containerd, &["reads"]).await;
    assert_eq!(driver.wrongs(), [""; 0]);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_container_reads_and_writes_block_devices_of_a_driver_and_of_the_node() {
    let Some(containerd) = start() else { return };
    let node = Node::on(containerd.socket());
    let file = |name: &str| node.bench.dir.path().join(name);
    let disk = |name: &str| LoopDevice::create(&file(name), 1 << 20).expect("a block device");
    let (of_driver, of_node) = (disk("of-driver"), disk("of-node"));
    fs::write(of_node.path(), "from the node").expect("content");
    let device = Some(of_driver.path().to_owned());
    let driver = node.driver(DriverSettings { device, ..DriverSettings::new(DRIVER) });
    node.claim();
    let block = |name: &str, claim: &str, source: Value| {
        node.bench.edge.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"volumeMode": "Block", "accessModes": ["ReadWriteOnce"], "csi": source["csi"],
                "local": source["local"]},
        }));
        node.bench.edge.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": "shop", "uid": format!("c-{claim}")},
            "spec": {"volumeName": name, "volumeMode": "Block"},
        }));
    };
    block("pv-driver", "driver", json!({"csi": {"driver": DRIVER, "volumeHandle": "h-2"}}));
    block("pv-node", "node", json!({"local": {"path": of_node.path()}}));
    let edged = node.edged().await;
    let script = "printf 'from a container' > /dev/data; head -c 13 /dev/media > /notes/content; \
                  printf x > /dev/media || echo refused > /notes/write";
    let mut pod = node.bench.pod("reads", &format!("{script}; {FOREVER}"));
    pod["spec"]["containers"][0]["volumeDevices"] = json!([
        {"name": "data", "devicePath": "/dev/data"},
        {"name": "media", "devicePath": "/dev/media"},
    ]);
    let volumes = pod["spec"]["volumes"].as_array_mut().expect("volumes");
    volumes.extend([
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "driver"}}),
        json!({"name": "media", "persistentVolumeClaim": {"claimName": "node", "readOnly": true}}),
    ]);
    node.bench.edge.apply(&pod);
    node.runs("reads").await;
    let notes = |name: &str| fs::read_to_string(node.bench.notes().join(name)).ok();
    let wrote = || async { notes("write").filter(|text| text == "refused\n") };
    assert!(until(wrote).await.is_some(), "{:?}", notes("write"));
    assert_eq!(notes("content").as_deref(), Some("from the node"));
    let target = node.target("reads", "pv-driver");
    let found = fs::metadata(&target).expect("published").file_type();
    assert!(found.is_block_device(), "{found:?}");
    node.bench.delete(&pod).await;
    holds(&driver, (0, 0)).await;
    gone(&containerd, &["reads"]).await;
    let gone = || async { (!target.parent()?.exists()).then_some(()) };
    assert!(until(gone).await.is_some(), "its folder is removed");
    drop((of_driver, of_node));
    let written = fs::read(file("of-driver")).expect("the file stays");
    assert!(written.starts_with(b"from a container"), "{:?}", &written[..20]);
    assert_eq!(driver.wrongs(), [""; 0]);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_wants_it_publishes_a_running_pods_volume_again_with_its_latest_token() {
    const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
    let mut node = Node::new();
    node.bench.settings.token_check = Duration::from_millis(60);
    node.bench.settings.token_retry = Duration::from_millis(10);
    node.bench.settings.volume_republish = Duration::from_millis(50);
    let driver = node.driver(DriverSettings::new(DRIVER));
    node.claim();
    let apply = |republishes: bool| {
        node.bench.edge.apply(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {
                "attachRequired": false, "requiresRepublish": republishes,
                "tokenRequests": [{"audience": "vault", "expirationSeconds": 3600}],
            },
        }));
    };
    apply(false);
    let edged = node.edged().await;
    let pod = node.pod("a");
    node.bench.edge.apply(&pod);
    node.waits("a", "failed to get service account token attributes: no connection").await;
    assert_eq!(driver.holds(), (0, 0), "the driver gets no call without a token");
    let token = |text: &str| {
        let token = format!(r#"{{"expirationTimestamp":"2026-01-01T00:00:00Z","token":"{text}"}}"#);
        format!(r#"{{"vault":{token}}}"#)
    };
    let latest = || driver.last_publish().and_then(|it| it.volume_context.get(TOKENS).cloned());
    node.bench.edge.set_token(Some("first"));
    node.runs("a").await;
    assert_eq!(latest(), Some(token("first")));
    node.bench.edge.set_token(Some("second"));
    // The pod runs already.
    apply(true);
    let second = || async { (latest()? == token("second")).then_some(()) };
    assert!(until(second).await.is_some(), "{:?}", latest());
    // A call that fails is named, and the next one is made; the container runs on.
    driver.fail_next("NodePublishVolume", DriverFault::Refused);
    let named = || async {
        let events = node.bench.pod_events("a");
        events
            .iter()
            .any(|it| it.starts_with("FailedMount: ") && it.contains("a test asked"))
            .then_some(())
    };
    assert!(until(named).await.is_some(), "{:?}", node.bench.pod_events("a"));
    let before = driver.calls("NodePublishVolume");
    let more = || async { (driver.calls("NodePublishVolume") > before + 1).then_some(()) };
    assert!(until(more).await.is_some());
    node.runs("a").await;
    assert_eq!((driver.holds(), driver.calls("NodeStageVolume")), ((1, 1), 1));
    let latest = crate::fake_edge::latest_status(&node.bench.edge.operations(), "a");
    let status = latest.expect("a status");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0, "{status}");
    node.bench.delete(&pod).await;
    holds(&driver, (0, 0)).await;
    assert_eq!(driver.wrongs(), [""; 0]);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_a_driver_that_is_away_keeps_no_other_of_its_pod() {
    let node = Node::new();
    let driver = node.driver(DriverSettings::new(DRIVER));
    node.claim();
    node.bench.edge.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "away.example"},
        "spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]},
    }));
    let edged = node.edged().await;
    let mut pod = node.pod("a");
    let volumes = pod["spec"]["volumes"].as_array_mut().expect("volumes");
    volumes.insert(0, json!({"name": "away", "csi": {"driver": "away.example"}}));
    node.bench.edge.apply(&pod);
    node.waits("a", "driver name away.example not found").await;
    holds(&driver, (1, 1)).await;
    node.bench.delete(&pod).await;
    holds(&driver, (0, 0)).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_no_block_device_is_named() {
    let node = Node::new();
    let driver = node.driver(DriverSettings::new(DRIVER));
    node.claim();
    let edged = node.edged().await;
    let mut pod = node.pod("a");
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = json!([]);
    container["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/data"}]);
    node.bench.edge.apply(&pod);
    let words = "volume data has volumeMode Filesystem, but is specified in volumeDevices";
    node.waits("a", words).await;
    assert_eq!(driver.holds(), (0, 0), "nothing is staged");
    edged.stop().await;
}
