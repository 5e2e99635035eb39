//! Sandboxes and containers over the CRI.
//!
//! The name, the number and the pod's UID are the key of a sandbox or container. After a call with an unknown
//! outcome its key is looked up, and what is there is adopted.

mod container_request;
mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use headwater_edged::container::claim::ClaimView;
use headwater_edged::container::cpu_set::CpuSet;
use headwater_edged::container::volume::Volume;
use headwater_edged::container::{LaunchSpec, WaitReason};
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::pod_fields::Column;
use headwater_edged::runtime::{
    CommandBounds, CommandOutput, Features, LogQuery, PodState, Rejection, Runtime, RuntimeError,
    SandboxState, StatedFeatures, StatedHandler, StopRequest,
};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::{Instant, timeout};
use tokio_util::sync::DropGuard;

use crate::client::{CallError, CriClient};
use crate::cni_results;
use crate::inner::Inner;
use crate::knowledge::{Fact, Knowledge, Phase, Run, Sandbox};
use crate::pending_ends::ENDS_WITHIN;
use crate::proto::{
    CreateContainerRequest, ExecSyncRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest, StopContainerRequest, StopPodSandboxRequest,
};
use crate::spec::{
    HostMachine, admit, allow, check, pod_resources, runtime_handler, sandbox_config,
};
use history::LatestRuns;

/// The features of Kubernetes that a node declares to have: an init container that ends is resized while it runs.
const DECLARED: [&str; 1] = ["InPlacePodVerticalScalingInitContainers"];

/// Calls to end a container while the runtime cannot be reached.
const STOP_CALLS_MAX: u32 = 60;

/// The wait between them.
const STOP_RETRY: Duration = Duration::from_secs(1);

/// A start that was cut off has ended after this: the runtime ends the process that it has started.
const START_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The interval between two looks until then.
const START_CHECK: Duration = Duration::from_millis(100);

/// Runs pods in a container runtime. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CriRuntime {
    inner: Arc<Inner>,
    _stop: Arc<DropGuard>,
}

impl CriRuntime {
    pub(crate) fn new(inner: Arc<Inner>, stop: DropGuard) -> Self {
        Self { inner, _stop: Arc::new(stop) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn client(&self) -> &CriClient {
        &self.inner.client
    }

    /// The id of a running container. A call with an unknown outcome may have made a later one that never started.
    pub(crate) fn running(&self, pod: &PodUid, container: &str) -> Result<String, RuntimeError> {
        let id = self.inner.with(|knowledge| {
            let (id, run) = knowledge.latest_started(pod, container)?;
            matches!(run.phase, Phase::Running { .. }).then(|| id.to_owned())
        });
        id.ok_or_else(|| RuntimeError::NotRunning { container: container.to_owned() })
    }

    /// The id of the pod's sandbox.
    pub(crate) fn ready_sandbox(&self, pod: &PodUid) -> Result<String, RuntimeError> {
        let id = self.inner.with(|knowledge| {
            let (id, sandbox) = knowledge.sandboxes_of(pod).pop()?;
            sandbox.is_ready.then(|| id.to_owned())
        });
        id.ok_or_else(|| RuntimeError::Sandbox { cause: "it is not ready".to_owned() })
    }

    /// The sandbox of this number, which a call with an unknown outcome has made.
    async fn adopt_sandbox(&self, pod: &PodUid, attempt: u32) -> Result<Option<String>, CallError> {
        let listed = self.inner.list_sandboxes(Some(pod)).await?;
        let is = |number: Option<u32>| number == Some(attempt);
        let found = listed.into_iter().find(|it| is(it.metadata.as_ref().map(|it| it.attempt)));
        Ok(found.map(|it| it.id))
    }

    /// Makes the container of a launch, or finds the one that an earlier call has made.
    async fn create(
        &self,
        pod: &PodUid,
        name: &str,
        attempt: u32,
        request: CreateContainerRequest,
    ) -> Result<String, CallError> {
        let sandbox = request.pod_sandbox_id.clone();
        match self.client().create_container(request).await {
            Ok(response) => Ok(response.container_id),
            Err(error) if error.may_have_acted() => {
                let listed = self.inner.list_containers(Some(pod), Some(name)).await?;
                let is = |it: &crate::proto::Container| {
                    it.pod_sandbox_id == sandbox
                        && it.metadata.as_ref().is_some_and(|it| it.attempt == attempt)
                };
                listed.into_iter().find(is).map(|it| it.id).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes all but the newest two runs of a container, and sandboxes that no run is in any more.
    async fn remove_old(&self, pod: &PodUid, container: &str) {
        let inner = &self.inner;
        let old: Vec<(String, Run)> = inner.with(|knowledge| {
            let mut runs = knowledge.runs_of(pod, container);
            runs.truncate(runs.len().saturating_sub(2));
            let ended = runs.into_iter().filter(|(_, run)| run.has_ended());
            ended.map(|(id, run)| (id.to_owned(), run.clone())).collect()
        });
        for (id, run) in old {
            let request = RemoveContainerRequest { container_id: id.clone() };
            let removed = self.client().remove_container(request).await.map(drop);
            if removed.or_else(CallError::done_if_absent).is_ok() {
                let files_max = inner.log_files_max;
                inner.files.remove_run(pod, &run.log, container, run.attempt, files_max);
                inner.learn(Fact::Removed { id });
            }
        }
        let empty: Vec<String> = inner.with(|knowledge| {
            let mut sandboxes = knowledge.sandboxes_of(pod);
            sandboxes.pop();
            let is_empty = |id: &str| !knowledge.runs().any(|(_, run)| run.sandbox == id);
            sandboxes.retain(|(id, sandbox)| !sandbox.is_ready && is_empty(id));
            sandboxes.into_iter().map(|(id, _)| id.to_owned()).collect()
        });
        for id in empty {
            if let Err(error) = self.remove_sandbox(&id).await {
                tracing::debug!(%error, "an old sandbox is removed with its pod");
            }
        }
    }

    /// Removes a container that an earlier call has made and not started, and returns whether it did. A start that is
    /// cut off goes on for a while: it is waited for, and its outcome is the run's.
    async fn undo_start(&self, id: &str, run: &Run) -> Result<bool, CallError> {
        let inner = &self.inner;
        let until = Instant::now() + START_ENDS_WITHIN;
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        let mut error = None;
        loop {
            match inner.run_status(id, &run.sandbox).await? {
                Some((id, run)) if run.phase != Phase::Created => {
                    inner.learn(Fact::Run(id, run));
                    return Ok(false);
                }
                Some(_) | None => {}
            }
            match error.take() {
                None => {
                    let removed = self.client().remove_container(request.clone()).await.map(drop);
                    match removed.or_else(CallError::done_if_absent) {
                        Ok(()) => break,
                        Err(during) if during.is_during_start() => error = Some(during),
                        Err(error) => return Err(error),
                    }
                }
                Some(during) if Instant::now() >= until => return Err(during),
                // A removal kills what runs: no further one beside a start.
                during => error = during,
            }
            tokio::time::sleep(START_CHECK).await;
        }
        inner.files.remove_end(&run.pod, &run.container, run.attempt);
        inner.learn(Fact::Removed { id: id.to_owned() });
        Ok(true)
    }

    /// Marks a run whose start failed because its sandbox has ended: that is no failure of the container.
    async fn excuse(&self, pod: &PodUid, container: &str, attempt: u32, sandbox: &str) {
        match self.inner.sandbox_status(sandbox).await {
            Ok(Some((_, sandbox))) if sandbox.is_ready => return,
            Ok(Some((id, sandbox))) => self.inner.learn(Fact::Sandbox(id, sandbox)),
            Ok(None) => {}
            Err(_) => return,
        }
        if let Err(error) = self.inner.files.mark_interrupted(pod, container, attempt).await {
            tracing::warn!(%error, container, "a run in a lost sandbox counts as a failure");
        }
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), CallError> {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let stopped = self.client().stop_pod_sandbox(request).await.map(drop);
        if matches!(stopped, Err(CallError::Failed { .. })) {
            cni_results::remove_torn(self.client().socket()).await;
        }
        stopped.or_else(CallError::done_if_absent)
    }

    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<(), CallError> {
        self.stop_sandbox(id).await?;
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let removed = self.client().remove_pod_sandbox(request).await.map(drop);
        removed.or_else(CallError::done_if_absent)?;
        let runs: Vec<String> = self.inner.with(|knowledge| {
            let inside = knowledge.runs().filter(|(_, run)| run.sandbox == id);
            inside.map(|(id, _)| id.to_owned()).collect()
        });
        for id in runs.into_iter().chain([id.to_owned()]) {
            self.inner.learn(Fact::Removed { id });
        }
        Ok(())
    }
}

#[async_trait]
impl Runtime for CriRuntime {
    fn features(&self) -> Features {
        Features {
            version: self.version(),
            sandboxes: true,
            commands: true,
            files: true,
            persistent: true,
            resize: true,
            collection: true,
            cpu_sets: true,
            devices: true,
        }
    }

    fn version(&self) -> String {
        self.inner.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fields(&self) -> Column {
        Column::Cri
    }

    fn set_runtime_classes(&self, classes: BTreeMap<String, String>) {
        self.inner.set_runtime_classes(classes);
    }

    fn stated(&self) -> StatedFeatures {
        let node = &self.inner.node();
        let handlers = node.handlers.iter().map(|(name, features)| StatedHandler {
            name: name.clone(),
            recursive_read_only_mounts: features.recursive_read_only_mounts,
            user_namespaces: features.user_namespaces,
        });
        // A runtime that names its handlers names its features, too.
        let names_features = !node.handlers.is_empty();
        StatedFeatures {
            handlers: handlers.collect(),
            supplemental_groups_policy: names_features.then_some(node.has_groups_policy),
            declared: DECLARED.to_vec(),
        }
    }

    fn admit(&self, pod: &Pod) -> Result<(), Rejection> {
        admit(pod, &self.inner.node())
    }

    fn allow(&self, pod: &Pod, container: &Container, volumes: &[Volume]) -> Result<(), Rejection> {
        allow(pod, container, volumes, self.inner.node().forbidden)
    }

    fn check(&self, pod: &Pod, container: &Container) -> Result<(), WaitReason> {
        check(pod, container, &HostMachine, &self.inner.node())
    }

    fn health(&self) -> Result<(), String> {
        let trouble = self.inner.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trouble.map_or(Ok(()), Err)
    }

    fn pods(&self) -> Vec<PodUid> {
        let mut pods = self.inner.with(Knowledge::pods);
        // A pod whose volumes are here is cleaned up, too.
        pods.extend(self.inner.files.pods().unwrap_or_default());
        pods.into_iter().collect()
    }

    fn pod(&self, pod: &PodUid) -> PodState {
        let (state, runs) = self.inner.with(|knowledge| {
            let latest = knowledge.sandboxes_of(pod).pop();
            let names = knowledge.containers(pod).into_iter();
            let runs = names.filter_map(|name| LatestRuns::of(knowledge, pod, name));
            let state = PodState {
                sandbox: match latest {
                    Some((_, sandbox)) if sandbox.is_ready => SandboxState::Ready,
                    Some((_, sandbox)) if !sandbox.is_closed => SandboxState::Lost,
                    _ => SandboxState::None,
                },
                sandbox_attempt: latest.map_or(0, |(_, sandbox)| sandbox.attempt),
                addresses: latest.map(|(_, it)| it.addresses.clone()).unwrap_or_default(),
                containers: BTreeMap::new(),
            };
            (state, runs.collect::<Vec<_>>())
        });
        // The files of runs that have ended are read without the lock.
        let containers = runs.into_iter().filter_map(|runs| {
            let name = runs.latest.container.clone();
            Some((name, self.history(runs)?))
        });
        PodState { containers: containers.collect(), ..state }
    }

    async fn relist(&self) -> Result<(), RuntimeError> {
        self.inner.relist(ENDS_WITHIN).await.map_err(|error| sandbox_error(&error))
    }

    async fn recover(&self, pods: &BTreeSet<PodUid>) -> Result<Vec<PodRecord>, RuntimeError> {
        self.inner.records(pods).await.map_err(|error| sandbox_error(&error))
    }

    async fn open(&self, pod: &PodRecord, spec: &Pod) -> Result<(), RuntimeError> {
        let inner = &self.inner;
        let latest = inner.with(|knowledge| {
            knowledge.sandboxes_of(&pod.uid).pop().map(|(_, sandbox)| sandbox.clone())
        });
        let attempt = match latest {
            Some(sandbox) if sandbox.is_ready => return Ok(()),
            Some(sandbox) if !sandbox.is_closed => {
                return Err(RuntimeError::Sandbox {
                    cause: "the lost one is not closed".to_owned(),
                });
            }
            Some(sandbox) => sandbox.attempt + 1,
            None => 0,
        };
        let refused = |reason| RuntimeError::Refused { reason };
        let config = sandbox_config(spec, pod, attempt, &inner.node_now()).map_err(refused)?;
        let runtime_handler = runtime_handler(spec, &inner.node()).map_err(refused)?;
        let logs = PathBuf::from(&config.log_directory);
        let made = tokio::fs::create_dir_all(&logs).await;
        made.map_err(|error| RuntimeError::Sandbox {
            cause: format!("cannot create {}: {error}", logs.display()),
        })?;
        let parent = config.linux.as_ref().map(|linux| linux.cgroup_parent.clone());
        let (cgroups, resources) =
            (inner.cgroups.clone(), pod_resources(spec, inner.node().has_static_cpus));
        let parent = parent.unwrap_or_default();
        self.on_cgroups({
            let (cgroups, parent) = (cgroups.clone(), parent.clone());
            move || cgroups.make(&parent, &resources)
        })
        .await?;
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler };
        let (id, is_answer) = match self.client().run_pod_sandbox(request).await {
            Ok(response) => (response.pod_sandbox_id, true),
            Err(error) if error.may_have_acted() => {
                let found = self.adopt_sandbox(&pod.uid, attempt).await;
                (found.ok().flatten().ok_or_else(|| sandbox_error(&error))?, false)
            }
            Err(error) => return Err(sandbox_error(&error)),
        };
        self.on_cgroups(move || cgroups.adjust(&parent, &resources)).await?;
        let status = if is_answer && is_on_node(spec) {
            // Its status would say no more: it is ready, and has no address of its own. A list finds its end.
            let (pod, addresses) = (pod.uid.clone(), Vec::new());
            let sandbox = Sandbox { pod, attempt, is_ready: true, is_closed: false, addresses };
            Some((id.clone(), sandbox))
        } else {
            inner.sandbox_status(&id).await.map_err(|error| sandbox_error(&error))?
        };
        match status {
            Some((id, sandbox)) if sandbox.is_ready => {
                inner.learn(Fact::Sandbox(id, sandbox));
                Ok(())
            }
            _ => {
                // Half made: its name is needed again.
                self.remove_sandbox(&id).await.map_err(|error| sandbox_error(&error))?;
                Err(RuntimeError::Sandbox { cause: "it ended while it was made".to_owned() })
            }
        }
    }

    async fn close(&self, pod: &PodUid) -> Result<(), RuntimeError> {
        let open: Vec<String> = self.inner.with(|knowledge| {
            let sandboxes = knowledge.sandboxes_of(pod).into_iter();
            sandboxes.filter(|(_, it)| !it.is_closed).map(|(id, _)| id.to_owned()).collect()
        });
        for id in open {
            self.stop_sandbox(&id).await.map_err(|error| sandbox_error(&error))?;
            self.inner.learn(Fact::Closed { id });
        }
        Ok(())
    }

    async fn write_volumes(&self, pod: &PodRecord, volumes: &[Volume]) -> Result<(), RuntimeError> {
        let forbidden = self.inner.node().forbidden;
        if let Some(message) = volumes.iter().find_map(|volume| forbidden.volume_refusal(volume)) {
            let reason = WaitReason { reason: "CreateContainerConfigError", message };
            return Err(RuntimeError::Refused { reason });
        }
        self.inner.files.write_volumes(pod, volumes).await
    }

    async fn reclaim(&self, view: &ClaimView, hold: Duration) -> Result<(), RuntimeError> {
        self.inner.files.reclaim(view, hold).await
    }

    async fn start(
        &self,
        pod: &PodRecord,
        spec: &Pod,
        launch: &LaunchSpec,
    ) -> Result<(), RuntimeError> {
        let (inner, name) = (&self.inner, launch.container.as_str());
        let sandbox = self.ready_sandbox(&pod.uid)?;
        if self.running(&pod.uid, name).is_ok() {
            return Ok(());
        }
        let latest = inner.with(|knowledge| {
            let latest = knowledge.runs_of(&pod.uid, name).pop();
            latest.map(|(id, run)| (id.to_owned(), run.clone()))
        });
        let attempt = match &latest {
            None => 0,
            // A start with an unknown outcome has made it.
            Some((id, run)) if run.phase == Phase::Created => {
                if !self.undo_start(id, run).await.map_err(|error| failed(&error))? {
                    return Ok(());
                }
                run.attempt
            }
            // The planner waits, too. It may have planned before a list showed that the run has ended.
            Some((_, Run { phase: Phase::EndPending { .. }, .. })) => {
                let cause = "the runtime does not say yet how the container ended".to_owned();
                return Err(RuntimeError::Away { cause });
            }
            Some((_, run)) => run.attempt + 1,
        };
        // The process of a start that was undone may have run, and the runtime may have lost runs: the number is that of one
        // run only.
        let attempt = attempt.max(inner.files.next_attempt(&pod.uid, name));
        let request = self.container_request(pod, spec, launch, attempt, sandbox.clone()).await?;
        let log = inner.files.log(pod, name, attempt);
        let id = self.create(&pod.uid, name, attempt, request).await;
        let id = id.map_err(|error| {
            // Its image or its sandbox may have gone.
            inner.image_cache.forget();
            inner.relist_soon.notify_one();
            failed(&error)
        })?;
        // Known before it runs: its end may come before the response.
        let run = Run {
            pod: pod.uid.clone(),
            container: name.to_owned(),
            attempt,
            sandbox: sandbox.clone(),
            image_id: None,
            log,
            falls_back_to_logs: launch.termination_message.falls_back_to_logs,
            is_oom: false,
            process_end: None,
            phase: Phase::Created,
        };
        inner.learn(Fact::Run(id.clone(), run));
        inner.files.mark_starting(&pod.uid, name, attempt).await?;
        let request = StartContainerRequest { container_id: id.clone() };
        let started = self.client().start_container(request).await;
        let status = inner.run_status(&id, &sandbox).await;
        let status = status.map_err(|error| failed(&error))?;
        let phase = status.as_ref().map(|(_, run)| run.phase.clone());
        if started.is_err() && matches!(phase, Some(Phase::Exited(_))) {
            self.excuse(&pod.uid, name, attempt, &sandbox).await;
        }
        if let Some((id, run)) = status {
            inner.learn(Fact::Run(id, run));
        }
        self.remove_old(&pod.uid, name).await;
        match (started, phase) {
            (Ok(_), _) | (Err(_), Some(Phase::Running { .. })) => Ok(()),
            (Err(error), Some(Phase::Exited(_))) => {
                Err(RuntimeError::Start { container: name.to_owned(), cause: error.to_string() })
            }
            (Err(error), Some(Phase::Created | Phase::EndPending { .. }) | None) => {
                Err(failed(&error))
            }
        }
    }

    async fn stop(
        &self,
        pod: &PodUid,
        container: &str,
        request: StopRequest,
    ) -> Result<(), RuntimeError> {
        let container_id = self.running(pod, container)?;
        if request.interrupts {
            let run = self.inner.with(|it| it.run(&container_id).cloned());
            let not_running = || RuntimeError::NotRunning { container: container.to_owned() };
            let run = run.ok_or_else(not_running)?;
            // The news of its end may have been lost. A run that has ended by itself is not interrupted.
            let status = self.inner.run_status(&container_id, &run.sandbox);
            if let Ok(Ok(Some((id, run)))) = timeout(ENDS_WITHIN, status).await
                && run.has_ended()
            {
                self.inner.learn(Fact::Run(id, run));
                return Err(not_running());
            }
            self.inner.files.mark_interrupted(pod, container, run.attempt).await?;
        }
        // A part of a second counts as a whole one: zero kills.
        let seconds = request.within.as_millis().div_ceil(1000);
        let timeout = i64::try_from(seconds).unwrap_or(i64::MAX);
        let inner = self.inner.clone();
        // The call returns when the container has ended, and a second one cuts it short.
        tokio::spawn(async move {
            for _ in 0..STOP_CALLS_MAX {
                let request = StopContainerRequest { container_id: container_id.clone(), timeout };
                match inner.client.stop_container(request).await {
                    Err(error) if error.is_away() => tokio::time::sleep(STOP_RETRY).await,
                    Err(CallError::NotFound { .. }) | Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "a container is not ended");
                        break;
                    }
                }
            }
            inner.relist_soon.notify_one();
        });
        Ok(())
    }

    async fn run(
        &self,
        pod: &PodUid,
        container: &str,
        command: &[String],
        bounds: CommandBounds,
    ) -> Result<CommandOutput, RuntimeError> {
        let container_id = self.running(pod, container)?;
        let seconds = bounds.within.as_millis().div_ceil(1000).max(1);
        let timeout = i64::try_from(seconds).unwrap_or(i64::MAX);
        let request = ExecSyncRequest { container_id, cmd: command.to_vec(), timeout };
        match self.client().exec_sync(request).await {
            Ok(response) => {
                let mut output = response.stdout;
                output.extend(response.stderr);
                output.truncate(bounds.output_bytes_max);
                Ok(CommandOutput { code: Some(response.exit_code), output })
            }
            Err(
                CallError::TimedOut { .. }
                | CallError::Failed { code: tonic::Code::DeadlineExceeded, .. },
            ) => Ok(CommandOutput { code: None, output: Vec::new() }),
            Err(error) if error.is_away() => Err(RuntimeError::Away { cause: error.to_string() }),
            Err(error) => Err(RuntimeError::Command {
                container: container.to_owned(),
                program: command.first().cloned().unwrap_or_default(),
                source: io::Error::other(error),
            }),
        }
    }

    async fn resize(
        &self,
        pod: &PodRecord,
        spec: &Pod,
        containers: &[String],
    ) -> Result<(), RuntimeError> {
        self.resize_pod(pod, spec, containers).await
    }

    async fn confine(
        &self,
        pod: &PodUid,
        container: &str,
        cpus: &CpuSet,
    ) -> Result<(), RuntimeError> {
        self.set_cpus(pod, container, cpus).await
    }

    async fn collect(&self, keep: usize, known: &BTreeSet<PodUid>) -> Result<(), RuntimeError> {
        self.collect_leavings(keep, known).await
    }

    async fn remove(&self, pod: &PodRecord) -> Result<(), RuntimeError> {
        let inner = &self.inner;
        let running = inner.with(|knowledge| {
            let mut runs = knowledge.runs().filter(|(_, run)| run.pod == pod.uid);
            let running = runs.find(|(_, run)| matches!(run.phase, Phase::Running { .. }));
            running.map(|(_, run)| run.container.clone())
        });
        if let Some(container) = running {
            return Err(RuntimeError::StillRuns { container });
        }
        // A call with an unknown outcome may have made more than is known.
        let listed = inner.list_sandboxes(Some(&pod.uid)).await;
        for sandbox in listed.map_err(|error| sandbox_error(&error))? {
            self.remove_sandbox(&sandbox.id).await.map_err(|error| sandbox_error(&error))?;
        }
        let listed = inner.list_containers(Some(&pod.uid), None).await;
        for container in listed.map_err(|error| sandbox_error(&error))? {
            let request = RemoveContainerRequest { container_id: container.id.clone() };
            let removed = self.client().remove_container(request).await.map(drop);
            removed.or_else(CallError::done_if_absent).map_err(|error| sandbox_error(&error))?;
            inner.learn(Fact::Removed { id: container.id });
        }
        let left: Vec<String> = inner.with(|knowledge| {
            let sandboxes = knowledge.sandboxes_of(&pod.uid).into_iter().map(|(id, _)| id);
            let runs = knowledge.runs().filter(|(_, run)| run.pod == pod.uid).map(|(id, _)| id);
            sandboxes.chain(runs).map(str::to_owned).collect()
        });
        for id in left {
            inner.learn(Fact::Removed { id });
        }
        // A process that the runtime does not know of could write to a volume meanwhile.
        inner.cgroups.end_processes(&pod.uid).await;
        inner.files.remove(pod).await?;
        let removed = inner.cgroups.remove(&pod.uid).await;
        removed.map_err(|error| RuntimeError::Sandbox { cause: error.to_string() })
    }

    async fn volume_file(
        &self,
        pod: &PodUid,
        volume: &str,
        path: &Path,
        bytes_max: u64,
    ) -> Result<Vec<u8>, RuntimeError> {
        self.inner.files.read(pod, volume, path, bytes_max).await
    }

    fn log_files(&self, query: &LogQuery) -> io::Result<Vec<PathBuf>> {
        self.inner.files.log_files(query)
    }
}

/// Whether the pod is in the network of its node.
fn is_on_node(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true))
}

/// A container was not made, or it is not known whether it was: a retry can succeed.
pub(crate) fn failed(error: &CallError) -> RuntimeError {
    let cause = error.to_string();
    let is_unknown = matches!(error, CallError::Away { .. } | CallError::TimedOut { .. });
    if is_unknown || error.is_during_start() {
        return RuntimeError::Away { cause };
    }
    error_of(cause)
}

fn error_of(message: String) -> RuntimeError {
    RuntimeError::Refused { reason: WaitReason { reason: "CreateContainerError", message } }
}

fn sandbox_error(error: &CallError) -> RuntimeError {
    RuntimeError::Sandbox { cause: error.to_string() }
}
