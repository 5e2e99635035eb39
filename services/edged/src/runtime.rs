//! The seam to what runs containers: five traits, and the runtimes behind them.
//!
//! | trait | job | `process` | `hollow` | `memory` |
//! |---|---|---|---|---|
//! | [`Runtime`] | sandboxes and containers | without sandboxes | without sandboxes | yes |
//! | [`Images`] | container images | | | yes |
//! | [`Streams`] | exec, attach and port-forward | | | |
//! | [`Usage`] | CPU, memory, processes, disk | | | memory |
//! | [`VolumeDrivers`] | volumes of storage drivers | | | |
//!
//! A [`NodeRuntime`] is the set of the traits that one runtime implements. What a runtime cannot do
//! is absent from the set, or named in its [`Features`]: the call returns
//! [`RuntimeError::Unsupported`]. The desired state, the plan of a pod, its record and its last
//! reported status are not the runtime's.
//!
//! A runtime keeps its knowledge in memory and responds from there. When it notices a change, it
//! sends the pod's UID to the channel that it was opened with. A lost notice is found by a relist.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::container::claim::ClaimView;
use crate::container::cpu_set::CpuSet;
use crate::container::volume::Volume;
use crate::container::{LaunchSpec, WaitReason};
use crate::pod::{PodRecord, PodUid};
use crate::pod_fields::Column;

mod drivers;
mod error;
pub(crate) mod hollow;
mod images;
pub mod memory;
mod node_runtime;
pub mod pod_files;
pub mod process;
mod state;
mod streams;
mod usage;

pub use drivers::{StatedDriver, VolumeDrivers};
pub use error::RuntimeError;
pub use images::{Image, ImageError, ImageUsage, Images, PulledImage, RegistryCredentials};
pub use node_runtime::{NodeRuntime, RuntimeOpener};
pub use state::{END_PENDING_MAX, Exit, PodState, RunHistory, RunState, SandboxState, UNOBSERVED};
pub use streams::{StreamAddress, StreamRequest, Streams};
pub use usage::{
    ContainerDisk, ContainerUsage, DiskUsage, FileSystemUsage, MemoryUsage, PodDisk, PodUsage,
    ProcessUsage, Usage, VolumeUsage,
};

/// Runs the sandboxes and containers of pods.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// What this runtime can do. It does not change while the runtime is open.
    fn features(&self) -> Features;

    /// Its name and version as they are now: an upgrade changes them while it is open. By default they stay.
    fn version(&self) -> String {
        self.features().version
    }

    /// The fields of a pod that this runtime honours: its column of the table.
    fn fields(&self) -> Column;

    /// Checks whether the node admits the pod, before anything of it runs. A pod that is rejected fails
    /// for good, as under a kubelet, so that its controller makes another one elsewhere. By default
    /// every pod is admitted.
    ///
    /// # Errors
    /// Why the pod fails.
    fn admit(&self, pod: &Pod) -> Result<(), Rejection> {
        let _ = pod;
        Ok(())
    }

    /// Checks whether what the node forbids lets a container run on, beside the volumes of its pod: the node may have become
    /// stricter since it was started. A pod that is refused ends and fails for good. By default nothing is forbidden.
    ///
    /// # Errors
    /// Why the pod fails.
    fn allow(&self, pod: &Pod, container: &Container, volumes: &[Volume]) -> Result<(), Rejection> {
        let _ = (pod, container, volumes);
        Ok(())
    }

    /// Checks whether the runtime can run this container at all. By default it can.
    ///
    /// # Errors
    /// Why the container has to wait, and what to do.
    fn check(&self, pod: &Pod, container: &Container) -> Result<(), WaitReason> {
        let _ = (pod, container);
        Ok(())
    }

    /// Gives the runtime the handlers of the RuntimeClasses that the node knows, by the name of the class. By default it
    /// has one handler.
    fn set_runtime_classes(&self, classes: BTreeMap<String, String>) {
        let _ = classes;
    }

    /// What the Node object states of the runtime beside its version. By default there is nothing.
    fn stated(&self) -> StatedFeatures {
        StatedFeatures::default()
    }

    /// Why the runtime can run no pods now, for a person. By default it can.
    ///
    /// # Errors
    /// The reason. The node is not ready until there is none.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// The environment that the runtime gives every container, before the pod's own variables. By
    /// default there is none.
    fn environment(&self, pod: &PodUid, spec: &Pod, container: &str) -> BTreeMap<String, String> {
        let _ = (pod, spec, container);
        BTreeMap::new()
    }

    /// Every pod that has a sandbox, a container or a volume here, running or not.
    fn pods(&self) -> Vec<PodUid>;

    /// The state of one pod: its sandbox, addresses and containers.
    fn pod(&self, pod: &PodUid) -> PodState;

    /// Compares the runtime's knowledge with the machine, and sends a notice for every pod that
    /// differs. By default the runtime's knowledge is all there is, and nothing can differ.
    async fn relist(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// The records of these pods, from what the runtime itself keeps of them. A pod of which it keeps no name is absent. By
    /// default it keeps none.
    async fn recover(&self, pods: &BTreeSet<PodUid>) -> Result<Vec<PodRecord>, RuntimeError> {
        let _ = pods;
        Ok(Vec::new())
    }

    /// Opens a sandbox for the pod, once more if an earlier one was closed. On success the state
    /// is [`SandboxState::Ready`] and its attempt is new. On failure a sandbox may exist: the pod's
    /// UID and the attempt identify it, and the next call adopts it.
    ///
    /// Supported if [`Features::sandboxes`].
    async fn open(&self, pod: &PodRecord, spec: &Pod) -> Result<(), RuntimeError> {
        let _ = (pod, spec);
        Err(RuntimeError::Unsupported { verb: "open a sandbox" })
    }

    /// Closes the pod's sandbox. Its containers have ended; their state and logs stay. Succeeds if
    /// there is no sandbox.
    ///
    /// Supported if [`Features::sandboxes`].
    async fn close(&self, pod: &PodUid) -> Result<(), RuntimeError> {
        let _ = pod;
        Err(RuntimeError::Unsupported { verb: "close a sandbox" })
    }

    /// Writes the pod's volumes, or brings them up to date. On success containers see the new
    /// content.
    async fn write_volumes(&self, pod: &PodRecord, volumes: &[Volume]) -> Result<(), RuntimeError>;

    /// Removes the directories of deleted claims whose policy is `Delete` and that no pod uses, and
    /// names the others once. A claim counts as absent when the view has lacked it for `hold`. By
    /// default there are none.
    async fn reclaim(&self, view: &ClaimView, hold: Duration) -> Result<(), RuntimeError> {
        let _ = (view, hold);
        Ok(())
    }

    /// Starts a container of the pod once more; does nothing if it runs. `spec` is the pod's latest
    /// object, which has what `launch` leaves out: resources, ports, the security contexts. On success
    /// the run is durable: another start of the pod worker finds it.
    async fn start(
        &self,
        pod: &PodRecord,
        spec: &Pod,
        launch: &LaunchSpec,
    ) -> Result<(), RuntimeError>;

    /// Asks a running container to end, or kills it, and does not wait for its end. The caller
    /// calls again with [`StopRequest::KILL`] when the time is over.
    async fn stop(
        &self,
        pod: &PodUid,
        container: &str,
        request: StopRequest,
    ) -> Result<(), RuntimeError>;

    /// Runs a command in a running container and collects its output.
    ///
    /// Supported if [`Features::commands`].
    async fn run(
        &self,
        pod: &PodUid,
        container: &str,
        command: &[String],
        bounds: CommandBounds,
    ) -> Result<CommandOutput, RuntimeError> {
        let _ = (pod, container, command, bounds);
        Err(RuntimeError::Unsupported { verb: "run a command in a container" })
    }

    /// Gives a pod the processor time and the memory that its spec asks for, and those of its containers that are named.
    /// When it fails, some of them may have got it; it can be repeated.
    ///
    /// Supported if [`Features::resize`].
    async fn resize(
        &self,
        pod: &PodRecord,
        spec: &Pod,
        containers: &[String],
    ) -> Result<(), RuntimeError> {
        let _ = (pod, spec, containers);
        Err(RuntimeError::Unsupported { verb: "change the resources of a pod" })
    }

    /// Moves a running container to these processors.
    ///
    /// Supported if [`Features::cpu_sets`].
    async fn confine(
        &self,
        pod: &PodUid,
        container: &str,
        cpus: &CpuSet,
    ) -> Result<(), RuntimeError> {
        let _ = (pod, container, cpus);
        Err(RuntimeError::Unsupported { verb: "choose the processors of a container" })
    }

    /// Removes all but the newest `keep` ended runs of every container, and at least one stays. Of a pod that is not among
    /// `known`, everything goes that has ended: runs, sandboxes, logs. A runtime without this feature bounds
    /// ended runs by itself.
    ///
    /// Supported if [`Features::collection`].
    async fn collect(&self, keep: usize, known: &BTreeSet<PodUid>) -> Result<(), RuntimeError> {
        let _ = (keep, known);
        Err(RuntimeError::Unsupported { verb: "collect ended containers" })
    }

    /// Removes everything of a pod whose containers have ended: sandbox, containers, volumes, logs and cgroup.
    /// On success nothing of the pod is left but its record. When it fails, it can be repeated.
    async fn remove(&self, pod: &PodRecord) -> Result<(), RuntimeError>;

    /// The content of a file of a volume that containers of the pod write to. No link leads out of the volume. By default
    /// there is none.
    ///
    /// # Errors
    /// There is no such file, or it has more bytes than `bytes_max`.
    async fn volume_file(
        &self,
        pod: &PodUid,
        volume: &str,
        path: &Path,
        bytes_max: u64,
    ) -> Result<Vec<u8>, RuntimeError> {
        let _ = (pod, volume, path, bytes_max);
        Err(RuntimeError::Unsupported { verb: "read files of volumes" })
    }

    /// The log files of a container's run, oldest first, with lines in the form of the CRI. Empty
    /// if there is none.
    ///
    /// # Errors
    /// The errors of the file system.
    fn log_files(&self, query: &LogQuery) -> io::Result<Vec<PathBuf>>;
}

/// What a runtime can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Name and version, in the form of the Node object: `process://0.1.0`. See [`Runtime::version`].
    pub version: String,
    /// Pods have sandboxes, which are opened and closed. Without them a pod is always ready for
    /// its containers.
    pub sandboxes: bool,
    /// Commands can be run in containers, and their ports can be reached. Without this there are
    /// no probes and hooks, and a running container is ready.
    pub commands: bool,
    /// Containers read the files of volumes. Without this no token of a ServiceAccount is requested for them.
    pub files: bool,
    /// Pods outlive the pod worker, which adopts them at its next start.
    pub persistent: bool,
    /// The processor time and the memory of a running pod can be changed.
    pub resize: bool,
    /// Ended containers are removed on request.
    pub collection: bool,
    /// Containers run on the processors that their launch names.
    pub cpu_sets: bool,
    /// Containers get the devices that their launch names.
    pub devices: bool,
}

/// What the Node object states of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatedFeatures {
    /// The handlers, of which a RuntimeClass names one.
    pub handlers: Vec<StatedHandler>,
    /// A pod's `supplementalGroupsPolicy` is kept; `None`: the runtime does not say so.
    pub supplemental_groups_policy: Option<bool>,
    /// Features by the names of Kubernetes' gates, in order. An API server lets pods use these on no node that does not
    /// declare them (KEP-5328).
    pub declared: Vec<&'static str>,
}

/// A handler of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatedHandler {
    /// Its name; empty for the default one.
    pub name: String,
    /// Mounts can be read-only with everything below them.
    pub recursive_read_only_mounts: bool,
    /// Pods can have users of their own.
    pub user_namespaces: bool,
}

/// Why a node does not admit a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// One word, as a kubelet reports it: `SysctlForbidden`.
    pub reason: &'static str,
    /// What the pod asks for that it does not get.
    pub message: String,
}

/// How a container is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// The time that the container has. Zero kills it, and cuts a longer stop short.
    pub within: Duration,
    /// The container ends for the machine's sake: the run is marked, and the container starts
    /// again under any restart policy.
    pub interrupts: bool,
}

impl StopRequest {
    /// Kills the container.
    pub const KILL: Self = Self { within: Duration::ZERO, interrupts: false };

    /// Whether the container is killed.
    pub fn kills(&self) -> bool {
        self.within.is_zero()
    }
}

/// The bounds of a command in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandBounds {
    /// The time that it has.
    pub within: Duration,
    /// The bytes that are kept of its output, or of each stream of it.
    pub output_bytes_max: usize,
}

impl CommandBounds {
    /// The output that is kept of a probe or hook, as under a kubelet: a message quotes its beginning.
    pub const HANDLER_OUTPUT_BYTES_MAX: usize = 10 << 10;

    /// The bounds of a probe or hook.
    pub fn of_handler(within: Duration) -> Self {
        Self { within, output_bytes_max: Self::HANDLER_OUTPUT_BYTES_MAX }
    }
}

/// The result of a command in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Its exit code; `None` if it did not end in time.
    pub code: Option<i32>,
    /// The beginning of its output, which need not be text.
    pub output: Vec<u8>,
}

/// The container and run whose log is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name. When several pods of this name have logs, the pod that wrote last is
    /// chosen.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// The run before the latest run.
    pub previous: bool,
}
