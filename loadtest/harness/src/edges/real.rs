//! Edges that are processes with RocksDB: watched through the local API of each, as everything on
//! a node is.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::NodeName;
use headwater_proto::local::EdgeStatus;
use tokio::task::JoinSet;

use crate::light::LightSettings;
use crate::socket;
use crate::target::Target;
use crate::watching::{Witness, watch_edge};

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Real edges, of which the first are connected.
pub(crate) struct RealEdges {
    settings: LightSettings,
    witness: Arc<dyn Witness>,
    sockets: Vec<PathBuf>,
    watches: JoinSet<()>,
}

impl RealEdges {
    pub(super) fn new(settings: LightSettings, witness: Arc<dyn Witness>) -> Self {
        Self { settings, witness, sockets: Vec::new(), watches: JoinSet::new() }
    }

    /// Has the next `count` started, and watches them until they are stopped.
    pub(super) fn connect(&mut self, count: usize, target: &mut Target) {
        for _ in 0..count {
            let edge = self.sockets.len();
            let Some(node) = self.settings.nodes.get(edge) else { break };
            let hop = self.settings.hops.get(edge).copied();
            if let Some(hub) = hop.or_else(|| target.hub()) {
                target.start_edge(node, hub);
            }
            let socket = target.edge_socket(node);
            for group in self.settings.groups.iter().copied() {
                let (socket, witness) = (socket.clone(), self.witness.clone());
                self.watches.spawn(watch_edge(edge, group, socket, witness));
            }
            self.sockets.push(socket);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.sockets.len()
    }

    pub(super) async fn status(&self, edge: usize) -> Option<EdgeStatus> {
        let asking = socket::edge_status(self.sockets.get(edge)?);
        tokio::time::timeout(ANSWER_MAX, asking).await.ok().flatten()
    }

    /// Ends the watches; gives the nodes that were connected.
    pub(super) async fn stop(mut self) -> Vec<NodeName> {
        self.watches.shutdown().await;
        let count = self.count();
        self.settings.nodes.into_iter().take(count).collect()
    }
}
