//! The user, the groups and the rights of a container's processes. Pure: resolved from the pod's
//! spec alone; a runtime decides what it can give.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};
use rustix::thread::CapabilitySet;

use super::WaitReason;
use crate::pod::{ephemeral_containers, init_containers, main_containers};

/// The user, the groups and the rights that a spec asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// `runAsUser`.
    pub user: Option<u32>,
    /// `runAsGroup`: the primary group.
    pub group: Option<u32>,
    /// `fsGroup`: the group of the pod's volumes, which every process of the pod has.
    pub fs_group: Option<u32>,
    /// `supplementalGroups`.
    pub supplemental_groups: Vec<u32>,
    /// `allowPrivilegeEscalation: false`: no program gives the process more rights than it has.
    pub no_new_privileges: bool,
    /// `capabilities.drop`, a bit for each capability.
    pub dropped: u64,
}

/// The name of all capabilities together.
const ALL: &str = "ALL";

/// The largest id: the one above it means "unchanged" in the kernel's calls.
const ID_MAX: i64 = u32::MAX as i64 - 1;

/// Resolves the credentials of a container. What the container states comes before what the pod
/// states.
///
/// # Errors
/// A field has a value that no kernel knows; the message has its path.
pub fn resolve(pod: &Pod, container: &Container) -> Result<Credentials, WaitReason> {
    let (pod_default, own_default) = Default::default();
    let shared: &PodSecurityContext =
        pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()).unwrap_or(&pod_default);
    let own: &SecurityContext = container.security_context.as_ref().unwrap_or(&own_default);
    let here = format!("{}.securityContext", path(pod, container));
    let either = |field, own: Option<i64>, shared: Option<i64>| match own {
        Some(value) => id(&here, field, Some(value)),
        None => id("spec.securityContext", field, shared),
    };
    let groups = shared.supplemental_groups.iter().flatten();
    let groups: Result<Vec<_>, _> = groups
        .filter_map(|group| {
            id("spec.securityContext", "supplementalGroups", Some(*group)).transpose()
        })
        .collect();
    let capabilities = own.capabilities.as_ref().and_then(|named| named.drop.as_deref());
    Ok(Credentials {
        user: either("runAsUser", own.run_as_user, shared.run_as_user)?,
        group: either("runAsGroup", own.run_as_group, shared.run_as_group)?,
        fs_group: id("spec.securityContext", "fsGroup", shared.fs_group)?,
        supplemental_groups: groups?,
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        dropped: dropped(&here, capabilities.unwrap_or_default())?,
    })
}

/// The path of a container in its pod: `spec.containers[0]`.
pub fn path(pod: &Pod, container: &Container) -> String {
    let place = |field: &str, containers: &[Container]| {
        let index = containers.iter().position(|other| other.name == container.name)?;
        Some(format!("spec.{field}[{index}]"))
    };
    place("initContainers", init_containers(pod))
        .or_else(|| place("containers", main_containers(pod)))
        .or_else(|| {
            let mut added = ephemeral_containers(pod);
            let index = added.position(|other| other.name == container.name)?;
            Some(format!("spec.ephemeralContainers[{index}]"))
        })
        // A container that is not of the pod has no place in it.
        .unwrap_or_else(|| "spec.containers".to_owned())
}

fn id(place: &str, field: &str, value: Option<i64>) -> Result<Option<u32>, WaitReason> {
    let Some(value) = value else { return Ok(None) };
    match u32::try_from(value) {
        Ok(id) if value <= ID_MAX => Ok(Some(id)),
        _ => Err(invalid(format!("{place}.{field}: {value} is no id: use 0 to {ID_MAX}"))),
    }
}

/// The name of a capability as a container runtime takes it: in capitals, without `CAP_`, perhaps `ALL`.
///
/// # Errors
/// No capability has this name; `field` is its place in the pod.
pub fn capability(name: &str, field: &str) -> Result<String, WaitReason> {
    bits_of(name, field).map(|(known, _)| known)
}

/// The bits of the named capabilities.
fn dropped(place: &str, names: &[String]) -> Result<u64, WaitReason> {
    let mut bits = 0;
    for (index, name) in names.iter().enumerate() {
        bits |= bits_of(name, &format!("{place}.capabilities.drop[{index}]"))?.1;
    }
    Ok(bits)
}

fn bits_of(name: &str, field: &str) -> Result<(String, u64), WaitReason> {
    let known = name.to_uppercase();
    let known = known.strip_prefix("CAP_").unwrap_or(&known);
    let bits = match CapabilitySet::from_name(known) {
        Some(capability) => capability.bits(),
        None if known == ALL => u64::MAX,
        None => {
            return Err(invalid(format!(
                "{field}: {name:?} is no capability: use a name of capabilities(7) without CAP_, \
                 or ALL"
            )));
        }
    };
    Ok((known.to_owned(), bits))
}
fn invalid(message: String) -> WaitReason {
    WaitReason { reason: "CreateContainerConfigError", message }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolved(pod_context: Value, context: Value) -> Result<Credentials, String> {
        let container = json!({"name": "c", "securityContext": context});
        let spec = json!({"securityContext": pod_context, "containers": [container]});
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        let container = &main_containers(&pod)[0];
        resolve(&pod, container).map_err(|reason| reason.message)
    }

    #[test]
    fn what_a_container_states_comes_before_what_its_pod_states() {
        let pod = json!({
            "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 2000, "supplementalGroups": [7, 8],
        });
        let shared = resolved(pod.clone(), Value::Null).expect("valid");
        assert_eq!(
            (shared.user, shared.group, shared.fs_group),
            (Some(1000), Some(1001), Some(2000))
        );
        assert_eq!(shared.supplemental_groups, [7, 8]);
        let own = resolved(pod, json!({"runAsUser": 0, "runAsGroup": 5})).expect("valid");
        assert_eq!((own.user, own.group, own.fs_group), (Some(0), Some(5), Some(2000)));
        assert_eq!(resolved(Value::Null, Value::Null), Ok(Credentials::default()));
    }

    #[test]
    fn rights_that_are_given_up_are_bits() {
        let context = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["NET_RAW", "cap_chown"]},
        });
        let found = resolved(Value::Null, context).expect("valid");
        assert!(found.no_new_privileges);
        assert_eq!(found.dropped, (CapabilitySet::NET_RAW | CapabilitySet::CHOWN).bits());
        let all = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": true});
        let all = resolved(Value::Null, all).expect("valid");
        assert_eq!((all.dropped, all.no_new_privileges), (u64::MAX, false));
    }

    #[test]
    fn what_no_kernel_knows_is_refused_with_its_path() {
        for (pod, own, path) in [
            (json!({"runAsUser": -1}), Value::Null, "spec.securityContext.runAsUser: -1"),
            (json!({"fsGroup": 4_294_967_295_u32}), Value::Null, "spec.securityContext.fsGroup"),
            (json!({"supplementalGroups": [-7]}), Value::Null, "supplementalGroups: -7"),
            (
                Value::Null,
                json!({"runAsGroup": 1_i64 << 40}),
                "spec.containers[0].securityContext.runAsGroup",
            ),
            (
                Value::Null,
                json!({"capabilities": {"drop": ["CHOWN", "FLY"]}}),
                "spec.containers[0].securityContext.capabilities.drop[1]: \"FLY\"",
            ),
        ] {
            let message = resolved(pod, own).expect_err(path);
            assert!(message.contains(path), "{message}");
        }
    }
}
