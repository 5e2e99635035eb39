//! The status of a pod in a word.

use serde_json::Value;

/// The STATUS of a pod: the reason that matters most, as kubectl chooses it.
pub fn pod_status(pod: &Value) -> String {
    let phase =
        pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending").to_owned();
    let mut status =
        pod.pointer("/status/reason").and_then(Value::as_str).map_or(phase.clone(), str::to_owned);
    let mut initializing = false;
    let init = list(pod, "/status/initContainerStatuses");
    for (index, container) in init.iter().enumerate() {
        let exit = container.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
        if exit == Some(0) || container.pointer("/started") == Some(&Value::Bool(true)) {
            continue;
        }
        initializing = true;
        let reason = container
            .pointer("/state/terminated/reason")
            .or_else(|| container.pointer("/state/waiting/reason"))
            .and_then(Value::as_str);
        let all = list(pod, "/spec/initContainers").len();
        status = match reason {
            Some(reason) if reason != "PodInitializing" => format!("Init:{reason}"),
            _ => format!("Init:{index}/{all}"),
        };
        break;
    }
    if !initializing {
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            let reason = container
                .pointer("/state/waiting/reason")
                .or_else(|| container.pointer("/state/terminated/reason"))
                .and_then(Value::as_str);
            if let Some(reason) = reason {
                status = reason.to_owned();
            }
        }
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
        "Terminating".clone_into(&mut status);
    }
    status
}

/// The list at `pointer`; empty if there is none.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Value {
        json!({"spec": {"initContainers": [{"name": "i"}]}, "status": status})
    }

    #[test]
    fn the_status_of_a_pod_is_the_reason_that_matters_most() {
        let waiting = json!({"phase": "Pending", "containerStatuses": [
            {"state": {"waiting": {"reason": "CreateContainerConfigError"}}}]});
        assert_eq!(pod_status(&pod(waiting)), "CreateContainerConfigError");
        assert_eq!(pod_status(&pod(json!({"phase": "Running"}))), "Running");
        assert_eq!(pod_status(&pod(json!({}))), "Pending");
        let init = json!({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}],
            "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]});
        assert_eq!(pod_status(&pod(init)), "Init:0/1");
        let mut going = pod(json!({"phase": "Running"}));
        going["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(pod_status(&going), "Terminating");
    }
}
