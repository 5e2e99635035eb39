//! What the decisions need to know of the node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use super::{CGROUP_ROOT, CgroupDriver, Forbidden, ResolvConf};

/// The facts of a node and its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's name: a label of everything that it runs.
    pub node: String,
    /// The pod worker's directory: the other label. Two nodes of one name have different ones.
    pub dir: PathBuf,
    /// The root of logs, as log agents know it: `/var/log/pods`.
    pub logs: PathBuf,
    /// The node's `/etc/resolv.conf`.
    pub resolv_conf: ResolvConf,
    /// The name servers of the cluster. Without any, the policy `ClusterFirst` is `Default`.
    pub cluster_dns: Vec<IpAddr>,
    /// The domain of the cluster: `cluster.local`.
    pub cluster_domain: String,
    /// Who makes cgroups; `None` leaves the place of a pod's cgroup to the runtime.
    pub cgroup_driver: Option<CgroupDriver>,
    /// The root of the cgroups of all pods, below the root of each controller.
    pub cgroup_root: String,
    /// Containers of guaranteed pods have whole processors for themselves.
    pub has_static_cpus: bool,
    /// The kernel has the one tree of cgroup v2.
    pub has_cgroup_v2: bool,
    /// The kernel limits the swap of a control group.
    pub has_swap_limit: bool,
    /// The id of the machine's boot. Empty if it is unknown.
    pub boot_id: String,
    /// The memory of the machine, which the order of kills depends on.
    pub memory_bytes: i64,
    /// The sizes of huge pages that the kernel limits, as cgroups name them: `2MB`, `1GB`.
    pub huge_page_sizes: Vec<String>,
    /// Where the profiles of `Localhost` lie: a kubelet's is `/var/lib/kubelet/seccomp`.
    pub seccomp_dir: PathBuf,
    /// The kernel has AppArmor, and the runtime uses it.
    pub has_apparmor: bool,
    /// The runtime names the feature `supplemental_groups_policy`.
    pub has_groups_policy: bool,
    /// The runtime sends the stop signal of a container's spec (KEP-4960). An earlier one takes no notice
    /// of the field, and names no feature: its version says it.
    pub has_stop_signal: bool,
    /// The runtime gives containers devices by the names of the Container Device Interface (KEP-4009). An earlier one takes no
    /// notice of them, and names no feature: its version says it.
    pub has_cdi: bool,
    /// Device plugins can register: what containers ask of them is known when they start.
    pub has_device_plugins: bool,
    /// The handlers of the runtime with their features, by name; the default one is `""`. Empty if the
    /// runtime names none (containerd 1.6).
    pub handlers: BTreeMap<String, HandlerFeatures>,
    /// The handlers of the RuntimeClasses that the node knows, by the name of the class.
    pub runtime_classes: BTreeMap<String, String>,
    /// Sysctls besides the safe ones that pods may set; one that ends in `*` is a prefix.
    pub allowed_sysctls: Vec<String>,
    /// What the node forbids.
    pub forbidden: Forbidden,
}

/// The features of a handler of the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerFeatures {
    /// Read-only mounts can be so with everything below them.
    pub recursive_read_only_mounts: bool,
    /// Pods can have a user namespace of their own.
    pub user_namespaces: bool,
}

impl Default for NodeFacts {
    /// A node of which nothing is known, with a kubelet's directories.
    fn default() -> Self {
        Self {
            node: String::new(),
            dir: PathBuf::new(),
            logs: PathBuf::from("/var/log/pods"),
            resolv_conf: ResolvConf::default(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            cgroup_driver: None,
            cgroup_root: CGROUP_ROOT.to_owned(),
            has_static_cpus: false,
            has_cgroup_v2: false,
            has_swap_limit: false,
            boot_id: String::new(),
            memory_bytes: 0,
            huge_page_sizes: Vec::new(),
            seccomp_dir: PathBuf::from("/var/lib/kubelet/seccomp"),
            has_apparmor: false,
            has_groups_policy: false,
            has_stop_signal: false,
            has_cdi: false,
            has_device_plugins: false,
            handlers: BTreeMap::new(),
            runtime_classes: BTreeMap::new(),
            allowed_sysctls: Vec::new(),
            forbidden: Forbidden::default(),
        }
    }
}
