//! The evidence for the checkers of `loadtest/check`: the databases of a data directory while no
//! process uses them, or those of a fleet's parts and the topics between them.
//!
//! It reads copies, because opening a database writes to it.

mod fleet;
mod log;
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater_check::fencing::ReaderOutcome;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_event::record::LogMetadata;
use headwater_event::{
    Envelope, NodeName, NodeProgress, Offset, Partition, Report, ResourceKey, Seq, StreamId,
};
use headwater_log::acceptance::RepairKey;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Engine, EngineError, Schema, schema};
use headwater_telemetry::error_chain;
use headwater_view::{PodStatusFold, ReportedStatus};

pub use self::node::{NodeEvidence, Replica, replicas};

/// The most pods of a node that are looked at: far more than any test has.
const PODS_MAX: usize = 100_000;

/// The statuses that count in the picture of a controller.
pub type Picture = BTreeMap<(NodeName, ResourceKey), ReportedStatus>;

/// Whose picture it is where everything is one process.
const UP: &str = "up";

/// The content of a data directory, or of a fleet.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The metadata of the downstream log; `None`: it is empty.
    pub log_metadata: Option<LogMetadata>,
    /// The events of every stream that count, in order.
    pub streams: BTreeMap<StreamId, Vec<Envelope>>,
    /// The outcomes that a reader gives to the records of each partition.
    pub readings: BTreeMap<Partition, Vec<(Offset, ReaderOutcome)>>,
    /// Keys whose last record does not count: compaction would keep that record.
    pub unrepaired: BTreeSet<(StreamId, RepairKey)>,
    /// The events that follow such a record, and may repeat an earlier value.
    pub repairs: BTreeSet<(StreamId, Seq)>,
    /// Records of either log that a reader cannot take.
    pub flaws: Vec<String>,
    /// What each node reported, in the order of the upstream log.
    pub reports: BTreeMap<NodeName, Vec<Report>>,
    /// The positions of nodes that hubs appended, in the order of the upstream log.
    pub progress: Vec<(NodeName, NodeProgress)>,
    /// The picture of each controller, by its part's name.
    pub pictures: BTreeMap<String, Picture>,
    /// The disk of each node.
    pub nodes: BTreeMap<NodeName, NodeEvidence>,
}

/// A database or a log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Unreadable {
    path: String,
    reason: String,
    /// A later attempt may succeed.
    pub is_temporary: bool,
}

impl Evidence {
    /// Reads the databases of `data`, which no process uses. A database that does not exist is left
    /// out.
    ///
    /// # Errors
    /// Names a database that is there and cannot be read.
    pub fn of(data: &Path) -> Result<Self, Unreadable> {
        let mut evidence = Self::default();
        let copies = Copies::new();
        if let Some(engine) = copies.open(&data.join("cloud/log"), Role::Log, schema::LOG)? {
            read_embedded(&engine, &mut evidence).map_err(|reason| unreadable(data, &*reason))?;
        }
        evidence.read_nodes(data, &copies)?;
        let picture = data.join("cloud/controller/picture");
        if let Some(engine) = copies.open(&picture, Role::Fold, schema::CONTROLLER)? {
            evidence.read_picture(UP, &*engine).map_err(|error| unreadable(&picture, &error))?;
        }
        Ok(evidence)
    }

    /// Reads what lies on the disks of the nodes that live in `data`.
    fn read_nodes(&mut self, data: &Path, copies: &Copies) -> Result<(), Unreadable> {
        for entry in fs::read_dir(data.join("nodes")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().parse();
            let name: NodeName = name.map_err(|error| unreadable(&entry.path(), &error))?;
            let node = NodeEvidence::of(&entry.path(), &name, copies)?;
            self.nodes.insert(name, node);
        }
        Ok(())
    }

    /// Reads what the picture in `engine` shows of the nodes that are known.
    fn read_picture(&mut self, whose: &str, engine: &dyn Engine) -> Result<(), EngineError> {
        let mut picture = Picture::new();
        for name in self.nodes.keys() {
            let statuses = PodStatusFold::statuses(engine, name, None, PODS_MAX)?;
            picture.extend(statuses.into_iter().map(|(pod, s)| ((name.clone(), pod), s)));
        }
        self.pictures.insert(whose.to_owned(), picture);
        Ok(())
    }

    /// The events of a stream, in order.
    pub fn events(&self, stream: &StreamId) -> &[Envelope] {
        self.streams.get(stream).map_or(&[], Vec::as_slice)
    }
}

fn read_embedded(
    engine: &Arc<dyn Engine>,
    evidence: &mut Evidence,
) -> Result<(), Box<log::Failure>> {
    // Nothing is appended, and every record that is there is young.
    let open =
        |topic| EmbeddedLog::open(engine.clone(), EmbeddedSettings::new(topic), Arc::new(|| 0));
    log::read(&open(LogTopic::Downstream)?, &open(LogTopic::Upstream)?, evidence)
}

/// Where copies of databases are opened.
struct Copies {
    folder: tempfile::TempDir,
    memory: DatabaseMemory,
}

impl Copies {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, memory: DatabaseMemory::new(Budget::CLOUD) }
    }

    /// A copy of the database at `path`, opened; `None` when there is none, or it was not
    /// finished when its process was killed.
    fn open(
        &self,
        path: &Path,
        role: Role,
        schema: Schema,
    ) -> Result<Option<Arc<dyn Engine>>, Unreadable> {
        if !path.join("CURRENT").exists() {
            return Ok(None);
        }
        let copy = tempfile::tempdir_in(self.folder.path()).expect("a temporary folder").keep();
        for entry in fs::read_dir(path).map_err(|error| unreadable(path, &error))?.flatten() {
            let target = copy.join(entry.file_name());
            fs::copy(entry.path(), target).map_err(|error| unreadable(path, &error))?;
        }
        let engine = RocksEngine::open(&copy, role, &self.memory, schema);
        Ok(Some(Arc::new(engine.map_err(|error| unreadable(path, &error))?)))
    }
}

fn unreadable(path: &Path, reason: &(dyn Error + 'static)) -> Unreadable {
    Unreadable {
        path: path.display().to_string(),
        reason: error_chain(reason),
        is_temporary: log::is_temporary(reason),
    }
}
