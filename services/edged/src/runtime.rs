//! What runs containers: the seam between the pod worker and the machine.
//!
//! A runtime keeps what it knows in memory and answers from there; it tells of every change it
//! notices by sending the pod's UID to the channel it was made with. What a pod should do is
//! decided elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};

use serde::{Deserialize, Serialize};

use crate::container::volume::Volume;
use crate::container::{LaunchSpec, WaitReason};
use crate::pod::{PodRecord, PodUid};

pub(crate) mod hollow;
pub mod process;

/// Runs the containers of pods.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Name and version, as a Node tells them: `process://0.1.0`.
    fn version(&self) -> String;

    /// Whether containers can be asked how they are; if not, one that runs is ready.
    fn can_be_probed(&self) -> bool;

    /// Whether it could run this container at all.
    ///
    /// # Errors
    /// Why the container has to wait, in words that say what to do.
    fn accepts(&self, pod: &Pod, container: &Container) -> Result<(), WaitReason>;

    /// What it gives every container of the pod, before the pod's own variables.
    fn environment(&self, pod: &PodUid, spec: &Pod, container: &str) -> BTreeMap<String, String>;

    /// Every pod of which anything is left, running or not.
    fn pods(&self) -> Vec<PodRecord>;

    /// The containers of a pod, by name; those that were never started are absent.
    fn containers(&self, pod: &PodUid) -> BTreeMap<String, RunHistory>;

    /// Compares what it knows with what is, and tells of the pods that differ.
    async fn relist(&self) -> Result<(), RuntimeError>;

    /// Lays out the pod's directory and volumes, or brings them up to date.
    /// When this returns, containers see the new content.
    async fn lay_out(&self, pod: &PodRecord, volumes: &[Volume]) -> Result<(), RuntimeError>;

    /// Starts a container once more. When this returns the run is durable: another start of the
    /// pod worker finds it.
    async fn start(&self, pod: &PodRecord, launch: &LaunchSpec) -> Result<(), RuntimeError>;

    /// Asks a running container to end, or ends it. `interrupted` marks the run as ended for the
    /// machine's sake: the container starts again whatever its policy says.
    async fn signal(
        &self,
        pod: &PodUid,
        container: &str,
        how: StopSignal,
        interrupted: bool,
    ) -> Result<(), RuntimeError>;

    /// Runs a command where the container runs.
    async fn exec(
        &self,
        pod: &PodUid,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandOutput, RuntimeError>;

    /// Keeps what was last reported of a pod, for the next start of the pod worker.
    async fn remember(&self, pod: &PodUid, status: &PodStatus) -> Result<(), RuntimeError>;

    /// What was kept so, if anything was.
    fn remembered(&self, pod: &PodUid) -> Option<PodStatus>;

    /// Removes all that is left of a pod none of whose containers run.
    async fn remove(&self, pod: &PodUid) -> Result<(), RuntimeError>;
}

/// How a container is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// What is known of a container's runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHistory {
    /// The latest run's number, from 0: the container's restart count.
    pub attempt: u32,
    /// How the latest run stands.
    pub state: RunState,
    /// How the run before it ended.
    pub previous: Option<Exit>,
}

/// How a run of a container stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs.
    Running {
        /// Since when.
        started_at: Timestamp,
    },
    /// It has ended.
    Exited(Exit),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code; 128 + signal for one that a signal ended.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When it had started; unknown for one that never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Timestamp,
    /// One word: `Completed`, `Error`, `StartError`, `ContainerStatusUnknown`.
    pub reason: String,
    /// More, for a person.
    pub message: Option<String>,
    /// Ended for the machine's sake: starts again whatever the policy says.
    #[serde(default)]
    pub interrupted: bool,
}

impl Exit {
    /// Whether the container ended well.
    pub fn succeeded(&self) -> bool {
        self.code == 0
    }
}

/// What a command said that was run in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Its exit code; `None` when it did not end in time.
    pub code: Option<i32>,
    /// The first of what it wrote.
    pub output: String,
}

/// A runtime could not do what was asked. Whether anything was done is found out by a relist.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A file or directory stood in the way.
    #[error("cannot {what} {path}")]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A container did not start.
    #[error("container {container} did not start: {why}")]
    Start {
        /// Which one.
        container: String,
        /// Why not.
        why: String,
    },
    /// A command did not start in a container.
    #[error("cannot run {program:?} in container {container}")]
    Exec {
        /// Where.
        container: String,
        /// What.
        program: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The container does not run.
    #[error("container {container} does not run")]
    NotRunning {
        /// Which one.
        container: String,
    },
    /// A signal could not be sent.
    #[error("cannot signal container {container}")]
    Signal {
        /// Which one.
        container: String,
        /// Why not.
        #[source]
        source: nix::Error,
    },
    /// The volume cannot be laid out.
    #[error("volume {volume}: {why}")]
    Volume {
        /// Which one.
        volume: String,
        /// Why not.
        why: String,
    },
}

impl RuntimeError {
    /// For `map_err`: what was tried on which path.
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
