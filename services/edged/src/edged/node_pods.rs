//! The pods of a node for readers beside the pod worker: the supervisor answers their queries.

use headwater_event::{NodeName, ResourceKey};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::{mpsc, oneshot};

use super::ContainerLogs;
use crate::desired::compressed_object::CompressedObject;
use crate::eviction::PodList;
use crate::runtime::NodeRuntime;
use crate::worker::{ProbeTotal, ProbeTotals};

/// Queries that may wait for the supervisor; past this a reader waits.
pub(super) const QUERIES_MAX: usize = 16;

/// The pods of a node, and its runtime. Cheap to clone.
#[derive(Clone)]
pub struct NodePods {
    node: NodeName,
    runtime: NodeRuntime,
    queries: mpsc::Sender<PodQuery>,
    probes: ProbeTotals,
}

/// The pod worker has ended, and answers no query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pod worker of this node has ended")]
pub struct WorkerEnded;

/// A query of a reader.
pub(super) struct PodQuery {
    pub(super) pods: QueriedPods,
    pub(super) answer: oneshot::Sender<Vec<PodView>>,
}

/// Which pods a query names.
pub(super) enum QueriedPods {
    /// None: the reader wants to know whether the supervisor answers.
    None,
    /// The pod of this key.
    One(ResourceKey),
    /// All of them.
    All,
}

/// A desired pod, and its status.
pub(super) struct PodView {
    pub(super) pod: CompressedObject<Pod>,
    /// The status that the node reported last.
    pub(super) status: Option<PodStatus>,
}

impl NodePods {
    pub(super) fn new(
        node: NodeName,
        runtime: NodeRuntime,
        queries: mpsc::Sender<PodQuery>,
        probes: ProbeTotals,
    ) -> Self {
        Self { node, runtime, queries, probes }
    }

    /// The node.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// What runs its containers.
    pub fn runtime(&self) -> &NodeRuntime {
        &self.runtime
    }

    /// The logs of its containers.
    pub fn logs(&self) -> ContainerLogs {
        ContainerLogs(self.runtime.clone())
    }

    /// The results of the probes of its pods.
    pub fn probes(&self) -> Vec<ProbeTotal> {
        self.probes.list()
    }

    /// The desired pods, each with the status that the node reported last, by key.
    ///
    /// # Errors
    /// See [`WorkerEnded`].
    pub async fn list(&self) -> Result<Vec<Pod>, WorkerEnded> {
        self.query(QueriedPods::All).await
    }

    /// The desired pod of this name, with the status that the node reported last.
    ///
    /// # Errors
    /// See [`WorkerEnded`].
    pub async fn find(&self, namespace: &str, name: &str) -> Result<Option<Pod>, WorkerEnded> {
        // What is no name is the name of no pod.
        let Ok(key) = ResourceKey::new(Some(namespace), "pod", name) else { return Ok(None) };
        Ok(self.query(QueriedPods::One(key)).await?.pop())
    }

    /// Returns once the supervisor has answered, after all that it did before.
    ///
    /// # Errors
    /// See [`WorkerEnded`].
    pub async fn wait_for_answer(&self) -> Result<(), WorkerEnded> {
        self.query(QueriedPods::None).await.map(drop)
    }

    async fn query(&self, pods: QueriedPods) -> Result<Vec<Pod>, WorkerEnded> {
        let (answer, answered) = oneshot::channel();
        self.queries.send(PodQuery { pods, answer }).await.map_err(|_| WorkerEnded)?;
        let views = answered.await.map_err(|_| WorkerEnded)?;
        let decode = |view: PodView| {
            let pod = view.pod.decode();
            // Before the first report the status has what is input of the node.
            Pod { status: view.status.or(pod.status), ..pod }
        };
        Ok(views.into_iter().map(decode).collect())
    }
}

#[async_trait::async_trait]
impl PodList for NodePods {
    async fn list(&self) -> Vec<Pod> {
        Self::list(self).await.unwrap_or_default()
    }
}

impl std::fmt::Debug for NodePods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodePods({}, {})", self.node, self.runtime.features().version)
    }
}
