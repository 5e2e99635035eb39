//! The state of the runtime's seams: what is known, and how it is brought up to date.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::Exit;
use headwater_edged::runtime::pod_files::PodFiles;
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};
use tonic::Code;

use crate::cgroups::Cgroups;
use crate::client::{CallError, CriClient};
use crate::facts;
use crate::image_cache::ImageCache;
use crate::knowledge::{End, Fact, Knowledge, Phase, Run, Sandbox};
use crate::pending_ends::{self, PendingEnds};
use crate::proto::{
    self, ContainerFilter, ContainerState, ContainerStatusRequest, ListContainersRequest,
    ListPodSandboxRequest, PodSandboxFilter, PodSandboxState, PodSandboxStatusRequest,
    StatusRequest,
};
use crate::spec::{CONTAINER_NAME, DIR_LABEL, NODE_LABEL, NodeFacts, POD_UID, ResolvConf};
use crate::unknown_runs::{self, UnknownRuns};

/// The conditions without which no pod runs, as the CRI names them.
const CONDITIONS: [&str; 2] = ["RuntimeReady", "NetworkReady"];

/// An answer without a readable status. The runtime has the container, so it is not gone.
const UNREADABLE: &str = "the answer has no status that can be read";

/// So many statuses may be late in one list: then the runtime as a whole hangs.
const SILENT_MAX: usize = 3;

/// Statuses that are requested at the same time: by a list, and of containers that have ended. A late
/// one of a list keeps its place for its whole time limit, and [`SILENT_MAX`] of them leave more than
/// half of the places. The runtime serves them side by side, and containerd 1.6 takes 50 ms for one. On
/// a small machine, more calls at once only take the processor from the pods.
pub(crate) const STATUSES_MAX: usize = 8;

/// What is listed, by its status; `None`: it is gone.
pub(crate) type StatusAnswer<T> = Result<Option<(String, T)>, CallError>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) client: CriClient,
    pub(crate) files: PodFiles,
    pub(crate) cgroups: Cgroups,
    /// It changes with the RuntimeClasses, with the name servers of the machine, and with the runtime.
    pub(crate) node: RwLock<Arc<NodeFacts>>,
    /// As the Node object states it: `containerd://1.6.20`.
    pub(crate) version: Mutex<String>,
    pub(crate) is_containerd: AtomicBool,
    /// See [`RuntimeFacts::sandbox_image`](crate::runtime_facts::RuntimeFacts::sandbox_image).
    pub(crate) sandbox_image: Arc<Mutex<Option<String>>>,
    pub(crate) image_cache: Arc<ImageCache>,
    /// The runtime has another version, or is of another kind.
    pub(crate) is_another: Notify,
    /// The runtime was away since it was asked what it is: it may be another one now.
    pub(crate) may_be_another: AtomicBool,
    pub(crate) log_bytes_max: u64,
    pub(crate) log_check: Duration,
    pub(crate) log_files_max: u32,
    pub(crate) notices: mpsc::Sender<PodUid>,
    pub(crate) knowledge: Mutex<Knowledge>,
    /// Why the runtime can run no pods now.
    pub(crate) trouble: Mutex<Option<String>>,
    /// What had no status in the latest list, by id, and why.
    pub(crate) silent: Mutex<BTreeMap<String, String>>,
    /// The containers in an unknown state that are being ended.
    pub(crate) unknown: UnknownRuns,
    /// The containers that have ended, and of which the runtime is asked how.
    pub(crate) pending: PendingEnds,
    /// Everything is to be listed soon.
    pub(crate) relist_soon: Notify,
    /// A list is made: a second one at the same time would find each end being asked for, and pending.
    pub(crate) lists: tokio::sync::Mutex<()>,
}

/// What has no status during a list, by id, and why.
#[derive(Debug, Default)]
pub(crate) struct Silent {
    ids: BTreeMap<String, String>,
    /// The statuses that were late.
    late: usize,
}

impl Silent {
    /// The status of what is listed, or what is known of it; `None` if it is gone, or nothing is known. One damaged
    /// container hides no other.
    ///
    /// # Errors
    /// The runtime itself does not answer.
    fn last_known<T>(
        &mut self,
        id: String,
        known: Option<T>,
        status: StatusAnswer<T>,
    ) -> Result<Option<(String, T)>, CallError> {
        let error = match status {
            Ok(status) => return Ok(status),
            Err(error) => error,
        };
        self.late += usize::from(matches!(error, CallError::TimedOut { .. }));
        if error.is_away() || self.late > SILENT_MAX {
            return Err(error);
        }
        self.ids.insert(id.clone(), error.to_string());
        Ok(known.map(|known| (id, known)))
    }

    /// As [`Self::last_known`], for all statuses that a list requests, each with its id and what is
    /// known; [`STATUSES_MAX`] at the same time. Statuses return in the order of their arrival:
    /// knowledge folds each id by itself.
    ///
    /// # Errors
    /// The runtime itself does not answer. Calls in flight are dropped.
    async fn last_known_of_all<T, F>(
        &mut self,
        asked: Vec<F>,
    ) -> Result<Vec<(String, T)>, CallError>
    where
        F: Future<Output = (String, Option<T>, StatusAnswer<T>)>,
    {
        let mut answers = stream::iter(asked).buffer_unordered(STATUSES_MAX);
        let mut found = Vec::new();
        while let Some((id, known, status)) = answers.next().await {
            found.extend(self.last_known(id, known, status)?);
        }
        Ok(found)
    }

    /// Notes a run that has ended, and of which the runtime does not say how.
    pub(crate) fn add_pending_end(&mut self, id: &str, run: Option<&Run>, why: &str) {
        let name = run.map_or_else(String::new, |Run { pod, container, .. }| {
            format!("the end of container {container} of pod {pod}: ")
        });
        self.ids.insert(id.to_owned(), format!("{name}{why}"));
    }
}

impl Inner {
    /// The facts of the node.
    pub(crate) fn node(&self) -> Arc<NodeFacts> {
        self.node.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the handlers of RuntimeClasses.
    pub(crate) fn set_runtime_classes(&self, runtime_classes: BTreeMap<String, String>) {
        let mut node = self.node.write().unwrap_or_else(PoisonError::into_inner);
        if node.runtime_classes != runtime_classes {
            *node = Arc::new(NodeFacts { runtime_classes, ..(**node).clone() });
        }
    }

    /// The facts of the node, with the name servers that the machine has now: they change with its network.
    pub(crate) fn node_now(&self) -> Arc<NodeFacts> {
        let resolv_conf = resolv_conf();
        let mut node = self.node.write().unwrap_or_else(PoisonError::into_inner);
        if node.resolv_conf != resolv_conf {
            *node = Arc::new(NodeFacts { resolv_conf, ..(**node).clone() });
        }
        node.clone()
    }

    /// Reads the knowledge.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&Knowledge) -> T) -> T {
        read(&self.knowledge.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Folds a fact, and sends a notice for every pod that changed.
    pub(crate) fn learn(&self, fact: Fact) {
        let changed = self.knowledge.lock().unwrap_or_else(PoisonError::into_inner).fold(fact);
        for pod in changed {
            // A full queue is read soon, and the worker looks at its pod from time to time.
            let _ = self.notices.try_send(pod);
        }
    }

    /// Writes the end of a run that an event reports, before anything acts upon it. containerd deletes a task before it
    /// writes down the task's end: if it is killed in between, this file alone has the code.
    pub(crate) async fn keep(&self, fact: &Fact) {
        let Fact::Exit { id, code, at } = fact else { return };
        let Some(run) = self.with(|knowledge| knowledge.run(id).cloned()) else { return };
        if run.has_ended() {
            return;
        }
        let exit = exit(&End::observed(*code, run.phase.started_at(), *at, run.is_oom));
        let written = self.files.write_end(&run.pod, &run.container, run.attempt, &exit).await;
        if let Err(error) = written {
            let (container, attempt) = (&run.container, run.attempt);
            tracing::warn!(%error, container, attempt, "the end of a container is not written down");
        }
    }

    /// The end of a run that the runtime has lost, or does not say at present, if it was written down.
    fn restore(&self, run: Run) -> Run {
        if matches!(run.phase, Phase::Created | Phase::Running { .. }) {
            return run;
        }
        let Some(exit) = self.files.end(&run.pod, &run.container, run.attempt) else { return run };
        // It may have been reported: no later word counts.
        if exit.is_unobserved() {
            return Run { phase: Phase::Exited(end(exit, true)), ..run };
        }
        let started_at = exit.started_at.or(run.phase.started_at());
        let is_status = match &run.phase {
            Phase::Exited(end) if end.is_unseen() => true,
            // The process of a start that was cut off ends, too: only a status says how the run ended.
            Phase::EndPending { .. } if started_at.is_some() => false,
            _ => return run,
        };
        let exit = Exit { started_at, ..exit };
        Run { phase: Phase::Exited(end(exit, is_status)), ..run }
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        let mut before = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*before, &trouble) {
            (None, Some(why)) => tracing::warn!(%why, "the container runtime can run no pods"),
            (Some(_), None) => tracing::info!("the container runtime can run pods again"),
            _ => {}
        }
        *before = trouble;
    }

    /// Which condition of the runtime is not met: it has no network yet, or is not ready.
    pub(crate) async fn condition(&self) -> Option<String> {
        match self.client.status(StatusRequest { verbose: false }).await {
            Ok(response) => {
                let conditions = response.status.unwrap_or_default().conditions;
                let failed = conditions.into_iter().find(|condition| {
                    !condition.status && CONDITIONS.contains(&condition.r#type.as_str())
                })?;
                Some(format!("{} is false: {} {}", failed.r#type, failed.reason, failed.message))
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// The labels of everything that this pod worker runs.
    pub(crate) fn labels(&self) -> HashMap<String, String> {
        let node = self.node();
        let dir = node.dir.to_string_lossy().into_owned();
        [(NODE_LABEL.to_owned(), node.node.clone()), (DIR_LABEL.to_owned(), dir)].into()
    }

    /// Lists this node's sandboxes, or those of one pod.
    pub(crate) async fn list_sandboxes(
        &self,
        pod: Option<&PodUid>,
    ) -> Result<Vec<proto::PodSandbox>, CallError> {
        let mut labels = self.labels();
        labels.extend(pod.map(|pod| (POD_UID.to_owned(), pod.as_str().to_owned())));
        let filter = PodSandboxFilter { label_selector: labels, ..PodSandboxFilter::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        Ok(self.client.list_pod_sandbox(request).await?.items)
    }

    /// Lists this node's containers, or those of a pod, or one of them.
    pub(crate) async fn list_containers(
        &self,
        pod: Option<&PodUid>,
        name: Option<&str>,
    ) -> Result<Vec<proto::Container>, CallError> {
        let mut labels = self.labels();
        labels.extend(pod.map(|pod| (POD_UID.to_owned(), pod.as_str().to_owned())));
        labels.extend(name.map(|name| (CONTAINER_NAME.to_owned(), name.to_owned())));
        let filter = ContainerFilter { label_selector: labels, ..ContainerFilter::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        Ok(self.client.list_containers(request).await?.containers)
    }

    /// Lists everything, asks the status of what changed, and folds it. What has no status at present stays as it is known,
    /// and what was not known is as the list has it: nothing is started beside it. An end that no status says within
    /// `ends_within` is pending, and the next list asks again: one that was made up cannot be taken back. It is made up after
    /// [`END_PENDING_MAX`](headwater_edged::runtime::END_PENDING_MAX).
    pub(crate) async fn relist(self: &Arc<Self>, ends_within: Duration) -> Result<(), CallError> {
        let _turn = self.lists.lock().await;
        let began = self.with(Knowledge::now);
        let mut silent = Silent::default();
        let (mut sandboxes, mut asked) = (Vec::new(), Vec::new());
        for listed in self.list_sandboxes(None).await? {
            let known = self.with(|knowledge| knowledge.sandbox(&listed.id).cloned());
            match known {
                Some(known)
                    if is_current(&known, listed.state()) && !self.was_silent(&listed.id) =>
                {
                    sandboxes.push((listed.id, known));
                }
                known => {
                    let known = known.or_else(|| facts::listed_sandbox(&listed));
                    asked.push(async move {
                        let status = self.sandbox_status(&listed.id).await;
                        (listed.id, known, status)
                    });
                }
            }
        }
        sandboxes.extend(silent.last_known_of_all(asked).await?);
        let (mut runs, mut ended, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for listed in self.list_containers(None, None).await? {
            if listed.state() == ContainerState::ContainerUnknown {
                unknown_runs::end(self, &listed);
            }
            let known = self.with(|knowledge| knowledge.run(&listed.id).cloned());
            match known {
                Some(known)
                    if is_current_run(&known, listed.state()) && !self.was_silent(&listed.id) =>
                {
                    runs.push((listed.id, known));
                }
                known if listed.state() == ContainerState::ContainerExited => {
                    ended.push((listed, known));
                }
                known => {
                    let known = known.or_else(|| self.listed_run(&listed));
                    asked.push(async move {
                        let status = self.run_status(&listed.id, &listed.pod_sandbox_id).await;
                        (listed.id, known, status)
                    });
                }
            }
        }
        runs.extend(silent.last_known_of_all(asked).await?);
        runs.extend(pending_ends::ended_runs(self, ended, ends_within, &mut silent).await);
        self.note_silent(silent);
        self.learn(Fact::List { began, sandboxes, runs });
        Ok(())
    }

    /// A run as a list has it; `None` if it is no pod's.
    pub(crate) fn listed_run(&self, listed: &proto::Container) -> Option<Run> {
        facts::listed_run(listed, &self.node()).map(|run| self.restore(run))
    }

    /// What had no status in the latest list, by id.
    pub(crate) fn silent_ids(&self) -> BTreeSet<String> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Whether it had no status in the latest list: what is known of it may be that list's.
    fn was_silent(&self, id: &str) -> bool {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// Logs what has had a status until the latest list, and has none now.
    fn note_silent(&self, now: Silent) {
        let mut before = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, why) in now.ids.iter().filter(|(id, _)| !before.contains_key(*id)) {
            tracing::warn!(id, why, "the runtime has no status of what it lists");
        }
        *before = now.ids;
    }

    /// A sandbox by its status; `None` if it is gone.
    pub(crate) async fn sandbox_status(
        &self,
        id: &str,
    ) -> Result<Option<(String, Sandbox)>, CallError> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        match self.client.pod_sandbox_status(request).await {
            Ok(response) => Ok(response.status.and_then(facts::sandbox)),
            Err(CallError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A run by its status; `None` if it is gone. An answer that cannot be read is an error: the runtime has the container.
    pub(crate) async fn run_status(
        &self,
        id: &str,
        sandbox: &str,
    ) -> Result<Option<(String, Run)>, CallError> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        match self.client.container_status(request).await {
            Ok(response) => {
                readable(response.status.and_then(|status| self.run_of(status, sandbox)))
            }
            Err(CallError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The run of a status that the runtime has just given; `None`: the status is no pod's, or cannot be read.
    pub(crate) fn run_of(
        &self,
        status: proto::ContainerStatus,
        sandbox: &str,
    ) -> Option<(String, Run)> {
        let (id, run) = facts::run(status, sandbox, &self.node(), Timestamp::now())?;
        Some((id, self.restore(run)))
    }
}

/// The configuration of the machine's resolver; empty if it has none.
fn resolv_conf() -> ResolvConf {
    ResolvConf::parse(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

/// An end as the pod worker's files have it.
fn exit(end: &End) -> Exit {
    Exit {
        code: end.code,
        signal: None,
        started_at: end.started_at,
        finished_at: end.finished_at,
        reason: end.reason.clone(),
        message: None,
        interrupted: false,
    }
}

/// An end that the pod worker's files have.
pub(crate) fn end(exit: Exit, is_status: bool) -> End {
    End {
        code: exit.code,
        started_at: exit.started_at,
        finished_at: exit.finished_at,
        reason: exit.reason,
        message: exit.message.unwrap_or_default(),
        is_status,
        is_interrupted: false,
    }
}

/// What an answer has, which says that the runtime has the container.
fn readable<T>(read: Option<T>) -> Result<Option<T>, CallError> {
    let (call, code) = ("ContainerStatus", Code::DataLoss);
    let unreadable = || CallError::Failed { call, code, message: UNREADABLE.to_owned() };
    read.map(Some).ok_or_else(unreadable)
}

/// Whether a status would say nothing new of the sandbox.
fn is_current(known: &Sandbox, listed: PodSandboxState) -> bool {
    known.is_ready == (listed == PodSandboxState::SandboxReady)
}

/// Whether a status would say nothing new of the run.
fn is_current_run(known: &Run, listed: ContainerState) -> bool {
    match &known.phase {
        Phase::EndPending { .. } => false,
        Phase::Created => listed == ContainerState::ContainerCreated,
        Phase::Running { .. } => listed == ContainerState::ContainerRunning,
        Phase::Exited(end) => end.is_status && listed == ContainerState::ContainerExited,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    /// The time limit of a status.
    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn only_a_container_that_is_not_found_is_gone() {
        assert_eq!(readable(Some(1)).expect("a status"), Some(1));
        let error = readable::<i32>(None).expect_err("the runtime has it");
        assert!(!error.is_away() && !matches!(error, CallError::NotFound { .. }), "{error}");
    }

    #[test]
    fn an_end_that_was_given_up_is_the_same_when_it_is_read_again() {
        let exit = Exit::unobserved(None);
        let end = end(exit.clone(), true);
        assert!(end.is_given_up() && end.is_unseen() && end.is_status);
        assert_eq!((end.code, end.finished_at), (137, exit.finished_at));
        assert_eq!(Some(end.message), exit.message);
    }

    fn failed(code: Code) -> CallError {
        CallError::Failed { call: "ContainerStatus", code, message: "a shim is damaged".to_owned() }
    }

    fn late() -> CallError {
        CallError::TimedOut { call: "ContainerStatus", within: LIMIT }
    }

    fn id(number: usize) -> String {
        format!("c{number}")
    }

    #[test]
    fn what_has_no_status_stays_as_it_is_known_and_a_runtime_that_hangs_is_no_answer() {
        let mut silent = Silent::default();
        let seen = silent.last_known(id(0), Some(1), Ok(Some((id(0), 2)))).expect("a status");
        assert_eq!(seen, Some((id(0), 2)));
        assert_eq!(silent.last_known(id(0), Some(1), Ok(None)).expect("it is gone"), None);
        let kept = silent.last_known(id(1), Some(1), Err(failed(Code::Unknown))).expect("it stays");
        assert_eq!(kept, Some((id(1), 1)));
        let none = silent.last_known::<i32>(id(2), None, Err(failed(Code::Unknown)));
        assert_eq!(none.expect("it hides no other"), None);
        for number in 2..SILENT_MAX + 2 {
            silent.last_known(id(number), Some(1), Err(late())).expect("it stays");
        }
        silent.last_known(id(9), Some(1), Err(late())).expect_err("the runtime hangs");
    }

    #[tokio::test]
    async fn statuses_are_asked_for_together_up_to_a_bound_with_the_result_of_one_after_another() {
        let status = |number: usize| match number % 3 {
            0 => Ok(None),
            1 => Err(failed(Code::Unknown)),
            _ => Ok(Some((id(number), number))),
        };
        let numbers = || 0..STATUSES_MAX * 3;
        let (in_flight, most) = (Cell::new(0_usize), Cell::new(0_usize));
        let ask = async |number: usize| {
            in_flight.set(in_flight.get() + 1);
            most.set(most.get().max(in_flight.get()));
            tokio::task::yield_now().await;
            in_flight.set(in_flight.get() - 1);
            (id(number), Some(0), status(number))
        };
        let mut together = Silent::default();
        let found = together.last_known_of_all(numbers().map(ask).collect()).await;
        let found: BTreeMap<_, _> = found.expect("an answer").into_iter().collect();
        assert_eq!(most.get(), STATUSES_MAX);

        let mut in_turn = Silent::default();
        let one =
            |number| in_turn.last_known(id(number), Some(0), status(number)).expect("an answer");
        let expected: BTreeMap<_, _> = numbers().filter_map(one).collect();
        assert_eq!((found, together.ids), (expected, in_turn.ids));
    }

    #[tokio::test(start_paused = true)]
    async fn late_statuses_delay_a_list_by_one_time_limit_and_too_many_end_it_then() {
        for late_ones in [1, SILENT_MAX, SILENT_MAX + 1, STATUSES_MAX * 2] {
            // They are apart: others come before and after each of them.
            let is_late = |number: usize| number % 5 == 2 && number / 5 < late_ones;
            let ask = async |number: usize| {
                if is_late(number) {
                    tokio::time::sleep(LIMIT).await;
                    return (id(number), Some(1), Err(late()));
                }
                (id(number), Some(1), Ok(Some((id(number), 2))))
            };
            let asked = (0..late_ones * 5 + STATUSES_MAX).map(ask).collect();
            let (began, mut silent) = (Instant::now(), Silent::default());
            let found = silent.last_known_of_all(asked).await;
            let taken = began.elapsed();
            assert!((LIMIT..LIMIT * 2).contains(&taken), "{late_ones} late: {taken:?}");
            if late_ones > SILENT_MAX {
                let error = found.expect_err("the runtime hangs");
                assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
                continue;
            }
            let mut found = found.expect("an answer");
            assert_eq!(found.len(), late_ones * 5 + STATUSES_MAX);
            found.retain(|(_, value)| *value == 1);
            let kept: BTreeSet<_> = found.into_iter().map(|(id, _)| id).collect();
            assert_eq!(kept.len(), late_ones);
            assert!(kept.iter().eq(silent.ids.keys()), "{kept:?}");
        }
    }
}
