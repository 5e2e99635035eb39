//! A whole Headwater on a real Kafka: the broker, and every part as a process of its own.
//!
//! A test with a fault: make a fleet, add parts, [`Fleet::write`] manifests, do the harm, and
//! [`Fleet::settle_and_check`]; in the midst of it, [`Fleet::check`].

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use headwater_broker::{Cluster, ClusterSettings};
use serde_json::Value;
use tempfile::TempDir;

use crate::memory;
use crate::part::Part;
use crate::running::{WAIT, headwater, output};

/// The polling interval.
pub(crate) const POLL: Duration = Duration::from_millis(100);

/// Short time limits for parts of the cloud, so that they notice a frozen broker in seconds.
const TIMEOUTS: [&str; 3] = ["delivery.timeout=4s", "request.timeout=2s", "unreachable.after=4s"];

/// The heartbeat settings of controllers, for a standby that takes over in seconds.
pub const CONTROLLER: &str = "heartbeat_interval = \"1s\"\nheartbeats_missed = 3\n";

/// Any free port; the hub writes the one that it gets.
const ANY_PORT: &str = "127.0.0.1:0";

/// The broker, the parts by their names, and the folder of manifests.
pub struct Fleet {
    /// Stopped first.
    parts: BTreeMap<String, Part>,
    /// The brokers.
    pub kafka: Cluster,
    /// The objects sent to a controller over a socket; nodes must have them as those of manifests.
    pub socket_objects: Vec<Value>,
    folder: TempDir,
    replicas: u32,
    /// Settings of the table `kafka` beside [`TIMEOUTS`].
    kafka_settings: Vec<String>,
}

impl Fleet {
    /// One broker, both topics with `partitions`, and no part yet.
    ///
    /// # Panics
    /// When Kafka does not start, or the topics cannot be made.
    pub fn on_one_broker(partitions: u32) -> Self {
        Self::on(ClusterSettings::default(), partitions)
    }

    /// The brokers of `settings`, topics with as many replicas, up to 3, and no part yet.
    ///
    /// # Panics
    /// When Kafka does not start, or the topics cannot be made.
    pub fn on(settings: ClusterSettings, partitions: u32) -> Self {
        Self::with_kafka_settings(settings, partitions, &[])
    }

    /// As [`Fleet::on`]; each of `kafka_settings` is a setting of the table `kafka`, for `topics create` and for
    /// every part of the cloud.
    ///
    /// # Panics
    /// When Kafka does not start, or the topics cannot be made.
    pub fn with_kafka_settings(
        settings: ClusterSettings,
        partitions: u32,
        kafka_settings: &[&str],
    ) -> Self {
        let kafka_settings = kafka_settings.iter().map(|it| (*it).to_owned()).collect();
        let replicas = settings.brokers.clamp(1, 3);
        let kafka = Cluster::start(settings).expect("Kafka starts");
        let folder = TempDir::new().expect("a temporary folder");
        let (parts, socket_objects) = (BTreeMap::new(), Vec::new());
        let fleet = Self { parts, kafka, socket_objects, folder, replicas, kafka_settings };
        fs::create_dir(fleet.manifests()).expect("a folder of manifests");
        fleet.make_topics(partitions);
        fleet
    }

    /// Creates both topics by the command line.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn make_topics(&self, partitions: u32) {
        let mut command = headwater();
        command.args(["topics", "create", "--partitions", &partitions.to_string()]);
        command.args(self.on_kafka(&[]));
        let made = output(&mut command);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// The folder of the fleet, with each part's data under its name.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder that controllers read.
    pub fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// Writes a manifest, whole or not at all.
    ///
    /// # Panics
    /// When the disk does not take it.
    pub fn write(&self, file: &str, manifest: &str) {
        let draft = self.folder.path().join("draft");
        fs::write(&draft, manifest).expect("a draft");
        fs::rename(draft, self.manifests().join(file)).expect("a manifest");
    }

    /// Starts a controller.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn add_controller(&mut self, name: &str) {
        self.add_controller_with(name, &[]);
    }

    /// Starts a controller with more words on its command line.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn add_controller_with(&mut self, name: &str, more: &[&str]) {
        let (manifests, file) = (self.manifests(), self.folder.path().join("controller.toml"));
        fs::write(&file, CONTROLLER).expect("a settings file");
        let [manifests, file] = [manifests, file].map(|path| path.display().to_string());
        let args = ["controller", "--manifests", &manifests, "--config", &file];
        let mut args: Vec<_> = args.iter().chain(more).map(|arg| (*arg).to_owned()).collect();
        args.extend(self.on_kafka(&TIMEOUTS));
        self.add(name, args);
    }

    /// Starts a controller that follows the Kubernetes API of `kubeconfig`, with the default heartbeats
    /// and more words on its command line.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn add_kubernetes_controller(&mut self, name: &str, kubeconfig: &Path, more: &[String]) {
        let kubeconfig = kubeconfig.display().to_string();
        let mut args = vec!["controller".to_owned(), "--kubeconfig".to_owned(), kubeconfig];
        args.extend(more.iter().cloned());
        args.extend(self.on_kafka(&TIMEOUTS));
        self.add(name, args);
    }

    /// Starts a controller that takes objects as JSON lines too, and gives the socket that it makes.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn add_source(&mut self, name: &str) -> PathBuf {
        let socket = self.folder.path().join(format!("{name}.sock"));
        self.add_controller_with(name, &["--objects", &socket.display().to_string()]);
        socket
    }

    /// Starts a hub and waits until it listens; started again, it does at the same port.
    ///
    /// # Panics
    /// When it does not listen in [`WAIT`].
    pub fn add_hub(&mut self, name: &str) {
        self.add_hub_with(name, &["--insecure-loopback"]);
    }

    /// As [`Fleet::add_hub`], with more arguments: at least the hub's identity.
    ///
    /// # Panics
    /// When it does not listen in [`WAIT`].
    pub fn add_hub_with(&mut self, name: &str, more: &[&str]) {
        let args = ["hub", "--listen", ANY_PORT, "--name", name];
        let mut args = args.iter().chain(more).map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        args.extend(self.on_kafka(&TIMEOUTS));
        self.add(name, args);
        let address =
            self.wait_for(&format!("{name} listens"), |fleet| fleet.part(name).address("hub.addr"));
        self.part_mut(name).say_instead(ANY_PORT, &address);
    }

    /// Where a hub listens.
    ///
    /// # Panics
    /// When it does not yet.
    pub fn hub_address(&self, hub: &str) -> SocketAddr {
        let address = self.part(hub).address("hub.addr").and_then(|address| address.parse().ok());
        address.expect("the hub listens")
    }

    /// Starts an edge that knows `hubs`; it reports pods as running without running them.
    ///
    /// # Panics
    /// When a hub does not listen yet, or the edge cannot be started at all.
    pub fn add_edge(&mut self, node: &str, hubs: &[&str]) {
        let hubs: Vec<_> = hubs.iter().map(|hub| self.hub_address(hub)).collect();
        self.add_edge_with(node, &hubs, &["--insecure-loopback"]);
    }

    /// As [`Fleet::add_edge`], with these hub addresses and more arguments: at least the edge's
    /// identity.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn add_edge_with(&mut self, node: &str, hubs: &[SocketAddr], more: &[&str]) {
        let hubs = hubs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let args = ["edge", "--node", node, "--hub", &hubs, "--runtime", "hollow"];
        self.add(node, args.iter().chain(more).map(|arg| (*arg).to_owned()).collect());
    }

    /// Starts a part with a command line of its own.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn add(&mut self, name: &str, args: Vec<String>) {
        let part = Part::start(self.folder.path(), name, args);
        let before = self.parts.insert(name.to_owned(), part);
        assert!(before.is_none(), "{name} is there already");
    }

    /// The part of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn part(&self, name: &str) -> &Part {
        self.parts.get(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// The part of this name, to do something to.
    ///
    /// # Panics
    /// When there is none.
    pub fn part_mut(&mut self, name: &str) -> &mut Part {
        self.parts.get_mut(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Every part, by name.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &Part)> {
        self.parts.iter().map(|(name, part)| (name.as_str(), part))
    }

    /// Waits until `look` gives something.
    ///
    /// # Panics
    /// It does not in [`WAIT`]; the message names the condition and has the output of every part.
    pub fn wait_for<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: not within {WAIT:?}\n{}", self.outputs());
            thread::sleep(POLL);
        }
    }

    /// Waits until the part reports that it is ready.
    ///
    /// # Panics
    /// When it does not in [`WAIT`].
    pub fn wait_until_reconciled(&self, name: &str) {
        self.wait_for(&format!("{name} reconciled"), |fleet| {
            (fleet.part(name).status()?["reconciled"] == true).then_some(())
        });
    }

    /// Compares the memory of every part, over all its processes so far, with its budget.
    ///
    /// # Panics
    /// When one took more (I12).
    pub fn check_memory(&self) {
        let edges = self.parts.values().filter(|part| part.kind() == "edge").count() as u64;
        for (name, part) in &self.parts {
            let Some(budget) = memory::budget(part.kind(), edges) else { continue };
            let checked = budget.check(part.peak_bytes());
            checked.unwrap_or_else(|over| panic!("{name}: {over}\n{}", self.outputs()));
        }
    }

    /// The output and the status of every part.
    pub fn outputs(&self) -> String {
        let one = |(name, part): (&String, &Part)| {
            // A frozen one would not answer.
            let status = (!part.stands_still()).then(|| part.text(&["status"])).flatten();
            let status = status.unwrap_or_default();
            format!("--- {name}\n{}--- status of {name}\n{status}", part.output())
        };
        self.parts.iter().map(one).collect()
    }

    fn on_kafka(&self, settings: &[&str]) -> Vec<String> {
        let replicas = format!("topic.replication.factor={}", self.replicas);
        let mut args = vec!["--kafka".to_owned(), self.kafka.bootstrap()];
        let settings = settings.iter().copied().chain([replicas.as_str()]);
        for set in settings.chain(self.kafka_settings.iter().map(String::as_str)) {
            args.extend(["--kafka-set".to_owned(), set.to_owned()]);
        }
        args
    }
}
