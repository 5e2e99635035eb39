//! A target that has stopped: its log, its picture, and the databases of its nodes, to be read. A
//! deployment goes on, and only says nothing new of a run's nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_event::{NodeName, ResourceKey};
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_log::Log;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Engine, Schema, schema};
use headwater_view::{PodStatusFold, StatusDigest};

use crate::disks::NodeDisks;
use crate::failure::{Attempt, Failure};
use crate::target::{CONTROLLER, Place, Target, UP};

/// The topic of what goes down.
const DOWNSTREAM: &str = "headwater.downstream.v1";

/// The most statuses of one node that are compared: more than a node may have pods.
const STATUSES_MAX: usize = 100_000;

/// A target that has stopped; Kafka still runs.
pub struct StoppedTarget {
    target: Target,
    memory: DatabaseMemory,
}

/// The statuses of a node's pods.
pub type Statuses = BTreeMap<ResourceKey, StatusDigest>;

/// What the cloud knows of the nodes' pods.
pub enum Picture {
    /// On disk.
    Stored(Arc<dyn Engine>),
    /// As a controller shows it.
    Shown(BTreeMap<NodeName, Statuses>),
}

impl StoppedTarget {
    /// Stops `target`.
    pub fn of(mut target: Target) -> Self {
        target.stop();
        Self { target, memory: DatabaseMemory::new(Budget::CLOUD) }
    }

    /// The downstream log.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn downstream(&self) -> Result<Arc<dyn Log>, Failure> {
        if let Some(brokers) = self.target.brokers() {
            let log = KafkaLog::new(KafkaSettings::new(brokers, DOWNSTREAM));
            return Ok(Arc::new(log.tried("the log on Kafka")?));
        }
        let path = self.target.data(UP).join("cloud/log");
        let engine = self.open(path, Role::Log, schema::LOG)?;
        // Nothing is appended, and every record that is there is young.
        let settings = EmbeddedSettings::new(LogTopic::Downstream);
        let log = EmbeddedLog::open(engine, settings, Arc::new(|| 0));
        Ok(Arc::new(log.tried("the embedded log")?))
    }

    /// The cloud's picture of what nodes reported.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn picture(&self) -> Result<Picture, Failure> {
        let path = match self.target.place() {
            Place::Attached(deployment) => return Ok(Picture::Shown(deployment.statuses().await?)),
            Place::Embedded => self.target.data(UP).join("cloud/controller/picture"),
            Place::Cluster => self.target.data(CONTROLLER).join("controller/picture"),
        };
        Ok(Picture::Stored(self.open(path, Role::Fold, schema::CONTROLLER)?))
    }

    /// As [`Target::clear`].
    ///
    /// # Errors
    /// As there.
    pub async fn clear(&self) -> Result<(), Failure> {
        self.target.clear().await
    }

    /// The databases of a node whose edge was started by the target.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn node(&self, node: &NodeName) -> Result<NodeDisks, Failure> {
        let data = self.target.node_data(node);
        Ok(NodeDisks {
            node: node.clone(),
            state: self.open(data.join("state"), Role::State, schema::NODE_STATE)?,
            outbox: self.open(data.join("outbox"), Role::Outbox, schema::OUTBOX)?,
        })
    }

    fn open(&self, path: PathBuf, role: Role, schema: Schema) -> Result<Arc<dyn Engine>, Failure> {
        let engine = RocksEngine::open(&path, role, &self.memory, schema);
        Ok(Arc::new(engine.tried(&format!("the database {}", path.display()))?))
    }
}

impl Picture {
    /// What the cloud has of a node.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn statuses(&self, node: &NodeName) -> Result<Statuses, Failure> {
        match self {
            Self::Shown(statuses) => Ok(statuses.get(node).cloned().unwrap_or_default()),
            Self::Stored(engine) => {
                let stored = PodStatusFold::statuses(&**engine, node, None, STATUSES_MAX);
                let stored = stored.tried("the cloud's picture")?;
                let stored = stored.into_iter();
                Ok(stored
                    .map(|(pod, status)| (pod, StatusDigest::of(&status.uid, &status.status)))
                    .collect())
            }
        }
    }
}
