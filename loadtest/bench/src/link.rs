//! One hub and one edge in this process, and a hop between them that counts bytes.
//!
//! Bytes on the wire are the same wherever hub and edge run and whatever holds the log, which is
//! in memory here.

use std::path::PathBuf;
use std::sync::Arc;

use headwater_e2e::proxy::{Conditions, Proxy, Traffic};
use headwater_edge::{Edge, EdgeConfig, EdgeDependencies, EdgeHandle, EdgeStatus, Settings};
use headwater_event::{
    Applied, Assignment, EntryKey, Event, LogId, NodeName, ResourceKey, StreamId,
};
use headwater_hub::HubHandle;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::socket::connect;
use headwater_log::{Draft, Log, MemoryLog, Writer, read_metadata};
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::{Operation, operation::Verb};
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Engine, MemoryEngine, schema};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::clock::memory_log;
use crate::hub;
use crate::kafka::runtime;
use crate::pods::NodePods;
use crate::waiting::{quiet, wait};
use crate::writer::{claim, claim_anew};

/// Events in one append.
const GROUP: usize = 1_024;

/// The hub, the edge, and what lies between.
pub(crate) struct Link {
    /// Stopped first.
    edge: Option<EdgeHandle>,
    pub(crate) pods: NodePods,
    /// Of the edge that is started next.
    pub(crate) settings: Settings,
    log: MemoryLog,
    writer: Writer,
    hub: HubHandle,
    pub(crate) hop: Proxy,
    folder: TempDir,
    of_cloud: Runtime,
    of_node: Runtime,
}

impl Link {
    /// A log with the node's stream and nothing in it, its hub, and no edge yet; its pods will have
    /// about `pod_bytes` each.
    ///
    /// # Errors
    /// When a part does not start.
    pub(crate) fn start(pod_bytes: usize) -> Result<Self, Failure> {
        let (of_cloud, of_node) = (runtime("cloud", 2)?, runtime("node", 2)?);
        let node: NodeName = "gw-1".parse().tried("a node's name")?;
        let folder = tempfile::tempdir().tried("making a folder")?;
        let log = memory_log(1);
        let seen: Arc<dyn Log> = Arc::new(log.clone());
        let mut writer = of_cloud.block_on(claim(&seen))?;
        let draft = assignment(&node);
        of_cloud.block_on(writer.append(vec![draft])).tried("assigning streams")?;
        of_cloud.block_on(writer.reconciled()).tried("appending")?;
        let hub = hub::start(&of_cloud, seen, Arc::new(MemoryEngine::new()))?;
        let hop = Proxy::start(hub.address());
        let settings = Settings::default();
        let (edge, pods) = (None, NodePods::new(node, pod_bytes));
        Ok(Self { edge, pods, settings, log, writer, hub, hop, folder, of_cloud, of_node })
    }

    /// Starts the edge on the disk that it has.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_edge(&mut self) -> Result<(), Failure> {
        let shared = DatabaseMemory::new(Budget::EDGE);
        let open = |name, role, schema| -> Result<Arc<dyn Engine>, Failure> {
            let path = self.folder.path().join(name);
            let engine = RocksEngine::open(path, role, &shared, schema);
            Ok(Arc::new(engine.tried("opening a database")?))
        };
        let state = open("state", Role::State, schema::NODE_STATE)?;
        let outbox = open("outbox", Role::Outbox, schema::OUTBOX)?;
        let hubs = vec![self.hop.address()];
        let config = EdgeConfig {
            settings: self.settings.clone(),
            ..EdgeConfig::new(self.pods.node().clone(), hubs, self.socket())
        };
        let edge = Edge::start(config, state, outbox, EdgeDependencies::default());
        self.edge = Some(self.of_node.block_on(edge).tried("starting an edge")?);
        Ok(())
    }

    /// Stops the edge; its disk stays.
    pub(crate) fn stop_edge(&mut self) {
        if let Some(edge) = self.edge.take() {
            self.of_node.block_on(edge.stop());
        }
    }

    /// Forgets what the edge has on disk.
    ///
    /// # Errors
    /// When the disk does not let go of it.
    pub(crate) fn wipe_edge(&mut self) -> Result<(), Failure> {
        self.stop_edge();
        for name in ["state", "outbox"] {
            std::fs::remove_dir_all(self.folder.path().join(name)).tried("removing a database")?;
        }
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("edge.sock")
    }

    fn stream(&self) -> StreamId {
        StreamId::node(self.pods.node())
    }

    /// Appends pods as their turns make them.
    ///
    /// # Errors
    /// When the log does not take it.
    pub(crate) fn say(
        &mut self,
        pods: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<(), Failure> {
        let draft = |(number, turn): (u32, u32)| {
            let key = self.pods.key(number).parse::<ResourceKey>();
            let event = Event::Applied(Applied {
                key: EntryKey::from(key.tried("a pod's name")?),
                uid: format!("uid-{}", self.pods.name(number)),
                resource_version: "1".to_owned(),
                object: self.pods.object(number, turn),
            });
            // The writer remembers by itself what it left under a key.
            Ok(Draft {
                stream: self.stream(),
                event,
                replaces: None,
                traceparent: None,
                is_shared: false,
            })
        };
        let drafts = pods.into_iter().map(draft).collect::<Result<Vec<_>, Failure>>()?;
        for group in drafts.chunks(GROUP) {
            let appending = self.writer.append(group.to_vec());
            self.of_cloud.block_on(appending).tried("appending")?;
        }
        Ok(())
    }

    /// Deletes the log and makes it again: the edge's position is invalid in the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn recreate_log(&mut self) -> Result<(), Failure> {
        let seen: Arc<dyn Log> = Arc::new(self.log.clone());
        let was = self.log_id()?;
        self.log.recreate(1);
        self.writer = self.of_cloud.block_on(claim_anew(&seen, Some(was)))?;
        let draft = assignment(self.pods.node());
        self.of_cloud.block_on(self.writer.append(vec![draft])).tried("assigning streams").map(drop)
    }

    /// Says that the log has everything.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn reconciled(&mut self) -> Result<(), Failure> {
        self.of_cloud.block_on(self.writer.reconciled()).tried("appending")
    }

    fn log_id(&self) -> Result<LogId, Failure> {
        let log_metadata =
            self.of_cloud.block_on(read_metadata(&self.log)).tried("reading a log")?;
        Ok(log_metadata.tried("the log has no beginning")?.log_id)
    }

    /// What the edge says of itself.
    ///
    /// # Errors
    /// When there is none, or it has ended.
    pub(crate) fn status(&self) -> Result<EdgeStatus, Failure> {
        let edge = self.edge.as_ref().tried("there is no edge")?;
        self.of_node.block_on(edge.status()).tried("asking the edge")
    }

    /// Waits until the edge has synced all that was sent and the cloud has all its reports.
    ///
    /// # Errors
    /// When it does not come about.
    pub(crate) fn in_step(&self) -> Result<(), Failure> {
        let stream = self.stream();
        let (tail, hash) = self.writer.position(&stream);
        let log_id = self.log_id()?;
        wait("the edge in step", || {
            let status = self.status().ok()?;
            let own = status.streams.iter().find(|one| one.stream == stream)?;
            let life = own.applied.map(|applied| applied.log_id);
            let is_there = own.durable == tail && life == Some(log_id);
            (is_there && status.connected && status.outbox_depth == 0).then_some(())
        })?;
        let verified = self.hub.view().verify(&stream).tried("reading the hub's fold")?;
        match verified {
            Some(verified) if verified.recomputed == hash => Ok(()),
            _ => Err(Failure::of("the hub holds something else than was written")),
        }
    }

    /// Waits until nothing passes any more, and gives what has passed.
    ///
    /// # Errors
    /// When it never gets quiet.
    pub(crate) fn quiet(&self) -> Result<Traffic, Failure> {
        quiet(&self.hop)
    }

    /// Cuts the link and refuses connections.
    pub(crate) fn cut(&self) {
        self.hop.set(Conditions { closed: true, ..Conditions::default() });
        self.hop.cut();
    }

    /// Lets the edge connect again.
    pub(crate) fn mend(&self) {
        self.hop.set(Conditions::default());
    }

    /// Says statuses of pods to the edge's local API, as a pod worker does.
    ///
    /// # Errors
    /// When the edge refuses.
    pub(crate) fn report(
        &self,
        statuses: impl IntoIterator<Item = (u32, Value)>,
    ) -> Result<(), Failure> {
        self.of_node.block_on(async {
            let channel = connect(&self.socket()).await.tried("asking the edge")?;
            let mut client = MetaClient::new(channel);
            for (number, status) in statuses {
                let operation = status_of(&self.pods.name(number), &status);
                let answer = client.operate(operation).await.tried("asking the edge")?.into_inner();
                if let Some(Outcome::Failure(failure)) = answer.outcome {
                    return Err(Failure::of(format!("the edge refuses: {}", failure.message)));
                }
            }
            Ok(())
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop_edge();
    }
}

/// The operation that says the status of a pod.
fn status_of(name: &str, status: &Value) -> Operation {
    let content = serde_json::json!({ "uid": format!("uid-{name}"), "status": status });
    Operation {
        source: "edged".to_owned(),
        verb: Verb::Update.into(),
        resource: format!("default/podstatus/{name}"),
        content: content.to_string().into_bytes().into(),
        ..Operation::default()
    }
}

fn assignment(node: &NodeName) -> Draft {
    let event = Event::Applied(Applied {
        key: EntryKey::Streams,
        uid: String::new(),
        resource_version: "1".to_owned(),
        object: Assignment::new(node, []).encode(),
    });
    Draft {
        stream: StreamId::node(node),
        event,
        replaces: None,
        traceparent: None,
        is_shared: false,
    }
}
