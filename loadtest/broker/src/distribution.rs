//! Kafka itself: jars in the user's cache, and the class archive that makes it start in a second.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::error::BrokerError;
use crate::listener::Listener;
use crate::ports::free_ports;
use crate::process::{self, Process};
use crate::properties;
use crate::startup::wait_for_start;

/// The version in `kafka/pom.xml`.
const VERSION: &str = "4.3.1";

const POM: &str = include_str!("../kafka/pom.xml");
const ADMIN: &str = include_str!("../kafka/Admin.java");
const LOG4J: &str = include_str!("../kafka/log4j2.properties");

/// Any 16 bytes in URL-safe base64; topics have random ids of their own.
const CLUSTER_ID: &str = "aGVhZHdhdGVyLWtra2trMA";

/// How long the broker that the archive is made of may take to stop and write it.
const ARCHIVE_WITHIN: Duration = Duration::from_secs(60);

/// The heap of that broker.
const HEAP_MIB: u32 = 256;

/// Kafka, ready to be started.
#[derive(Debug)]
pub(crate) struct Distribution {
    home: PathBuf,
}

/// What a start does with the class archive.
#[derive(Clone, Copy)]
pub(crate) enum Archive {
    /// Starts quicker by it; does without where it is missing.
    Use,
    /// Writes it at its end.
    Make,
}

impl Distribution {
    /// Finds it in the cache, or fetches it there, once on a machine: several processes may ask
    /// at the same time.
    ///
    /// # Errors
    /// When Maven or Java are missing or fail.
    pub(crate) fn prepare() -> Result<Self, BrokerError> {
        let distribution = Self { home: home()? };
        let home = &distribution.home;
        fs::create_dir_all(home).map_err(BrokerError::file(home))?;
        let lock = home.join("lock");
        let held = File::create(&lock).map_err(BrokerError::file(&lock))?;
        held.lock().map_err(BrokerError::file(&lock))?;
        let ready = home.join("ready");
        if !ready.is_file() {
            distribution.fetch()?;
            distribution.make_archive()?;
            File::create(&ready).map_err(BrokerError::file(&ready))?;
        }
        Ok(distribution)
    }

    fn fetch(&self) -> Result<(), BrokerError> {
        self.write("pom.xml", POM)?;
        self.write("log4j2.properties", LOG4J)?;
        let args = [
            "-q".to_owned(),
            "-B".to_owned(),
            "-f".to_owned(),
            self.home.join("pom.xml").display().to_string(),
            "dependency:copy-dependencies".to_owned(),
            "-DincludeScope=runtime".to_owned(),
            format!("-DoutputDirectory={}", self.home.join("libs").display()),
        ];
        process::run("fetching Kafka's jars", "mvn", &args)
    }

    /// Starts a broker for nothing but the list of classes that it loads.
    fn make_archive(&self) -> Result<(), BrokerError> {
        let scratch = tempfile::tempdir().map_err(BrokerError::file(env::temp_dir()))?;
        let file = scratch.path().join("server.properties");
        let ports = [(1, free_ports()?)].into();
        let data = scratch.path().join("data");
        let text = properties::text(1, &ports, Listener::Plaintext, &data, &[].into());
        fs::write(&file, text).map_err(BrokerError::file(&file))?;
        self.format(&file, &[])?;
        let log = scratch.path().join("log");
        let process = Process::java(&self.kafka(&file, HEAP_MIB, Archive::Make), &log)?;
        let started = wait_for_start(1, &process, &log);
        // One that did not come up has no list worth keeping, and is not to stay.
        let signal = if started.is_ok() { Signal::SIGTERM } else { Signal::SIGKILL };
        let _ = process.signal(signal);
        if process.ended_within(ARCHIVE_WITHIN).is_none() {
            let _ = process.signal(Signal::SIGKILL);
        }
        started
    }

    /// Formats the data folder that `properties` names, with the users of `scram`.
    pub(crate) fn format(&self, properties: &Path, scram: &[String]) -> Result<(), BrokerError> {
        let mut args = vec!["-cp".to_owned(), self.class_path(), self.logging()];
        args.extend(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"].map(Into::into));
        args.push(properties.display().to_string());
        for user in scram {
            args.extend(["--add-scram".to_owned(), user.clone()]);
        }
        process::run("formatting a broker's data", "java", &args)
    }

    /// The arguments of `java` that start a broker.
    pub(crate) fn kafka(&self, properties: &Path, heap_mib: u32, archive: Archive) -> Vec<String> {
        let file = self.home.join("classes.jsa");
        let archive = match archive {
            Archive::Use => format!("-XX:SharedArchiveFile={}", file.display()),
            Archive::Make => format!("-XX:ArchiveClassesAtExit={}", file.display()),
        };
        vec![
            "-Xms64m".to_owned(),
            format!("-Xmx{heap_mib}m"),
            "-XX:+UseSerialGC".to_owned(),
            "-XX:TieredStopAtLevel=1".to_owned(),
            archive,
            self.logging(),
            "-cp".to_owned(),
            self.class_path(),
            "kafka.Kafka".to_owned(),
            properties.display().to_string(),
        ]
    }

    /// Does `what` to a cluster, as `Admin.java` takes it.
    pub(crate) fn administer(&self, what: &str, args: &[String]) -> Result<(), BrokerError> {
        let scratch = tempfile::tempdir().map_err(BrokerError::file(env::temp_dir()))?;
        let source = scratch.path().join("Admin.java");
        fs::write(&source, ADMIN).map_err(BrokerError::file(&source))?;
        let mut all = vec![
            "-XX:TieredStopAtLevel=1".to_owned(),
            self.logging(),
            "-cp".to_owned(),
            self.class_path(),
            source.display().to_string(),
        ];
        all.extend_from_slice(args);
        process::run(what, "java", &all)
    }

    fn class_path(&self) -> String {
        format!("{}/*", self.home.join("libs").display())
    }

    fn logging(&self) -> String {
        format!("-Dlog4j2.configurationFile={}", self.home.join("log4j2.properties").display())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), BrokerError> {
        let path = self.home.join(name);
        fs::write(&path, text).map_err(BrokerError::file(&path))
    }
}

fn home() -> Result<PathBuf, BrokerError> {
    let wanted = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = wanted("XDG_CACHE_HOME").or_else(|| wanted("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or(BrokerError::NoCache)?;
    Ok(cache.join("headwater").join(format!("kafka-{VERSION}")))
}
