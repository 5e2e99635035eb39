//! Kafka itself: jars in the user's cache, and the class archive that makes it start in a second.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::{CacheFolder, Daemon, DaemonError, free_ports, run};

use crate::listener::Listener;
use crate::properties;
use crate::started_line::StartedLine;

/// The version in `kafka/pom.xml`.
const VERSION: &str = "4.3.1";

const POM: &str = include_str!("../kafka/pom.xml");
const ADMIN: &str = include_str!("../kafka/Admin.java");
const LOG4J: &str = include_str!("../kafka/log4j2.properties");

/// Any 16 bytes in URL-safe base64; topics have random ids of their own.
const CLUSTER_ID: &str = "aGVhZHdhdGVyLWtra2trMA";

/// The heap of the broker that the archive is made of.
const HEAP_MIB: u32 = 256;

/// Kafka, ready to be started.
#[derive(Debug)]
pub(crate) struct Distribution {
    home: CacheFolder,
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
    pub(crate) fn prepare() -> Result<Self, DaemonError> {
        let home = CacheFolder::find("Kafka's jars", &format!("kafka-{VERSION}"))?;
        let distribution = Self { home };
        let _lock = distribution.home.lock(|| ())?;
        let ready = distribution.file("ready");
        if !ready.is_file() {
            distribution.fetch()?;
            distribution.make_archive()?;
            File::create(&ready).map_err(DaemonError::file(&ready))?;
        }
        Ok(distribution)
    }

    fn fetch(&self) -> Result<(), DaemonError> {
        self.write("pom.xml", POM)?;
        self.write("log4j2.properties", LOG4J)?;
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f"]).arg(self.file("pom.xml"));
        maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
        maven.arg(format!("-DoutputDirectory={}", self.file("libs").display()));
        run("fetching Kafka's jars", &mut maven)
    }

    /// Starts a broker for nothing but the list of classes that it loads.
    fn make_archive(&self) -> Result<(), DaemonError> {
        let scratch = tempfile::tempdir().map_err(DaemonError::file(env::temp_dir()))?;
        let file = scratch.path().join("server.properties");
        let ports = [(1, free_ports()?)].into();
        let data = scratch.path().join("data");
        let text = properties::text(1, &ports, Listener::Plaintext, &data, &[].into());
        fs::write(&file, text).map_err(DaemonError::file(&file))?;
        self.format(&file, &[])?;
        let log = scratch.path().join("log");
        let command = self.kafka(&file, HEAP_MIB, Archive::Make);
        let mut broker = Daemon::new("broker 1", command, log.clone(), StartedLine::in_log(&log));
        // One that does not come up has no list worth keeping, and is killed.
        broker.start()?;
        // It may fail to write the archive; then brokers start without one.
        let _ = broker.stop();
        Ok(())
    }

    /// Formats the data folder that `properties` names, with the users of `scram`.
    pub(crate) fn format(&self, properties: &Path, scram: &[String]) -> Result<(), DaemonError> {
        let mut java = self.java(&[]);
        java.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]).arg(properties);
        for user in scram {
            java.args(["--add-scram", user]);
        }
        run("formatting a broker's data", &mut java)
    }

    /// The command that starts a broker.
    pub(crate) fn kafka(&self, properties: &Path, heap_mib: u32, archive: Archive) -> Command {
        let file = self.file("classes.jsa");
        let archive = match archive {
            Archive::Use => format!("-XX:SharedArchiveFile={}", file.display()),
            Archive::Make => format!("-XX:ArchiveClassesAtExit={}", file.display()),
        };
        let heap = format!("-Xmx{heap_mib}m");
        let options = ["-Xms64m", &heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", &archive];
        let mut java = self.java(&options);
        java.arg("kafka.Kafka").arg(properties);
        java
    }

    /// Does `what` to a cluster, as `Admin.java` takes it.
    pub(crate) fn administer(&self, what: &str, args: &[&str]) -> Result<(), DaemonError> {
        let scratch = tempfile::tempdir().map_err(DaemonError::file(env::temp_dir()))?;
        let source = scratch.path().join("Admin.java");
        fs::write(&source, ADMIN).map_err(DaemonError::file(&source))?;
        let mut java = self.java(&["-XX:TieredStopAtLevel=1"]);
        run(what, java.arg(source).args(args))
    }

    /// Java with `options` and Kafka's classes.
    fn java(&self, options: &[&str]) -> Command {
        let mut java = Command::new("java");
        let logging = self.file("log4j2.properties");
        java.args(options).arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
        java.arg("-cp").arg(self.file("libs").join("*"));
        java
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), DaemonError> {
        let path = self.file(name);
        fs::write(&path, text).map_err(DaemonError::file(&path))
    }
}
