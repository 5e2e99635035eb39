//! An edge without threads, sockets or a network: the caller runs its tasks, connects it to hubs, and
//! calls its local API directly. A simulation runs an edge like this. Every decision is made by the
//! same code as in a running edge.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use headwater_identity::PeerRefusalCell;
use headwater_proto::local::meta_server::Meta;
use headwater_proto::replication;
use headwater_store::Engine;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::api::MetaService;
use crate::config::EdgeConfig;
use crate::connection::address::HubAddress;
use crate::connection::link::{adopt, ended};
use crate::dependencies::EdgeDependencies;
use crate::edge::Edge;
use crate::exit::{EdgeExit, StartError};
use crate::parts::EdgeParts;

/// Connects to a hub.
pub type HubDialer =
    Arc<dyn Fn(HubAddress) -> BoxFuture<'static, Result<HubStreams, Status>> + Send + Sync>;

/// The two directions of a connection to a hub.
pub struct HubStreams {
    /// The messages of the edge.
    pub to_hub: mpsc::Sender<replication::EdgeMessage>,
    /// The messages of the hub.
    pub from_hub: BoxStream<'static, Result<replication::HubMessage, Status>>,
}

/// The tasks of an edge. Dropping them at any time is a power cut.
pub struct EdgeTasks<M> {
    /// The owner of the state database.
    pub replica: BoxFuture<'static, Result<(), EdgeExit>>,
    /// Syncs the state database.
    pub syncer: BoxFuture<'static, Result<(), EdgeExit>>,
    /// The owner of the outbox database.
    pub outbox: BoxFuture<'static, Result<(), EdgeExit>>,
    /// The session with a hub.
    pub session: BoxFuture<'static, ()>,
    /// The local API.
    pub meta: M,
}

impl Edge {
    /// Opens an edge over its two databases. The caller runs each future in a task of a Tokio
    /// runtime.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(
        config: &EdgeConfig,
        state: Arc<dyn Engine>,
        outbox: Arc<dyn Engine>,
        dependencies: EdgeDependencies,
        dial: HubDialer,
    ) -> Result<EdgeTasks<impl Meta + use<>>, StartError> {
        let dial = Arc::new(move |hub: HubAddress| {
            let dialed = dial(hub.clone());
            async move {
                match dialed.await {
                    Ok(streams) => Ok(adopt(hub, streams.to_hub, streams.from_hub)),
                    Err(status) => Err(ended(hub, status, &PeerRefusalCell::default())),
                }
            }
            .boxed()
        });
        let EdgeParts { replica, syncer, upstream, session, handler } =
            EdgeParts::open(config, state, outbox, dependencies, dial, None)?;
        Ok(EdgeTasks {
            replica,
            syncer,
            outbox: upstream,
            session: session.run(CancellationToken::new()).boxed(),
            meta: MetaService { handler },
        })
    }
}
