//! An edge without threads, sockets or a network of its own: its caller drives its tasks, carries
//! its words to hubs, and calls its local API directly. This is how a simulation holds one; all
//! that decides anything is the same.

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
use crate::connection::link::{ended, take_up};
use crate::dependencies::EdgeDependencies;
use crate::edge::Edge;
use crate::exit::{EdgeExit, StartError};
use crate::parts::EdgeParts;

/// Asks a hub for a connection.
pub type HubDialer =
    Arc<dyn Fn(HubAddress) -> BoxFuture<'static, Result<HubStreams, Status>> + Send + Sync>;

/// A connection to a hub.
pub struct HubStreams {
    /// What the edge says.
    pub to_hub: mpsc::Sender<replication::EdgeMessage>,
    /// What the hub says.
    pub from_hub: BoxStream<'static, Result<replication::HubMessage, Status>>,
}

/// The parts of an edge. Dropping their futures at any time is a loss of power.
pub struct EdgeTasks<M> {
    /// Folds the view.
    pub replica: BoxFuture<'static, Result<(), EdgeExit>>,
    /// Syncs the view.
    pub syncer: BoxFuture<'static, Result<(), EdgeExit>>,
    /// Keeps the outbox.
    pub outbox: BoxFuture<'static, Result<(), EdgeExit>>,
    /// Holds the session.
    pub session: BoxFuture<'static, ()>,
    /// The local API.
    pub meta: M,
}

impl Edge {
    /// Opens an edge over its two databases; the futures are to be polled in a Tokio runtime,
    /// each in a task of its own.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(
        config: &EdgeConfig,
        state: Arc<dyn Engine>,
        outbox: Arc<dyn Engine>,
        seams: EdgeDependencies,
        dial: HubDialer,
    ) -> Result<EdgeTasks<impl Meta + use<>>, StartError> {
        let dial = Arc::new(move |hub: HubAddress| {
            let asked = dial(hub.clone());
            async move {
                match asked.await {
                    Ok(wire) => Ok(take_up(hub, wire.to_hub, wire.from_hub)),
                    Err(status) => Err(ended(hub, status, &PeerRefusalCell::default())),
                }
            }
            .boxed()
        });
        let EdgeParts { replica, syncer, upstream, session, handler } =
            EdgeParts::open(config, state, outbox, seams, dial)?;
        Ok(EdgeTasks {
            replica,
            syncer,
            outbox: upstream,
            session: session.run(CancellationToken::new()).boxed(),
            meta: MetaService { handler },
        })
    }
}
