//! The profiles that confine a container: seccomp and AppArmor (`helpers.go`, `getSeccompProfile`;
//! `kuberuntime_container_linux.go`, `getAppArmorProfile`).

use std::path::{Component, Path};

use headwater_edged::container::WaitReason;
use headwater_edged::container::credentials;
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, SeccompProfile};

use super::{NodeFacts, own_security, pod_security, refused};
use crate::proto::SecurityProfile;
use crate::proto::security_profile::ProfileType;

/// The place of a field that the container or its pod states.
fn place(pod: &Pod, container: &Container, is_own: bool, field: &str) -> String {
    let place = if is_own { credentials::path(pod, container) } else { "spec".to_owned() };
    format!("{place}.securityContext.{field}")
}

fn of_kind(kind: ProfileType) -> SecurityProfile {
    SecurityProfile { profile_type: kind.into(), localhost_ref: String::new() }
}

/// The filter of system calls: the container's, else the pod's, else none.
///
/// # Errors
/// The kind is unknown, or the file of a local profile is not named, or lies outside its directory.
pub(super) fn seccomp(
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
) -> Result<SecurityProfile, WaitReason> {
    let own: Option<&SeccompProfile> = own_security(container).seccomp_profile.as_ref();
    let Some(profile) = own.or(pod_security(pod).seccomp_profile.as_ref()) else {
        return Ok(of_kind(ProfileType::Unconfined));
    };
    let place = place(pod, container, own.is_some(), "seccompProfile");
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(of_kind(ProfileType::RuntimeDefault)),
        "Unconfined" => Ok(of_kind(ProfileType::Unconfined)),
        "Localhost" => {
            let file = profile.localhost_profile.as_deref().unwrap_or_default();
            let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
            if file.is_empty()
                || file.contains('\0')
                || !Path::new(file).components().all(is_inside)
            {
                return Err(refused(format!(
                    "{place}.localhostProfile: {file:?} names no file below {}",
                    node.seccomp_dir.display()
                )));
            }
            let path = node.seccomp_dir.join(file);
            let localhost_ref = path.to_string_lossy().into_owned();
            Ok(SecurityProfile { profile_type: ProfileType::Localhost.into(), localhost_ref })
        }
        other => Err(unknown(&place, other)),
    }
}

/// The AppArmor profile: the container's, else the pod's. Without one the runtime decides.
///
/// # Errors
/// The kind is unknown, the profile has no name, or the node has no AppArmor
/// (`pkg/security/apparmor/validate.go`).
pub(super) fn apparmor(
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
) -> Result<Option<SecurityProfile>, WaitReason> {
    let own: Option<&AppArmorProfile> = own_security(container).app_armor_profile.as_ref();
    let Some(profile) = own.or(pod_security(pod).app_armor_profile.as_ref()) else {
        return Ok(None);
    };
    let place = place(pod, container, own.is_some(), "appArmorProfile");
    let kind = match profile.type_.as_str() {
        "Unconfined" => return Ok(Some(of_kind(ProfileType::Unconfined))),
        "RuntimeDefault" => ProfileType::RuntimeDefault,
        "Localhost" => ProfileType::Localhost,
        other => return Err(unknown(&place, other)),
    };
    if !node.has_apparmor {
        return Err(refused(format!("{place}: the node has no AppArmor: leave it out")));
    }
    if kind == ProfileType::RuntimeDefault {
        return Ok(Some(of_kind(kind)));
    }
    let name = profile.localhost_profile.clone().unwrap_or_default();
    if name.trim().is_empty() {
        return Err(refused(format!("{place}.localhostProfile: name the profile")));
    }
    Ok(Some(SecurityProfile { profile_type: kind.into(), localhost_ref: name }))
}

fn unknown(place: &str, kind: &str) -> WaitReason {
    refused(format!(
        "{place}.type: {kind:?} is unknown: use RuntimeDefault, Localhost or Unconfined"
    ))
}
