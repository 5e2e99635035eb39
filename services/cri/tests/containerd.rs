//! The seams on a real containerd: a pod's life with a kill, a restart of containerd, a restart of the pod worker,
//! and nothing left at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use headwater_cri::client::CriClient;
use headwater_cri::proto::{
    Container, ContainerState, ListContainersRequest, ListPodSandboxRequest, PodSandboxConfig,
    PodSandboxMetadata, RunPodSandboxRequest,
};
use headwater_cri::{CriSettings, OpenError, open};
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings};
use headwater_edged::container::credentials::Credentials;
use headwater_edged::container::devices::ContainerDevices;
use headwater_edged::container::termination::{StopSignal, TerminationMessage};
use headwater_edged::container::volume::{Volume, VolumeContent, VolumeFile};
use headwater_edged::container::{LaunchSpec, Mount};
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::runtime::{
    CommandBounds, Exit, LogQuery, NodeRuntime, RunHistory, RunState, SandboxState, StopRequest,
};
use headwater_edged::{NOTICES_MAX, Settings};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// A loaded machine takes seconds for what takes a tenth of one.
const PATIENCE: Duration = Duration::from_secs(60);

/// A container that ends with code 3 when it is asked to, and says what it was given. From then on it has two processes: the
/// pod and its container are counted one after the other.
const SCRIPT: &str = "trap 'echo bye > /dev/termination-log; exit 3' TERM; sleep 1000000 & \
                      echo $GREETING $(cat /etc/app/name); wait";

struct Node {
    dir: tempfile::TempDir,
    runtime: NodeRuntime,
    noticed: mpsc::Receiver<PodUid>,
}

async fn open_in(containerd: &Containerd, dir: &Path) -> (NodeRuntime, mpsc::Receiver<PodUid>) {
    let settings = CriSettings::new(containerd.endpoint().into());
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let node = "edge-1".parse().expect("a name");
    let runtime = open(&settings, &node, dir, &Settings::default(), notices).await;
    (runtime.expect("the runtime opens"), noticed)
}

fn record() -> PodRecord {
    PodRecord {
        uid: PodUid::try_from("1c9a7a52-0000-4000-8000-5f6b1d2e3f40".to_owned()).expect("a UID"),
        key: "shop/pod/web".parse().expect("a key"),
        grace_seconds: 30,
        seen_at: jiff::Timestamp::UNIX_EPOCH,
        seen_in_boot: None,
        is_static: false,
    }
}

fn pod() -> Pod {
    let container = json!({
        "name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c"], "args": [SCRIPT],
        "resources": {"limits": {"memory": "64Mi"}},
    });
    let metadata = json!({"name": "web", "namespace": "shop", "uid": record().uid.as_str()});
    let pod = json!({"metadata": metadata, "spec": {"containers": [container]}});
    serde_json::from_value(pod).expect("a pod")
}

fn volume() -> Volume {
    let file = VolumeFile { bytes: Some(b"shop\n".to_vec()), mode: 0o644, owner: None };
    let content = VolumeContent::Files(BTreeMap::from([("name".to_owned(), file)]));
    Volume { name: "config".to_owned(), content, is_secret: false }
}

fn launch() -> LaunchSpec {
    LaunchSpec {
        container: "main".to_owned(),
        image: Some(BUSYBOX_IMAGE.to_owned()),
        is_step: false,
        command: ["sh", "-c"].map(str::to_owned).into(),
        args: vec![SCRIPT.to_owned()],
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        working_dir: None,
        mounts: vec![Mount {
            volume: "config".to_owned(),
            path: "etc/app".into(),
            is_absolute: true,
            ..Mount::default()
        }],
        block_devices: Vec::new(),
        stop_signal: StopSignal::default(),
        termination_message: TerminationMessage::default(),
        credentials: Credentials::default(),
        cpus: None,
        devices: ContainerDevices::default(),
    }
}

async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} takes longer than {PATIENCE:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn history(runtime: &NodeRuntime) -> Option<RunHistory> {
    runtime.pod(&record().uid).containers.remove("main")
}

async fn ended(runtime: &NodeRuntime, attempt: u32) -> Exit {
    until("the end of the run", || match history(runtime)? {
        RunHistory { state: RunState::Exited(exit), attempt: of, .. } if of == attempt => {
            Some(exit)
        }
        _ => None,
    })
    .await
}

impl Node {
    async fn start(containerd: &Containerd) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (runtime, noticed) = open_in(containerd, dir.path()).await;
        Self { dir, runtime, noticed }
    }

    /// Closes the sandbox as a pod worker does: containerd fails a stop while the shim of a container ends (`ttrpc: closed`),
    /// and the worker repeats it.
    async fn close(&self, uid: &PodUid) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.runtime.close(uid).await {
            assert!(Instant::now() < deadline, "the sandbox closes: {error:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn log(&self) -> String {
        let query = LogQuery {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            previous: false,
        };
        let files = self.runtime.log_files(&query).expect("the log's files");
        files.iter().map(|file| std::fs::read_to_string(file).unwrap_or_default()).collect()
    }
}

async fn containers(client: &CriClient) -> Vec<Container> {
    let listed = client.list_containers(ListContainersRequest::default()).await;
    listed.expect("a list").containers
}

fn lines(containerd: &Containerd, arguments: &[&str]) -> Vec<String> {
    let output = containerd.ctr().args(arguments).output().expect("ctr runs");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_lives_restarts_is_adopted_and_leaves_nothing() {
    if !Containerd::is_possible() {
        return;
    }
    let mut containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    let mut node = Node::start(&containerd).await;
    let (pod, record) = (pod(), record());

    // It starts.
    node.runtime.write_volumes(&record, &[volume()]).await.expect("the volume");
    node.runtime.open(&record, &pod).await.expect("a sandbox");
    let state = node.runtime.pod(&record.uid);
    assert_eq!((state.sandbox, state.sandbox_attempt), (SandboxState::Ready, 0));
    assert_eq!(state.addresses.len(), 1, "the network gives one address");
    node.runtime.start(&record, &pod, &launch()).await.expect("it starts");
    assert!(history(&node.runtime).is_some_and(|it| matches!(it.state, RunState::Running { .. })));
    until("its first line", || node.log().contains("hello shop").then_some(())).await;
    let command = ["cat", "/etc/app/name"].map(str::to_owned);
    let bounds = CommandBounds::of_handler(PATIENCE);
    let output = node.runtime.run(&record.uid, "main", &command, bounds).await.expect("it runs");
    assert_eq!((output.code, output.output.as_slice()), (Some(0), b"shop\n".as_slice()));
    let usage = node.runtime.usage().expect("it is measured");
    let pods = usage.pods().await.expect("a usage");
    let [used] = &pods[..] else { panic!("one pod runs: {pods:?}") };
    let [main] = &used.containers[..] else { panic!("one container runs: {used:?}") };
    assert_eq!((&used.pod, main.container.as_str()), (&record.uid, "main"));
    // The shell and its sleep, of a pod whose sandbox has a process, too.
    assert!(main.processes.cpu_ns > 0 && main.processes.count >= 1, "{main:?}");
    assert!(used.processes.count > main.processes.count, "{used:?}");
    let memory = 1..64 << 20;
    assert!(memory.contains(&main.processes.memory_bytes), "{main:?}");
    assert!(used.processes.memory_used_bytes >= main.processes.memory_used_bytes, "{used:?}");
    assert!(main.logs.bytes > 0 && used.volumes.inodes > 1, "{used:?}");
    let systems = usage.file_systems().await.expect("file systems");
    let places: Vec<_> = systems.iter().map(|system| system.mount_point.as_path()).collect();
    assert!(places[0] == node.dir.path() && places.len() >= 2, "{places:?}");

    // A kill has the right code, and the next run the next number.
    node.runtime.stop(&record.uid, "main", StopRequest::KILL).await.expect("it is killed");
    let exit = ended(&node.runtime, 0).await;
    assert_eq!((exit.code, exit.reason.as_str(), exit.interrupted), (137, "Error", false));
    until("the notice", || node.noticed.try_recv().ok().filter(|it| *it == record.uid)).await;
    node.runtime.start(&record, &pod, &launch()).await.expect("it starts again");
    let runs = history(&node.runtime).expect("runs");
    assert_eq!((runs.attempt, runs.previous.map(|exit| exit.code)), (1, Some(137)));
    // Before its trap is set, it ignores that it is asked to end.
    until("its first line again", || node.log().contains("hello shop").then_some(())).await;

    // containerd keeps the code on its disk a while after its event: before that, its death loses the code.
    let client = CriClient::new(containerd.socket());
    let has_ended = |it: &Container| it.state() == ContainerState::ContainerExited;
    let deadline = Instant::now() + PATIENCE;
    while !containers(&client).await.iter().any(has_ended) {
        assert!(Instant::now() < deadline, "containerd does not know the end");
        sleep(Duration::from_millis(20)).await;
    }

    // containerd dies and comes back; the container ran on.
    containerd.server().kill().expect("containerd is killed");
    let trouble = until("the trouble", || node.runtime.health().err()).await;
    assert!(trouble.contains("containerd.sock"), "{trouble}");
    containerd.server().start().expect("containerd starts again");
    until("the end of the trouble", || node.runtime.health().ok()).await;
    let runs = history(&node.runtime).expect("runs");
    assert_eq!(runs.attempt, 1);
    assert!(matches!(runs.state, RunState::Running { .. }), "{runs:?}");

    // Another pod worker adopts the pod.
    drop(node.runtime);
    (node.runtime, node.noticed) = open_in(&containerd, node.dir.path()).await;
    assert_eq!(node.runtime.pods(), std::slice::from_ref(&record.uid));
    let adopted = node.runtime.pod(&record.uid);
    assert_eq!((adopted.sandbox, adopted.addresses), (SandboxState::Ready, state.addresses));
    let runs = history(&node.runtime).expect("runs");
    assert_eq!((runs.attempt, runs.previous.map(|exit| exit.code)), (1, Some(137)));

    // It ends when it is asked to, and leaves its words.
    let request = StopRequest { within: Duration::from_secs(20), interrupts: true };
    node.runtime.stop(&record.uid, "main", request).await.expect("it is asked");
    let exit = ended(&node.runtime, 1).await;
    assert_eq!((exit.code, exit.message.as_deref(), exit.interrupted), (3, Some("bye\n"), true));

    // Nothing is left.
    node.close(&record.uid).await;
    assert_eq!(node.runtime.pod(&record.uid).sandbox, SandboxState::None);
    node.runtime.remove(&record).await.expect("the pod is removed");
    assert!(node.runtime.pods().is_empty());
    assert_eq!(lines(&containerd, &["containers", "list", "--quiet"]), Vec::<String>::new());
    assert_eq!(lines(&containerd, &["tasks", "list", "--quiet"]), Vec::<String>::new());
    let cgroup = format!("/sys/fs/cgroup/memory/headwater/burstable/pod{}", record.uid);
    assert!(!Path::new(&cgroup).exists(), "{cgroup}");
    assert!(node.log().is_empty());
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_named() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("none.sock");
    let error = open_error(dir.path(), &socket).await;
    assert!(matches!(error, OpenError::NoSocket { .. }), "{error:?}");
    assert!(names_what_to_do(&error, &socket), "{error}");
}

#[tokio::test]
async fn a_socket_that_a_killed_runtime_left_is_named_with_what_to_do() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
    assert!(socket.exists());
    let error = open_error(dir.path(), &socket).await;
    assert!(names_what_to_do(&error, &socket), "{error}");
}

async fn open_error(dir: &Path, socket: &Path) -> OpenError {
    let (notices, _noticed) = mpsc::channel(NOTICES_MAX);
    let node = "edge-1".parse().expect("a name");
    let settings = CriSettings::new(socket.to_owned());
    let opened = open(&settings, &node, dir, &Settings::default(), notices).await;
    opened.map(drop).expect_err("no runtime")
}

/// Whether the error names the socket once, and the setting that names another one.
fn names_what_to_do(error: &OpenError, socket: &Path) -> bool {
    let (text, socket) = (error.to_string(), socket.to_str().expect("a path"));
    text.matches(socket).count() == 1 && text.contains("--cri-endpoint")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_with_pods_of_another_agent_is_left_alone_unless_it_is_shared() {
    if !Containerd::is_possible() {
        return;
    }
    let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    let client = CriClient::new(containerd.socket());
    let metadata = PodSandboxMetadata {
        name: "foreign".to_owned(),
        uid: "1".to_owned(),
        namespace: "default".to_owned(),
        attempt: 0,
    };
    let config = PodSandboxConfig { metadata: Some(metadata), ..PodSandboxConfig::default() };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    client.run_pod_sandbox(request).await.expect("a sandbox of another agent");

    let dir = tempfile::tempdir().expect("a directory");
    let node = "edge-1".parse().expect("a name");
    let mut settings = CriSettings::new(containerd.endpoint().into());
    let (notices, _noticed) = mpsc::channel(NOTICES_MAX);
    let opened = open(&settings, &node, dir.path(), &Settings::default(), notices.clone()).await;
    let Err(error @ OpenError::ForeignPods { count: 1, .. }) = opened.map(drop) else {
        panic!("another agent uses it")
    };
    let text = error.to_string();
    assert!(text.contains("foreign") && text.contains("--share-runtime"), "{text}");

    settings.share_runtime = true;
    let runtime = open(&settings, &node, dir.path(), &Settings::default(), notices).await;
    let runtime = runtime.expect("it is shared");
    runtime.relist().await.expect("it is listed");
    assert_eq!(runtime.pods(), []);
    let sandboxes = client.list_pod_sandbox(ListPodSandboxRequest::default()).await;
    assert_eq!(sandboxes.expect("a list").items.len(), 1, "it is there");
}
