//! A kubelet, to which our pod worker is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::{CacheFolder, Daemon, DaemonError, free_ports};

use crate::error::ClusterError;
use crate::health::{Probe, Probes};
use crate::source;

/// Its folder in the cache.
const CACHE: &str = "kubelet";

/// Where controllers of cgroup v1 are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The controller whose groups need processors and memory before a process can be in them.
const CPUSET: &str = "cpuset";

/// The file of the kubelet, named after its package.
const KUBELET: &str = "kubelet";

/// The file of the sample of a device plugin, named after its package.
const SAMPLE_PLUGIN: &str = "sample-device-plugin";

/// A kubelet, and Kubernetes' sample of a device plugin.
#[derive(Clone, Debug)]
pub struct NodePrograms {
    home: PathBuf,
}

/// How a kubelet runs.
#[derive(Clone, Debug)]
pub struct KubeletSettings {
    /// Its node.
    pub node: String,
    /// Its API, as an administrator.
    pub kubeconfig: PathBuf,
    /// The socket of its container runtime.
    pub runtime: PathBuf,
    /// Its data and logs.
    pub folder: PathBuf,
    /// The name of the control group below which its pods are. It is made, and removed at the end.
    pub cgroup: String,
}

/// A running kubelet; it is killed when dropped.
#[derive(Debug)]
pub struct Kubelet {
    daemon: Daemon,
    cgroup: String,
}

impl NodePrograms {
    /// Finds them in the cache, or builds them there, once on a machine.
    ///
    /// # Errors
    /// Go is missing, or the build fails.
    pub fn prepare() -> Result<Self, DaemonError> {
        let cache = CacheFolder::find("the kubelet", CACHE)?;
        let home = source::node_programs().prepare(&cache, "go".as_ref(), |_| Ok(()))?;
        Ok(Self { home })
    }

    /// The sample of a device plugin: it registers at a kubelet's place, with two devices of `example.com/resource`.
    pub fn sample_device_plugin(&self) -> PathBuf {
        self.home.join(SAMPLE_PLUGIN)
    }
}

impl Kubelet {
    /// Starts one. When this returns, it is healthy.
    ///
    /// # Errors
    /// It is not healthy in time.
    pub fn start(
        programs: &NodePrograms,
        settings: &KubeletSettings,
    ) -> Result<Self, ClusterError> {
        let KubeletSettings { node, kubeconfig, folder, cgroup, .. } = settings;
        make_cgroups(cgroup)?;
        let [healthz, port] = free_ports()?;
        let config = folder.join("kubelet.yaml");
        fs::write(&config, config_text(settings, healthz, port))
            .map_err(DaemonError::file(&config))?;
        let mut command = Command::new(programs.home.join(KUBELET));
        let path = |path: &Path| path.display().to_string();
        command.args([
            format!("--config={}", path(&config)),
            format!("--kubeconfig={}", path(kubeconfig)),
            format!("--hostname-override={node}"),
            format!("--root-dir={}", path(&folder.join("root"))),
            format!("--cert-dir={}", path(&folder.join("certificates"))),
        ]);
        let probe = Probe { port: healthz, path: "/healthz", tls: None };
        let log = folder.join("kubelet.log");
        let daemon = Daemon::new("the kubelet", command, log, Probes(vec![probe]));
        let mut kubelet = Self { daemon, cgroup: cgroup.clone() };
        kubelet.daemon.start()?;
        Ok(kubelet)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // It ends with its starter anyway.
        let _ = self.daemon.kill();
        for tree in trees() {
            remove(&tree.join(&self.cgroup));
        }
    }
}

/// The settings of a node that starts many pods at once, and has no swap to care for.
fn config_text(settings: &KubeletSettings, healthz: u16, port: u16) -> String {
    let KubeletSettings { runtime, folder, cgroup, .. } = settings;
    let (runtime, logs) = (runtime.display(), folder.join("logs"));
    let logs = logs.display();
    format!(
        "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{runtime}
podLogsDir: {logs}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
healthzPort: {healthz}
port: {port}
maxPods: 1000
registryPullQPS: 0
kubeAPIQPS: 500
kubeAPIBurst: 500
serializeImagePulls: false
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
resolvConf: /etc/resolv.conf
evictionHard: {{nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}}
imageGCHighThresholdPercent: 100
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
"
    )
}

/// The controllers.
fn trees() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(CGROUPS).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir())
}

fn make_cgroups(name: &str) -> Result<(), DaemonError> {
    for tree in trees() {
        let group = tree.join(name);
        fs::create_dir_all(&group).map_err(DaemonError::file(&group))?;
        if tree.ends_with(CPUSET) {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let path = group.join(file);
                let copied = fs::read(tree.join(file)).and_then(|all| fs::write(&path, all));
                copied.map_err(DaemonError::file(&path))?;
            }
        }
    }
    Ok(())
}

/// Removes a group with those below it, whose processes have ended.
fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    // What has a process stays.
    let _ = fs::remove_dir(group);
}
