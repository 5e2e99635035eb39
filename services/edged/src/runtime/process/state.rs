//! The process runtime's knowledge of its pods, shared by its tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::rights::RightsPolicy;
use super::run_directory::{RunDirectory, RunProcess};
use crate::container::termination::StopSignal;
use crate::disk::paths::Paths;
use crate::pod::PodUid;
use crate::runtime::pod_files::PodFiles;
use crate::runtime::{Exit, PodState, RunHistory, RunState};

/// The settings and pods of the runtime.
#[derive(Debug)]
pub(super) struct ProcessState {
    /// The files of pods.
    pub(super) files: PodFiles,
    /// Their layout.
    pub(super) paths: Paths,
    /// The shim's program and arguments.
    pub(super) shim: Vec<String>,
    pub(super) shim_env: Vec<(String, String)>,
    pub(super) log_bytes_max: u64,
    pub(super) log_files_max: u32,
    /// Receives the UID of every pod that changes.
    pub(super) notices: mpsc::Sender<PodUid>,
    pub(super) pods: Mutex<BTreeMap<PodUid, ProcessPod>>,
    /// The pods whose runs could not be read.
    pub(super) unread: Mutex<BTreeSet<PodUid>>,
    /// The rights of containers.
    pub(super) policy: RightsPolicy,
    /// The local API of the edge, whose user no container may be.
    pub(super) edge_socket: PathBuf,
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
    /// The latest run was started before the machine's last boot.
    pub(super) is_of_earlier_boot: bool,
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

    /// The pods whose runs could not be read.
    pub(super) fn unread(&self) -> Vec<PodUid> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(super) fn is_unread(&self, pod: &PodUid) -> bool {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).contains(pod)
    }

    pub(super) fn set_unread(&self, pod: &PodUid, is_unread: bool) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if is_unread {
            unread.insert(pod.clone());
        } else {
            unread.remove(pod);
        }
    }

    /// A container of the pod that runs.
    pub(super) fn running(&self, pod: &PodUid) -> Option<String> {
        let is_running = |entry: &ContainerEntry| matches!(entry.run, LatestRun::Running { .. });
        self.with(|pods| {
            let mut containers = pods.get(pod)?.iter();
            containers.find(|(_, entry)| is_running(entry)).map(|(name, _)| name.clone())
        })
    }

    pub(super) fn notify(&self, pod: &PodUid) {
        // A full queue is read soon, and a relist finds a lost notice.
        let _ = self.notices.try_send(pod.clone());
    }
}

/// The sandbox of the runs that were started before the pod's machine, or its pods, last stopped.
const EARLIER_SANDBOX: u32 = 0;

/// The sandbox of all later runs. A pod of this runtime has no sandbox that could be opened: a boot of
/// the machine begins the next one, and so does a start after a stop for the machine's sake.
const SANDBOX: u32 = 1;

/// The state of a pod with these containers.
pub(super) fn pod_state(containers: &ProcessPod) -> PodState {
    let stopped_at = containers.values().filter_map(|entry| entry.interrupted_at()).max();
    let histories =
        containers.iter().map(|(name, entry)| (name.clone(), entry.history(stopped_at)));
    PodState { sandbox_attempt: SANDBOX, containers: histories.collect(), ..PodState::default() }
}

impl ContainerEntry {
    /// The time at which the latest run ended for the machine's sake, if it did.
    fn interrupted_at(&self) -> Option<Timestamp> {
        match &self.run {
            LatestRun::Exited(exit) if exit.interrupted => Some(exit.finished_at),
            _ => None,
        }
    }

    /// The signal that asks the latest run to end.
    fn stop_signal(&self) -> StopSignal {
        match &self.run {
            LatestRun::Running { process: Some(process), .. } => process.stop_signal,
            _ => StopSignal::default(),
        }
    }

    /// The history, as of a pod that was last stopped for the machine's sake at `stopped_at`.
    fn history(&self, stopped_at: Option<Timestamp>) -> RunHistory {
        let (state, is_earlier) = match &self.run {
            LatestRun::Running { since, .. } => (RunState::Running { started_at: *since }, false),
            LatestRun::Exited(exit) => {
                let began = exit.started_at.unwrap_or(exit.finished_at);
                let is_before_stop = stopped_at.is_some_and(|stopped_at| began < stopped_at);
                (RunState::Exited(exit.clone()), self.is_of_earlier_boot || is_before_stop)
            }
        };
        RunHistory {
            attempt: self.attempt,
            sandbox_attempt: if is_earlier { EARLIER_SANDBOX } else { SANDBOX },
            state,
            previous: self.previous.clone(),
            image_id: None,
            stop_signal: self.stop_signal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn exited(began: i64, ended: i64, interrupted: bool) -> ContainerEntry {
        let exit =
            Exit { finished_at: at(ended), interrupted, ..Exit::observed(0, None, at(began)) };
        let run = LatestRun::Exited(exit);
        ContainerEntry { attempt: 0, run, previous: None, is_of_earlier_boot: false }
    }

    fn running(since: i64) -> ContainerEntry {
        let run = LatestRun::Running { process: None, since: at(since) };
        ContainerEntry { attempt: 0, run, previous: None, is_of_earlier_boot: false }
    }

    /// The containers whose latest run was in an earlier sandbox.
    fn earlier<const N: usize>(containers: [(&str, ContainerEntry); N]) -> Vec<String> {
        let pod = containers.map(|(name, entry)| (name.to_owned(), Box::new(entry))).into();
        let PodState { sandbox_attempt, containers, .. } = pod_state(&pod);
        let is_earlier = |runs: &RunHistory| runs.sandbox_attempt != sandbox_attempt;
        containers.into_iter().filter(|(_, runs)| is_earlier(runs)).map(|(name, _)| name).collect()
    }

    #[test]
    fn a_boot_and_a_stop_of_the_machine_end_the_sandbox_of_a_pod() {
        let none = Vec::<String>::new();
        assert_eq!(earlier([("init", exited(1, 2, false)), ("main", running(3))]), none);
        assert_eq!(earlier([("init", exited(1, 2, false)), ("main", exited(3, 4, false))]), none);
        let stopped = ("main", exited(3, 9, true));
        let both = ["init".to_owned(), "main".to_owned()];
        assert_eq!(earlier([("init", exited(1, 2, false)), stopped.clone()]), both);
        // The init container has run again since.
        assert_eq!(earlier([("init", exited(10, 11, false)), stopped]), ["main"]);
        let booted = ContainerEntry { is_of_earlier_boot: true, ..exited(1, 2, false) };
        assert_eq!(earlier([("init", booted), ("main", exited(3, 4, false))]), ["init"]);
    }
}
