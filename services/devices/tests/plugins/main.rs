//! The whole pod worker with device plugins on real sockets, and a runtime in memory.

#[allow(dead_code, reason = "the tests of the pod worker use all of it")]
#[path = "../../../edged/tests/edged/fake_edge.rs"]
mod fake_edge;
mod fake_plugin;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fake_edge::{FakeEdge, latest_status};
use fake_plugin::{Conduct, FakePlugin, register};
use headwater_devices::proto::{ContainerAllocateResponse, DevicePluginOptions};
use headwater_devices::{DevicePlugins, SOCKET};
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::{Edged, EdgedConfig, EdgedError, Handle, NOTICES_MAX, RuntimeKind};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Code;

const RESOURCE: &str = "e.com/gpu";

/// The time limit of what takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(20);

struct Bench {
    dir: TempDir,
    edge: FakeEdge,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let edge = FakeEdge::start(&dir.path().join("edge.sock"), &[], true);
        fs::create_dir(dir.path().join("edged")).expect("a folder");
        Self { dir, edge }
    }

    fn plugins(&self) -> PathBuf {
        self.dir.path().join("device-plugins")
    }

    async fn spawn(&self) -> Result<(Handle, MemoryRuntime), EdgedError> {
        let (socket, dir) = (self.dir.path().join("edge.sock"), self.dir.path().join("edged"));
        let node = "gw-1".parse().expect("a name");
        let mut config = EdgedConfig::new(node, socket, dir, RuntimeKind::Hollow);
        config.devices = Some(Arc::new(DevicePlugins::new(self.plugins())));
        config.settings.node_check = Duration::from_millis(20);
        let (notices, noticed) = mpsc::channel(NOTICES_MAX);
        let runtime = MemoryRuntime::new(notices);
        let edged = Edged::spawn_with(config, runtime.node_runtime(), noticed).await?;
        Ok((edged, runtime))
    }

    async fn edged(&self) -> (Handle, MemoryRuntime) {
        self.spawn().await.expect("the pod worker starts")
    }

    /// The capacity and the allocatable number of devices that the node states last.
    fn stated(&self) -> Option<[String; 2]> {
        let all = self.edge.operations();
        let node = all.iter().rev().find(|it| it.resource == "null/node/gw-1")?;
        let node: Value = serde_json::from_slice(&node.content).ok()?;
        let of = |list: &str| Some(node["status"][list][RESOURCE].as_str()?.to_owned());
        Some([of("capacity")?, of("allocatable")?])
    }

    async fn until_stated(&self, capacity: &str, allocatable: &str) {
        let wanted = [capacity, allocatable].map(str::to_owned);
        until("the node's devices", || self.stated().filter(|it| *it == wanted).map(drop)).await;
    }

    async fn status(&self, pod: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(what, || latest_status(&self.edge.operations(), pod).filter(&wanted)).await
    }
}

async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn pod(name: &str, count: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {
            "nodeName": "gw-1",
            "containers": [{
                "name": "main", "image": "localhost/app:1",
                "env": [{"name": "SET", "value": "by the pod"}],
                "resources": {"limits": {RESOURCE: count.to_string()}},
            }],
        },
    })
}

fn is_running(status: &Value) -> bool {
    !status["containerStatuses"][0]["state"]["running"].is_null()
}

fn has_failed(status: &Value) -> bool {
    status["phase"] == "Failed"
}

#[tokio::test]
async fn a_pod_waits_for_its_plugin_gets_its_devices_and_one_too_many_fails() {
    let bench = Bench::new();
    let (edged, runtime) = bench.edged().await;
    bench.edge.apply(&pod("one", 1));
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["message"] == "no device plugin serves e.com/gpu on this node"
    };
    bench.status("one", "a pod that waits for a plugin", waits).await;
    let gives = ContainerAllocateResponse {
        envs: [("SET", "by the plugin"), ("GPU", "0")].map(|(k, v)| (k.into(), v.into())).into(),
        ..ContainerAllocateResponse::default()
    };
    let options =
        DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
    let conduct = Conduct { gives, options, ..Conduct::default() };
    let plugin = FakePlugin::start(&bench.plugins(), "gpu.sock", "a b -c", conduct);
    plugin.register(RESOURCE).await.expect("registered");
    bench.until_stated("3", "2").await;
    bench.status("one", "a running pod", is_running).await;
    assert_eq!(plugin.calls(), ["allocate b", "prepare b"], "the plugin prefers the last one");
    let uid = PodUid::try_from("one".to_owned()).expect("a UID");
    let launch = runtime.launch(&uid, "main").expect("it was started");
    assert_eq!((&*launch.env["SET"], &*launch.env["GPU"]), ("by the pod", "0"));
    bench.edge.apply(&pod("two", 2));
    let status = bench.status("two", "a pod that fails", has_failed).await;
    assert_eq!(status["reason"], "UnexpectedAdmissionError");
    let words = "Pod was rejected: Allocate failed due to requested number of devices unavailable for \
                 e.com/gpu. Requested: 2, Available: 1, which is unexpected";
    assert_eq!(status["message"], words);
    // A device that fails stays in the capacity, and its pod runs on.
    plugin.set("a -b -c");
    bench.until_stated("3", "1").await;
    drop(plugin);
    bench.until_stated("3", "0").await;
    assert!(is_running(&latest_status(&bench.edge.operations(), "one").expect("a status")));
    edged.stop().await;
}

#[tokio::test]
async fn what_hangs_or_floods_delays_nothing_else() {
    let bench = Bench::new();
    let (edged, _runtime) = bench.edged().await;
    let dir = bench.plugins();
    let good = FakePlugin::start(&dir, "good.sock", "a b", Conduct::default());
    good.register(RESOURCE).await.expect("registered");
    bench.until_stated("2", "2").await;
    let hangs = Conduct { hangs: true, ..Conduct::default() };
    let hanging = FakePlugin::start(&dir, "hang.sock", "a b c d e f g h", hangs);
    hanging.register("e.com/hang").await.expect("registered");
    // One that says nothing takes the place of none.
    let mute =
        FakePlugin::start(&dir, "mute.sock", "z", Conduct { is_mute: true, ..Conduct::default() });
    for _ in 0..3 {
        mute.register(RESOURCE).await.expect("registered");
    }
    let floods = Conduct { floods: true, ..Conduct::default() };
    let ids: String = (0..2000).map(|id| format!("device-{id} ")).collect();
    let flood = FakePlugin::start(&dir, "flood.sock", &ids, floods);
    let flooded = Instant::now();
    flood.register("e.com/flood").await.expect("registered");
    // More pods hang than may start at a time.
    for number in 0..8 {
        let mut one = pod(&format!("hang-{number}"), 1);
        one["spec"]["containers"][0]["resources"] = json!({"limits": {"e.com/hang": "1"}});
        bench.edge.apply(&one);
    }
    until("eight calls that hang", || (hanging.calls().len() == 8).then_some(())).await;
    bench.edge.apply(&pod("one", 1));
    bench.status("one", "a running pod", is_running).await;
    let before = flood.calls().len();
    until("two more lists", || (flood.calls().len() > before).then_some(())).await;
    // Ten lists a second, and what waits in the socket: a node without a bound takes thousands.
    let lists_max = 500.max(20 * flooded.elapsed().as_secs());
    assert!((flood.calls().len() as u64) < lists_max, "{} lists", flood.calls().len());
    edged.stop().await;
}

#[tokio::test]
async fn what_is_no_plugin_is_refused_and_a_restart_makes_a_new_socket() {
    let bench = Bench::new();
    let (edged, _runtime) = bench.edged().await;
    let dir = bench.plugins();
    let plugin = FakePlugin::start(&dir, "gpu.sock", "a", Conduct::default());
    for (version, resource, endpoint) in [
        ("v1beta1", "kubernetes.io/gpu", "gpu.sock"),
        ("v1beta1", "../gpu", "gpu.sock"),
        ("v1", RESOURCE, "gpu.sock"),
        ("v1beta1", RESOURCE, "../../edge.sock"),
        ("v1beta1", RESOURCE, SOCKET),
    ] {
        let refused = register(&dir, version, resource, endpoint).await.expect_err(resource);
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    let long = "x".repeat(1 << 20);
    register(&dir, "v1beta1", &long, "gpu.sock").await.expect_err("too long");
    assert_eq!(bench.stated(), None);
    plugin.register(RESOURCE).await.expect("registered");
    bench.until_stated("1", "1").await;
    let file = bench.dir.path().join("edged/devices.json");
    let noted = || fs::read_to_string(&file).ok().filter(|text| text.contains(RESOURCE)).map(drop);
    until("the note of the resource", noted).await;
    let other = bench.spawn().await.expect_err("the folder has an agent");
    assert!(matches!(other, EdgedError::Devices(_)), "{other}");
    edged.stop().await;
    let (edged, _runtime) = until_spawned(&bench).await;
    assert!(!plugin.socket.exists(), "the plugin sees that it has to register again");
    bench.until_stated("0", "0").await;
    drop(plugin);
    let plugin = FakePlugin::start(&dir, "gpu.sock", "a b", Conduct::default());
    plugin.register(RESOURCE).await.expect("registered");
    bench.until_stated("2", "2").await;
    edged.stop().await;
}

/// Starts the pod worker again, once the socket of the one before is closed.
async fn until_spawned(bench: &Bench) -> (Handle, MemoryRuntime) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match bench.spawn().await {
            Ok(started) => return started,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
