//! The failures of a daemon.

use std::io;
use std::path::PathBuf;

/// Why a daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The environment names no cache.
    #[error("no place for {what}: set HOME or XDG_CACHE_HOME")]
    NoCache {
        /// What the cache would keep.
        what: String,
    },
    /// A file or folder cannot be used.
    #[error("{path} cannot be used")]
    File {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program is missing or cannot be started.
    #[error("{program} cannot be started: is it installed?")]
    Program {
        /// Its name.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// A program failed.
    #[error("{what} failed ({status}):\n{output}")]
    Failed {
        /// Its task.
        what: String,
        /// Its end.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// A daemon was not ready in time.
    #[error("{what} did not come up within {seconds} s:\n{output}")]
    Late {
        /// Its name.
        what: String,
        /// The time limit.
        seconds: u64,
        /// The end of its output.
        output: String,
    },
    /// No port of loopback is free.
    #[error("no port of loopback is free")]
    Port(#[source] io::Error),
    /// A daemon's process cannot be signalled.
    #[error("{what} cannot be signalled")]
    Signal {
        /// Its name.
        what: String,
        /// The cause.
        source: nix::Error,
    },
}

impl DaemonError {
    /// The error of a file operation on `path`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
