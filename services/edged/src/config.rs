//! The configuration of a pod worker, and its bounds.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::NodeName;

use crate::container::requests::Amounts;
use crate::devices::DeviceServer;
use crate::event::EventLevel;
use crate::metrics::EdgedCounts;
use crate::runtime::RuntimeOpener;

/// The configuration of a pod worker.
#[derive(Clone, Debug)]
pub struct EdgedConfig {
    /// The node whose pods it runs.
    pub node: NodeName,
    /// The edge's local API: a unix socket.
    pub edge_socket: PathBuf,
    /// The directory of pods and logs: `<data>/nodes/<node>/edged`.
    pub dir: PathBuf,
    /// The runtime of the pods.
    pub runtime: RuntimeKind,
    /// The node's address. It is also the address of every pod to which the runtime gives none.
    pub node_address: IpAddr,
    /// The port of the kubelet's server, which the Node object states.
    pub kubelet_port: Option<u16>,
    /// The folder with the node's static pods, one in each file; `None`: it has none.
    pub static_pods: Option<PathBuf>,
    /// Serves the registration of device plugins; `None`: the node has none.
    pub devices: Option<Arc<dyn DeviceServer>>,
    /// Bounds and periods.
    pub settings: Settings,
    /// The counters.
    pub metrics: EdgedCounts,
}

impl EdgedConfig {
    /// A configuration with default settings and the loopback address.
    pub fn new(node: NodeName, edge_socket: PathBuf, dir: PathBuf, runtime: RuntimeKind) -> Self {
        let node_address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let settings = Settings { pods_max: runtime.pods_max(), ..Settings::default() };
        let metrics = EdgedCounts::default();
        Self {
            node,
            edge_socket,
            dir,
            runtime,
            node_address,
            kubelet_port: None,
            static_pods: None,
            devices: None,
            settings,
            metrics,
        }
    }
}

/// The kind of runtime.
#[derive(Clone, Debug)]
pub enum RuntimeKind {
    /// Containers are processes of the host. As root they run as the user that their spec names, and
    /// otherwise as the user of this process. There are no images: a container starts in its own root
    /// directory, in which every mountPath is a link to its volume. A command reaches the mountPath
    /// `etc/app` as such or as `$HEADWATER_ROOT/etc/app`. With the rights of root it sees the mountPath
    /// `/etc/app` at its path, too; without them it waits. A volume is also `$HEADWATER_VOLUME_<NAME>`, the
    /// pod's directory `$HEADWATER_POD_DIR`. The termination message is read below the root, too: by
    /// default from `$HEADWATER_ROOT/dev/termination-log`.
    Process(ProcessConfig),
    /// Containers have no processes, for load tests: every pod reaches Running.
    Hollow,
    /// A runtime of another crate.
    Other(Arc<dyn RuntimeOpener>),
}

impl RuntimeKind {
    /// The number of pods that a node with this runtime has room for, by default.
    fn pods_max(&self) -> u32 {
        match self {
            Self::Process(_) | Self::Other(_) => PODS_MAX,
            Self::Hollow => HOLLOW_PODS_MAX,
        }
    }
}

/// The configuration of the process runtime.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// The shim's program and arguments, to which the directory of the container's run is appended.
    /// The program calls [`crate::shim::run`].
    pub shim: Vec<String>,
    /// Variables that the shim's environment has besides those of this process. Containers do not
    /// receive them.
    pub shim_env: Vec<(String, String)>,
    /// Containers may run as root, and do if their spec names no user.
    pub allow_root: bool,
}

/// Bounds and periods; each default is a constant of this module.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Pods that start at the same time.
    pub add_workers: usize,
    /// Pods that stop or are cleaned up at the same time.
    pub remove_workers: usize,
    /// A worker observes its pod at least this often.
    pub resync: Duration,
    /// The runtime is compared with the machine this often.
    pub relist: Duration,
    /// A claim that the node's view lacks for this time has left the node.
    pub claim_hold: Duration,
    /// First wait between starts of a failing container.
    pub backoff_base: Duration,
    /// Longest such wait.
    pub backoff_cap: Duration,
    /// What the pull policy `Always` means while the registry cannot be reached.
    pub pull_offline: PullOffline,
    /// A docker config of the node, with credentials for all of its pods; absent if there is no such
    /// file.
    pub registry_config: Option<PathBuf>,
    /// When images are removed.
    pub image_collection: ImageCollection,
    /// How often it is looked whether images have to be removed.
    pub image_collection_period: Duration,
    /// How often the images of the node are listed.
    pub image_list_period: Duration,
    /// How often ended containers are removed.
    pub container_collection_period: Duration,
    /// How often the node's facts are read.
    pub node_check: Duration,
    /// How often the node is reported although nothing changed.
    pub node_report: Duration,
    /// First wait between attempts to reach the edge.
    pub reconnect_base: Duration,
    /// Longest such wait.
    pub reconnect_cap: Duration,
    /// The time that one request to the edge may take.
    pub request_timeout: Duration,
    /// How often the edge is asked for each token of a pod, which it renews.
    pub token_check: Duration,
    /// First wait after a token was not had. Waits double up to `token_check`.
    pub token_retry: Duration,
    /// How often a volume is published again whose driver wants it.
    pub volume_republish: Duration,
    /// How often the folder of static pods is looked at.
    pub static_pod_check: Duration,
    /// The number of pods that the node has room for. More of them fail.
    pub pods_max: u32,
    /// A log file is rotated at this size.
    pub log_bytes_max: u64,
    /// How often a runtime that does not rotate log files itself has their sizes looked at.
    pub log_check: Duration,
    /// Log files kept for one run of a container.
    pub log_files_max: u32,
    /// What the machine keeps for itself: pods do not get it.
    pub reserved: Amounts,
    /// Process ids that a pod has at most, as a kubelet's podPidsLimit; `None`: those of the machine.
    pub pod_pids_max: Option<u64>,
    /// Which processors containers run on.
    pub cpu_policy: CpuPolicy,
    /// When the node lacks a resource.
    pub pressure: PressureSettings,
    /// Which Events the node sends.
    pub events: EventLevel,
}

impl Settings {
    /// What the pods of the node do not get of a file system of `storage_bytes`, and of its other resources: what is
    /// reserved, and what is below the thresholds of pressure, at which pods are evicted. So does a kubelet count it.
    pub(crate) fn kept_from_pods(&self, storage_bytes: u64) -> Amounts {
        let PressureSettings { memory_available_bytes, disk_available_percent, .. } = self.pressure;
        let below = u128::from(storage_bytes) * u128::from(disk_available_percent) / 100;
        let thresholds = Amounts {
            cpu_milli: 0,
            memory_bytes: memory_available_bytes,
            storage_bytes: u64::try_from(below).unwrap_or(u64::MAX),
        };
        self.reserved + thresholds
    }
}

/// What the pull policy `Always` means while the registry cannot be reached. A registry that refuses
/// the pull is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullOffline {
    /// A container that ran before starts from the same image, which is on the node: a node that is cut
    /// off starts its pods after a power cut.
    #[default]
    Present,
    /// The container waits for the registry, as under a kubelet.
    Strict,
}

/// Which processors containers run on, as a kubelet's cpuManagerPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPolicy {
    /// All of them on all.
    #[default]
    None,
    /// A container of a guaranteed pod that requests whole processors has them for itself. The others share the rest, of which
    /// the reserved ones are always a part: a part of a processor at least has to be reserved.
    Static,
}

/// When images are removed; each default is a constant of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageCollection {
    /// The part of the file system of images, in percent, at which images are removed that no container has.
    pub high_percent: u8,
    /// The part down to which they are.
    pub low_percent: u8,
    /// An image stays for this time after it came, or the pod worker started: a container is about to use it.
    pub age_min: Duration,
    /// An image that no container had for this time is removed, however empty the disk is; `None`: it stays.
    pub age_max: Option<Duration>,
}

impl ImageCollection {
    /// Whether any image is ever removed.
    pub(crate) fn is_on(&self) -> bool {
        self.high_percent < 100 || self.age_max.is_some()
    }
}

/// The least of each resource that a node has without pressure; each default is a constant of this
/// module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureSettings {
    /// Bytes of memory that processes can still get.
    pub memory_available_bytes: u64,
    /// Free bytes of the file system of the pod worker's directory, in percent.
    pub disk_available_percent: u8,
    /// Free files of this file system, in percent.
    pub files_free_percent: u8,
    /// Free bytes of the file system of images, in percent.
    pub images_available_percent: u8,
    /// Free files of this file system, in percent.
    pub image_files_free_percent: u8,
    /// Free process ids, in percent.
    pub pids_available_percent: u8,
    /// Thresholds above these, which a pod has to go for only after a time.
    pub soft: SoftThresholds,
    /// Memory that is there beyond the threshold when a shortage has ended.
    pub reclaim_memory_bytes: u64,
    /// The part of a file system that is.
    pub reclaim_disk_percent: u8,
    /// Pods are evicted, if their usage is measured. Otherwise the node only states its pressures.
    pub evicts: bool,
    /// How often the node is measured.
    pub check: Duration,
    /// A pressure ends when there was enough for this time.
    pub hold: Duration,
}

/// Soft thresholds. Zero is none; there are none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftThresholds {
    /// As in [`PressureSettings`].
    pub memory_available_bytes: u64,
    /// As in [`PressureSettings`].
    pub disk_available_percent: u8,
    /// As in [`PressureSettings`].
    pub files_free_percent: u8,
    /// As in [`PressureSettings`].
    pub images_available_percent: u8,
    /// As in [`PressureSettings`].
    pub image_files_free_percent: u8,
    /// As in [`PressureSettings`].
    pub pids_available_percent: u8,
    /// The time for which the node lacks a resource before a pod is evicted.
    pub grace: Duration,
    /// The time that the pod has to end, at most its own grace period.
    pub pod_grace: Duration,
}

/// As KubeEdge's add workers.
const ADD_WORKERS: usize = 5;
/// As KubeEdge's remove workers.
const REMOVE_WORKERS: usize = 5;
/// As a kubelet's SyncFrequency.
const RESYNC: Duration = Duration::from_mins(1);
/// The runtime sends a notice of every change; a relist finds lost ones.
const RELIST: Duration = Duration::from_secs(10);
/// A pod that is replaced takes its claims along until its successor comes, within seconds as a rule.
const CLAIM_HOLD: Duration = Duration::from_secs(30);
/// As a kubelet's CrashLoopBackOff.
const BACKOFF_BASE: Duration = Duration::from_secs(10);
/// As a kubelet's CrashLoopBackOff.
const BACKOFF_CAP: Duration = Duration::from_secs(300);
/// As a kubelet's imageGCHighThresholdPercent.
const IMAGES_HIGH_PERCENT: u8 = 85;
/// As a kubelet's imageGCLowThresholdPercent.
const IMAGES_LOW_PERCENT: u8 = 80;
/// As a kubelet's imageMinimumGCAge.
const IMAGE_AGE_MIN: Duration = Duration::from_mins(2);
/// As a kubelet's ImageGCPeriod.
const IMAGE_COLLECTION_PERIOD: Duration = Duration::from_mins(5);
/// As a kubelet's cache of images.
const IMAGE_LIST_PERIOD: Duration = Duration::from_secs(30);
/// As a kubelet's ContainerGCPeriod.
const CONTAINER_COLLECTION_PERIOD: Duration = Duration::from_mins(1);
/// As a kubelet's node status update frequency.
const NODE_CHECK: Duration = Duration::from_secs(10);
/// As a kubelet's node status report frequency.
const NODE_REPORT: Duration = Duration::from_mins(5);
/// The edge runs on this machine: a short first wait costs nothing.
const RECONNECT_BASE: Duration = Duration::from_millis(50);
/// An edge that has just started is reached within this time.
const RECONNECT_CAP: Duration = Duration::from_secs(2);
/// A local request is a disk write: one that takes longer is lost.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// As the longest time between two syncs of a pod by a kubelet. A token of the shortest life, ten minutes, is
/// due for its last two.
const TOKEN_CHECK: Duration = Duration::from_mins(1);
/// An edge that has just started reaches its hub within seconds.
const TOKEN_RETRY: Duration = Duration::from_secs(1);
/// As the time between two syncs of a pod by a kubelet.
const VOLUME_REPUBLISH: Duration = Duration::from_mins(1);
/// A kubelet learns of a change from the kernel. A look lists one folder, and a change counts at the second one.
const STATIC_POD_CHECK: Duration = Duration::from_secs(2);
/// As a kubelet's maxPods.
const PODS_MAX: u32 = 110;
/// A hollow pod is a value in memory, and a load test brings thousands to one node.
const HOLLOW_PODS_MAX: u32 = 10_000;
/// As a kubelet's containerLogMaxSize.
const LOG_BYTES_MAX: u64 = 10 << 20;
/// As a kubelet's containerLogMaxFiles.
const LOG_FILES_MAX: u32 = 5;

/// As a kubelet's hard eviction threshold `memory.available`.
const MEMORY_AVAILABLE_BYTES: u64 = 100 << 20;
/// As a kubelet's hard eviction threshold `nodefs.available`.
const DISK_AVAILABLE_PERCENT: u8 = 10;
/// As a kubelet's hard eviction threshold `nodefs.inodesFree`.
const FILES_FREE_PERCENT: u8 = 5;
/// As a kubelet's containerLogMonitorInterval.
const LOG_CHECK: Duration = Duration::from_secs(10);
/// A kubelet has no threshold: with this many left, a burst of processes still finds an id.
const PIDS_AVAILABLE_PERCENT: u8 = 5;
/// As a kubelet's hard eviction threshold `imagefs.available`.
const IMAGES_AVAILABLE_PERCENT: u8 = 15;
/// As a kubelet's hard eviction threshold `imagefs.inodesFree`.
const IMAGE_FILES_FREE_PERCENT: u8 = 5;
/// A kubelet has no default: as long as the example of its documentation.
const SOFT_GRACE: Duration = Duration::from_secs(90);
/// A kubelet's evictionMaxPodGracePeriod is zero, which it takes for a second.
const SOFT_POD_GRACE: Duration = Duration::from_secs(1);
/// As a kubelet's monitoring interval.
const PRESSURE_CHECK: Duration = Duration::from_secs(10);
/// As a kubelet's evictionPressureTransitionPeriod.
const PRESSURE_HOLD: Duration = Duration::from_mins(5);

impl Default for PressureSettings {
    fn default() -> Self {
        Self {
            memory_available_bytes: MEMORY_AVAILABLE_BYTES,
            disk_available_percent: DISK_AVAILABLE_PERCENT,
            files_free_percent: FILES_FREE_PERCENT,
            images_available_percent: IMAGES_AVAILABLE_PERCENT,
            image_files_free_percent: IMAGE_FILES_FREE_PERCENT,
            pids_available_percent: PIDS_AVAILABLE_PERCENT,
            soft: SoftThresholds::default(),
            reclaim_memory_bytes: 0,
            reclaim_disk_percent: 0,
            evicts: true,
            check: PRESSURE_CHECK,
            hold: PRESSURE_HOLD,
        }
    }
}

impl PressureSettings {
    /// No threshold is met, whatever the machine has.
    #[must_use]
    pub fn without_thresholds() -> Self {
        Self {
            memory_available_bytes: 0,
            disk_available_percent: 0,
            files_free_percent: 0,
            images_available_percent: 0,
            image_files_free_percent: 0,
            pids_available_percent: 0,
            ..Self::default()
        }
    }
}

impl Default for SoftThresholds {
    fn default() -> Self {
        Self {
            memory_available_bytes: 0,
            disk_available_percent: 0,
            files_free_percent: 0,
            images_available_percent: 0,
            image_files_free_percent: 0,
            pids_available_percent: 0,
            grace: SOFT_GRACE,
            pod_grace: SOFT_POD_GRACE,
        }
    }
}

impl Default for ImageCollection {
    fn default() -> Self {
        Self {
            high_percent: IMAGES_HIGH_PERCENT,
            low_percent: IMAGES_LOW_PERCENT,
            age_min: IMAGE_AGE_MIN,
            age_max: None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            add_workers: ADD_WORKERS,
            remove_workers: REMOVE_WORKERS,
            resync: RESYNC,
            relist: RELIST,
            claim_hold: CLAIM_HOLD,
            backoff_base: BACKOFF_BASE,
            backoff_cap: BACKOFF_CAP,
            pull_offline: PullOffline::default(),
            registry_config: None,
            image_collection: ImageCollection::default(),
            image_collection_period: IMAGE_COLLECTION_PERIOD,
            image_list_period: IMAGE_LIST_PERIOD,
            container_collection_period: CONTAINER_COLLECTION_PERIOD,
            node_check: NODE_CHECK,
            node_report: NODE_REPORT,
            reconnect_base: RECONNECT_BASE,
            reconnect_cap: RECONNECT_CAP,
            request_timeout: REQUEST_TIMEOUT,
            token_check: TOKEN_CHECK,
            token_retry: TOKEN_RETRY,
            volume_republish: VOLUME_REPUBLISH,
            static_pod_check: STATIC_POD_CHECK,
            pods_max: PODS_MAX,
            log_bytes_max: LOG_BYTES_MAX,
            log_check: LOG_CHECK,
            log_files_max: LOG_FILES_MAX,
            reserved: Amounts::default(),
            pod_pids_max: None,
            cpu_policy: CpuPolicy::default(),
            pressure: PressureSettings::default(),
            events: EventLevel::default(),
        }
    }
}
