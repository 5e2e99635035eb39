//! The files of one run of a container, shared by the pod worker and the shim.
//!
//! ```text
//! lock           held by the shim while it is alive
//! alive          a FIFO whose writing end the shim holds while it is alive
//! commands.sock  the shim runs the commands of probes and hooks that come here
//! state.json     shim -> pod worker   the process, as soon as it exists
//! stopped        either               the run ends for the machine's sake
//! exit.json      shim -> pod worker   the end of the run; the last file written
//! ```
//!
//! The run itself comes over the shim's standard input, because its environment and its command may
//! contain secrets. If the lock is free and `exit.json` is missing, the pod worker takes the lock
//! and writes `exit.json`. From then on no shim starts the run.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::process_identity::ProcessIdentity;
use crate::container::termination::StopSignal;
use crate::disk::durable_file;
use crate::runtime::Exit;

/// The directory of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunDirectory(PathBuf);

/// The process of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunProcess {
    /// The process.
    #[serde(rename = "process")]
    pub(super) identity: ProcessIdentity,
    /// The time of its start.
    pub(super) started_at: Timestamp,
    /// The signal that asks it to end.
    #[serde(default)]
    pub(super) stop_signal: StopSignal,
}

impl RunDirectory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn write_process(&self, process: &RunProcess) -> io::Result<()> {
        durable_file::write(&self.0.join("state.json"), process)
    }

    pub(super) fn process(&self) -> io::Result<Option<RunProcess>> {
        durable_file::read(&self.0.join("state.json"))
    }

    pub(super) fn write_exit(&self, exit: &Exit) -> io::Result<()> {
        durable_file::write(&self.0.join("exit.json"), exit)
    }

    /// The end of the run, marked as interrupted if it was.
    pub(super) fn exit(&self) -> io::Result<Option<Exit>> {
        let exit: Option<Exit> = durable_file::read(&self.0.join("exit.json"))?;
        let interrupted = self.0.join("stopped").exists();
        Ok(exit.map(|exit| Exit { interrupted, ..exit }))
    }

    pub(super) fn mark_interrupted(&self) -> io::Result<()> {
        durable_file::write(&self.0.join("stopped"), &true)
    }

    pub(super) fn alive_path(&self) -> PathBuf {
        self.0.join("alive")
    }

    /// Makes the socket for commands.
    pub(super) fn listen_for_commands(&self) -> io::Result<UnixListener> {
        let dir = File::open(&self.0)?;
        UnixListener::bind(short_path(&dir))
    }

    /// Connects to the shim; `None` if the run has no shim that listens.
    pub(super) fn connect_for_command(&self) -> io::Result<Option<UnixStream>> {
        let dir = File::open(&self.0)?;
        match UnixStream::connect(short_path(&dir)) {
            Ok(stream) => Ok(Some(stream)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the run's lock; `None` while a shim holds it.
    pub(super) fn try_lock(&self) -> io::Result<Option<File>> {
        let path = self.0.join("lock");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The path of the socket for commands. A unix socket's path has at most 107 bytes, and this
/// directory's may be longer: the path leads through the open directory.
fn short_path(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/commands.sock", dir.as_raw_fd()))
}
