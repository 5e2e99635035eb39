//! Why an edge did not start, and why one ended.

use std::path::PathBuf;

use headwater_identity::IdentityError;
use headwater_store::EngineError;

use crate::connection::address::HubAddress;
use crate::upstream::identity::OlderIncarnation;

/// One of an edge's two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// The replicated state. After it is moved aside, the edge rebuilds it from the hub.
    State,
    /// Identity, statuses and reports. After it is moved aside, the edge sends a full snapshot;
    /// reports that were not acknowledged are lost.
    Outbox,
}

/// Why an edge did not start. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A database cannot be used. [`EngineError`] says what to do.
    #[error("the {database:?} database of the node cannot be used")]
    Engine {
        /// The database.
        database: Database,
        /// The cause.
        source: EngineError,
    },
    /// The configured incarnation is older than the stored one.
    #[error(transparent)]
    OlderIncarnation(#[from] OlderIncarnation),
    /// A hub is remote, and the edge has no TLS.
    #[error(
        "hub {address} is not on loopback: without TLS an edge connects to loopback only; give the \
         edge a certificate"
    )]
    NotLoopback {
        /// The hub.
        address: HubAddress,
    },
    /// The certificate is of another node.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The socket of the local API cannot be created.
    #[error("the local API cannot listen on {path}")]
    Socket {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The path of the socket is too long.
    #[error(
        "the socket path {path} has {bytes} bytes, but a unix socket's path has at most {most}: \
         choose a shorter data directory"
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The most bytes of a path.
        most: usize,
    },
    /// The system started no thread.
    #[error("cannot start the thread of the node's {database:?} database")]
    Thread {
        /// The database of the thread.
        database: Database,
        /// The cause.
        source: std::io::Error,
    },
}

/// Why an edge ended. All its parts have ended then, and both engines are released.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EdgeExit {
    /// It was stopped.
    #[error("stopped")]
    Stopped,
    /// A database failed. Close it, move it aside if it is damaged, make room if the disk is full,
    /// then start again.
    #[error("the {database:?} database failed")]
    Engine {
        /// The database.
        database: Database,
        /// The cause.
        #[source]
        error: EngineError,
    },
    /// A part of the edge has a defect. The next start begins from what is durable.
    #[error("a defect of the edge: {what}")]
    Defect {
        /// What happened.
        what: String,
    },
}

impl EdgeExit {
    /// The damaged database, which must be moved aside before the next start.
    pub fn damaged(&self) -> Option<Database> {
        match self {
            Self::Engine { database, error: EngineError::Corrupt { .. } } => Some(*database),
            _ => None,
        }
    }

    /// Whether the disk is full. The next start needs room first.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Engine { error: EngineError::Write { disk_full: true, .. }, .. })
    }
}

impl StartError {
    /// Whether the disk is full. The next start needs room first.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Engine { source: EngineError::Write { disk_full: true, .. }, .. })
    }

    /// The damaged database, which must be moved aside before the next start.
    pub fn damaged(&self) -> Option<Database> {
        match self {
            Self::Engine { database, source: EngineError::Corrupt { .. } } => Some(*database),
            _ => None,
        }
    }
}
