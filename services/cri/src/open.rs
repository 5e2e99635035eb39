//! The start of the runtime: what is behind the socket, whose pods are there, and what the node can do.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use headwater_edged::pod::PodUid;
use headwater_edged::runtime::NodeRuntime;
use headwater_edged::runtime::pod_files::PodFiles;
use headwater_edged::{CpuPolicy, FileError, memory_bytes};
use headwater_event::NodeName;
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cgroup_files::CgroupFiles;
use crate::cgroups::{AllPods, Cgroups};
use crate::client::{CallError, CriClient};
use crate::images::CriImages;
use crate::inner::Inner;
use crate::knowledge::Knowledge;
use crate::pending_ends::{ENDS_WITHIN_AT_OPEN, PendingEnds};
use crate::proto::{
    CgroupDriver as ProtoDriver, ListPodSandboxRequest, PodSandbox, RuntimeConfigRequest,
    StatusRequest, VersionResponse,
};
use crate::runtime::CriRuntime;
use crate::runtime_facts::{RuntimeFacts, version_request};
use crate::spec::{CGROUP_ROOT, CgroupDriver, Forbidden, NODE_LABEL, NodeFacts};
use crate::unknown_runs::UnknownRuns;
use crate::watch;

/// The time limit of a runtime that has started and reads what it ran before: containerd gives each container 10 s.
const STARTS_WITHIN: Duration = Duration::from_mins(2);

/// The interval between two calls until then.
const START_CHECK: Duration = Duration::from_millis(100);

/// The kernel's file with the id of the boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How a container runtime is used.
#[derive(Clone, Debug)]
pub struct CriSettings {
    /// The socket: a path, or `unix://` and a path.
    pub endpoint: PathBuf,
    /// Start although another agent has pods in the runtime.
    pub share_runtime: bool,
    /// What the node forbids its pods.
    pub forbidden: Forbidden,
    /// The sysctls that pods may set besides the safe ones; one that ends in `*` is a prefix.
    pub allowed_sysctls: Vec<String>,
    /// The name servers of the cluster. Without any, the policy `ClusterFirst` is `Default`.
    pub cluster_dns: Vec<IpAddr>,
    /// The domain of the cluster.
    pub cluster_domain: String,
    /// Who makes cgroups, where the runtime does not say so (containerd 1.6).
    pub cgroup_driver: CgroupDriver,
    /// The root of the cgroups of all pods, below the root of each controller.
    pub cgroup_root: String,
    /// Device plugins can register.
    pub has_device_plugins: bool,
    /// The id of the machine's boot: a container of another boot ended with the machine.
    pub boot_id: String,
}

impl CriSettings {
    /// The runtime at this endpoint, with default settings.
    pub fn new(endpoint: PathBuf) -> Self {
        Self {
            endpoint,
            share_runtime: false,
            forbidden: Forbidden::default(),
            allowed_sysctls: Vec::new(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            cgroup_driver: CgroupDriver::Cgroupfs,
            cgroup_root: CGROUP_ROOT.to_owned(),
            has_device_plugins: false,
            boot_id: std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned(),
        }
    }

    fn socket(&self) -> &Path {
        let text = self.endpoint.to_str().and_then(|text| text.strip_prefix("unix://"));
        text.map_or(&self.endpoint, Path::new)
    }
}

/// What to do where no runtime responds.
const ADVICE: &str = "start containerd or CRI-O, or name its socket with --cri-endpoint";

/// The runtime cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no socket.
    #[error("there is no container runtime at {}: {}", socket.display(), ADVICE)]
    NoSocket {
        /// The socket.
        socket: PathBuf,
    },
    /// There is a socket, and no runtime responds: one that was killed leaves its socket.
    #[error("{cause}: {}", ADVICE)]
    Away {
        /// The cause, which names the socket.
        cause: CallError,
    },
    /// Pods need the rights of root: their files belong to any user.
    #[error("a container runtime needs the rights of root: run as root, or use --runtime process")]
    NotRoot,
    /// Another agent has pods there.
    #[error(
        "the container runtime at {} has {count} pods of another agent, for example {example}: a \
         kubelet ends every pod that it does not know. Stop that agent and remove its pods, or go on \
         with --share-runtime",
        socket.display()
    )]
    ForeignPods {
        /// The socket.
        socket: PathBuf,
        /// The number of their sandboxes.
        count: usize,
        /// One of them.
        example: String,
    },
    /// The runtime does not respond as a container runtime does.
    #[error("the container runtime at {} cannot be used: {source}", socket.display())]
    Call {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: CallError,
    },
    /// The pod worker's directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl OpenError {
    fn of_call(socket: &Path, source: CallError) -> Self {
        if source.is_away() {
            return Self::Away { cause: source };
        }
        Self::Call { socket: socket.to_owned(), source }
    }
}

/// Opens the runtime for a node whose pod worker has the directory `dir`, and adopts the node's pods. The
/// runtime sends the UID of every pod that changes to `notices`. Call it inside a Tokio runtime.
///
/// # Errors
/// See [`OpenError`].
pub async fn open(
    settings: &CriSettings,
    node: &NodeName,
    dir: &Path,
    edged: &headwater_edged::Settings,
    notices: mpsc::Sender<PodUid>,
) -> Result<NodeRuntime, OpenError> {
    let socket = settings.socket().to_owned();
    if !nix::unistd::geteuid().is_root() {
        return Err(OpenError::NotRoot);
    }
    if !socket.exists() {
        return Err(OpenError::NoSocket { socket });
    }
    let call = |source| OpenError::of_call(&socket, source);
    let client = CriClient::new(&socket);
    let version = version(&client).await.map_err(call)?;
    let status = client.status(StatusRequest { verbose: true }).await.map_err(call)?;
    if !settings.share_runtime {
        refuse_foreign_pods(&client).await?;
    }
    let cgroup_driver = cgroup_driver(&client, settings).await.map_err(call)?;
    let files = PodFiles::open(dir, hidden_mounts(settings.socket()).await)?;
    let cgroups = Cgroups::new(
        CgroupFiles::of_machine(&settings.cgroup_root),
        cgroup_driver,
        all_pods(edged),
    );
    let node = node_facts(settings, node, &files, cgroup_driver);
    let facts = RuntimeFacts::of(&version, &status);
    let node = facts.on(NodeFacts {
        has_static_cpus: edged.cpu_policy == CpuPolicy::Static,
        has_cgroup_v2: cgroups.files().is_unified(),
        has_swap_limit: cgroups.files().limits_swap(),
        huge_page_sizes: huge_page_sizes(cgroups.files()),
        ..node
    });
    let stop = CancellationToken::new();
    let stopping = stop.clone().drop_guard();
    let inner = Arc::new(Inner {
        client: client.clone(),
        files,
        cgroups,
        node: RwLock::new(Arc::new(node)),
        version: Mutex::new(facts.version),
        is_containerd: AtomicBool::new(facts.is_containerd),
        sandbox_image: Arc::new(Mutex::new(facts.sandbox_image)),
        image_cache: Arc::default(),
        is_another: Notify::new(),
        may_be_another: AtomicBool::new(false),
        log_bytes_max: edged.log_bytes_max,
        log_check: edged.log_check,
        log_files_max: edged.log_files_max,
        notices,
        knowledge: Mutex::new(Knowledge::default()),
        trouble: Mutex::new(None),
        silent: Mutex::default(),
        unknown: UnknownRuns::default(),
        pending: PendingEnds::new(stop.clone()),
        relist_soon: Notify::new(),
        lists: tokio::sync::Mutex::default(),
    });
    inner.node_now();
    inner.relist(ENDS_WITHIN_AT_OPEN).await.map_err(call)?;
    watch::start(&inner, &stop);
    let (sandbox_image, seen) = (inner.sandbox_image.clone(), inner.image_cache.clone());
    let images = Arc::new(CriImages::new(client, sandbox_image, seen));
    let runtime = Arc::new(CriRuntime::new(inner, stopping));
    let node = NodeRuntime::new(runtime.clone()).with_images(images);
    Ok(node.with_streams(runtime.clone()).with_usage(runtime))
}

/// What the pods get together: what the machine does not keep for itself. If it keeps no memory, the machine is the limit.
fn all_pods(edged: &headwater_edged::Settings) -> AllPods {
    let whole = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu_milli = u64::try_from(cpus).unwrap_or(1).saturating_mul(1000);
    let reserved = edged.reserved;
    let memory = memory_bytes().filter(|_| reserved.memory_bytes > 0);
    AllPods {
        cpu_milli: whole(cpu_milli.saturating_sub(reserved.cpu_milli)),
        memory_limit_bytes: memory.map(|all| whole(all.saturating_sub(reserved.memory_bytes))),
        pod_pids_max: edged.pod_pids_max,
    }
}

/// The version of the runtime, which may have just started with the machine.
async fn version(client: &CriClient) -> Result<VersionResponse, CallError> {
    let deadline = Instant::now() + STARTS_WITHIN;
    loop {
        match client.version(version_request()).await {
            Err(error) if error.is_starting() && Instant::now() < deadline => {
                tokio::time::sleep(START_CHECK).await;
            }
            version => return version,
        }
    }
}

async fn refuse_foreign_pods(client: &CriClient) -> Result<(), OpenError> {
    let socket = client.socket().to_owned();
    let listed = client.list_pod_sandbox(ListPodSandboxRequest { filter: None }).await;
    let listed = listed.map_err(|source| OpenError::of_call(&socket, source))?.items;
    let is_foreign = |it: &PodSandbox| !it.labels.contains_key(NODE_LABEL);
    let foreign: Vec<_> = listed.into_iter().filter(is_foreign).collect();
    let Some(first) = foreign.first() else { return Ok(()) };
    let name = first.metadata.clone().unwrap_or_default();
    let example = format!("{}/{}", name.namespace, name.name);
    Err(OpenError::ForeignPods { socket, count: foreign.len(), example })
}

async fn cgroup_driver(
    client: &CriClient,
    settings: &CriSettings,
) -> Result<CgroupDriver, CallError> {
    match client.runtime_config(RuntimeConfigRequest {}).await {
        Ok(config) => Ok(match config.linux.map(|linux| linux.cgroup_driver()) {
            Some(ProtoDriver::Systemd) => CgroupDriver::Systemd,
            Some(ProtoDriver::Cgroupfs) => CgroupDriver::Cgroupfs,
            None => settings.cgroup_driver,
        }),
        Err(CallError::Unimplemented { .. }) => Ok(settings.cgroup_driver),
        Err(error) => Err(error),
    }
}

fn node_facts(
    settings: &CriSettings,
    node: &NodeName,
    files: &PodFiles,
    cgroup_driver: CgroupDriver,
) -> NodeFacts {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    NodeFacts {
        node: node.as_str().to_owned(),
        dir: files.dir().to_owned(),
        logs: files.logs(),
        cluster_dns: settings.cluster_dns.clone(),
        cluster_domain: settings.cluster_domain.clone(),
        cgroup_driver: Some(cgroup_driver),
        cgroup_root: settings.cgroup_root.clone(),
        boot_id: settings.boot_id.clone(),
        memory_bytes: memory_bytes().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(0),
        has_apparmor: read("/sys/module/apparmor/parameters/enabled").starts_with('Y'),
        has_device_plugins: settings.has_device_plugins,
        forbidden: settings.forbidden,
        allowed_sysctls: settings.allowed_sysctls.clone(),
        ..NodeFacts::default()
    }
}

/// Why the runtime does not see what is mounted here; `None`: it has the mount namespace of this process.
async fn hidden_mounts(socket: &Path) -> Option<String> {
    let peer = async { UnixStream::connect(socket).await?.peer_cred() };
    let peer = peer.await.ok().and_then(|peer| peer.pid());
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let theirs = peer.and_then(|process| namespace(&process.to_string()));
    let is_same = theirs.is_some() && theirs == namespace("self");
    let why = "the container runtime has mounts of its own: run it and this pod worker in one mount \
               namespace, without PrivateMounts= or what brings it along in their units";
    (!is_same).then(|| why.to_owned())
}

/// The sizes of which the kernel limits the pages of a group, as cgroups name them: `2MB`. A runtime that is asked for a
/// limit that the kernel does not have fails (CRI-O), or leaves it out (containerd).
fn huge_page_sizes(cgroups: &CgroupFiles) -> Vec<String> {
    if !cgroups.limits_huge_pages() {
        return Vec::new();
    }
    let entries = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let kib = names.filter_map(|name| {
        name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()
    });
    kib.map(|kib| match kib {
        kib if kib >= 1 << 20 => format!("{}GB", kib >> 20),
        kib if kib >= 1 << 10 => format!("{}MB", kib >> 10),
        kib => format!("{kib}KB"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_path_with_or_without_its_scheme() {
        for endpoint in ["unix:///run/c.sock", "/run/c.sock"] {
            let settings = CriSettings::new(endpoint.into());
            assert_eq!(settings.socket(), Path::new("/run/c.sock"));
        }
    }
}
