//! A whole Headwater on a real Kafka: the broker, and every part as a process of its own.
//!
//! A test with a fault: make a fleet, add parts, [`Fleet::write`] manifests, do the harm, and
//! [`Fleet::settle_and_check`]; in the midst of it, [`Fleet::check`].

mod settled;

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
use crate::running::{WAIT, headwater};

/// Between two looks.
const POLL: Duration = Duration::from_millis(100);

/// What a part of the cloud waits for at most where a test would wait for it, so that a frozen
/// broker is noticed in seconds.
const TIMEOUTS: [&str; 3] = ["delivery.timeout=4s", "request.timeout=2s", "unreachable.after=4s"];

/// How soon one that stands by takes the log over, likewise.
const CONTROLLER: &str = "heartbeat_interval = \"1s\"\nheartbeats_missed = 3\n";

/// Any free port, until a hub says which it is.
const ANY_PORT: &str = "127.0.0.1:0";

/// The broker, the parts by their names, and the folder of manifests.
pub struct Fleet {
    /// Stopped first.
    parts: BTreeMap<String, Part>,
    /// The brokers.
    pub kafka: Cluster,
    /// What was told to a controller over a socket, and is to be there as the manifests are.
    pub told: Vec<Value>,
    folder: TempDir,
    replicas: u32,
    /// Settings of the table `kafka` beside [`TIMEOUTS`].
    said: Vec<String>,
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
        Self::saying(settings, partitions, &[])
    }

    /// As [`Fleet::on`]; each of `said` is a setting of the table `kafka`, told to whoever makes
    /// the topics and to every part of the cloud.
    ///
    /// # Panics
    /// When Kafka does not start, or the topics cannot be made.
    pub fn saying(settings: ClusterSettings, partitions: u32, said: &[&str]) -> Self {
        let said = said.iter().map(|it| (*it).to_owned()).collect();
        let replicas = settings.brokers.clamp(1, 3);
        let kafka = Cluster::start(settings).expect("Kafka starts");
        let folder = TempDir::new().expect("a temporary folder");
        let (parts, told) = (BTreeMap::new(), Vec::new());
        let fleet = Self { parts, kafka, told, folder, replicas, said };
        fs::create_dir(fleet.manifests()).expect("a folder of manifests");
        fleet.make_topics(partitions);
        fleet
    }

    /// Makes both topics, as a person does.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn make_topics(&self, partitions: u32) {
        let mut command = headwater();
        command.args(["topics", "create", "--partitions", &partitions.to_string()]);
        command.args(self.on_kafka(&[]));
        let made = command.output().expect("headwater starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Where everything lies, each part's data under its name.
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

    /// As [`Fleet::add_hub`], for one that is told `more`: who it is, at least.
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

    /// As [`Fleet::add_edge`], for one that connects to these addresses and is told `more`: who it
    /// is, at least.
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
    /// When it does not in [`WAIT`]; says what was waited for, and what every part said.
    pub fn wait_for<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: not within {WAIT:?}\n{}", self.said());
            thread::sleep(POLL);
        }
    }

    /// Waits until the part says that it has everything.
    ///
    /// # Panics
    /// When it does not in [`WAIT`].
    pub fn wait_until_reconciled(&self, name: &str) {
        self.wait_for(&format!("{name} reconciled"), |fleet| {
            (fleet.part(name).status()?["reconciled"] == true).then_some(())
        });
    }

    /// Holds every part against what it may take of memory, over all its processes so far.
    ///
    /// # Panics
    /// When one took more (I12).
    pub fn check_memory(&self) {
        let edges = self.parts.values().filter(|part| part.kind() == "edge").count() as u64;
        for (name, part) in &self.parts {
            let Some(budget) = memory::budget(part.kind(), edges) else { continue };
            let checked = budget.check(part.peak_bytes());
            checked.unwrap_or_else(|over| panic!("{name}: {over}\n{}", self.said()));
        }
    }

    /// What every part said, and how it says it is.
    pub fn said(&self) -> String {
        let one = |(name, part): (&String, &Part)| {
            // A frozen one would not answer.
            let status = (!part.stands_still()).then(|| part.text(&["status"])).flatten();
            let status = status.unwrap_or_default();
            format!("--- {name}\n{}--- status of {name}\n{status}", part.said())
        };
        self.parts.iter().map(one).collect()
    }

    fn on_kafka(&self, settings: &[&str]) -> Vec<String> {
        let replicas = format!("topic.replication.factor={}", self.replicas);
        let mut args = vec!["--kafka".to_owned(), self.kafka.bootstrap()];
        let settings = settings.iter().copied().chain([replicas.as_str()]);
        for set in settings.chain(self.said.iter().map(String::as_str)) {
            args.extend(["--kafka-set".to_owned(), set.to_owned()]);
        }
        args
    }
}
