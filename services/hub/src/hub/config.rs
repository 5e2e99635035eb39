//! What a hub is started with.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use headwater_follow::WallClock;
use headwater_identity::Acceptor;
use headwater_log::{Log, ReadError};
use headwater_session::HubSettings;
use headwater_store::{Engine, EngineError};

use crate::limits::HubLimits;
use crate::metrics::HubMetrics;
use crate::requests::RequestHandler;

/// The configuration of a hub.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// The hub's name, for position records.
    pub name: String,
    /// The address to listen on. Without TLS it must be loopback, because the hub then trusts
    /// every hello.
    pub listen: SocketAddr,
    /// The hub's certificate, and the CA of its edges.
    pub tls: Option<Acceptor>,
    /// The bounds of one session.
    pub settings: HubSettings,
    /// The bounds of all sessions together.
    pub limits: HubLimits,
}

/// What a hub needs from outside.
pub struct HubDependencies {
    /// The log that the hub folds and serves.
    pub downstream: Arc<dyn Log>,
    /// The log that the hub appends reports to.
    pub upstream: Arc<dyn Log>,
    /// The store of the fold; a cache.
    pub engine: Arc<dyn Engine>,
    /// Responds to the requests of nodes that the fold cannot respond to.
    pub requests: Arc<dyn RequestHandler>,
    /// The clock of the hub.
    pub wall_clock: WallClock,
    /// The metrics of the hub.
    pub metrics: HubMetrics,
}

/// Why a hub does not start.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The address is not loopback, and there is no TLS.
    #[error(
        "{listen} is not loopback: without TLS a hub serves this machine alone; give it a \
         certificate"
    )]
    NotLoopback {
        /// The address.
        listen: SocketAddr,
    },
    /// The hub cannot listen on the address.
    #[error("the hub cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The hub cannot use its store.
    #[error("the hub's store cannot be used")]
    Engine(#[from] EngineError),
    /// The hub cannot use the upstream log.
    #[error("the upstream log cannot be used")]
    Upstream(#[from] ReadError),
}
