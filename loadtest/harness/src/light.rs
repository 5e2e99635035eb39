//! Light edges: the code of a real edge over databases in memory, thousands in one process.
//!
//! Session, fold, outbox and MetaSync are those of a real edge, driven as a few tasks each instead
//! of threads; hashes are verified at every push. What they leave out is RocksDB, the pod worker
//! and the unix socket: a figure of theirs says nothing of an edge's own disk.

mod dial;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use headwater_edge::{Edge, EdgeConfig, EdgeDependencies};
use headwater_event::NodeName;
use headwater_proto::local::meta_server::Meta;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::{EdgeStatus, Object, Operation, StatusRequest};
use headwater_store::MemoryEngine;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tonic::Request;

use crate::disks::NodeDisks;
use crate::echo;
use crate::failure::{Attempt, Failure};
use crate::object::turn_of;
use crate::watching::{Group, Watching, Witness};

pub use self::wire::WireCount;

/// Before a watch that ended is opened again: an edge that lags should not be pressed.
const WATCH_AGAIN: Duration = Duration::from_millis(50);

/// Questions that wait for one edge.
const QUESTIONS_MAX: usize = 8;

/// The settings of light edges.
#[derive(Clone, Debug)]
pub struct LightSettings {
    /// One edge each.
    pub nodes: Vec<NodeName>,
    /// Where hubs listen, on loopback.
    pub hubs: Vec<SocketAddr>,
    /// Where the first of them reach a hub instead, one each.
    pub hops: Vec<SocketAddr>,
    /// What they say of their pods.
    pub reports: Reports,
    /// What they watch.
    pub groups: Vec<Group>,
}

/// What a light edge reports of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// That a pod runs, once for each UID.
    Running,
    /// A status that names the turn at which the pod changed last: every change goes back up.
    Echo,
}

/// Light edges that run on the Tokio runtime in which they were connected.
pub struct LightEdges {
    settings: LightSettings,
    witness: Arc<dyn Witness>,
    dependencies: EdgeDependencies,
    wire: Arc<WireCount>,
    edges: Vec<LightEdge>,
}

/// One of them.
struct LightEdge {
    disks: NodeDisks,
    cut: watch::Sender<bool>,
    questions: mpsc::Sender<oneshot::Sender<EdgeStatus>>,
    tasks: JoinSet<()>,
}

impl LightEdges {
    /// None of them yet; `witness` receives what becomes visible.
    pub fn new(settings: LightSettings, witness: Arc<dyn Witness>) -> Self {
        let dependencies = EdgeDependencies::default();
        Self { settings, witness, dependencies, wire: Arc::default(), edges: Vec::new() }
    }

    /// Starts the next `count` of them, which connect by themselves.
    ///
    /// # Errors
    /// When one does not start.
    pub fn connect(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let index = self.edges.len();
            let Some(node) = self.settings.nodes.get(index).cloned() else { break };
            self.edges.push(self.start(index, node)?);
        }
        Ok(())
    }

    /// How many are connected.
    pub fn count(&self) -> usize {
        self.edges.len()
    }

    /// What passed through all of their sockets.
    pub fn wire(&self) -> &Arc<WireCount> {
        &self.wire
    }

    /// Cuts the link of one, or mends it. One that there is not has none.
    pub fn set_link(&self, edge: usize, cut: bool) {
        if let Some(edge) = self.edges.get(edge) {
            edge.cut.send_replace(cut);
        }
    }

    /// An edge's status; `None`: it has ended, or does not exist.
    pub async fn status(&self, edge: usize) -> Option<EdgeStatus> {
        let (reply, answer) = oneshot::channel();
        self.edges.get(edge)?.questions.send(reply).await.ok()?;
        answer.await.ok()
    }

    /// Ends them all, as a loss of power does; gives their databases.
    pub async fn stop(self) -> Vec<NodeDisks> {
        let mut disks = Vec::with_capacity(self.edges.len());
        for mut edge in self.edges {
            edge.tasks.shutdown().await;
            disks.push(edge.disks);
        }
        disks
    }

    fn start(&self, index: usize, node: NodeName) -> Result<LightEdge, Failure> {
        let settings = &self.settings;
        let (state, outbox) = (Arc::new(MemoryEngine::new()), Arc::new(MemoryEngine::new()));
        let (cut, is_cut) = watch::channel(false);
        // There is no socket: its API is called directly.
        let hubs = settings.hops.get(index).map_or_else(|| settings.hubs.clone(), |hop| vec![*hop]);
        let config = EdgeConfig::new(node.clone(), hubs, "none".into());
        let dial = dial::dial(index, &is_cut, &self.wire);
        let bare =
            Edge::open(&config, state.clone(), outbox.clone(), self.dependencies.clone(), dial);
        let bare = bare.tried("a light edge does not start")?;
        let meta = Arc::new(bare.meta);
        let mut tasks = JoinSet::new();
        for work in [bare.replica, bare.syncer, bare.outbox] {
            tasks.spawn(async move {
                if let Err(exit) = work.await {
                    eprintln!("a light edge ended: {exit}");
                }
            });
        }
        tasks.spawn(bare.session);
        for group in settings.groups.iter().copied() {
            let (meta, witness) = (meta.clone(), self.witness.clone());
            tasks.spawn(watch_all(index, group, settings.reports, meta, witness));
        }
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        tasks.spawn(answer(meta, asked));
        let disks = NodeDisks { node, state, outbox };
        Ok(LightEdge { disks, cut, questions, tasks })
    }
}

/// Watches as a pod worker does, and reports as `reports` says.
async fn watch_all(
    edge: usize,
    group: Group,
    reports: Reports,
    meta: Arc<impl Meta>,
    witness: Arc<dyn Witness>,
) {
    // What was reported of each pod.
    let mut said: HashMap<String, String> = HashMap::new();
    loop {
        if let Ok(events) = meta.watch(Request::new(group.request())).await {
            let mut events = std::pin::pin!(events.into_inner());
            let mut watching = Watching::new(edge, group, &*witness);
            while let Some(Ok(event)) = events.next().await {
                let Some(object) = watching.take(event) else { continue };
                let Some(status) = status_of(&object, reports) else { continue };
                let status = format!("{{\"uid\":\"{}\",\"status\":{status}}}", object.uid);
                if said.get(&object.key) != Some(&status) && report(&*meta, &object, &status).await
                {
                    said.insert(object.key, status);
                }
            }
        }
        tokio::time::sleep(WATCH_AGAIN).await;
    }
}

/// The status of a pod; `None`: it is no pod.
fn status_of(object: &Object, reports: Reports) -> Option<String> {
    let (_, rest) = object.key.split_once('/')?;
    rest.starts_with("pod/").then_some(())?;
    let turn = match reports {
        Reports::Running => None,
        Reports::Echo => Some(turn_of(&object.object)?),
    };
    Some(echo::status(turn))
}

/// Whether the edge took it.
async fn report(meta: &impl Meta, object: &Object, content: &str) -> bool {
    let operation = Operation {
        id: "status".to_owned(),
        source: "edged".to_owned(),
        verb: Verb::Update.into(),
        resource: object.key.replacen("/pod/", "/podstatus/", 1),
        content: content.as_bytes().to_vec().into(),
        ..Operation::default()
    };
    let result = meta.operate(Request::new(operation)).await;
    result.is_ok_and(|result| {
        use headwater_proto::local::operation_result::Outcome;
        !matches!(result.into_inner().outcome, Some(Outcome::Failure(_)) | None)
    })
}

async fn answer(meta: Arc<impl Meta>, mut asked: mpsc::Receiver<oneshot::Sender<EdgeStatus>>) {
    while let Some(reply) = asked.recv().await {
        if let Ok(status) = meta.status(Request::new(StatusRequest {})).await {
            // The caller may be gone.
            let _ = reply.send(status.into_inner());
        }
    }
}
