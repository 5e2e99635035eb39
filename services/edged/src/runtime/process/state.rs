//! The process runtime's knowledge of its pods, shared by its tasks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::run_directory::{RunDirectory, RunProcess};
use crate::disk::paths::Paths;
use crate::pod::PodUid;
use crate::runtime::{Exit, RunHistory, RunState};

/// The settings and pods of the runtime.
#[derive(Debug)]
pub(super) struct ProcessState {
    pub(super) paths: Paths,
    /// The shim's program and arguments.
    pub(super) shim: Vec<String>,
    pub(super) shim_env: Vec<(String, String)>,
    pub(super) log_bytes_max: u64,
    pub(super) log_files_max: u32,
    /// Receives the UID of every pod that changes.
    pub(super) notices: mpsc::Sender<PodUid>,
    pub(super) pods: Mutex<BTreeMap<PodUid, ProcessPod>>,
    /// Ends the tasks that await the ends of runs.
    pub(super) stop: CancellationToken,
}

/// The containers of a pod by name. Boxed: a map has room for eleven, and most pods have one.
pub(super) type ProcessPod = BTreeMap<String, Box<ContainerEntry>>;

/// A container that was started at least once.
#[derive(Clone, Debug)]
pub(super) struct ContainerEntry {
    pub(super) attempt: u32,
    pub(super) run: LatestRun,
    pub(super) previous: Option<Exit>,
}

/// The latest run of a container.
#[derive(Clone, Debug)]
pub(super) enum LatestRun {
    /// Its shim is alive.
    Running {
        /// The process; unknown while the shim is about to start it.
        process: Option<RunProcess>,
        since: Timestamp,
    },
    /// It has ended.
    Exited(Exit),
}

impl ProcessState {
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<PodUid, ProcessPod>) -> T) -> T {
        // No code under this lock panics half-way: the map is whole even if a thread died.
        work(&mut self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn container(&self, pod: &PodUid, container: &str) -> Option<ContainerEntry> {
        self.with(|pods| pods.get(pod)?.get(container).map(|entry| ContainerEntry::clone(entry)))
    }

    pub(super) fn set_container(&self, pod: &PodUid, container: &str, entry: ContainerEntry) {
        self.with(|pods| {
            let containers = pods.entry(pod.clone()).or_default();
            containers.insert(container.to_owned(), Box::new(entry));
        });
    }

    pub(super) fn run_directory(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
    ) -> RunDirectory {
        RunDirectory::new(self.paths.run(pod, container, attempt))
    }

    pub(super) fn notify(&self, pod: &PodUid) {
        // A full queue is read soon, and a relist finds a lost notice.
        let _ = self.notices.try_send(pod.clone());
    }
}

impl ContainerEntry {
    pub(super) fn history(&self) -> RunHistory {
        let state = match &self.run {
            LatestRun::Running { since, .. } => RunState::Running { started_at: *since },
            LatestRun::Exited(exit) => RunState::Exited(exit.clone()),
        };
        RunHistory {
            attempt: self.attempt,
            sandbox_attempt: 0,
            state,
            previous: self.previous.clone(),
            image_id: None,
        }
    }
}
