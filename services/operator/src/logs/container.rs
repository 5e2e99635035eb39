//! The containers that a request selects.

use headwater_proto::operator::LogsRequest;
use serde_json::Value;
use tonic::Status;

/// The annotation with the default container of a pod.
const DEFAULT_CONTAINER: &str = "/metadata/annotations/kubectl.kubernetes.io~1default-container";

/// The selected containers, and a note about the choice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContainerChoice {
    pub(super) names: Vec<String>,
    pub(super) note: String,
}

/// Selects the named container, all containers, or the pod's first one.
pub(super) fn choose(pod: &Value, request: &LogsRequest) -> Result<ContainerChoice, Status> {
    let of = |list: &str| -> Vec<&str> {
        let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str()).collect()
    };
    let mains = of("/spec/containers");
    let lists = [of("/spec/initContainers"), mains.clone(), of("/spec/ephemeralContainers")];
    let all = lists.concat();
    let chosen = |names: &[&str], note: String| ContainerChoice {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        note,
    };
    let name = &request.pod;
    if request.all_containers {
        return Ok(chosen(&all, String::new()));
    }
    match request.container.as_str() {
        "" => {
            let named = pod.pointer(DEFAULT_CONTAINER).and_then(Value::as_str);
            let first = named.filter(|named| all.contains(named)).or(mains.first().copied());
            let first = first.ok_or_else(|| {
                Status::failed_precondition(format!("pod {name} has no containers"))
            })?;
            // A single main container needs no note.
            let note = match mains.len() {
                1 => String::new(),
                _ => format!("Defaulted container {first:?} out of: {}", all.join(", ")),
            };
            Ok(chosen(&[first], note))
        }
        container if all.contains(&container) => Ok(chosen(&[container], String::new())),
        container => Err(Status::invalid_argument(format!(
            "pod {name} has no container {container}; it has {}",
            all.join(", ")
        ))),
    }
}

/// The reason why a container has no log.
pub(super) fn not_written(pod: &Value, request: &LogsRequest, container: &str) -> Status {
    let name = &request.pod;
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.into_iter().filter_map(|list| pod["status"][list].as_array());
    let began = statuses
        .flatten()
        .any(|status| status["name"] == container && status["state"].get("waiting").is_none());
    Status::not_found(if request.previous {
        format!("container {container} of pod {name} has no earlier run")
    } else if began {
        format!("container {container} of pod {name} has written nothing: does it run hollow?")
    } else {
        format!("container {container} of pod {name} has not started")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({"metadata": {}, "spec": {
            "initContainers": [{"name": "init"}],
            "containers": [{"name": "web"}, {"name": "sidecar"}],
            "ephemeralContainers": [{"name": "debug"}],
        }})
    }

    fn request(container: &str, all_containers: bool) -> LogsRequest {
        LogsRequest {
            pod: "p".to_owned(),
            container: container.to_owned(),
            all_containers,
            ..LogsRequest::default()
        }
    }

    #[test]
    fn the_first_container_is_the_default() {
        let chosen = choose(&pod(), &request("", false)).expect("one");
        assert_eq!(chosen.names, ["web"]);
        assert_eq!(chosen.note, "Defaulted container \"web\" out of: init, web, sidecar, debug");
        let mut annotated = pod();
        annotated["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/default-container": "sidecar"});
        assert_eq!(choose(&annotated, &request("", false)).expect("one").names, ["sidecar"]);
        assert_eq!(choose(&pod(), &request("init", false)).expect("one").names, ["init"]);
        let all = choose(&pod(), &request("", true)).expect("all");
        assert_eq!(all.names, ["init", "web", "sidecar", "debug"]);
        assert_eq!(choose(&pod(), &request("debug", false)).expect("one").names, ["debug"]);
        let error = choose(&pod(), &request("db", false)).expect_err("none");
        assert!(error.message().contains("init, web, sidecar, debug"), "{error}");
    }

    #[test]
    fn a_container_of_any_kind_has_begun_once_it_waits_no_more() {
        for (list, name) in [
            ("initContainerStatuses", "init"),
            ("containerStatuses", "web"),
            ("ephemeralContainerStatuses", "debug"),
        ] {
            let mut pod = pod();
            let why = |pod: &Value| not_written(pod, &request(name, false), name).to_string();
            assert!(why(&pod).contains("has not started"), "{}", why(&pod));
            pod["status"][list] = json!([{"name": name, "state": {"running": {}}}]);
            assert!(why(&pod).contains("has written nothing"), "{}", why(&pod));
        }
    }
}
