//! The dependencies of the operator API. A part provides those that it has. A request that needs
//! another one is refused, and the refusal names the right data directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use alphanumeric_sort::compare_str;
use headwater_controller::{Picture, Progress};
use headwater_event::{NodeName, StreamId};
use headwater_hub::{HubView, WallClock};
use headwater_log::Log;
use headwater_object::nearest::did_you_mean;
use headwater_store::Engine;
use tokio::sync::watch;
use tonic::Status;

use super::{internal, some_of};
use crate::node_view::NodeView;

/// The part that serves the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Everything in one process.
    Up,
    /// `headwater controller`.
    Controller,
    /// `headwater hub`.
    Hub,
    /// `headwater edge`.
    Edge,
}

/// Records on disk whether the link of a node is cut.
pub type LinkRecorder = Arc<dyn Fn(&NodeName, bool) -> std::io::Result<()> + Send + Sync>;

/// The dependencies of the operator API. Cheap to clone.
#[derive(Clone)]
pub struct OperatorDependencies {
    /// The part that serves the API.
    pub part: PartKind,
    /// The logs; an edge has none.
    pub logs: Option<Logs>,
    /// The controller of this process.
    pub cloud: Option<ControllerView>,
    /// The hub of this process.
    pub hub: Option<HubView>,
    /// The nodes whose edges run in this process.
    pub nodes: Arc<BTreeMap<NodeName, NodeView>>,
    /// The directory of a node whose edge runs in this process.
    pub node_dirs: Arc<dyn Fn(&NodeName) -> PathBuf + Send + Sync>,
    /// Records whether a node's link is cut, so that the cut survives a restart.
    pub record_link: LinkRecorder,
    /// The wall clock.
    pub wall_clock: WallClock,
    /// What an operator should know although it is no trouble.
    pub notes: Vec<String>,
    /// Troubles that belong to no single node.
    pub troubles: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// The two logs.
#[derive(Clone)]
pub struct Logs {
    /// Events for nodes.
    pub downstream: Arc<dyn Log>,
    /// Reports of nodes.
    pub upstream: Arc<dyn Log>,
}

/// A controller, as the operator API sees it.
#[derive(Clone)]
pub struct ControllerView {
    /// The cloud's picture.
    pub picture: Picture,
    /// The publisher's progress.
    pub progress: watch::Receiver<Progress>,
    /// The controller's own fold of the downstream log.
    pub published: Arc<dyn Engine>,
}

impl PartKind {
    /// The part's name in `status -o json`. Stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Controller => "controller",
            Self::Hub => "hub",
            Self::Edge => "edge",
        }
    }
}

impl OperatorDependencies {
    /// Returns the logs, or a refusal.
    pub(super) fn logs(&self) -> Result<&Logs, Status> {
        self.logs.as_ref().ok_or_else(|| {
            Status::failed_precondition(
                "an edge keeps no log: ask the data directory of a controller or a hub (--data)",
            )
        })
    }

    /// Returns the cloud's picture, or a refusal.
    pub(super) fn picture(&self) -> Result<&Picture, Status> {
        self.cloud.as_ref().map(|cloud| &cloud.picture).ok_or_else(|| {
            Status::failed_precondition(
                "a hub has no picture of the cloud: ask a controller's data directory (--data), \
                 or with --node and --at what the log says",
            )
        })
    }

    /// Returns the node of a process that is an edge.
    pub(super) fn own_node(&self) -> Option<(&NodeName, &NodeView)> {
        (self.part == PartKind::Edge).then(|| self.nodes.first_key_value()).flatten()
    }

    /// Returns the nodes that this part knows, node-2 before node-10.
    pub(super) fn known_nodes(&self) -> Result<Vec<NodeName>, Status> {
        let mut nodes: Vec<NodeName> = match (&self.cloud, &self.hub) {
            _ if !self.nodes.is_empty() => self.nodes.keys().cloned().collect(),
            (Some(cloud), _) => cloud.picture.nodes(),
            (None, Some(hub)) => hub.nodes().map_err(|error| internal(&error))?,
            (None, None) => Vec::new(),
        };
        nodes.sort_by(|a, b| compare_str(a.as_str(), b.as_str()));
        Ok(nodes)
    }

    /// Returns the streams that this part knows, node/node-2 before node/node-10.
    pub(super) fn known_streams(&self) -> Result<Vec<StreamId>, Status> {
        let mut of_nodes = match &self.cloud {
            Some(cloud) => cloud.picture.nodes(),
            None => self.known_nodes()?,
        };
        of_nodes.sort_by(|a, b| compare_str(a.as_str(), b.as_str()));
        Ok(of_nodes.iter().map(StreamId::node).chain([StreamId::Cluster]).collect())
    }

    /// Returns the node that a request names, if this part knows it.
    pub(super) fn named(&self, name: &str) -> Result<NodeName, Status> {
        let node: NodeName =
            name.parse().map_err(|error| Status::invalid_argument(format!("{name:?}: {error}")))?;
        let known = self.known_nodes()?;
        if known.contains(&node) {
            return Ok(node);
        }
        Err(Status::not_found(match self.own_node() {
            Some((own, _)) => format!(
                "nodes \"{node}\" not found: this is the edge of {own}; ask the data directory \
                 of a controller, or of that node's edge on its machine"
            ),
            None => {
                let names = || known.iter().map(NodeName::as_str);
                let (there_are, meant) = (some_of(names()), did_you_mean(node.as_str(), names()));
                format!("nodes \"{node}\" not found; there are {there_are}{meant}")
            }
        }))
    }

    /// Returns the node that a request names, if its edge runs in this process.
    pub(super) fn node(&self, name: &str) -> Result<(NodeName, NodeView), Status> {
        let node = self.named(name)?;
        match self.nodes.get(&node) {
            Some(view) => Ok((node, view.clone())),
            None => Err(Status::failed_precondition(format!(
                "the replica of node {node} is on its machine: ask the data directory of its edge \
                 there"
            ))),
        }
    }
}
