//! The pod worker as a whole: its start, and the handle of a running one.
//!
//! [`Edged::spawn`] opens the runtime and the files of pods, and starts seven tasks: the watch of the
//! edge's view, the reporter of the node, the reporter of pods, the keeper of claims, the collector of images and ended
//! containers, the evictor, and the supervisor; and one for static pods, if the node has a folder of them. The supervisor
//! owns the desired state and keeps one worker for every pod.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_event::NodeName;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::client::{EdgeClient, SocketPathTooLong};
use crate::api::event_recorder::EventRecorder;
use crate::api::pod_reporter::PodReporter;
use crate::collection::Collector;
use crate::config::{CpuPolicy, EdgedConfig, RuntimeKind, Settings};
use crate::container::claim::ClaimView;
use crate::cpus::{self, CpuManager};
use crate::devices::{DeviceServer, Devices};
use crate::disk::file_error::FileError;
use crate::disk::pod_store::PodStore;
use crate::eviction::{EVICTIONS_MAX, Evictor, RECLAIMS_MAX};
use crate::node::images::stated;
use crate::node::measurement::{measure, storage_bytes};
use crate::node::object::NodeFacts;
use crate::node::pressure::PressureTracker;
use crate::node::reporter;
use crate::pod::PodUid;
use crate::runtime::{LogQuery, NodeRuntime, RuntimeError};
use crate::static_pods::{self, StaticPods, statement};
use crate::worker::{Places, ProbeTotals, WorkerDependencies};

mod admission;
mod claim_keeper;
mod node_pods;
mod pod_end;
mod preemption;
mod resize;
mod stray_pods;
mod supervisor;
pub mod worker_set;

pub use node_pods::{NodePods, WorkerEnded};
pub use pod_end::EndedPods;

use node_pods::PodQuery;
use supervisor::Supervisor;

/// The pod worker of one node.
#[derive(Debug)]
pub struct Edged;

/// A running pod worker. Dropping it stops the worker and leaves its pods running.
#[derive(Debug)]
pub struct Handle {
    stop_pods: Option<oneshot::Sender<Duration>>,
    cancel: CancellationToken,
    logs: ContainerLogs,
    pods: NodePods,
    task: Option<JoinHandle<usize>>,
}

/// Finds the logs of containers by asking the runtime. Cheap to clone; it works after the pod
/// worker has stopped, too.
#[derive(Clone)]
pub struct ContainerLogs(NodeRuntime);

/// The pod worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EdgedError {
    /// The path of the edge's socket is too long.
    #[error(transparent)]
    Socket(#[from] SocketPathTooLong),
    /// The process runtime has no shim.
    #[error("the process runtime needs the shim's program and arguments")]
    NoShim,
    /// The runtime cannot read its state.
    #[error("the runtime cannot start")]
    Runtime(#[from] RuntimeError),
    /// The pod worker's own files cannot be read.
    #[error("the directory of pods cannot be opened")]
    Store(#[from] FileError),
    /// The runtime does not name the pods that have no record.
    #[error("the runtime does not name the pods that have no record")]
    Strays(#[source] RuntimeError),
    /// Pods still run that were to end.
    #[error("containers of these pods still run: {pods}")]
    PodsLeft {
        /// Their keys.
        pods: String,
    },
    /// The socket cannot be made at which device plugins register.
    #[error("device plugins cannot register")]
    Devices(#[source] FileError),
}

/// How all pods end, where nothing else is done.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// The longest time of a pod's end.
    within: Duration,
    /// The pods with volumes of storage drivers end first: the others may be those drivers.
    takes_volumes_back: bool,
}

/// Events of the watch that may wait; past this the edge's stream is held back.
const EVENTS_MAX: usize = 256;

/// Notices of the runtime that may wait, as in a kubelet's PLEG. A relist finds a lost one.
pub const NOTICES_MAX: usize = 1000;

/// Requests for tokens at a time: half of the requests that a hub takes of one node. After a start of the
/// node, all pods request theirs.
const TOKEN_REQUESTS_MAX: usize = 8;

impl Edged {
    /// Starts a pod worker with the configured runtime. It adopts the pods that an earlier one left
    /// running, registers the node, and follows the edge's view whenever the edge can be reached.
    ///
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// See [`EdgedError`]. Nothing runs that did not run before.
    pub async fn spawn(mut config: EdgedConfig) -> Result<Handle, EdgedError> {
        let edge = EdgeClient::new(&config.edge_socket, &config.settings)?;
        if let RuntimeKind::Process(process) = &config.runtime
            && process.shim.is_empty()
        {
            return Err(EdgedError::NoShim);
        }
        if let RuntimeKind::Other(opener) = &config.runtime {
            config.devices = config.devices.or_else(|| opener.devices());
        }
        let (notices, noticed) = mpsc::channel(NOTICES_MAX);
        let runtime = open_runtime(&config, notices).await?;
        Self::start(config, edge, runtime, noticed, None)
    }

    /// Starts a pod worker with this runtime instead of the configured one. `noticed` receives the
    /// UID of every pod that changes in the runtime; [`NOTICES_MAX`] of them may wait.
    ///
    /// # Errors
    /// See [`EdgedError`]. Nothing runs that did not run before.
    pub async fn spawn_with(
        config: EdgedConfig,
        runtime: NodeRuntime,
        noticed: mpsc::Receiver<PodUid>,
    ) -> Result<Handle, EdgedError> {
        let edge = EdgeClient::new(&config.edge_socket, &config.settings)?;
        Self::start(config, edge, runtime, noticed, None)
    }

    /// With `ending`, the pods end, and nothing else is done.
    fn start(
        config: EdgedConfig,
        edge: EdgeClient,
        runtime: NodeRuntime,
        noticed: mpsc::Receiver<PodUid>,
        ending: Option<Ending>,
    ) -> Result<Handle, EdgedError> {
        let EdgedConfig {
            node,
            node_address,
            kubelet_port,
            devices,
            settings,
            metrics,
            dir,
            static_pods,
            ..
        } = config;
        let store = open_store(&runtime, &dir)?;
        for pod in runtime.pods().into_iter().filter(|pod| !store.contains(pod)) {
            tracing::warn!(%pod, "a pod of the runtime has no record");
        }
        let cpus = open_cpus(&dir, &settings, &runtime, &store)?;
        let cancel = CancellationToken::new();
        let devices = open_devices(&dir, devices, &runtime, &store, &cancel)?;
        let (events, watched) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(edge.clone().watch(settings.clone(), events, cancel.clone()));
        let resend_node = Arc::new(Notify::new());
        let (listed, images) = watch::channel(Arc::default());
        let static_files = follow_files(static_pods, &node, &settings, &cancel);
        let gather = {
            let (runtime, node, settings) = (runtime.clone(), node.clone(), settings.clone());
            let (devices, static_files) = (devices.clone(), static_files.clone());
            let storage = storage_bytes(&dir).unwrap_or(0);
            move || {
                let version = runtime.version();
                let pods_max = settings.pods_max;
                let facts = NodeFacts::gather(node.clone(), node_address, pods_max, version);
                let reserved = settings.kept_from_pods(storage);
                let facts = NodeFacts { storage_kib: storage >> 10, reserved, ..facts };
                let runtime_trouble = runtime.health().err();
                let (features, images) = (runtime.stated(), stated(&images.borrow()));
                let devices = devices.as_ref().map(Devices::stated).unwrap_or_default();
                let drivers = runtime.drivers().map(|drivers| drivers.stated());
                let volumes_in_use =
                    runtime.drivers().map(|drivers| drivers.in_use()).unwrap_or_default();
                let static_pods = statement::stated(&static_files.borrow());
                let facts =
                    NodeFacts { drivers, volumes_in_use, static_pods, kubelet_port, ..facts };
                NodeFacts { runtime_trouble, features, images, devices, ..facts }
            }
        };
        let allocatable = gather().allocatable();
        let mut tracker = PressureTracker::default();
        let pressures = tracker.observe(&measure(&dir), &settings.pressure, Instant::now());
        let (pressures, pressed) = watch::channel(pressures);
        let (resend, stop) = (resend_node.clone(), cancel.clone());
        tokio::spawn(reporter::report(
            gather,
            pressed.clone(),
            static_files.clone(),
            edge.clone(),
            settings.clone(),
            resend,
            stop,
        ));
        let logs = ContainerLogs(runtime.clone());
        let (queries, queried) = mpsc::channel::<PodQuery>(node_pods::QUERIES_MAX);
        let probes = ProbeTotals::default();
        let pods = NodePods::new(node.clone(), runtime.clone(), queries, probes.clone());
        let dependencies = Arc::new(WorkerDependencies {
            node,
            address: node_address,
            allocatable,
            cpus,
            devices,
            adding: Places::new(settings.add_workers),
            removing: Places::new(settings.remove_workers),
            requesting_tokens: Semaphore::new(TOKEN_REQUESTS_MAX),
            edge: edge.clone(),
            reporter: PodReporter::start(edge.clone(), &settings, metrics.clone()),
            events: EventRecorder::start(edge.clone(), &settings),
            settings,
            runtime,
            store,
            metrics,
            probes,
            cancel: cancel.clone(),
        });
        if let Some(cpus) = &dependencies.cpus {
            let runtime = dependencies.runtime.clone();
            tokio::spawn(cpus::keep(cpus.clone(), runtime, cancel.clone()));
        }
        let (reclaims, reclaimed) = mpsc::channel(RECLAIMS_MAX);
        let collector = Collector::new(dependencies.clone(), listed, reclaimed);
        tokio::spawn(collector.run(cancel.clone()));
        let (evictions, evicted) = mpsc::channel(EVICTIONS_MAX);
        let evicts =
            dependencies.settings.pressure.evicts && dependencies.runtime.usage().is_some();
        let evictor = Evictor {
            shared: dependencies.clone(),
            dir,
            pods: Box::new(pods.clone()),
            pressures,
            tracker,
            evictions,
            reclaims,
            over_limits: BTreeSet::new(),
        };
        tokio::spawn(evictor.run(cancel.clone()));
        let claims = watch::Sender::new(ClaimView::default());
        tokio::spawn(claim_keeper::keep(
            dependencies.runtime.clone(),
            dependencies.settings.clone(),
            claims.subscribe(),
            cancel.clone(),
        ));
        let mut supervisor =
            Supervisor::new(dependencies, edge, resend_node, claims, evicts.then_some(pressed));
        if let Some(ending) = ending {
            // Before it sees that no file of a static pod is there.
            supervisor.end(ending);
        }
        let (stop_pods, stopped) = oneshot::channel();
        let task =
            tokio::spawn(supervisor.run(watched, noticed, queried, evicted, static_files, stopped));
        Ok(Handle { stop_pods: Some(stop_pods), cancel, logs, pods, task: Some(task) })
    }
}

/// Opens the records of the pods: on the disk, if the pods outlive their pod worker.
fn open_store(runtime: &NodeRuntime, dir: &Path) -> Result<PodStore, FileError> {
    if runtime.features().persistent { PodStore::open(dir) } else { Ok(PodStore::in_memory()) }
}

/// Opens the configured runtime, which sends the UID of every pod that changes to `notices`.
async fn open_runtime(
    config: &EdgedConfig,
    notices: mpsc::Sender<PodUid>,
) -> Result<NodeRuntime, RuntimeError> {
    let EdgedConfig { runtime: kind, node, dir, edge_socket, settings, .. } = config;
    match kind {
        RuntimeKind::Other(opener) => opener.open(node, dir, settings, notices).await,
        kind => NodeRuntime::open(kind, dir, edge_socket, settings, notices),
    }
}

/// Follows the pods of the node's own files, if there is a folder of them.
fn follow_files(
    folder: Option<PathBuf>,
    node: &NodeName,
    settings: &Settings,
    cancel: &CancellationToken,
) -> watch::Receiver<StaticPods> {
    let Some(folder) = folder else {
        let (_, mut none) = watch::channel(StaticPods::none());
        none.mark_changed();
        return none;
    };
    let (found, files) = watch::channel(StaticPods::default());
    let period = settings.static_pod_check;
    tokio::spawn(static_pods::follow(folder, node.clone(), period, found, cancel.clone()));
    files
}

/// Opens the processors of containers, if the runtime lets them choose.
fn open_cpus(
    dir: &Path,
    settings: &Settings,
    runtime: &NodeRuntime,
    store: &PodStore,
) -> Result<Option<Arc<CpuManager>>, FileError> {
    if !runtime.features().cpu_sets {
        if settings.cpu_policy != CpuPolicy::None {
            tracing::warn!(
                "the runtime runs containers on all processors, whatever the CPU policy is"
            );
        }
        return Ok(None);
    }
    let in_runtime = runtime.pods();
    let exists = |pod: &PodUid| store.contains(pod) || in_runtime.contains(pod);
    Ok(CpuManager::open(dir, settings, exists)?.map(Arc::new))
}

/// Opens the devices of containers and serves their plugins, if there is a server and the runtime gives devices.
fn open_devices(
    dir: &Path,
    server: Option<Arc<dyn DeviceServer>>,
    runtime: &NodeRuntime,
    store: &PodStore,
    cancel: &CancellationToken,
) -> Result<Option<Devices>, EdgedError> {
    let Some(server) = server.filter(|_| runtime.features().devices) else { return Ok(None) };
    let records = store.pods().into_iter().map(|record| record.uid);
    let present = records.chain(runtime.pods()).collect();
    let devices = Devices::open(dir, &present)?;
    server.serve(devices.clone(), cancel.clone()).map_err(EdgedError::Devices)?;
    Ok(Some(devices))
}

impl Handle {
    /// The logs of this node's containers.
    pub fn logs(&self) -> ContainerLogs {
        self.logs.clone()
    }

    /// The pods of this node, as the pod worker knows them.
    pub fn pods(&self) -> NodePods {
        self.pods.clone()
    }

    /// Stops the pod worker. Its pods keep running, and the next pod worker adopts them.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        self.join().await;
    }

    /// Stops the pods, each within its own grace period but at most `grace`, then the pod worker.
    /// The next pod worker starts them again. Returns the number of pods that did not end.
    pub async fn stop_pods(mut self, grace: Duration) -> usize {
        if let Some(stop_pods) = self.stop_pods.take() {
            // If the supervisor has ended, there is nothing to stop.
            let _ = stop_pods.send(grace);
        }
        let remaining = self.join().await;
        self.cancel.cancel();
        remaining
    }

    /// Waits until the pods have ended that were to end from the start, then stops the pod worker.
    async fn ended(mut self) {
        self.join().await;
        self.cancel.cancel();
    }

    async fn join(&mut self) -> usize {
        match self.task.take() {
            Some(task) => task.await.unwrap_or_else(|error| {
                tracing::error!(%error, "the pod worker ended with an error");
                0
            }),
            None => 0,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl ContainerLogs {
    /// The log files of a container's run, oldest first, with lines in the form of the CRI. Empty
    /// if there is none.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn files(&self, query: &LogQuery) -> io::Result<Vec<PathBuf>> {
        self.0.log_files(query)
    }
}

impl std::fmt::Debug for ContainerLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ContainerLogs({})", self.0.features().version)
    }
}
