//! The edges of a run, real or light, behind one handle.

mod real;

use std::sync::Arc;

use headwater_edge::StartError;
use headwater_event::NodeName;
use headwater_proto::local::EdgeStatus;
use tokio::sync::Mutex;

use crate::light::{LightEdges, LightSettings, WireCount};
use crate::scenario::EdgeKind;
use crate::target::{NodeDisks, StoppedError, StoppedTarget, Target, TargetError};
use crate::watching::Witness;

use self::real::RealEdges;

/// The edges of a run.
pub(crate) enum Edges {
    /// Started by the target, watched from here.
    Real(RealEdges),
    /// In this process.
    Light(LightEdges),
}

impl Edges {
    /// Starts light edges, or watches those that the target started.
    ///
    /// # Errors
    /// As [`LightEdges::start`].
    pub(crate) fn start(
        kind: EdgeKind,
        target: &Target,
        settings: &LightSettings,
        witness: &Arc<dyn Witness>,
    ) -> Result<Self, StartError> {
        Ok(match kind {
            EdgeKind::Light => Self::Light(LightEdges::start(settings, witness)?),
            EdgeKind::Real => {
                let sockets = settings.nodes.iter().map(|node| target.edge_socket(node));
                Self::Real(RealEdges::watch(sockets.collect(), &settings.groups, witness))
            }
        })
    }

    /// An edge's status; `None`: it does not answer now.
    pub(crate) async fn status(&self, edge: usize) -> Option<EdgeStatus> {
        match self {
            Self::Real(edges) => edges.status(edge).await,
            Self::Light(edges) => edges.status(edge).await,
        }
    }

    /// Cuts the link of one, or mends it.
    ///
    /// # Errors
    /// As [`Target::set_link`].
    pub(crate) async fn set_link(
        &self,
        edge: usize,
        node: &NodeName,
        cut: bool,
        target: &Mutex<Target>,
    ) -> Result<(), TargetError> {
        match self {
            Self::Light(edges) => edges.set_link(edge, cut),
            Self::Real(_) => target.lock().await.set_link(node, cut)?,
        }
        Ok(())
    }

    /// What passed through the sockets of light edges.
    pub(crate) fn wire(&self) -> Option<Arc<WireCount>> {
        match self {
            Self::Light(edges) => Some(edges.wire().clone()),
            Self::Real(_) => None,
        }
    }

    /// Ends what is of them in this process.
    pub(crate) async fn stop(self) -> EndedEdges {
        match self {
            Self::Real(edges) => {
                edges.stop().await;
                EndedEdges::Real
            }
            Self::Light(edges) => {
                let disks = edges.stop().await.into_iter().map(|disks| NodeDisks {
                    node: disks.node,
                    state: disks.state,
                    outbox: disks.outbox,
                });
                EndedEdges::Light(disks.collect())
            }
        }
    }
}

/// Edges that have ended.
pub(crate) enum EndedEdges {
    /// Their databases are the target's.
    Real,
    /// Their databases, in the order of the nodes.
    Light(Vec<NodeDisks>),
}

impl EndedEdges {
    /// The databases of each node, one after the other: RocksDB has few open at a time.
    pub(crate) fn disks<'a>(
        &'a self,
        nodes: &'a [NodeName],
        stopped: &'a StoppedTarget,
    ) -> Box<dyn Iterator<Item = Result<NodeDisks, StoppedError>> + 'a> {
        match self {
            Self::Real => Box::new(nodes.iter().map(|node| stopped.node(node))),
            Self::Light(disks) => Box::new(disks.iter().cloned().map(Ok)),
        }
    }
}
