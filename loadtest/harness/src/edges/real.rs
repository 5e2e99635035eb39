//! Edges that are processes with RocksDB: watched through the local API of each, as everything on
//! a node is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::{EdgeStatus, StatusRequest};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Error};

use crate::socket;
use crate::watching::{Group, Watching, Witness};

/// Before an edge is asked again that did not answer, or whose watch ended: it may be starting.
const AGAIN: Duration = Duration::from_millis(50);

/// The largest listing that an edge gives.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Watches of edges.
#[derive(Debug)]
pub(crate) struct RealEdges {
    sockets: Vec<PathBuf>,
    watches: JoinSet<()>,
}

impl RealEdges {
    /// Watches the edge behind each of `sockets` until it is stopped.
    pub(super) fn watch(
        sockets: Vec<PathBuf>,
        groups: &[Group],
        witness: &Arc<dyn Witness>,
    ) -> Self {
        let mut watches = JoinSet::new();
        for (edge, socket) in sockets.iter().enumerate() {
            for group in groups.iter().copied() {
                watches.spawn(watch_all(edge, group, socket.clone(), witness.clone()));
            }
        }
        Self { sockets, watches }
    }

    pub(super) async fn status(&self, edge: usize) -> Option<EdgeStatus> {
        let asking = async {
            let mut client = connect(self.sockets.get(edge)?).await.ok()?;
            Some(client.status(StatusRequest {}).await.ok()?.into_inner())
        };
        tokio::time::timeout(ANSWER_MAX, asking).await.ok().flatten()
    }

    pub(super) async fn stop(mut self) {
        self.watches.shutdown().await;
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
