//! What a run loads: `headwater up` in one process, the parts as processes on a real Kafka, or a
//! deployment that is there already.
//!
//! The first two the harness starts, on loopback, and leaves nothing behind. What their databases
//! and their log hold can be read once they are stopped.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use headwater_broker::{Cluster, ClusterSettings};
use headwater_e2e::part::Part;
use headwater_e2e::running::{built, headwater};
use headwater_event::{NameError, NodeName};
use tempfile::TempDir;

use crate::deployment::Deployment;
use crate::failure::{Attempt, Failure};
use crate::scenario::{Act, TargetKind};

/// How long a part may take to come up. Far more than it needs: two cores may be busy with
/// something else.
const START_MAX: Duration = Duration::from_secs(90);

/// Between two looks.
const POLL: Duration = Duration::from_millis(50);

/// Any free port, until a hub says which it is.
const ANY_PORT: &str = "127.0.0.1:0";

/// The names of the parts.
pub(crate) const UP: &str = "up";
pub(crate) const CONTROLLER: &str = "controller";
pub(crate) const HUB: &str = "hub";
/// The second controller of a cluster.
pub const STANDBY: &str = "standby";
pub(crate) const BROKER: &str = "broker";

/// What a run runs on, and where that is.
#[derive(Clone, Debug)]
pub enum Place {
    /// See [`TargetKind::Embedded`].
    Embedded,
    /// See [`TargetKind::Cluster`].
    Cluster,
    /// See [`TargetKind::Attached`].
    Attached(Deployment),
}

/// What is started.
#[derive(Clone, Debug)]
pub struct TargetSettings {
    /// What it is.
    pub place: Place,
    /// The nodes.
    pub nodes: Vec<NodeName>,
    /// How the hub of a cluster reaches the pods of its edges; `None`: it does not, and the pods are hollow.
    pub streams: Option<StreamSettings>,
}

/// Streams to pods through a hub. The pods are processes, and their logs can be read.
#[derive(Clone, Copy, Debug)]
pub struct StreamSettings {
    /// The port of the hub for them.
    pub port: u16,
    /// KiB a second of all streams of an edge; 0: as many as there is room for.
    pub kib_per_second: u64,
}

/// A running Headwater.
pub struct Target {
    settings: TargetSettings,
    /// Stopped first.
    parts: BTreeMap<String, Part>,
    kafka: Option<Cluster>,
    objects: PathBuf,
    folder: TempDir,
}

impl Place {
    /// Which kind of target it is.
    pub fn kind(&self) -> TargetKind {
        match self {
            Self::Embedded => TargetKind::Embedded,
            Self::Cluster => TargetKind::Cluster,
            Self::Attached(_) => TargetKind::Attached,
        }
    }

    /// The names of `count` nodes: as `--nodes N` has them, or on a deployment such as no other run
    /// has.
    ///
    /// # Errors
    /// Never for a count that a scenario may have.
    pub fn nodes(&self, count: usize) -> Result<Vec<NodeName>, Failure> {
        let prefix = match self {
            Self::Embedded | Self::Cluster => "node".to_owned(),
            Self::Attached(_) => format!("loadtest-{:08x}", rand::random::<u32>()),
        };
        let names = (1..=count).map(|number| format!("{prefix}-{number}").parse::<NodeName>());
        names.collect::<Result<_, NameError>>().tried("naming nodes")
    }
}

impl Target {
    /// Starts it; when this returns the objects socket takes lines.
    ///
    /// # Errors
    /// When a part does not come up; nothing runs then.
    pub fn start(settings: TargetSettings) -> Result<Self, Failure> {
        let folder = TempDir::with_prefix("hwlt-").tried("no folder for its data")?;
        let objects = match &settings.place {
            Place::Attached(deployment) => deployment.objects.clone(),
            Place::Embedded | Place::Cluster => {
                built().map_err(|at| {
                    let build = "build it with `cargo build -p headwater --bins`";
                    let at = at.display();
                    Failure::of(format!(
                        "{at} is missing: {build}, or start by `cargo xtask loadtest`"
                    ))
                })?;
                folder.path().join("objects.sock")
            }
        };
        let mut target = Self { settings, parts: BTreeMap::new(), kafka: None, objects, folder };
        match target.settings.place {
            Place::Embedded => target.start_up()?,
            Place::Cluster => target.start_cluster()?,
            // Nothing is started, so that nothing is stopped either.
            Place::Attached(_) => target.look_for_objects()?,
        }
        Ok(target)
    }

    fn start_up(&mut self) -> Result<(), Failure> {
        let objects = self.objects.display().to_string();
        let nodes = self.settings.nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
        let nodes = nodes.join(",");
        self.add(UP, &["up", "--objects", &objects, "--nodes", &nodes, "--runtime", "hollow"]);
        self.await_objects(UP)?;
        self.wait(UP, "its status", |part| part.status().map(drop))
    }

    fn start_cluster(&mut self) -> Result<(), Failure> {
        let kafka = Cluster::start(ClusterSettings::default()).tried("Kafka does not run")?;
        let brokers = kafka.bootstrap();
        self.kafka = Some(kafka);
        create_topics(&brokers)?;
        let kafka = ["--kafka", &brokers, "--kafka-set", "topic.replication.factor=1"];
        let objects = self.objects.display().to_string();
        self.add(CONTROLLER, &[&["controller", "--objects", &objects][..], &kafka].concat());
        let hub = ["hub", "--listen", ANY_PORT, "--insecure-loopback", "--name", HUB];
        if let Some(StreamSettings { kib_per_second, .. }) = self.settings.streams {
            let config = format!("[streams]\nkib_per_second = {kib_per_second}\n");
            fs::write(self.edge_config(), config).tried("the settings of edges")?;
        }
        let port = self.settings.streams.map(|streams| format!("127.0.0.1:{}", streams.port));
        let door =
            port.as_deref().map(|at| ["--kubelet-listen", at, "--kubelet-insecure-loopback"]);
        let door = door.as_ref().map_or(&[][..], |door| &door[..]);
        self.add(HUB, &[&hub[..], door, &kafka].concat());
        let address = self.wait(HUB, "an address", |part| part.address("hub.addr"))?;
        if let Some(hub) = self.parts.get_mut(HUB) {
            hub.say_instead(ANY_PORT, &address);
        }
        self.await_objects(CONTROLLER)?;
        self.wait(CONTROLLER, "that it has reconciled", |part| {
            (part.status()?["reconciled"] == true).then_some(())
        })
    }

    /// The settings of edges with streams.
    fn edge_config(&self) -> PathBuf {
        self.folder.path().join("edge.toml")
    }

    fn look_for_objects(&self) -> Result<(), Failure> {
        let socket = UnixStream::connect(&self.objects);
        socket.map(drop).tried(&format!("the objects socket {}", self.objects.display()))
    }

    /// Starts the edge of a node, which reaches the hub at `hub`; in one process there is one
    /// already.
    pub fn start_edge(&mut self, node: &NodeName, hub: SocketAddr) {
        if matches!(self.settings.place, Place::Cluster) {
            let (name, hub) = (node.as_str(), hub.to_string());
            let edge = ["edge", "--node", name, "--hub", &hub, "--insecure-loopback"];
            let config = self.edge_config().display().to_string();
            let runtime = match self.settings.streams {
                None => &["--runtime", "hollow"][..],
                Some(_) => &["--runtime", "process", "--allow-root", "--config", &config],
            };
            self.add(name, &[&edge[..], runtime].concat());
        }
    }

    /// Removes the objects of a run from a deployment: nothing else outlives a run.
    ///
    /// # Errors
    /// As [`Deployment::clear`].
    pub async fn clear(&self) -> Result<(), Failure> {
        match &self.settings.place {
            Place::Attached(deployment) => deployment.clear().await,
            Place::Embedded | Place::Cluster => Ok(()),
        }
    }

    fn add(&mut self, name: &str, args: &[&str]) {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.parts.insert(name.to_owned(), Part::start(self.folder.path(), name, args));
    }

    fn await_objects(&self, part: &str) -> Result<(), Failure> {
        self.wait(part, "its objects socket", |_| UnixStream::connect(&self.objects).ok().map(drop))
    }

    fn wait<T>(
        &self,
        name: &str,
        wanted: &'static str,
        look: impl Fn(&Part) -> Option<T>,
    ) -> Result<T, Failure> {
        let part = self.part(name)?;
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Some(found) = look(part) {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                let (within, output) = (START_MAX.as_secs(), part.output());
                let late = format!("{name} does not start within {within} s: {wanted}\n{output}");
                return Err(Failure::of(late));
            }
            thread::sleep(POLL);
        }
    }

    /// Where load enters.
    pub fn objects(&self) -> &Path {
        &self.objects
    }

    /// Where the hub listens, of a cluster or a deployment.
    pub fn hub(&self) -> Option<SocketAddr> {
        if let Place::Attached(deployment) = &self.settings.place {
            return Some(deployment.hub);
        }
        self.parts.get(HUB)?.address("hub.addr")?.parse().ok()
    }

    /// The operator socket of the part that has the cloud's picture.
    pub fn picture(&self) -> PathBuf {
        if let Place::Attached(deployment) = &self.settings.place {
            return deployment.operator.clone();
        }
        self.data(self.cloud()).join("headwater.sock")
    }

    /// The local API of an edge that was started here.
    pub fn edge_socket(&self, node: &NodeName) -> PathBuf {
        self.node_data(node).join("edge.sock")
    }

    /// Where the metrics of a part are served; of an edge by its node's name.
    pub fn metrics(&self, part: &str) -> Option<SocketAddr> {
        if let Place::Attached(deployment) = &self.settings.place {
            return (part == CONTROLLER).then_some(deployment.metrics);
        }
        self.parts.get(part)?.address("metrics.addr")?.parse().ok()
    }

    /// The processes that run, by what they are: parts, edges by their node, brokers.
    pub fn processes(&mut self) -> Vec<(String, u32)> {
        let parts = self.parts.iter();
        let mut found: Vec<_> =
            parts.filter_map(|(name, part)| Some((name.clone(), part.process_id()?))).collect();
        let brokers = self.kafka.iter_mut().flat_map(Cluster::brokers);
        found.extend(brokers.filter_map(|broker| Some((BROKER.to_owned(), broker.pid()?))));
        found
    }

    /// The names of the parts that serve metrics of a hub and of a controller.
    pub fn hub_part(&self) -> &'static str {
        match self.settings.place {
            Place::Embedded => UP,
            Place::Cluster | Place::Attached(_) => HUB,
        }
    }

    /// The part that has the cloud's picture.
    pub fn cloud(&self) -> &'static str {
        match self.settings.place {
            Place::Embedded => UP,
            Place::Cluster | Place::Attached(_) => CONTROLLER,
        }
    }

    /// Kafka's brokers, as clients begin, of a cluster or a deployment.
    pub fn brokers(&self) -> Option<String> {
        if let Place::Attached(deployment) = &self.settings.place {
            return Some(deployment.kafka.clone());
        }
        self.kafka.as_ref().map(Cluster::bootstrap)
    }

    /// Does something to a part, or to a broker.
    ///
    /// # Errors
    /// When there is no such part, or that cannot be done to it.
    pub fn act(&mut self, act: Act, to: &str) -> Result<(), Failure> {
        if to == BROKER {
            return self.act_on_broker(act);
        }
        let part = self.parts.get_mut(to).ok_or_else(|| missing(to))?;
        match act {
            Act::Kill => part.kill(),
            Act::Start if part.process_id().is_none() => part.start_again(),
            Act::Freeze => part.freeze(),
            Act::Thaw => part.thaw(),
            act => return Err(impossible(act, to)),
        }
        Ok(())
    }

    fn act_on_broker(&mut self, act: Act) -> Result<(), Failure> {
        let broker = self.kafka.as_mut().ok_or_else(|| missing(BROKER))?.broker(1);
        let acted = match act {
            Act::Kill => broker.kill(),
            Act::Start => broker.start(),
            Act::Freeze => broker.freeze(),
            Act::Thaw => broker.thaw(),
            act => return Err(impossible(act, BROKER)),
        };
        acted.tried("Kafka does not run")
    }

    /// Cuts the link of an edge that was started here, or mends it.
    ///
    /// # Errors
    /// The part that serves the node refuses.
    pub fn set_link(&self, node: &NodeName, cut: bool) -> Result<(), Failure> {
        let verb = if cut { "cut" } else { "restore" };
        let output = self.part(self.hub_part())?.ask(&["link", verb, node.as_str()]);
        if output.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::of(format!("`headwater link {verb} {node}` failed: {error}")))
    }

    /// What a part answers to `headwater ARGS`; `None`: there is no such part.
    pub fn ask(&self, part: &str, args: &[&str]) -> Option<Output> {
        self.parts.get(part).map(|part| part.ask(args))
    }

    /// Starts a second controller of a cluster, with an objects socket of its own. Returns the socket,
    /// which the controller opens once it is a standby.
    ///
    /// # Errors
    /// When the target has no Kafka.
    pub fn start_standby(&mut self) -> Result<PathBuf, Failure> {
        let brokers = self.brokers().ok_or_else(|| missing(BROKER))?;
        let socket = self.folder.path().join("standby.sock");
        let objects = socket.display().to_string();
        let kafka = ["--kafka", &brokers, "--kafka-set", "topic.replication.factor=1"];
        self.add(STANDBY, &[&["controller", "--objects", &objects][..], &kafka].concat());
        Ok(socket)
    }

    /// Stops a part in order, as a service manager does.
    ///
    /// # Errors
    /// When there is no such part.
    pub fn stop_part(&mut self, part: &str) -> Result<(), Failure> {
        self.parts.get_mut(part).ok_or_else(|| missing(part))?.stop();
        Ok(())
    }

    /// The output of a part so far.
    pub fn said(&self, part: &str) -> String {
        self.parts.get(part).map(Part::output).unwrap_or_default()
    }

    /// Stops all but Kafka in order: edges, hub, controller. What they hold can then be read.
    pub fn stop(&mut self) {
        let is_edge = |name: &String| ![UP, CONTROLLER, HUB].contains(&name.as_str());
        let edges: Vec<String> = self.parts.keys().filter(|name| is_edge(name)).cloned().collect();
        let rest = [HUB, CONTROLLER, UP].map(str::to_owned);
        for name in edges.into_iter().chain(rest) {
            if let Some(part) = self.parts.get_mut(&name) {
                part.thaw();
                part.stop();
            }
        }
    }

    /// What it runs on.
    pub(crate) fn place(&self) -> &Place {
        &self.settings.place
    }

    /// The data directory of a part.
    pub fn data(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    /// The data directory of a node.
    pub fn node_data(&self, node: &NodeName) -> PathBuf {
        let part = match self.settings.place {
            Place::Embedded => UP,
            Place::Cluster | Place::Attached(_) => node.as_str(),
        };
        self.data(part).join("nodes").join(node.as_str())
    }

    fn part(&self, name: &str) -> Result<&Part, Failure> {
        self.parts.get(name).ok_or_else(|| missing(name))
    }
}

pub(crate) fn missing(part: &str) -> Failure {
    Failure::of(format!("there is no {part} in this target"))
}

pub(crate) fn impossible(act: Act, part: &str) -> Failure {
    Failure::of(format!("{act} cannot be done to {part}"))
}

/// Creates both topics.
fn create_topics(brokers: &str) -> Result<(), Failure> {
    let create = ["topics", "create", "--replication-factor", "1", "--kafka", brokers];
    let output = headwater().args(create).output();
    let output = output.tried("the topics cannot be created")?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::of(format!("the topics cannot be created: {error}")))
}
