//! Why a node does not admit a pod: where a kubelet fails it, and does not let it wait.

use headwater_edged::pod::every_container;
use headwater_edged::runtime::Rejection;
use k8s_openapi::api::core::v1::Pod;

use super::{NodeFacts, profiles, sysctls};

/// Admits a pod, or says why it fails for good.
///
/// # Errors
/// The pod sets a sysctl that is not safe (`pkg/kubelet/sysctl/allowlist.go`), or has an AppArmor profile
/// on a node without AppArmor (`pkg/security/apparmor/validate.go`).
pub fn admit(pod: &Pod, node: &NodeFacts) -> Result<(), Rejection> {
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
