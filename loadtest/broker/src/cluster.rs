//! A cluster: one broker or several that are controllers of each other too.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use headwater_daemon::{Daemon, DaemonError, DataFolder, free_ports};

use crate::distribution::{Archive, Distribution};
use crate::listener::Listener;
use crate::properties::{self, Ports};
use crate::started_line::StartedLine;

/// The heap of a broker: enough for tests, little enough for three of them beside a build.
const HEAP_MIB: u32 = 256;

/// How a cluster is to be.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// How many brokers, at least 1; topics of Kafka's own get as many replicas, up to 3.
    pub brokers: u32,
    /// What clients must speak. Brokers among themselves speak in the clear, as `ANONYMOUS`.
    pub listener: Listener,
    /// Properties of every broker beside or instead of those that the cluster sets.
    pub properties: BTreeMap<String, String>,
    /// Users made when the data is formatted, as `kafka-storage --add-scram` takes them.
    pub scram: Vec<String>,
    /// Where the data lies; else in a folder that goes with the cluster. What is there already
    /// is started on as it is.
    pub data: Option<PathBuf>,
    /// The first port, of three for each broker; else any that are free.
    pub first_port: Option<u16>,
    /// The heap of each broker, in MiB.
    pub heap_mib: u32,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            brokers: 1,
            listener: Listener::default(),
            properties: BTreeMap::new(),
            scram: Vec::new(),
            data: None,
            first_port: None,
            heap_mib: HEAP_MIB,
        }
    }
}

/// A running cluster; its brokers are killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    brokers: BTreeMap<u32, Daemon>,
    ports: BTreeMap<u32, Ports>,
    distribution: Distribution,
    /// Dropped after the brokers.
    _folder: DataFolder,
}

impl Cluster {
    /// Starts one; when this returns every broker says that it runs.
    ///
    /// # Errors
    /// When Kafka cannot be had, or a broker does not come up.
    pub fn start(settings: ClusterSettings) -> Result<Self, DaemonError> {
        let distribution = Distribution::prepare()?;
        let top = DataFolder::open(settings.data.clone())?;
        let mut ports = BTreeMap::new();
        for node in 1..=settings.brokers.max(1) {
            let first = settings
                .first_port
                .and_then(|first| first.checked_add(3 * u16::try_from(node - 1).ok()?));
            let three = match first {
                Some(first) => [first, first.saturating_add(1), first.saturating_add(2)],
                None => free_ports()?,
            };
            ports.insert(node, three);
        }
        let mut brokers = BTreeMap::new();
        for node in ports.keys().copied() {
            let folder = top.path().join(format!("broker-{node}"));
            fs::create_dir_all(&folder).map_err(DaemonError::file(&folder))?;
            let data = folder.join("data");
            let file = folder.join("server.properties");
            let extra = &settings.properties;
            let text = properties::text(node, &ports, settings.listener, &data, extra);
            fs::write(&file, text).map_err(DaemonError::file(&file))?;
            if !data.join("meta.properties").is_file() {
                distribution.format(&file, &settings.scram)?;
            }
            let log = folder.join("broker.log");
            let command = distribution.kafka(&file, settings.heap_mib, Archive::Use);
            let started = StartedLine::in_log(&log);
            let mut broker = Daemon::new(format!("broker {node}"), command, log, started);
            broker.begin()?;
            brokers.insert(node, broker);
        }
        for broker in brokers.values_mut() {
            broker.started()?;
        }
        Ok(Self { brokers, ports, distribution, _folder: top })
    }

    /// Where clients begin, as `bootstrap.servers` takes it.
    pub fn bootstrap(&self) -> String {
        let one = |ports: &Ports| format!("127.0.0.1:{}", ports[0]);
        self.ports.values().map(one).collect::<Vec<_>>().join(",")
    }

    /// Grants rights, where the properties name an authorizer and `User:ANONYMOUS` among the
    /// super users: each a principal, an operation, the kind of resource, and its name; one that
    /// ends with `*` is a prefix.
    ///
    /// # Errors
    /// When Kafka does not take them.
    pub fn allow(&self, rights: &[[&str; 4]]) -> Result<(), DaemonError> {
        let rights: Vec<&str> = rights.iter().flatten().copied().collect();
        self.administer("granting rights", "allow", &rights)
    }

    /// Changes settings of a topic: each a name and a value.
    ///
    /// # Errors
    /// When Kafka does not take them.
    pub fn set(&self, topic: &str, settings: &[[&str; 2]]) -> Result<(), DaemonError> {
        let mut args = vec![topic];
        args.extend(settings.iter().flatten());
        self.administer("changing a topic's settings", "set", &args)
    }

    /// Deletes topics, and returns when none of them is there any more.
    ///
    /// # Errors
    /// When Kafka does not do it.
    pub fn delete(&self, topics: &[&str]) -> Result<(), DaemonError> {
        self.administer("deleting topics", "delete", topics)
    }

    fn administer(&self, what: &str, thing: &str, rest: &[&str]) -> Result<(), DaemonError> {
        // The listener between brokers needs no authentication.
        let one = |ports: &Ports| format!("127.0.0.1:{}", ports[1]);
        let brokers = self.ports.values().map(one).collect::<Vec<_>>().join(",");
        let mut args = vec![brokers.as_str(), thing];
        args.extend_from_slice(rest);
        self.distribution.administer(what, &args)
    }

    /// The broker with this number, from 1.
    ///
    /// # Panics
    /// Where the cluster has none of that number.
    pub fn broker(&mut self, node: u32) -> &mut Daemon {
        let brokers = self.brokers.len();
        let broker = self.brokers.get_mut(&node);
        broker.unwrap_or_else(|| panic!("broker {node} of a cluster of {brokers}"))
    }

    /// All of them.
    pub fn brokers(&mut self) -> impl Iterator<Item = &mut Daemon> {
        self.brokers.values_mut()
    }
}
