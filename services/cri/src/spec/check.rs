//! What the runtime or the machine cannot keep, found before anything runs.
//!
//! A container runtime takes no notice of much that it does not know: containerd 1.6 starts a pod with
//! `hostUsers: false` in the host's user namespace. So a field counts as honoured only if something
//! says that it can be.

use std::path::Path;

use headwater_edged::container::WaitReason;
use headwater_edged::container::credentials;
use headwater_edged::devices::is_extended;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::hostname::PodName;
use super::ports::port_mappings;
use super::resources::huge_page_size;
use super::sysctls::sysctls;
use super::{
    HandlerFeatures, ImageFacts, Machine, MountKind, NodeFacts, profiles, refused, runtime_handler,
    security, spec,
};
use crate::proto::security_profile::ProfileType;

/// Resources that every node has.
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Checks that the pod and this container of it can be kept, as far as this is known without the image.
///
/// # Errors
/// The field that cannot be kept, and what to do.
pub fn check(
    pod: &Pod,
    container: &Container,
    machine: &dyn Machine,
    node: &NodeFacts,
) -> Result<(), WaitReason> {
    if let Some(why) = node.forbidden.refusal(pod, container) {
        return Err(refused(why));
    }
    let handler = runtime_handler(pod, node)?;
    let features = node.handlers.get(&handler).copied().unwrap_or_default();
    check_user_namespace(pod, features)?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    PodName::of(pod, name, namespace, node)?.of_kernel(pod)?;
    port_mappings(pod)?;
    sysctls(pod, node)?;
    security::of_sandbox(pod, node)?;
    // The image's user is not known yet; that of the spec is.
    let user_of_spec = ImageFacts { user_id: Some(1), ..ImageFacts::default() };
    security::of_container(pod, container, &user_of_spec, None, node)?;
    check_seccomp_file(pod, container, machine, node)?;
    check_stop_signal(pod, container, node)?;
    check_devices(pod, container, node)?;
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        check_mount(pod, mount, machine, features, node).map_err(|why| {
            let place = credentials::path(pod, container);
            refused(format!("{place}.volumeMounts[{index}].{why}"))
        })?;
    }
    Ok(())
}

/// A user namespace needs the runtime's word and a range of users, which this node does not assign.
fn check_user_namespace(pod: &Pod, features: HandlerFeatures) -> Result<(), WaitReason> {
    if spec(pod).host_users != Some(false) {
        return Ok(());
    }
    let why = if features.user_namespaces {
        "the node assigns no ranges of users"
    } else {
        "the runtime does not name this feature"
    };
    Err(refused(format!("spec.hostUsers: {why}: leave it out")))
}

fn check_seccomp_file(
    pod: &Pod,
    container: &Container,
    machine: &dyn Machine,
    node: &NodeFacts,
) -> Result<(), WaitReason> {
    let profile = profiles::seccomp(pod, container, node)?;
    let is_local = profile.profile_type == i32::from(ProfileType::Localhost);
    if is_local && !machine.has_file(Path::new(&profile.localhost_ref)) {
        let place = credentials::path(pod, container);
        return Err(refused(format!(
            "{place}: the seccomp profile {:?} is not on the node",
            profile.localhost_ref
        )));
    }
    Ok(())
}

fn check_stop_signal(pod: &Pod, container: &Container, node: &NodeFacts) -> Result<(), WaitReason> {
    let named = container.lifecycle.as_ref().is_some_and(|hooks| hooks.stop_signal.is_some());
    if !named || node.has_stop_signal {
        return Ok(());
    }
    let place = credentials::path(pod, container);
    Err(refused(format!(
        "{place}.lifecycle.stopSignal: the runtime would send the signal of the image: leave it out"
    )))
}

/// A resource that only a device plugin has is refused where none can register, and not left out.
fn check_devices(pod: &Pod, container: &Container, node: &NodeFacts) -> Result<(), WaitReason> {
    let resources = container.resources.iter();
    let named = resources.flat_map(|all| {
        let of = |field: &'static str, list: &'_ Option<std::collections::BTreeMap<_, _>>| {
            list.iter()
                .flatten()
                .map(move |(name, _): (&String, &_)| (field, name.clone()))
                .collect::<Vec<_>>()
        };
        [of("limits", &all.limits), of("requests", &all.requests)].concat()
    });
    for (field, name) in named {
        let why = match huge_page_size(&name) {
            Some(size) if node.huge_page_sizes.contains(&size) => continue,
            Some(_) => "the kernel has no such huge pages, or does not limit them",
            None if RESOURCES.contains(&name.as_str()) => continue,
            None if node.has_device_plugins && is_extended(&name) => continue,
            None => "the node has no such devices",
        };
        let place = credentials::path(pod, container);
        return Err(refused(format!("{place}.resources.{field}[{name:?}]: {why}")));
    }
    Ok(())
}

/// Mounts go to and fro only where the mount of the host's directory passes them on.
fn check_mount(
    pod: &Pod,
    mount: &VolumeMount,
    machine: &dyn Machine,
    features: HandlerFeatures,
    node: &NodeFacts,
) -> Result<(), String> {
    if mount.recursive_read_only.as_deref() == Some("Enabled")
        && !features.recursive_read_only_mounts
    {
        return Err(
            "recursiveReadOnly: the runtime does not name this feature: use IfPossible".to_owned()
        );
    }
    let least = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => MountKind::Slave,
        Some("Bidirectional") => MountKind::Shared,
        _ => return Ok(()),
    };
    let mut volumes = spec(pod).volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == mount.name);
    let path =
        volume.and_then(|volume| volume.host_path.as_ref()).map(|host| Path::new(&host.path));
    let path = path.unwrap_or(&node.dir);
    if machine.mount_kind(path) < least {
        return Err(format!(
            "mountPropagation: {} is not on a shared mount of the node: run `mount --make-rshared` \
             for it",
            path.display()
        ));
    }
    Ok(())
}
