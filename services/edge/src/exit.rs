//! Why an edge did not start, and why one ended.

use std::path::PathBuf;

use headwater_identity::IdentityError;
use headwater_store::EngineError;

use crate::connection::address::HubAddress;
use crate::upstream::identity::OlderIncarnation;

/// One of an edge's two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// The replicated state: can be moved aside and is then rebuilt from the hub.
    State,
    /// Identity, statuses and reports: moved aside, the next start is a new one to the cloud,
    /// which gets a full snapshot; reports that were not acknowledged are lost.
    Outbox,
}

/// Why an edge did not start. Nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A database cannot be used; see [`EngineError`] for what to do.
    #[error("the {database:?} database of the node cannot be used")]
    Engine {
        /// Which.
        database: Database,
        /// Why.
        source: EngineError,
    },
    /// The configured enrolment is not the newest.
    #[error(transparent)]
    OlderIncarnation(#[from] OlderIncarnation),
    /// A hub that is reached over a network, and there is no TLS.
    #[error(
        "hub {address} is not on loopback: without TLS an edge speaks to loopback only; give it a \
         certificate"
    )]
    NotLoopback {
        /// The hub.
        address: HubAddress,
    },
    /// The certificate is not one of this node.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The local API's socket cannot be made.
    #[error("the local API cannot listen on {path}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No socket can have that path.
    #[error(
        "the socket path {path} has {bytes} bytes, and a unix socket's path at most {most}: \
         choose a shorter data directory"
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// What there is room for.
        most: usize,
    },
    /// No thread could be started.
    #[error("no thread for the node's {database:?} database")]
    Thread {
        /// Whose.
        database: Database,
        /// Why.
        source: std::io::Error,
    },
}

/// Why an edge ended. When it is known, everything has stopped and both engines are let go.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EdgeExit {
    /// It was asked to.
    #[error("stopped")]
    Stopped,
    /// A database failed: close it; move it aside if it is damaged, make room if the disk is
    /// full, then start again.
    #[error("the {database:?} database failed")]
    Engine {
        /// Which.
        database: Database,
        /// How.
        #[source]
        error: EngineError,
    },
    /// A part of the edge broke; starting again begins from what is durable.
    #[error("a defect of the edge: {what}")]
    Defect {
        /// What happened.
        what: String,
    },
}

impl EdgeExit {
    /// The database that is damaged and is to be moved aside before the next start.
    pub fn damaged(&self) -> Option<Database> {
        match self {
            Self::Engine { database, error: EngineError::Corrupt { .. } } => Some(*database),
            _ => None,
        }
    }

    /// Whether the disk is full: starting again needs room first.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Engine { error: EngineError::Write { disk_full: true, .. }, .. })
    }
}

impl StartError {
    /// The database that is damaged and is to be moved aside before the next start.
    pub fn damaged(&self) -> Option<Database> {
        match self {
            Self::Engine { database, source: EngineError::Corrupt { .. } } => Some(*database),
            _ => None,
        }
    }
}
