//! The errors of a runtime.

use crate::container::WaitReason;
use crate::disk::file_error::FileError;

/// A runtime could not do what was requested. A relist finds out whether anything was done.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// An operation on a file or directory failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The runtime does not have this feature: nothing was done, and a retry changes nothing.
    #[error("this runtime cannot {verb}")]
    Unsupported {
        /// The verb.
        verb: &'static str,
    },
    /// There is no runtime, or it is not to be used.
    #[error("{0}")]
    Absent(String),
    /// A sandbox was not opened or closed: a retry can succeed.
    #[error("the pod's sandbox: {cause}")]
    Sandbox {
        /// The cause.
        cause: String,
    },
    /// A container did not start.
    #[error("container {container} did not start: {cause}")]
    Start {
        /// The container.
        container: String,
        /// The cause.
        cause: String,
    },
    /// The runtime cannot be reached, or still carries out an earlier call. That is no failure of the container, and
    /// a retry finds out whether it started.
    #[error("{cause}")]
    Away {
        /// The cause.
        cause: String,
    },
    /// A container asks for something that the runtime, the machine or its image does not have.
    #[error("{}", reason.message)]
    Refused {
        /// Why the container waits.
        reason: WaitReason,
    },
    /// A command did not start in a container.
    #[error("cannot run {program:?} in container {container}")]
    Command {
        /// The container.
        container: String,
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The container does not run.
    #[error("container {container} does not run")]
    NotRunning {
        /// The container.
        container: String,
    },
    /// The container runs, and what it uses is not removed.
    #[error("container {container} still runs")]
    StillRuns {
        /// The container.
        container: String,
    },
    /// A signal could not be sent.
    #[error("cannot signal container {container}")]
    Signal {
        /// The container.
        container: String,
        /// The cause.
        #[source]
        source: nix::Error,
    },
    /// A storage driver does not publish a volume, or does not take it back. A retry can succeed.
    #[error("{step} failed for volume \"{volume}\" : {cause}")]
    Driver {
        /// The step, as a kubelet names it: `MountVolume.SetUp`.
        step: &'static str,
        /// The volume.
        volume: String,
        /// The cause.
        cause: String,
        /// The driver, if it has to register first.
        absent: Option<String>,
    },
    /// A volume cannot be written.
    #[error("volume {volume}: {cause}")]
    Volume {
        /// The volume.
        volume: String,
        /// The cause.
        cause: String,
    },
}

impl RuntimeError {
    /// The kind of the error, as the metrics name it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Unsupported { .. } => "unsupported",
            Self::Absent(_) => "absent",
            Self::Away { .. } => "away",
            Self::Sandbox { .. } => "sandbox",
            Self::Start { .. } | Self::Refused { .. } => "start",
            Self::Command { .. } => "exec",
            Self::NotRunning { .. } => "not_running",
            Self::StillRuns { .. } => "still_runs",
            Self::Signal { .. } => "signal",
            Self::Volume { .. } => "volume",
            Self::Driver { .. } => "driver",
        }
    }
}
