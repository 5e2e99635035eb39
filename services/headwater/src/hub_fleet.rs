//! The kubelet's servers of a hub's nodes on one port of the hub, for API servers.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use headwater_event::{NodeName, ResourceKey};
use headwater_hub::HubView;
use headwater_kubelet::fleet::{FLEET_LIMITS, Fleet, FleetServer, Unreachable};
use headwater_store::EngineError;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::node::pod_server::{PodServerError, door};
use crate::settings::kubelet::Listen;

/// The nodes of a hub.
struct HubFleet(HubView);

/// A server that runs, until it is dropped.
pub(crate) struct HubFleetServer {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl HubFleetServer {
    /// Starts the server of the settings; `None`: there is none.
    ///
    /// # Errors
    /// See [`PodServerError`].
    pub(crate) async fn start(
        view: HubView,
        listen: &Listen,
    ) -> Result<Option<Self>, PodServerError> {
        let Some(door) = door(listen).await? else { return Ok(None) };
        let address = door.address().map_or_else(String::new, |address| address.to_string());
        let stop = CancellationToken::new();
        let server = FleetServer::new(HubFleet(view), FLEET_LIMITS);
        let task = tokio::spawn(server.serve(door, stop.clone()));
        tracing::info!(address, "API servers may reach pods");
        Ok(Some(Self { stop, task }))
    }

    /// Ends its streams and connections.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the kubelet's server of the hub has failed");
        }
    }
}

impl Fleet for HubFleet {
    fn node_of_pod<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Unreachable>> {
        let (view, uid) = (self.0.clone(), uid.map(str::to_owned));
        async move {
            // What is no name is the name of nothing.
            let Ok(key) = ResourceKey::new(Some(namespace), "pod", pod) else { return Ok(None) };
            let node = read(move || view.node_of_pod(&key, uid.as_deref())).await?;
            Ok(node.map(|node| node.to_string()))
        }
        .boxed()
    }

    fn has_node<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<bool, Unreachable>> {
        let view = self.0.clone();
        async move {
            let Ok(node) = node.parse::<NodeName>() else { return Ok(false) };
            read(move || view.has_node(&node)).await
        }
        .boxed()
    }

    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<DuplexStream, Unreachable>> {
        async move {
            let node: NodeName = node.parse().map_err(unreachable)?;
            self.0.dial(&node).await.map_err(|error| {
                let is_busy = error.is_busy();
                Unreachable { reason: error.to_string(), is_busy }
            })
        }
        .boxed()
    }
}

/// Reads the fold on a thread that may block.
async fn read<T: Send + 'static>(
    reading: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, Unreachable> {
    let read = tokio::task::spawn_blocking(reading).await.map_err(unreachable)?;
    read.map_err(unreachable)
}

fn unreachable(error: impl std::fmt::Display) -> Unreachable {
    Unreachable { reason: format!("the hub cannot look the node up: {error}"), is_busy: false }
}
