//! What goes wrong with a broker.

use std::io;
use std::path::PathBuf;

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// There is no place for the jars.
    #[error("no place for Kafka's jars: set HOME or XDG_CACHE_HOME")]
    NoCache,
    /// A file or folder cannot be used.
    #[error("{path} cannot be used")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A program is not there, or cannot be started.
    #[error("{program} cannot be started: is it installed?")]
    Program {
        /// Which.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// A program failed.
    #[error("{what} failed ({status}):\n{output}")]
    Failed {
        /// What it was to do.
        what: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// A broker did not come up in time.
    #[error("broker {node} did not come up within {seconds} s:\n{output}")]
    Late {
        /// Which.
        node: u32,
        /// How long it had.
        seconds: u64,
        /// The end of its output.
        output: String,
    },
    /// No port of loopback is free.
    #[error("no port of loopback is free")]
    Port(#[source] io::Error),
    /// A broker's process cannot be signalled.
    #[error("broker {node} cannot be signalled")]
    Signal {
        /// Which.
        node: u32,
        /// What the system says.
        source: nix::Error,
    },
}

impl BrokerError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
