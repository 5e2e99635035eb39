//! Why a node does not admit a pod, where a kubelet fails it and does not let it wait; and why it lets none run on.

use headwater_edged::container::WaitReason;
use headwater_edged::container::volume::Volume;
use headwater_edged::pod::every_container;
use headwater_edged::runtime::Rejection;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{Forbidden, NodeFacts, profiles, refused, sysctls};

/// The operating system of the node, as a pod names it.
const OS: &str = "linux";

/// Admits a pod, or says why it fails for good.
///
/// # Errors
/// The pod is for another operating system (`pkg/kubelet/lifecycle/predicate.go`), sets a sysctl that is not safe
/// (`pkg/kubelet/sysctl/allowlist.go`), or has an AppArmor profile on a node without AppArmor
/// (`pkg/security/apparmor/validate.go`).
pub fn admit(pod: &Pod, node: &NodeFacts) -> Result<(), Rejection> {
    let os = pod.spec.as_ref().and_then(|spec| spec.os.as_ref());
    if os.is_some_and(|os| os.name != OS) {
        let message = "Failed to admit pod as the OS field doesn't match node OS".to_owned();
        return Err(Rejection { reason: "PodOSNotSupported", message });
    }
    sysctls::sysctls(pod, node).map_err(|why| Rejection {
        reason: "SysctlForbidden",
        message: format!("forbidden sysctl: {}", why.message),
    })?;
    let refused = every_container(pod).find_map(|it| profiles::apparmor(pod, &it, node).err());
    match refused {
        Some(why) => Err(Rejection {
            reason: "AppArmor",
            message: format!("Cannot enforce AppArmor: {}", why.message),
        }),
        None => Ok(()),
    }
}

/// Lets a pod run on with this container and these volumes, or says why it fails for good: with the words with which the node
/// lets a pod wait of which nothing runs.
///
/// # Errors
/// The node forbids it.
pub fn allow(
    pod: &Pod,
    container: &Container,
    volumes: &[Volume],
    forbidden: Forbidden,
) -> Result<(), Rejection> {
    let of_volumes = || volumes.iter().find_map(|volume| forbidden.volume_refusal(volume));
    let Some(why) = forbidden.refusal(pod, container).or_else(of_volumes) else { return Ok(()) };
    let WaitReason { reason, message } = refused(why);
    Err(Rejection { reason, message })
}
