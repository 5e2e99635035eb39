//! A gateway: an edge that runs containers, and the cloud that sends it pods and shows their statuses.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use headwater_cri::client::CriClient;
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings};
use headwater_e2e::fleet::Fleet;
use headwater_e2e::pressure::NO_DISK_PRESSURE;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::kernel::{memory_bytes, processor_time};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::kafka::{PARTITIONS, runtime};
use crate::limit::cri::COMMAND;
use crate::pod_picture::PodPicture;
use crate::process::memory_at_rest;
use crate::waiting::wait;

const CONTROLLER: &str = "controller";
const HUB: &str = "hub";
const NODE: &str = "gw-1";

/// The socket of the operator API in a data directory.
const OPERATOR_SOCKET: &str = "headwater.sock";

/// containerd, Kafka, controller, hub, and an edge with its pod worker: a process each.
pub(crate) struct Gateway {
    pub(crate) runtime: Runtime,
    pub(crate) picture: PodPicture,
    pub(crate) client: CriClient,
    source: UnixStream,
    fleet: Fleet,
    pub(crate) containerd: Containerd,
}

impl Gateway {
    /// Starts everything.
    ///
    /// # Errors
    /// When a part does not start.
    pub(crate) fn start() -> Result<Self, Failure> {
        let runtime = runtime("gateway", 2)?;
        let containerd = Containerd::start(ContainerdSettings::default()).tried("containerd")?;
        let mut fleet = Fleet::on_one_broker(PARTITIONS);
        let source = fleet.add_source(CONTROLLER);
        fleet.add_hub(HUB);
        let (hub, endpoint) = (fleet.hub_address(HUB).to_string(), containerd.endpoint());
        let settings = fleet.folder().join("edge.toml");
        std::fs::write(&settings, NO_DISK_PRESSURE).tried("the settings of the edge")?;
        let settings = settings.display().to_string();
        let args = ["edge", "--config", &settings, "--node", NODE, "--hub", &hub];
        let args = args.into_iter().chain(["--insecure-loopback"]);
        let args = args.chain(["--runtime", "cri", "--cri-endpoint", &endpoint]);
        fleet.add(NODE, args.map(str::to_owned).collect());
        let operator = fleet.part(CONTROLLER).data().join(OPERATOR_SOCKET);
        let picture = PodPicture::start(&runtime, operator);
        let source = wait("the objects socket", || UnixStream::connect(&source).ok())?;
        let client = runtime.block_on(async { CriClient::new(containerd.socket()) });
        Ok(Self { runtime, picture, client, source, fleet, containerd })
    }

    /// Gives the source a pod in the network of the host, with one container that runs until it is ended.
    ///
    /// # Errors
    /// When the socket takes no lines.
    pub(crate) fn create(&mut self, name: &str, restart_policy: &str) -> Result<(), Failure> {
        let container = json!({"name": "main", "image": BUSYBOX_IMAGE, "command": COMMAND});
        self.say(&json!({"object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": NODE, "hostNetwork": true, "restartPolicy": restart_policy,
                "terminationGracePeriodSeconds": 0, "containers": [container],
            },
        }}))
    }

    /// Takes a pod from the source.
    ///
    /// # Errors
    /// When the socket takes no lines.
    pub(crate) fn delete(&mut self, name: &str) -> Result<(), Failure> {
        self.say(&json!({"delete": format!("default/pod/{name}")}))
    }

    fn say(&mut self, line: &Value) -> Result<(), Failure> {
        let line = format!("{line}\n");
        self.source.write_all(line.as_bytes()).tried("the objects socket")
    }

    /// Kills the process of the only container that runs, and returns the moment. The runtime has process ids of its
    /// own, so the command names it.
    ///
    /// # Errors
    /// When none runs.
    pub(crate) fn kill_container(&self) -> Result<Instant, Failure> {
        let command = format!("{}\0", COMMAND.join("\0"));
        let runs = |id: &u32| {
            let words = std::fs::read(format!("/proc/{id}/cmdline"));
            words.is_ok_and(|words| words == command.as_bytes())
        };
        // The runtime reports a start before the process runs its command.
        let id = wait("the process of the container", || {
            processes().find(runs).and_then(|id| i32::try_from(id).ok())
        })?;
        let id = Pid::from_raw(id);
        let at = Instant::now();
        kill(id, Signal::SIGKILL).tried("its end")?;
        Ok(at)
    }

    /// The memory of the edge with its pod worker, once it has come to rest, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub(crate) fn edge_bytes(&self) -> Result<f64, Failure> {
        memory_at_rest(self.edge()?)
    }

    /// Their time on a processor so far.
    ///
    /// # Errors
    /// When it does not run.
    pub(crate) fn edge_time(&self) -> Result<Duration, Failure> {
        processor_time(self.edge()?).tried("it does not run")
    }

    fn edge(&self) -> Result<u32, Failure> {
        self.fleet.part(NODE).process_id().tried("the edge does not run")
    }

    /// The memory of containerd, and that of its shims, in bytes.
    pub(crate) fn runtime_bytes(&self) -> (f64, f64) {
        let folder = self.containerd.data().display().to_string();
        let mut bytes = (0.0, 0.0);
        for id in processes() {
            let Some(program) = program_of(id, &folder) else { continue };
            let memory = memory_bytes(id).unwrap_or(0) as f64;
            match program.as_str() {
                "containerd" => bytes.0 += memory,
                shim if shim.starts_with("containerd-shim") => bytes.1 += memory,
                _ => {}
            }
        }
        bytes
    }

    /// Cuts the power of the gateway and its link to the cloud. Returns when containerd serves again, and the edge
    /// starts.
    ///
    /// # Errors
    /// When containerd does not start again.
    pub(crate) fn cut_power(&mut self) -> Result<Instant, Failure> {
        self.fleet.part_mut(HUB).kill();
        self.fleet.part_mut(NODE).kill();
        self.containerd.cut_power().tried("containerd again")?;
        let began = Instant::now();
        self.fleet.part_mut(NODE).start_again();
        Ok(began)
    }

    /// Waits until the edge itself shows `count` pods that are Ready with a container of this start of the machine.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn wait_ready_again(&self, count: usize) -> Result<Instant, Failure> {
        wait("pods that are Ready again", || {
            let shown = self.fleet.part(NODE).json(&["get", "pods", "-o", "json"])?;
            let is_ready = |pod: &&Value| {
                let status = &pod["status"];
                let conditions = status["conditions"].as_array().into_iter().flatten();
                let mut ready = conditions.filter(|it| it["type"] == "Ready");
                ready.any(|it| it["status"] == "True")
                    && status["containerStatuses"][0]["restartCount"] == 1
            };
            let ready = shown["items"].as_array()?.iter().filter(is_ready).count();
            (ready == count).then(Instant::now)
        })
    }
}

/// The ids of all processes of the machine.
fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The program of a process whose arguments name the folder.
fn program_of(id: u32, folder: &str) -> Option<String> {
    let words = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let words = String::from_utf8_lossy(&words);
    let program = Path::new(words.split('\0').next()?).file_name()?.to_str()?.to_owned();
    words.contains(folder).then_some(program)
}
