//! What the databases of a data directory say while nobody runs on them: the evidence that the
//! checkers of `loadtest/check` are given after a kill.
//!
//! Copies are read, so that looking changes nothing: opening a database writes to it.

mod log;
mod node;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater_check::fencing::Seen;
use headwater_event::record::LogBirth;
use headwater_event::{
    Envelope, NodeName, NodeStanding, Offset, Partition, Report, ResourceKey, StreamId,
};
use headwater_rocks::{Budget, RocksEngine, Role, Shared};
use headwater_store::{Engine, Schema, schema};
use headwater_view::{PodStatusFold, ReportedStatus};

pub use self::node::{NodeEvidence, Replica};

/// The most pods of a node that are looked at: far more than any test has.
const PODS_MAX: usize = 100_000;

/// What a data directory holds.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The birth of the downstream log; `None`: it is empty.
    pub birth: Option<LogBirth>,
    /// The events of every stream that count, in order.
    pub streams: BTreeMap<StreamId, Vec<Envelope>>,
    /// What a reader makes of the records of each partition.
    pub readings: BTreeMap<Partition, Vec<(Offset, Seen)>>,
    /// What a reader of either log stumbles over.
    pub flaws: Vec<String>,
    /// What each node reported, in the order of the upstream log.
    pub reports: BTreeMap<NodeName, Vec<Report>>,
    /// What hubs said of where nodes stand, in the order of the upstream log.
    pub standings: Vec<(NodeName, NodeStanding)>,
    /// The statuses that count in the controller's picture.
    pub picture: BTreeMap<(NodeName, ResourceKey), ReportedStatus>,
    /// What lies on each node's disk.
    pub nodes: BTreeMap<NodeName, NodeEvidence>,
}

/// A database that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Unreadable {
    path: String,
    reason: String,
}

impl Evidence {
    /// Reads the databases of `data`, on which nobody runs. What was never made is left out.
    ///
    /// # Errors
    /// Names a database that is there and cannot be read.
    pub fn of(data: &Path) -> Result<Self, Unreadable> {
        let mut evidence = Self::default();
        let copies = Copies::new();
        if let Some(engine) = copies.open(&data.join("cloud/log"), Role::Log, schema::LOG)? {
            log::read(engine, &mut evidence).map_err(|reason| unreadable(data, &reason))?;
        }
        let nodes = fs::read_dir(data.join("nodes")).into_iter().flatten().flatten();
        for entry in nodes {
            let name = entry.file_name().to_string_lossy().parse();
            let name: NodeName = name.map_err(|error| unreadable(&entry.path(), &error))?;
            let node = NodeEvidence::of(&entry.path(), &name, &copies)?;
            evidence.nodes.insert(name, node);
        }
        let picture = data.join("cloud/controller/picture");
        if let Some(engine) = copies.open(&picture, Role::Fold, schema::CONTROLLER)? {
            for name in evidence.nodes.keys() {
                let statuses = PodStatusFold::statuses(&*engine, name, None, PODS_MAX)
                    .map_err(|error| unreadable(&picture, &error))?;
                let of_node = statuses.into_iter().map(|(pod, s)| ((name.clone(), pod), s));
                evidence.picture.extend(of_node);
            }
        }
        Ok(evidence)
    }

    /// The events of a stream, in order.
    pub fn events(&self, stream: &StreamId) -> &[Envelope] {
        self.streams.get(stream).map_or(&[], Vec::as_slice)
    }
}

/// Where copies of databases are opened.
struct Copies {
    folder: tempfile::TempDir,
    memory: Shared,
}

impl Copies {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, memory: Shared::new(Budget::CLOUD) }
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

fn unreadable(path: &Path, reason: &dyn std::fmt::Display) -> Unreadable {
    Unreadable { path: path.display().to_string(), reason: reason.to_string() }
}
