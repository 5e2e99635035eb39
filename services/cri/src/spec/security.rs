//! The users, groups and rights of sandboxes and containers (`security_context.go`,
//! `pkg/securitycontext/util.go`).

use headwater_edged::container::WaitReason;
use headwater_edged::container::credentials::{self, Credentials};
use headwater_edged::pod::all_containers;
use k8s_openapi::api::core::v1::{Capabilities, Container, Pod};

use super::container::ImageFacts;
use super::namespaces::namespaces;
use super::user::{User, user};
use super::{NodeFacts, own_security, pod_security, profiles, refused};
use crate::proto::security_profile::ProfileType;
use crate::proto::{
    Capability, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext,
    SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy,
};

/// What a container does not see of `/proc` and `/sys` (`defaultMaskedPaths`).
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// What a container cannot change there (`defaultReadonlyPaths`).
const READ_ONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Whether a container has all rights of the host's root.
pub(super) fn is_privileged(container: &Container) -> bool {
    own_security(container).privileged == Some(true)
}

/// The rights of a pod's sandbox. It is privileged if one of the containers is: a runtime starts no
/// privileged container in another one. Its own process is filtered always.
///
/// # Errors
/// An id is none, or the node lacks what the pod asks for.
pub(super) fn of_sandbox(
    pod: &Pod,
    node: &NodeFacts,
) -> Result<LinuxSandboxSecurityContext, WaitReason> {
    let credentials = credentials::resolve(pod, &Container::default())?;
    let id = |id: Option<u32>| id.map(|id| Int64Value { value: id.into() });
    Ok(LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, None)),
        selinux_options: selinux(None, pod),
        run_as_user: id(credentials.user),
        // A group without a user is no user of a runtime.
        run_as_group: id(credentials.group.filter(|_| credentials.user.is_some())),
        supplemental_groups: groups(&credentials),
        supplemental_groups_policy: groups_policy(pod, node)?.into(),
        privileged: all_containers(pod).any(is_privileged),
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            ..SecurityProfile::default()
        }),
        ..LinuxSandboxSecurityContext::default()
    })
}

/// The rights of a container. `target` is the container whose processes it sees.
///
/// # Errors
/// An id is none, or the node or the image lacks what the pod asks for.
pub(super) fn of_container(
    pod: &Pod,
    container: &Container,
    image: &ImageFacts,
    target: Option<&str>,
    node: &NodeFacts,
) -> Result<LinuxContainerSecurityContext, WaitReason> {
    let own = own_security(container);
    let credentials = credentials::resolve(pod, container)?;
    let (id, name) = match user(pod, container, &credentials, image)? {
        User::Id(value) => (Some(Int64Value { value }), String::new()),
        User::Name(name) => (None, name),
    };
    let is_unmasked = match own.proc_mount.as_deref() {
        None | Some("" | "Default") => false,
        Some("Unmasked") => true,
        Some(other) => {
            let place = credentials::path(pod, container);
            return Err(refused(format!(
                "{place}.securityContext.procMount: {other:?} is unknown: use Default or Unmasked"
            )));
        }
    };
    let paths = |paths: &[&str]| {
        let shown = paths.iter().filter(|_| !is_unmasked);
        shown.map(|path| (*path).to_owned()).collect()
    };
    Ok(LinuxContainerSecurityContext {
        capabilities: capabilities(pod, container, own.capabilities.as_ref())?,
        privileged: is_privileged(container),
        namespace_options: Some(namespaces(pod, target)),
        selinux_options: selinux(Some(container), pod),
        run_as_user: id,
        run_as_group: credentials.group.map(|group| Int64Value { value: group.into() }),
        run_as_username: name,
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&credentials),
        supplemental_groups_policy: groups_policy(pod, node)?.into(),
        no_new_privs: credentials.no_new_privileges,
        masked_paths: paths(&MASKED_PATHS),
        readonly_paths: paths(&READ_ONLY_PATHS),
        seccomp: Some(profiles::seccomp(pod, container, node)?),
        apparmor: profiles::apparmor(pod, container, node)?,
    })
}

/// The group of the pod's volumes and the supplemental ones.
fn groups(credentials: &Credentials) -> Vec<i64> {
    credentials
        .fs_group
        .iter()
        .chain(&credentials.supplemental_groups)
        .map(|id| (*id).into())
        .collect()
}

/// Whether the groups that the image gives its user are added (KEP-3619).
fn groups_policy(pod: &Pod, node: &NodeFacts) -> Result<SupplementalGroupsPolicy, WaitReason> {
    let field = "spec.securityContext.supplementalGroupsPolicy";
    match pod_security(pod).supplemental_groups_policy.as_deref() {
        None | Some("" | "Merge") => Ok(SupplementalGroupsPolicy::Merge),
        Some("Strict") if node.has_groups_policy => Ok(SupplementalGroupsPolicy::Strict),
        Some("Strict") => Err(refused(format!(
            "{field}: the runtime does not name this feature, and would add the image's groups: \
             use Merge"
        ))),
        Some(other) => Err(refused(format!("{field}: {other:?} is unknown: use Merge or Strict"))),
    }
}

/// The capabilities, without `CAP_`, which a runtime puts before each.
fn capabilities(
    pod: &Pod,
    container: &Container,
    named: Option<&Capabilities>,
) -> Result<Option<Capability>, WaitReason> {
    let Some(named) = named else { return Ok(None) };
    let known = |field: &str, names: &Option<Vec<String>>| {
        let names = names.iter().flatten().enumerate();
        names
            .map(|(index, name)| {
                let place = credentials::path(pod, container);
                let field = format!("{place}.securityContext.capabilities.{field}[{index}]");
                credentials::capability(name, &field)
            })
            .collect::<Result<Vec<String>, WaitReason>>()
    };
    Ok(Some(Capability {
        add_capabilities: known("add", &named.add)?,
        drop_capabilities: known("drop", &named.drop)?,
        ..Capability::default()
    }))
}

/// The label: the container's, else the pod's. A runtime without SELinux takes no notice of it, as under a kubelet.
fn selinux(container: Option<&Container>, pod: &Pod) -> Option<SeLinuxOption> {
    let own = container.and_then(|container| own_security(container).se_linux_options.as_ref());
    let options = own.or(pod_security(pod).se_linux_options.as_ref())?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    })
}
