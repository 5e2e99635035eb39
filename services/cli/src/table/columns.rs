//! The columns of each type in a table, as kubectl prints them.

mod workload_columns;

use headwater_operator::pod_status;
use jiff::Timestamp;
use serde_json::Value;

use crate::moment::Moment;
use crate::render;

/// The text of a value that is not known at the moment that is shown.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// The header of a type's table.
pub(crate) fn header(kind: &str, wide: bool) -> Vec<&'static str> {
    let mut columns = match kind {
        "pod" => vec!["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
        "node" => vec!["NAME", "STATUS", "ROLES", "AGE", "VERSION", "LAST CONTACT"],
        "configmap" => vec!["NAME", "DATA", "AGE"],
        "secret" => vec!["NAME", "TYPE", "DATA", "AGE"],
        "service" => vec!["NAME", "TYPE", "CLUSTER-IP", "PORT(S)", "AGE"],
        "persistentvolumeclaim" => vec!["NAME", "STATUS", "VOLUME", "AGE"],
        "persistentvolume" => vec!["NAME", "CAPACITY", "RECLAIM POLICY", "STATUS", "AGE"],
        kind => workload_columns::header(kind).unwrap_or_else(|| vec!["NAME", "AGE"]),
    };
    if wide {
        columns.extend(match kind {
            "pod" => ["IP", "NODE"].as_slice(),
            "node" => &["INTERNAL-IP", "OS", "KERNEL-VERSION"],
            "service" => &["SELECTOR"],
            _ => &[],
        });
    }
    columns
}

/// The cells of one object at a moment.
pub(crate) fn cells(kind: &str, object: &Value, wide: bool, moment: Moment) -> Vec<String> {
    let now = moment.time;
    let name = text(object, "/metadata/name");
    let age = render::object_age(object, now);
    let mut cells = match kind {
        "pod" => {
            let (ready, all) = ready_containers(object);
            let ready = known(moment, || format!("{ready}/{all}"));
            vec![name, ready, status(object, moment), known(moment, || restarts(object, now)), age]
        }
        "node" => vec![
            name,
            node_status(object).to_owned(),
            node_roles(object),
            age,
            text(object, "/status/nodeInfo/kubeletVersion"),
            last_contact(object, now),
        ],
        "configmap" => {
            let data = count(object, "/data") + count(object, "/binaryData");
            vec![name, data.to_string(), age]
        }
        "secret" => {
            vec![name, text_or(object, "/type", "Opaque"), count(object, "/data").to_string(), age]
        }
        "service" => vec![
            name,
            text_or(object, "/spec/type", "ClusterIP"),
            text_or(object, "/spec/clusterIP", "<none>"),
            ports(object),
            age,
        ],
        "persistentvolumeclaim" => vec![
            name,
            text_or(object, "/status/phase", "Pending"),
            text(object, "/spec/volumeName"),
            age,
        ],
        "persistentvolume" => vec![
            name,
            text(object, "/spec/capacity/storage"),
            text_or(object, "/spec/persistentVolumeReclaimPolicy", "Retain"),
            text_or(object, "/status/phase", "Available"),
            age,
        ],
        kind => workload_columns::cells(kind, object, now).unwrap_or_else(|| vec![name, age]),
    };
    if wide {
        let none = "<none>";
        match kind {
            "pod" => cells.extend([
                known(moment, || text_or(object, "/status/podIP", none)),
                text_or(object, "/spec/nodeName", none),
            ]),
            "node" => cells.extend([
                address(object, "InternalIP").unwrap_or_else(|| none.to_owned()),
                text_or(object, "/status/nodeInfo/operatingSystem", none),
                text_or(object, "/status/nodeInfo/kernelVersion", none),
            ]),
            "service" => cells.push(pairs(object, "/spec/selector")),
            _ => {}
        }
    }
    cells
}

/// A value from the status, if it is known at this moment.
pub(crate) fn known(moment: Moment, value: impl FnOnce() -> String) -> String {
    if moment.has_statuses { value() } else { UNKNOWN.to_owned() }
}

/// The STATUS of a pod. Its deletion is known without a status.
pub(crate) fn status(pod: &Value, moment: Moment) -> String {
    let is_deleted = pod.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    if is_deleted { pod_status(pod) } else { known(moment, || pod_status(pod)) }
}

pub(crate) fn ready_containers(pod: &Value) -> (usize, usize) {
    let statuses = list(pod, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status["ready"] == Value::Bool(true)).count();
    (ready, list(pod, "/spec/containers").len())
}

/// The restarts of the containers, and the time since the last one.
fn restarts(pod: &Value, now: Timestamp) -> String {
    let containers = list(pod, "/status/containerStatuses");
    let count: i64 =
        containers.iter().filter_map(|container| container["restartCount"].as_i64()).sum();
    let ended = containers.iter().filter_map(|container| {
        container.pointer("/lastState/terminated/finishedAt")?.as_str()?.parse::<Timestamp>().ok()
    });
    match ended.max() {
        Some(at) if count > 0 => format!("{count} ({} ago)", render::age(at, now)),
        _ => count.to_string(),
    }
}

pub(crate) fn node_status(node: &Value) -> &'static str {
    let ready = list(node, "/status/conditions")
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .and_then(|condition| condition["status"].as_str());
    match ready {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    }
}

pub(crate) fn node_roles(node: &Value) -> String {
    let roles: Vec<&str> = node
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

/// The time since the last contact with the node: the heartbeat of its Ready condition.
fn last_contact(node: &Value, now: Timestamp) -> String {
    list(node, "/status/conditions")
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .and_then(|condition| condition["lastHeartbeatTime"].as_str())
        .and_then(|text| text.parse().ok())
        .map_or_else(|| "<none>".to_owned(), |at| render::age(at, now))
}

fn address(node: &Value, kind: &str) -> Option<String> {
    let address = list(node, "/status/addresses").iter().find(|address| address["type"] == kind)?;
    address["address"].as_str().map(str::to_owned)
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64() {
                Some(node) => format!("{}:{node}/{protocol}", port["port"]),
                None => format!("{}/{protocol}", port["port"]),
            }
        })
        .collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}

/// The pairs at `pointer`, as selectors are written: `a=b,c=d`.
pub(crate) fn pairs(object: &Value, pointer: &str) -> String {
    let pairs: Vec<String> = object
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

fn text(object: &Value, pointer: &str) -> String {
    text_or(object, pointer, "")
}

/// The text at `pointer`.
pub(crate) fn text_or(object: &Value, pointer: &str, otherwise: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => otherwise.to_owned(),
        Some(other) => other.to_string(),
    }
}

fn count(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
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
        json!({
            "metadata": {"name": "web"},
            "spec": {"nodeName": "node-1", "containers": [{"name": "a"}, {"name": "b"}],
                     "initContainers": [{"name": "i"}]},
            "status": status,
        })
    }

    #[test]
    fn every_row_is_as_wide_as_its_header() {
        for kind in [
            "pod",
            "node",
            "configmap",
            "secret",
            "service",
            "persistentvolumeclaim",
            "persistentvolume",
            "serviceaccount",
            "deployment",
            "statefulset",
            "daemonset",
            "replicaset",
            "replicationcontroller",
            "job",
        ] {
            for wide in [false, true] {
                let moment = Moment::present(Timestamp::UNIX_EPOCH);
                let row = cells(kind, &pod(json!({})), wide, moment);
                assert_eq!(row.len(), header(kind, wide).len(), "{kind} wide={wide}");
            }
        }
    }

    #[test]
    fn a_pod_row_counts_ready_containers_and_restarts() {
        let status = json!({"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [
            {"ready": true, "restartCount": 2}, {"ready": false, "restartCount": 1}]});
        let row = cells("pod", &pod(status), true, Moment::present(Timestamp::UNIX_EPOCH));
        assert_eq!(row, ["web", "1/2", "Running", "3", "<unknown>", "127.0.0.1", "node-1"]);
    }

    #[test]
    fn the_past_has_the_ages_of_the_past_and_no_status_that_it_does_not_know() {
        let mut old = pod(json!({}));
        old["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z".into();
        let time = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(60);
        let moment = Moment { time, has_statuses: false };
        let unknown = "<unknown>";
        let row = cells("pod", &old, true, moment);
        assert_eq!(row, ["web", unknown, unknown, unknown, "60s", unknown, "node-1"]);
        old["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
        assert_eq!(cells("pod", &old, false, moment)[2], "Terminating");
    }
}
