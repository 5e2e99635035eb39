//! What the operator API sees of the part that it answers for: not every part has everything, and
//! what one has not is refused in words that say whom to ask.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_controller::{Picture, Progress};
use headwater_event::{NodeName, StreamId};
use headwater_hub::{HubView, WallClock};
use headwater_log::Log;
use headwater_store::Engine;
use tokio::sync::watch;
use tonic::Status;

use super::{internal, some_of};
use crate::node::NodeView;

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything in one process.
    Up,
    /// A controller.
    Controller,
    /// A hub.
    Hub,
    /// The edge of one node.
    Edge,
}

/// Writes down whether the link of a node is cut.
pub(crate) type NoteLink = Arc<dyn Fn(&NodeName, bool) -> std::io::Result<()> + Send + Sync>;

/// What the operator API reads. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sight {
    pub(crate) part: Part,
    /// The logs: an edge has none.
    pub(crate) logs: Option<Logs>,
    /// What a controller has.
    pub(crate) cloud: Option<CloudSight>,
    /// What a hub has.
    pub(crate) hub: Option<HubView>,
    /// The nodes whose edges run in this process.
    pub(crate) nodes: Arc<BTreeMap<NodeName, NodeView>>,
    /// Where each node's pod worker keeps its directory.
    pub(crate) node_dirs: Arc<dyn Fn(&NodeName) -> PathBuf + Send + Sync>,
    /// Writes down that a node's link was cut or restored, so that a restart does not forget it.
    pub(crate) note_link: NoteLink,
    pub(crate) wall_clock: WallClock,
    /// What is wrong with the whole.
    pub(crate) troubles: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// The two logs, to read the past from.
#[derive(Clone)]
pub(crate) struct Logs {
    pub(crate) downstream: Arc<dyn Log>,
    pub(crate) upstream: Arc<dyn Log>,
}

/// What is seen of a controller.
#[derive(Clone)]
pub(crate) struct CloudSight {
    pub(crate) picture: Picture,
    /// How publishing stands.
    pub(crate) progress: watch::Receiver<Progress>,
    /// The controller's own fold of the downstream log.
    pub(crate) published: Arc<dyn Engine>,
}

impl Part {
    /// The part's name, as `status -o json` says it. Stable.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Controller => "controller",
            Self::Hub => "hub",
            Self::Edge => "edge",
        }
    }
}

impl Sight {
    /// The logs, where this part reads them.
    pub(super) fn logs(&self) -> Result<&Logs, Status> {
        self.logs.as_ref().ok_or_else(|| {
            Status::failed_precondition(
                "an edge keeps no log: ask the data directory of a controller or a hub (--data)",
            )
        })
    }

    /// The controller's picture, where this part has one.
    pub(super) fn picture(&self) -> Result<&Picture, Status> {
        self.cloud.as_ref().map(|cloud| &cloud.picture).ok_or_else(|| {
            Status::failed_precondition(
                "a hub has no picture of the cloud: ask a controller's data directory (--data), \
                 or with --node and --at what the log says",
            )
        })
    }

    /// The node of an edge's own process.
    pub(super) fn own_node(&self) -> Option<(&NodeName, &NodeView)> {
        (self.part == Part::Edge).then(|| self.nodes.first_key_value()).flatten()
    }

    /// The nodes that this part knows of.
    pub(super) fn known_nodes(&self) -> Result<Vec<NodeName>, Status> {
        match (&self.cloud, &self.hub) {
            _ if !self.nodes.is_empty() => Ok(self.nodes.keys().cloned().collect()),
            (Some(cloud), _) => Ok(cloud.picture.nodes()),
            (None, Some(hub)) => hub.nodes().map_err(|error| internal(&error)),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The streams that this part knows of.
    pub(super) fn known_streams(&self) -> Result<Vec<StreamId>, Status> {
        let of_nodes = match &self.cloud {
            Some(cloud) => cloud.picture.nodes(),
            None => self.known_nodes()?,
        };
        Ok(of_nodes.iter().map(StreamId::node).chain([StreamId::Cluster]).collect())
    }

    /// The node that a question names, if this part knows it.
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
                let known = some_of(known.iter().map(NodeName::as_str));
                format!("nodes \"{node}\" not found; there are {known}")
            }
        }))
    }

    /// The node that a question names, if its edge runs in this process.
    pub(super) fn node(&self, name: &str) -> Result<(NodeName, NodeView), Status> {
        let node = self.named(name)?;
        match self.nodes.get(&node) {
            Some(view) => Ok((node, view.clone())),
            None => Err(Status::failed_precondition(format!(
                "what node {node} holds lies on its machine: ask the data directory of its edge \
                 there"
            ))),
        }
    }
}
