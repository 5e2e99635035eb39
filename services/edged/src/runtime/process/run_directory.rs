//! The files of one run of a container: what the pod worker and the shim tell each other.
//!
//! ```text
//! spec.json    pod worker -> shim   what to run; exists before the shim does
//! lock         held by the shim as long as it lives
//! alive        a FIFO whose writing end the shim holds as long as it lives
//! state.json   shim -> pod worker   the process, as soon as there is one
//! stopped      pod worker           ended for the machine's sake
//! exit.json    shim -> pod worker   how the run ended; the last thing said
//! ```
//!
//! Whoever finds the lock free and no `exit.json` may take the lock and write one: after that no
//! shim starts the run any more.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::process_identity::ProcessIdentity;
use crate::disk::durable_file;
use crate::runtime::Exit;

/// The directory of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunDirectory(PathBuf);

/// What a shim is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Command and arguments.
    pub(crate) argv: Vec<String>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Where it starts.
    pub(crate) cwd: PathBuf,
    /// The log file.
    pub(crate) log: PathBuf,
    /// A log file is rotated at this size.
    pub(crate) log_bytes_max: u64,
    /// Log files kept.
    pub(crate) log_files_max: u32,
}

/// The process that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Which one.
    pub(crate) process: ProcessIdentity,
    /// Since when.
    pub(crate) started_at: Timestamp,
}

impl RunDirectory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write_spec(&self, spec: &Spec) -> io::Result<()> {
        durable_file::write(&self.0.join("spec.json"), spec)
    }

    pub(crate) fn spec(&self) -> io::Result<Option<Spec>> {
        durable_file::read(&self.0.join("spec.json"))
    }

    pub(crate) fn write_state(&self, state: &State) -> io::Result<()> {
        durable_file::write(&self.0.join("state.json"), state)
    }

    pub(crate) fn state(&self) -> io::Result<Option<State>> {
        durable_file::read(&self.0.join("state.json"))
    }

    pub(crate) fn write_exit(&self, exit: &Exit) -> io::Result<()> {
        durable_file::write(&self.0.join("exit.json"), exit)
    }

    /// How the run ended, marked as interrupted if it was.
    pub(crate) fn exit(&self) -> io::Result<Option<Exit>> {
        let exit: Option<Exit> = durable_file::read(&self.0.join("exit.json"))?;
        let interrupted = self.0.join("stopped").exists();
        Ok(exit.map(|exit| Exit { interrupted, ..exit }))
    }

    pub(crate) fn mark_stopped(&self) -> io::Result<()> {
        durable_file::write(&self.0.join("stopped"), &true)
    }

    pub(crate) fn alive_path(&self) -> PathBuf {
        self.0.join("alive")
    }

    /// Takes the run's lock; `None` while a shim holds it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<File>> {
        let path = self.0.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
