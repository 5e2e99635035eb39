//! What a sandbox and a container are asked to be. Pure: decided from the pod, its launch, the facts of
//! its image and those of the node; nothing runs before.
//!
//! | module | job |
//! |---|---|
//! | `node_facts` | what the decisions need to know of the node |
//! | `sandbox`, `container` | the two requests, put together |
//! | `admission` | what a kubelet fails a pod for |
//! | `check` | what the runtime or the machine cannot keep, found before anything runs |
//! | `machine` | the facts of the machine that a check asks for (it reads files) |
//! | `labels` | labels, annotations and the names of logs |
//! | `hostname`, `dns`, `hosts_file`, `ports` | the network identity of a pod |
//! | `namespaces`, `sysctls`, `cgroup` | what a pod shares with the host, and what it may set there |
//! | `security`, `profiles`, `user` | users, groups, rights and the profiles that confine them |
//! | `resources`, `pod_resources` | shares, limits and the order of kills, of a container and of a pod |
//! | `mounts` | files and directories of the host in a container |
//! | `forbidden` | what the node forbids, whatever the cloud sends |
//!
//! The rules are those of a kubelet of 1.36 (`pkg/kubelet/kuberuntime` unless a comment names another
//! place). Where they differ, the comment says why.

mod admission;
mod cgroup;
mod check;
mod container;
mod dns;
mod forbidden;
mod hostname;
mod hosts_file;
mod labels;
mod machine;
mod mounts;
mod namespaces;
mod node_facts;
mod pod_resources;
mod ports;
mod profiles;
mod resources;
mod sandbox;
mod security;
mod sysctls;
#[cfg(test)]
mod tests;
mod user;

use headwater_edged::container::WaitReason;
use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, PodSpec, SecurityContext};

pub use admission::{admit, allow};
pub use cgroup::{CGROUP_ROOT, CgroupDriver, cgroup_parent};
pub use check::check;
pub use container::{ContainerRequest, HostMount, ImageFacts, container_config};
pub use dns::ResolvConf;
pub use forbidden::{Forbidden, UnknownForbidden};
pub use hosts_file::{HOSTS_PATH, hosts_file, mounts_hosts_file};
pub use labels::{
    BOOT, CONTAINER_NAME, DIR_LABEL, GRACE, MESSAGE_POLICY, NODE_LABEL, POD_NAME, POD_NAMESPACE,
    POD_UID, container_log_path, log_directory,
};
pub use machine::{HostMachine, Machine, MountKind};
pub use node_facts::{HandlerFeatures, NodeFacts};
pub use pod_resources::{PodResources, pod_resources};
pub use resources::{cpu_shares, resources};
pub use sandbox::{runtime_handler, sandbox_config};
pub use sysctls::{UnknownSysctl, allowed_sysctls};

/// The labels, annotations and sysctls of a request.
type StringMap = std::collections::HashMap<String, String>;

/// The reason of a container that asks for what cannot be had.
fn refused(message: String) -> WaitReason {
    WaitReason { reason: "CreateContainerConfigError", message }
}

fn spec(pod: &Pod) -> &PodSpec {
    static NONE: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&NONE)
}

fn pod_security(pod: &Pod) -> &PodSecurityContext {
    static NONE: std::sync::LazyLock<PodSecurityContext> =
        std::sync::LazyLock::new(PodSecurityContext::default);
    spec(pod).security_context.as_ref().unwrap_or(&NONE)
}

fn own_security(container: &Container) -> &SecurityContext {
    static NONE: std::sync::LazyLock<SecurityContext> =
        std::sync::LazyLock::new(SecurityContext::default);
    container.security_context.as_ref().unwrap_or(&NONE)
}
