//! A running hub, as other parts of the process read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_event::{
    EntryKey, NodeName, NodeProgress, ResourceKey, Seq, StreamId, WriterAddress,
};
use headwater_session::{SourceError, StreamSource};
use headwater_store::{Engine, EngineError};
use headwater_view::{StreamReader, Verification};
use tokio::io::DuplexStream;
use tokio::sync::watch;

use super::lag::{Lag, lag};
use super::pod_nodes::PodNodes;
use crate::presence::PresenceFeed;
use crate::session::SessionDependencies;
use crate::tunnels::{self, DialError};

/// A running hub, as other parts of the process read it. Cheap to clone.
#[derive(Clone)]
pub struct HubView {
    hub: Arc<SessionDependencies>,
    pod_nodes: Arc<PodNodes>,
}

impl HubView {
    pub(super) fn new(hub: Arc<SessionDependencies>) -> Self {
        Self { hub, pod_nodes: Arc::default() }
    }

    /// The position of each node that has been connected to this hub.
    pub fn node_positions(&self) -> BTreeMap<NodeName, NodeProgress> {
        self.hub.sessions.positions()
    }

    /// Which nodes are connected to this hub, and each change of it.
    pub fn presence(&self) -> PresenceFeed {
        self.hub.presence.feed()
    }

    /// The streams of a node.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn streams(&self, node: &NodeName) -> Result<BTreeSet<StreamId>, SourceError> {
        self.hub.fold.source().streams(node)
    }

    /// How far a replica that has applied `applied` is behind in `stream`.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn lag(&self, stream: &StreamId, applied: Seq) -> Result<Lag, SourceError> {
        lag(&self.hub.fold.source(), stream, applied)
    }

    /// The nodes whose private streams the hub has folded.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn nodes(&self) -> Result<Vec<NodeName>, EngineError> {
        let positions = StreamReader::new(&*self.hub.fold.stored()).streams()?;
        Ok(positions
            .into_iter()
            .filter_map(|position| match position.stream {
                StreamId::Node(node) => Some(node),
                StreamId::Cluster => None,
            })
            .collect())
    }

    /// The node that has a pod, and this pod if `uid` names one. Of two nodes, while a pod moves, one
    /// that is connected here. A pod that was not found before costs a read of the store for each node.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn node_of_pod(
        &self,
        pod: &ResourceKey,
        uid: Option<&str>,
    ) -> Result<Option<NodeName>, EngineError> {
        let stored = self.hub.fold.stored();
        let (reader, key) = (StreamReader::new(&*stored), EntryKey::from(pod.clone()));
        let has = |node: &NodeName| -> Result<bool, EngineError> {
            let summary = reader.summary(&StreamId::node(node), &key)?;
            Ok(summary.is_some_and(|summary| uid.is_none_or(|uid| uid == summary.uid)))
        };
        let is_connected = |node: &NodeName| self.hub.sessions.is_live(node);
        self.pod_nodes.find(pod, || self.nodes(), is_connected, has)
    }

    /// Whether the hub has the stream of a node.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn has_node(&self, node: &NodeName) -> Result<bool, EngineError> {
        let stored = self.hub.fold.stored();
        Ok(StreamReader::new(&*stored).position(&StreamId::node(node))?.is_some())
    }

    /// Opens a stream to the kubelet's server of a node: its edge connects a second time, or has.
    ///
    /// # Errors
    /// See [`DialError`]. A node without a session is named at once.
    pub async fn dial(&self, node: &NodeName) -> Result<DuplexStream, DialError> {
        tunnels::dial(&self.hub, node).await
    }

    /// Computes the state hash of a stream anew, from the objects in the hub's store.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub fn verify(&self, stream: &StreamId) -> Result<Option<Verification>, EngineError> {
        StreamReader::new(&*self.hub.fold.stored()).verify(stream)
    }

    /// The store of the fold, for reading.
    pub fn store(&self) -> Arc<dyn Engine> {
        self.hub.fold.engine().clone()
    }

    /// Whether the fold is complete and includes the newest writer's `Reconciled`, and the hub knows
    /// the identities of all nodes whose partitions of the upstream log can be read.
    pub fn is_reconciled(&self) -> bool {
        self.hub.fold.state().is_complete() && self.hub.fold.identities().are_settled()
    }

    /// Where the active writer of the downstream log listens, as its claim has it, and each change of
    /// it, also a new claim of the same address. `None`: it listens nowhere, or has stopped in order.
    pub fn writer_address(&self) -> watch::Receiver<Option<WriterAddress>> {
        self.hub.fold.writer_address()
    }

    /// Why the hub does not follow the log at present, the partitions whose nodes wait, and the nodes
    /// that it holds: a sentence each.
    pub fn troubles(&self) -> Vec<String> {
        let held = self.held_nodes().into_iter().map(|node| {
            format!(
                "node {node} is held, because two machines use its identity: re-enrol one of them, \
                 then run `headwater node release {node}`"
            )
        });
        let away = self.hub.fold.identities().partitions_away().into_iter().map(|partition| {
            format!(
                "{partition} cannot be read: nodes whose positions it has cannot connect to this hub \
                 until it is back"
            )
        });
        self.hub.fold.state().trouble.clone().into_iter().chain(away).chain(held).collect()
    }

    /// The nodes that the hub holds: two machines use the identity of each.
    pub fn held_nodes(&self) -> Vec<NodeName> {
        self.hub.sessions.held()
    }

    /// Releases a held node, which may connect again; `false`: the node was not held.
    pub fn release(&self, node: &NodeName) -> bool {
        self.hub.sessions.release(node)
    }

    /// Cuts or restores the link of a node.
    pub fn set_link(&self, node: &NodeName, cut: bool) {
        self.hub.sessions.set_link(node, cut);
    }
}
