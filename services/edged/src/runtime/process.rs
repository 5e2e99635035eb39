//! The process runtime: containers are processes of the host, each under a shim of its own.
//!
//! There are no images and no isolation: a command is found and run on the host, as the user of
//! the pod worker. How a container sees its volumes is said in [`layout`]. What runs is found
//! again after a restart by the files of its run (see [`run_directory`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{ProcessConfig, Settings};
use crate::container::volume::Volume;
use crate::container::{LaunchSpec, WaitReason};
use crate::disk::durable_file;
use crate::disk::paths::Paths;
use crate::pod::{PodRecord, PodUid};
use crate::runtime::{
    CommandOutput, Exit, RunHistory, RunState, Runtime, RuntimeError, StopSignal,
};
use run_directory::{RunDirectory, Spec, State};

mod adoption;
mod command;
mod launch;
mod process_identity;
mod run_directory;
pub mod shim;
mod volumes;

/// Where commands are found unless a container says otherwise.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs containers as processes.
#[derive(Debug)]
pub(crate) struct ProcessRuntime {
    inner: Arc<Inner>,
    _stop: DropGuard,
}

/// What the tasks that await exits share with the runtime.
#[derive(Debug)]
struct Inner {
    paths: Paths,
    shim: Vec<String>,
    shim_env: Vec<(String, String)>,
    log_bytes_max: u64,
    log_files_max: u32,
    notices: mpsc::Sender<PodUid>,
    pods: Mutex<BTreeMap<PodUid, ProcessPod>>,
    stop: CancellationToken,
}

/// A pod with a directory.
#[derive(Debug)]
struct ProcessPod {
    record: PodRecord,
    /// Boxed, for a map has room for eleven, and most pods have one container.
    containers: BTreeMap<String, Box<Known>>,
}

/// What is known of a container.
#[derive(Clone, Debug)]
struct Known {
    attempt: u32,
    run: KnownRun,
    previous: Option<Exit>,
}

/// Its latest run.
#[derive(Clone, Debug)]
enum KnownRun {
    /// Its shim lives.
    Running {
        /// Unknown while the shim is about to start it.
        state: Option<State>,
        since: Timestamp,
    },
    Exited(Exit),
}

impl ProcessRuntime {
    /// Opens the runtime's directory and adopts what runs.
    pub(crate) async fn open(
        dir: &Path,
        config: &ProcessConfig,
        settings: &Settings,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<Self, RuntimeError> {
        // Containers start elsewhere: what they are told of this directory has to be absolute.
        let dir = std::path::absolute(dir).map_err(RuntimeError::file("resolve", dir))?;
        let shim = absolute_program(&config.shim);
        let stop = CancellationToken::new();
        let inner = Arc::new(Inner {
            paths: Paths::new(dir),
            shim,
            shim_env: config.shim_env.clone(),
            log_bytes_max: settings.log_bytes_max,
            log_files_max: settings.log_files_max,
            notices,
            pods: Mutex::new(BTreeMap::new()),
            stop: stop.clone(),
        });
        adoption::all(&inner)?;
        Ok(Self { inner, _stop: stop.drop_guard() })
    }
}

impl Inner {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<PodUid, ProcessPod>) -> T) -> T {
        // No code under this lock can panic half-way: the map is whole even if a thread died.
        work(&mut self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn known(&self, pod: &PodUid, container: &str) -> Option<Known> {
        self.with(|pods| pods.get(pod)?.containers.get(container).map(|known| Known::clone(known)))
    }

    fn attempt(&self, pod: &PodUid, container: &str, attempt: u32) -> RunDirectory {
        RunDirectory::new(self.paths.attempt(pod, container, attempt))
    }

    fn remember(&self, pod: &PodUid, container: &str, known: Known) {
        self.with(|pods| {
            if let Some(pod) = pods.get_mut(pod) {
                pod.containers.insert(container.to_owned(), Box::new(known));
            }
        });
    }

    fn notice(&self, pod: &PodUid) {
        // A full queue is looked through before long, and a relist finds what was lost.
        let _ = self.notices.try_send(pod.clone());
    }
}

impl Known {
    fn runs(&self) -> RunHistory {
        let state = match &self.run {
            KnownRun::Running { since, .. } => RunState::Running { started_at: *since },
            KnownRun::Exited(exit) => RunState::Exited(exit.clone()),
        };
        RunHistory { attempt: self.attempt, state, previous: self.previous.clone() }
    }
}

#[async_trait]
impl Runtime for ProcessRuntime {
    fn version(&self) -> String {
        concat!("process://", env!("CARGO_PKG_VERSION")).to_owned()
    }

    fn can_be_probed(&self) -> bool {
        true
    }

    fn accepts(&self, pod: &Pod, container: &Container) -> Result<(), WaitReason> {
        let words = container.command.as_deref().unwrap_or_default();
        if words.is_empty() {
            let image = container.image.as_deref().unwrap_or("no image");
            let message = format!(
                "the process runtime has no images and container {:?} has no command (image: \
                 {image}): give it a command of the host, or run the node with another runtime",
                container.name
            );
            return Err(WaitReason { reason: "ImageNotSupported", message });
        }
        accepts_user(pod, container)
    }

    fn environment(&self, pod: &PodUid, spec: &Pod, container: &str) -> BTreeMap<String, String> {
        let paths = &self.inner.paths;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let root = text(&paths.root(pod, container));
        let mut environment = BTreeMap::from([
            ("PATH".to_owned(), PATH_DEFAULT.to_owned()),
            ("HOME".to_owned(), root.clone()),
            ("HEADWATER_ROOT".to_owned(), root),
            ("HEADWATER_POD_DIR".to_owned(), text(&paths.pod(pod))),
        ]);
        let volumes = spec.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
        for volume in volumes.unwrap_or_default() {
            let name = volume.name.to_uppercase().replace(['-', '.'], "_");
            let path = paths.volumes(pod).join(&volume.name);
            environment.insert(format!("HEADWATER_VOLUME_{name}"), text(&path));
        }
        environment
    }

    fn pods(&self) -> Vec<PodRecord> {
        self.inner.with(|pods| pods.values().map(|pod| pod.record.clone()).collect())
    }

    fn containers(&self, pod: &PodUid) -> BTreeMap<String, RunHistory> {
        self.inner.with(|pods| {
            let containers = pods.get(pod).into_iter().flat_map(|pod| &pod.containers);
            containers.map(|(name, known)| (name.clone(), known.runs())).collect()
        })
    }

    async fn relist(&self) -> Result<(), RuntimeError> {
        let inner = self.inner.clone();
        blocking(move || {
            adoption::again(&inner);
            Ok(())
        })
        .await
    }

    async fn lay_out(&self, pod: &PodRecord, volumes: &[Volume]) -> Result<(), RuntimeError> {
        let (inner, pod, volumes) = (self.inner.clone(), pod.clone(), volumes.to_vec());
        blocking(move || {
            launch::pod_directory(&inner, &pod)?;
            volumes::write(&inner.paths, &pod, &volumes)
        })
        .await
    }

    async fn start(&self, pod: &PodRecord, launch: &LaunchSpec) -> Result<(), RuntimeError> {
        launch::start(&self.inner, pod, launch).await
    }

    async fn signal(
        &self,
        pod: &PodUid,
        container: &str,
        how: StopSignal,
        interrupted: bool,
    ) -> Result<(), RuntimeError> {
        let not_running = || RuntimeError::NotRunning { container: container.to_owned() };
        let known = self.inner.known(pod, container).ok_or_else(not_running)?;
        let KnownRun::Running { state, .. } = known.run else { return Err(not_running()) };
        let dir = self.inner.attempt(pod, container, known.attempt);
        let state = match state {
            Some(state) => state,
            None => dir
                .state()
                .map_err(RuntimeError::file("read the state in", dir.path()))?
                .ok_or_else(not_running)?,
        };
        if interrupted {
            dir.mark_stopped().map_err(RuntimeError::file("mark", dir.path()))?;
        }
        let signal = match how {
            StopSignal::Terminate => Signal::SIGTERM,
            StopSignal::Kill => Signal::SIGKILL,
        };
        state
            .process
            .signal_group(signal)
            .map_err(|source| RuntimeError::Signal { container: container.to_owned(), source })
    }

    async fn exec(
        &self,
        pod: &PodUid,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandOutput, RuntimeError> {
        let not_running = || RuntimeError::NotRunning { container: container.to_owned() };
        let known = self.inner.known(pod, container).ok_or_else(not_running)?;
        let dir = self.inner.attempt(pod, container, known.attempt);
        let spec: Spec = dir
            .spec()
            .map_err(RuntimeError::file("read the spec in", dir.path()))?
            .ok_or_else(not_running)?;
        command::run(container, &spec, command, timeout).await
    }

    async fn remember(&self, pod: &PodUid, status: &PodStatus) -> Result<(), RuntimeError> {
        if self.inner.with(|pods| !pods.contains_key(pod)) {
            return Ok(());
        }
        let (path, status) = (self.inner.paths.status(pod), status.clone());
        blocking(move || {
            durable_file::write(&path, &status).map_err(RuntimeError::file("write", &path))
        })
        .await
    }

    fn remembered(&self, pod: &PodUid) -> Option<PodStatus> {
        // Without it a status is only told once more.
        durable_file::read(&self.inner.paths.status(pod)).ok().flatten()
    }

    async fn remove(&self, pod: &PodUid) -> Result<(), RuntimeError> {
        let record = self.inner.with(|pods| pods.get(pod).map(|pod| pod.record.clone()));
        let Some(record) = record else { return Ok(()) };
        let inner = self.inner.clone();
        blocking(move || launch::remove(&inner, &record)).await
    }
}

/// The command with its program as an absolute path, unless it is to be found in `PATH`.
fn absolute_program(command: &[String]) -> Vec<String> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/'))
        && let Ok(absolute) = std::path::absolute(&*program)
    {
        *program = absolute.to_string_lossy().into_owned();
    }
    command
}

/// A process runs as the user of the pod worker: a pod that must not, does not.
fn accepts_user(pod: &Pod, container: &Container) -> Result<(), WaitReason> {
    let own = nix::unistd::geteuid();
    let context = container.security_context.as_ref();
    let pod_context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let user = context.and_then(|c| c.run_as_user).or(pod_context.and_then(|c| c.run_as_user));
    let not_root =
        context.and_then(|c| c.run_as_non_root).or(pod_context.and_then(|c| c.run_as_non_root));
    let refuse = |message| Err(WaitReason { reason: "CreateContainerConfigError", message });
    match user {
        Some(user) if user != i64::from(own.as_raw()) => refuse(format!(
            "the process runtime runs everything as user {own}, and the container wants user \
             {user}: run the edge as that user, or leave runAsUser out"
        )),
        None if own.is_root() && not_root == Some(true) => refuse(
            "container has runAsNonRoot and the process runtime would run it as root: run the \
             edge as another user"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// Runs what waits for the disk where waiting hurts nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let source = std::io::Error::other(error);
        Err(RuntimeError::File { what: "finish work on", path: "the disk".into(), source })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_accepted(pod_context: Value, context: Value) -> bool {
        let container = json!({"name": "c", "securityContext": context});
        let spec = json!({"securityContext": pod_context, "containers": [container]});
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        accepts_user(&pod, &crate::pod::main_containers(&pod)[0]).is_ok()
    }

    #[test]
    fn a_container_that_wants_to_be_another_user_is_refused() {
        let own = nix::unistd::geteuid();
        let (same, other) = (json!({"runAsUser": own.as_raw()}), json!({"runAsUser": 4242}));
        assert!(is_accepted(Value::Null, Value::Null));
        assert!(is_accepted(Value::Null, same.clone()));
        assert!(is_accepted(other.clone(), same.clone()), "the container's own word counts");
        assert!(!is_accepted(other.clone(), Value::Null));
        assert!(!is_accepted(same, other));
        let not_root = is_accepted(Value::Null, json!({"runAsNonRoot": true}));
        assert_eq!(not_root, !own.is_root());
    }

    #[test]
    fn only_a_program_with_a_path_is_made_absolute() {
        let command = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let same = command(&["headwater", "shim/x"]);
        assert_eq!(absolute_program(&same), same);
        let absolute = absolute_program(&command(&["./headwater", "shim"]));
        assert!(Path::new(&absolute[0]).is_absolute(), "{absolute:?}");
    }
}
