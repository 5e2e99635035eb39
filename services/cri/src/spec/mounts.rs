//! Files and directories of the host in a container (`pkg/kubelet/kubelet_pods.go`, `makeMounts`).

use std::path::Path;

use headwater_edged::container::credentials;
use headwater_edged::container::{Propagation, RecursiveReadOnly, WaitReason};

use super::container::{ContainerRequest, HostMount};
use super::{
    HOSTS_PATH, HandlerFeatures, NodeFacts, mounts_hosts_file, refused, runtime_handler, spec,
};
use crate::proto::{Mount, MountPropagation};

/// The mounts of a container: volumes, its `/etc/hosts`, the file of its termination message, and what comes with its
/// devices.
///
/// # Errors
/// A volume has no place on the host, or the runtime cannot mount it as the spec demands.
pub(super) fn mounts(
    request: &ContainerRequest<'_>,
    node: &NodeFacts,
) -> Result<Vec<Mount>, WaitReason> {
    let handler = runtime_handler(request.pod, node)?;
    let features = node.handlers.get(&handler).copied().unwrap_or_default();
    let mut mounts = Vec::with_capacity(request.mounts.len() + 2);
    for mount in &request.launch.mounts {
        let host = request.mounts.iter().find(|host| host.path == mount.path);
        let Some(HostMount { host_path, .. }) = host else {
            let place = credentials::path(request.pod, request.container);
            return Err(refused(format!(
                "{place}.volumeMounts: volume {:?} has no place on the node",
                mount.volume
            )));
        };
        let read_only = mount.read_only || is_volume_read_only(request, &mount.volume);
        mounts.push(Mount {
            container_path: absolute(&mount.path),
            host_path: text(host_path),
            readonly: read_only,
            propagation: match mount.propagation {
                Propagation::None => MountPropagation::PropagationPrivate,
                Propagation::HostToContainer => MountPropagation::PropagationHostToContainer,
                Propagation::Bidirectional => MountPropagation::PropagationBidirectional,
            }
            .into(),
            recursive_read_only: is_recursive(mount.recursive_read_only, features, || {
                let place = credentials::path(request.pod, request.container);
                format!("{place}.volumeMounts: recursiveReadOnly of {:?}", mount.volume)
            })?,
            ..Mount::default()
        });
    }
    if let Some(file) = request.hosts_file
        && mounts_hosts_file(request.launch)
    {
        mounts.push(Mount {
            container_path: HOSTS_PATH.to_owned(),
            host_path: text(file),
            ..Mount::default()
        });
    }
    if let Some(file) = request.termination_file {
        mounts.push(Mount {
            container_path: absolute(&request.launch.termination_message.path),
            host_path: text(file),
            ..Mount::default()
        });
    }
    mounts.extend(request.launch.devices.mounts.iter().map(|mount| Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.read_only,
        ..Mount::default()
    }));
    Ok(mounts)
}

/// Whether the mount is read-only with everything below it (KEP-3857).
fn is_recursive(
    asked: RecursiveReadOnly,
    features: HandlerFeatures,
    place: impl Fn() -> String,
) -> Result<bool, WaitReason> {
    match asked {
        RecursiveReadOnly::Disabled => Ok(false),
        RecursiveReadOnly::IfPossible => Ok(features.recursive_read_only_mounts),
        RecursiveReadOnly::Enabled if features.recursive_read_only_mounts => Ok(true),
        RecursiveReadOnly::Enabled => Err(refused(format!(
            "{}: the runtime does not name this feature: use IfPossible",
            place()
        ))),
    }
}

/// Whether the pod uses the claim of this volume, or the volume of a driver, read-only.
fn is_volume_read_only(request: &ContainerRequest<'_>, volume: &str) -> bool {
    let mut volumes = spec(request.pod).volumes.iter().flatten();
    let Some(found) = volumes.find(|of| of.name == volume) else { return false };
    let claim = found.persistent_volume_claim.as_ref().and_then(|claim| claim.read_only);
    let inline = found.csi.as_ref().and_then(|csi| csi.read_only);
    claim.or(inline) == Some(true)
}

/// The path below the container's root as the container sees it.
fn absolute(path: &Path) -> String {
    format!("/{}", text(path).trim_start_matches('/'))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
