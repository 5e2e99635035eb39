//! Edges that are processes with RocksDB: watched through the local API of each, as everything on
//! a node is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use headwater_event::NodeName;
use headwater_proto::local::EdgeStatus;
use headwater_proto::local::meta_client::MetaClient;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Error};

use crate::light::LightSettings;
use crate::socket;
use crate::target::Target;
use crate::watching::{Group, Watching, Witness};

/// Before an edge is asked again that did not answer, or whose watch ended: it may be starting.
const AGAIN: Duration = Duration::from_millis(5);

/// The largest listing that an edge gives.
const ANSWER_BYTES_MAX: usize = 64 << 20;

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
                self.watches.spawn(watch_all(edge, group, socket, witness));
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

async fn connect(socket: &Path) -> Result<MetaClient<Channel>, Error> {
    let channel = socket::connect(socket).await?;
    Ok(MetaClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
}

async fn watch_all(edge: usize, group: Group, socket: PathBuf, witness: Arc<dyn Witness>) {
    loop {
        if let Ok(mut client) = connect(&socket).await
            && let Ok(events) = client.watch(group.request()).await
        {
            let mut events = events.into_inner();
            let mut watching = Watching::new(edge, group, &*witness);
            while let Some(Ok(event)) = events.next().await {
                watching.take(event);
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}
