//! The files of one run of a container, shared by the pod worker and the shim.
//!
//! ```text
//! spec.json    pod worker -> shim   the run; exists before the shim does
//! lock         held by the shim while it is alive
//! alive        a FIFO whose writing end the shim holds while it is alive
//! state.json   shim -> pod worker   the process, as soon as it exists
//! stopped      pod worker           the run ends for the machine's sake
//! exit.json    shim -> pod worker   the end of the run; the last file written
//! ```
//!
//! If the lock is free and `exit.json` is missing, the pod worker takes the lock and writes
//! `exit.json`. From then on no shim starts the run.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::process_identity::ProcessIdentity;
use super::termination_file::TerminationFile;
use crate::container::termination::StopSignal;
use crate::disk::durable_file;
use crate::runtime::Exit;

/// The directory of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunDirectory(PathBuf);

/// The run that a shim starts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunSpec {
    /// Command and arguments.
    pub(super) argv: Vec<String>,
    /// The whole environment.
    pub(super) env: BTreeMap<String, String>,
    /// The working directory.
    pub(super) cwd: PathBuf,
    /// The log file.
    pub(super) log: PathBuf,
    /// A log file is rotated at this size.
    pub(super) log_bytes_max: u64,
    /// Log files kept.
    pub(super) log_files_max: u32,
    /// The signal that asks the container to end.
    #[serde(default)]
    pub(super) stop_signal: StopSignal,
    /// Where the container leaves its termination message; absent in specs of earlier versions.
    #[serde(default)]
    pub(super) termination: Option<TerminationFile>,
}

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

impl RunSpec {
    /// A command in the container: with its environment, in its working directory, in a process
    /// group of its own, with its output in pipes.
    pub(super) fn command(&self, program: &str, args: &[String]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(&self.env).current_dir(&self.cwd);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        command
    }
}

impl RunDirectory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn write_spec(&self, spec: &RunSpec) -> io::Result<()> {
        durable_file::write(&self.0.join("spec.json"), spec)
    }

    pub(super) fn spec(&self) -> io::Result<Option<RunSpec>> {
        durable_file::read(&self.0.join("spec.json"))
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

    /// Takes the run's lock; `None` while a shim holds it.
    pub(super) fn try_lock(&self) -> io::Result<Option<File>> {
        let path = self.0.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
