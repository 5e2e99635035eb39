//! The process runtime: containers are processes of the host, each under its own [`shim`].
//!
//! There are no images and no sandboxes: a command is found and run on the host. A pod worker with
//! the rights of root runs a container as the user that its spec names, with a view of mounts in
//! which the pod worker's directory shows that container's own places alone. Any other pod worker
//! runs it as itself, with all its rights (`rights`). `volumes` describes how a container sees its
//! volumes. After a restart the files of a run (`run_directory`) identify its process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    CommandBounds, CommandOutput, Features, LogQuery, PodState, Runtime, RuntimeError, StopRequest,
};
use crate::config::{ProcessConfig, Settings};
use crate::container::claim::ClaimView;
use crate::container::volume::Volume;
use crate::container::{LaunchSpec, WaitReason, credentials};
use crate::disk::file_error::{FileError, blocking};
use crate::pod::{PodRecord, PodUid};
use crate::pod_fields::Column;

mod adoption;
mod command;
mod launch;
mod leftovers;
mod mount_point;
mod process_identity;
pub(super) mod rights;
mod run_directory;
pub(super) mod run_spec;
mod running;
pub mod shim;
mod state;

use super::pod_files::PodFiles;
use super::pod_files::volumes::Audience;
use rights::RightsPolicy;
pub use rights::shared_rights;
pub use running::running_pods;
use state::{LatestRun, ProcessState};

/// The search path of commands unless a container sets another one.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs containers as processes.
#[derive(Debug)]
pub(crate) struct ProcessRuntime {
    state: Arc<ProcessState>,
    _stop: DropGuard,
}

impl ProcessRuntime {
    /// Opens the runtime in the pod worker's directory and adopts what runs. Without
    /// `allow_root` no container runs as the user that owns the edge's socket.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn open(
        dir: &Path,
        edge_socket: &Path,
        config: &ProcessConfig,
        settings: &Settings,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<Self, RuntimeError> {
        let stop = CancellationToken::new();
        let policy = RightsPolicy::of_this_process(config.allow_root);
        if let Some(why) = shared_rights(config.allow_root) {
            tracing::info!("{why}");
        }
        let audience = if policy.own.can_separate { Audience::Users } else { Audience::Owner };
        let files = PodFiles::open_for(dir, audience)?;
        let state = Arc::new(ProcessState {
            paths: files.paths().clone(),
            files,
            shim: absolute_program(&config.shim),
            shim_env: config.shim_env.clone(),
            log_bytes_max: settings.log_bytes_max,
            log_files_max: settings.log_files_max,
            notices,
            pods: Default::default(),
            unread: Default::default(),
            policy,
            edge_socket: edge_socket.to_owned(),
            stop: stop.clone(),
        });
        adoption::adopt(&state)?;
        Ok(Self { state, _stop: stop.drop_guard() })
    }
}

#[async_trait]
impl Runtime for ProcessRuntime {
    fn features(&self) -> Features {
        Features {
            version: concat!("process://", env!("CARGO_PKG_VERSION")).to_owned(),
            sandboxes: false,
            commands: true,
            files: true,
            persistent: true,
            resize: false,
            collection: false,
            cpu_sets: false,
            devices: false,
        }
    }

    fn fields(&self) -> Column {
        Column::Process
    }

    fn check(&self, pod: &Pod, container: &Container) -> Result<(), WaitReason> {
        if container.command.as_deref().unwrap_or_default().is_empty() {
            let image = container.image.as_deref().unwrap_or("no image");
            let message = format!(
                "the process runtime has no images and container {:?} has no command (image: \
                 {image}): give it a command of the host, or run the node with another runtime",
                container.name
            );
            return Err(WaitReason { reason: "ImageNotSupported", message });
        }
        let ProcessState { policy, paths, edge_socket, .. } = &*self.state;
        policy.check(pod, container, rights::owner(edge_socket))?;
        mount_point::check(container, paths.dir(), policy.own.can_separate).map_err(
            |(index, why)| {
                let place = credentials::path(pod, container);
                let message = format!("{place}.volumeMounts[{index}].mountPath: {why}");
                WaitReason { reason: "CreateContainerConfigError", message }
            },
        )
    }

    fn environment(&self, pod: &PodUid, spec: &Pod, container: &str) -> BTreeMap<String, String> {
        let paths = &self.state.paths;
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

    fn pods(&self) -> Vec<PodUid> {
        self.state.with(|pods| pods.keys().cloned().collect())
    }

    fn pod(&self, pod: &PodUid) -> PodState {
        self.state.with(|pods| pods.get(pod).map(state::pod_state).unwrap_or_default())
    }

    async fn relist(&self) -> Result<(), RuntimeError> {
        let state = self.state.clone();
        blocking(move || {
            adoption::relist(&state);
            Ok(())
        })
        .await
    }

    async fn write_volumes(&self, pod: &PodRecord, volumes: &[Volume]) -> Result<(), RuntimeError> {
        self.state.files.write_volumes(pod, volumes).await
    }

    async fn reclaim(&self, view: &ClaimView, hold: Duration) -> Result<(), RuntimeError> {
        self.state.files.reclaim(view, hold).await
    }

    async fn start(
        &self,
        pod: &PodRecord,
        _: &Pod,
        launch: &LaunchSpec,
    ) -> Result<(), RuntimeError> {
        launch::start(&self.state, pod, launch).await
    }

    async fn stop(
        &self,
        pod: &PodUid,
        container: &str,
        request: StopRequest,
    ) -> Result<(), RuntimeError> {
        let not_running = || RuntimeError::NotRunning { container: container.to_owned() };
        let entry = self.state.container(pod, container).ok_or_else(not_running)?;
        let LatestRun::Running { process, .. } = entry.run else { return Err(not_running()) };
        let dir = self.state.run_directory(pod, container, entry.attempt);
        let process = match process {
            Some(process) => process,
            None => dir
                .process()
                .map_err(FileError::new("read the state in", dir.path()))?
                .ok_or_else(not_running)?,
        };
        if request.interrupts {
            dir.mark_interrupted().map_err(FileError::new("mark", dir.path()))?;
        }
        let signal = if request.kills() { Signal::SIGKILL } else { process.stop_signal.signal() };
        process
            .identity
            .signal_group(signal)
            .map_err(|source| RuntimeError::Signal { container: container.to_owned(), source })
    }

    async fn run(
        &self,
        pod: &PodUid,
        container: &str,
        command: &[String],
        bounds: CommandBounds,
    ) -> Result<CommandOutput, RuntimeError> {
        let not_running = || RuntimeError::NotRunning { container: container.to_owned() };
        let entry = self.state.container(pod, container).ok_or_else(not_running)?;
        let dir = self.state.run_directory(pod, container, entry.attempt);
        command::run(container, &dir, command, bounds).await
    }

    async fn remove(&self, pod: &PodRecord) -> Result<(), RuntimeError> {
        if let Some(error) = adoption::retry_unread(&self.state, &pod.uid).await {
            return Err(error);
        }
        launch::remove(&self.state, pod).await
    }

    async fn volume_file(
        &self,
        pod: &PodUid,
        volume: &str,
        path: &Path,
        bytes_max: u64,
    ) -> Result<Vec<u8>, RuntimeError> {
        self.state.files.read(pod, volume, path, bytes_max).await
    }

    fn log_files(&self, query: &LogQuery) -> io::Result<Vec<PathBuf>> {
        self.state.files.log_files(query)
    }
}

/// The command with its program as an absolute path, unless it is searched in `PATH`.
fn absolute_program(command: &[String]) -> Vec<String> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/'))
        && let Ok(absolute) = std::path::absolute(&*program)
    {
        *program = absolute.to_string_lossy().into_owned();
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_with_a_path_is_made_absolute() {
        let command = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let same = command(&["headwater", "shim/x"]);
        assert_eq!(absolute_program(&same), same);
        let absolute = absolute_program(&command(&["./headwater", "shim"]));
        assert!(Path::new(&absolute[0]).is_absolute(), "{absolute:?}");
    }
}
