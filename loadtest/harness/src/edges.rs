//! The edges of a run, real or light, behind one handle.

mod real;

use std::sync::Arc;

use headwater_event::NodeName;
use headwater_proto::local::EdgeStatus;
use tokio::sync::Mutex;

use crate::disks::NodeDisks;
use crate::failure::Failure;
use crate::light::{LightEdges, LightSettings, WireCount};
use crate::scenario::EdgeKind;
use crate::stopped::StoppedTarget;
use crate::target::Target;
use crate::watching::Witness;

use self::real::RealEdges;

/// The edges of a run, of which the first are connected.
pub(crate) enum Edges {
    /// Started by the target, watched from here.
    Real(RealEdges),
    /// In this process.
    Light(LightEdges),
}

impl Edges {
    /// None is connected yet.
    pub(crate) fn new(kind: EdgeKind, settings: LightSettings, witness: Arc<dyn Witness>) -> Self {
        match kind {
            EdgeKind::Light => Self::Light(LightEdges::new(settings, witness)),
            EdgeKind::Real => Self::Real(RealEdges::new(settings, witness)),
        }
    }

    /// Connects the next `count`: starts light ones, or has the target start them and watches.
    ///
    /// # Errors
    /// As [`LightEdges::connect`].
    pub(crate) fn connect(&mut self, count: usize, target: &mut Target) -> Result<(), Failure> {
        match self {
            Self::Light(edges) => edges.connect(count),
            Self::Real(edges) => {
                edges.connect(count, target);
                Ok(())
            }
        }
    }

    /// How many are connected.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Real(edges) => edges.count(),
            Self::Light(edges) => edges.count(),
        }
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
    ) -> Result<(), Failure> {
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
            Self::Real(edges) => EndedEdges::Real(edges.stop().await),
            Self::Light(edges) => EndedEdges::Light(edges.stop().await),
        }
    }
}

/// Edges that have ended.
pub(crate) enum EndedEdges {
    /// Their databases are the target's.
    Real(Vec<NodeName>),
    /// Their databases, in the order of the nodes.
    Light(Vec<NodeDisks>),
}

impl EndedEdges {
    /// The databases of each node, one after the other: RocksDB has few open at a time.
    pub(crate) fn disks<'a>(
        &'a self,
        stopped: &'a StoppedTarget,
    ) -> Box<dyn Iterator<Item = Result<NodeDisks, Failure>> + 'a> {
        match self {
            Self::Real(nodes) => Box::new(nodes.iter().map(|node| stopped.node(node))),
            Self::Light(disks) => Box::new(disks.iter().cloned().map(Ok)),
        }
    }
}
