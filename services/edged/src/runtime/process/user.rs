//! The user of a process: always the user of the pod worker.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::container::WaitReason;

/// Checks that the container may run as the user of the pod worker.
///
/// # Errors
/// The container demands another user.
pub(super) fn check(pod: &Pod, container: &Container) -> Result<(), WaitReason> {
    let own = nix::unistd::geteuid();
    let context = container.security_context.as_ref();
    let pod_context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let user = context.and_then(|c| c.run_as_user).or(pod_context.and_then(|c| c.run_as_user));
    let not_root =
        context.and_then(|c| c.run_as_non_root).or(pod_context.and_then(|c| c.run_as_non_root));
    let refuse = |message| Err(WaitReason { reason: "CreateContainerConfigError", message });
    match user {
        Some(user) if user != i64::from(own.as_raw()) => refuse(format!(
            "the process runtime runs everything as user {own}, and the container wants user \
             {user}: run the edge as that user, or leave runAsUser out"
        )),
        None if own.is_root() && not_root == Some(true) => refuse(
            "container has runAsNonRoot and the process runtime would run it as root: run the \
             edge as another user"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_accepted(pod_context: Value, context: Value) -> bool {
        let container = json!({"name": "c", "securityContext": context});
        let spec = json!({"securityContext": pod_context, "containers": [container]});
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        check(&pod, &crate::pod::main_containers(&pod)[0]).is_ok()
    }

    #[test]
    fn a_container_that_wants_to_be_another_user_is_refused() {
        let own = nix::unistd::geteuid();
        let (same, other) = (json!({"runAsUser": own.as_raw()}), json!({"runAsUser": 4242}));
        assert!(is_accepted(Value::Null, Value::Null));
        assert!(is_accepted(Value::Null, same.clone()));
        assert!(is_accepted(other.clone(), same.clone()), "the container's own context counts");
        assert!(!is_accepted(other.clone(), Value::Null));
        assert!(!is_accepted(same, other));
        let not_root = is_accepted(Value::Null, json!({"runAsNonRoot": true}));
        assert_eq!(not_root, !own.is_root());
    }
}
