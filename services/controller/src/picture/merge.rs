//! Objects of the sources with what their nodes reported: pod statuses, Nodes, the Ready condition.

use headwater_event::{NodeName, ResourceKey};
use headwater_store::{EngineError, Json, Read};
use headwater_view::PodStatusFold;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::connection::Connection;
use super::presence::PresenceReceiver;
use super::tables::{NODE_PROGRESS, NODES};

/// Adds what the node reported of an object. `presence` and `now_ms` decide whether a Node is Ready.
pub(super) fn merge(
    from: &dyn Read,
    presence: &PresenceReceiver,
    key: &ResourceKey,
    object: &mut Value,
    now_ms: i64,
) -> Result<(), EngineError> {
    match key.kind() {
        "pod" => merge_status(from, key, object),
        "node" => merge_node(from, presence, key.name(), object, now_ms),
        _ => Ok(()),
    }
}

/// Adds the status that the pod's node reported for this very pod.
fn merge_status(from: &dyn Read, key: &ResourceKey, pod: &mut Value) -> Result<(), EngineError> {
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).and_then(|n| n.parse().ok());
    let reported = match &node {
        Some(node) => PodStatusFold::status(from, node, key)?,
        None => None,
    };
    let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let mut status = reported
        .filter(|reported| reported.uid == uid)
        .and_then(|reported| serde_json::from_slice(&reported.status).ok())
        .unwrap_or_else(|| json!({"phase": "Pending"}));
    if let Some(given) = pod.pointer("/status/conditions").and_then(Value::as_array) {
        add_conditions(&mut status, given);
    }
    pod["status"] = status;
    Ok(())
}

/// Adds the conditions that the node does not report: those of readiness gates, which others own.
fn add_conditions(status: &mut Value, given: &[Value]) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    for condition in given {
        if !conditions.iter().any(|reported| reported["type"] == condition["type"]) {
            conditions.push(condition.clone());
        }
    }
}

/// Adds the Node object that the node reported, and sets its Ready condition from its last contact.
fn merge_node(
    from: &dyn Read,
    presence: &PresenceReceiver,
    name: &str,
    object: &mut Value,
    now_ms: i64,
) -> Result<(), EngineError> {
    let Ok(node) = name.parse::<NodeName>() else { return Ok(()) };
    let reported = NODES.get(from, &node)?;
    let first_ms = reported.as_ref().map_or(0, |Json(report)| report.first_ms);
    if let Some(reported) =
        reported.and_then(|Json(report)| serde_json::from_str::<Value>(&report.object).ok())
    {
        for part in ["labels", "annotations"] {
            merge_missing(&mut object["metadata"][part], &reported["metadata"][part]);
        }
        if object.pointer("/metadata/creationTimestamp").is_none_or(Value::is_null) {
            object["metadata"]["creationTimestamp"] =
                reported["metadata"]["creationTimestamp"].clone();
        }
        if object["metadata"]["creationTimestamp"].is_null()
            && let Ok(first) = Timestamp::from_second(first_ms / 1000)
            && first_ms > 0
        {
            object["metadata"]["creationTimestamp"] = first.to_string().into();
        }
        object["status"] = reported["status"].clone();
    }
    let progress = NODE_PROGRESS.get(from, &node)?.map(|Json(logged)| logged.progress);
    set_ready(object, presence.connection(&node, progress.as_ref(), now_ms));
    for part in ["labels", "annotations", "creationTimestamp"] {
        if object["metadata"][part].is_null()
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove(part);
        }
    }
    Ok(())
}

/// Why a node is not Ready whose edge is connected.
const WORKER_NOT_RUNNING: &str =
    "edged, the worker that runs the pods of the node, does not run; the edge is connected";

/// Sets the Ready condition as the node lifecycle controller does: the node's own while the node is
/// reachable, otherwise Unknown.
fn set_ready(object: &mut Value, connection: Connection) {
    let Connection { is_reachable, worker_gone_ms, contact_ms } = connection;
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return };
    if !conditions.iter().any(|condition| condition["type"] == "Ready") {
        conditions.push(json!({
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated",
            "message": "the node has not reported itself yet",
        }));
    }
    let ready = conditions.iter_mut().find(|condition| condition["type"] == "Ready");
    let Some(ready) = ready else { return };
    if let Some(contact) = contact_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()) {
        ready["lastHeartbeatTime"] = format!("{contact:.0}").into();
    }
    let (reason, message, since_ms) = match worker_gone_ms {
        _ if !is_reachable => {
            ("NodeStatusUnknown", "the node is not connected to a hub", contact_ms)
        }
        Some(_) => ("WorkerNotRunning", WORKER_NOT_RUNNING, worker_gone_ms),
        None => return,
    };
    if ready["status"] != "Unknown" {
        ready["status"] = "Unknown".into();
        ready["reason"] = reason.into();
        ready["message"] = message.into();
        if let Some(since) = since_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()) {
            ready["lastTransitionTime"] = format!("{since:.0}").into();
        }
    }
}

fn merge_missing(into: &mut Value, from: &Value) {
    let Some(from) = from.as_object() else { return };
    if !into.is_object() {
        *into = json!({});
    }
    let Some(into) = into.as_object_mut() else { return };
    for (key, value) in from {
        into.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_of_a_readiness_gate_stays_beside_those_of_the_node() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let mut status = json!({"conditions": [condition("Ready", "True")]});
        add_conditions(&mut status, &[condition("Ready", "False"), condition("gate", "True")]);
        let both = json!([condition("Ready", "True"), condition("gate", "True")]);
        assert_eq!(status["conditions"], both);
        let mut pending = json!({"phase": "Pending"});
        add_conditions(&mut pending, &[condition("gate", "True")]);
        assert_eq!(pending["conditions"], json!([condition("gate", "True")]));
    }

    #[test]
    fn a_node_is_ready_while_it_is_reachable_and_has_a_worker() {
        let ready = |is_reachable, worker_gone_ms| {
            let mut node = json!({"status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "EdgeReady"},
            ]}});
            let contact_ms = Some(1_000);
            set_ready(&mut node, Connection { is_reachable, worker_gone_ms, contact_ms });
            let ready = &node["status"]["conditions"][0];
            let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
            [text("status"), text("reason"), text("lastTransitionTime")]
        };
        assert_eq!(ready(true, None), ["True", "EdgeReady", ""]);
        let left = ["Unknown", "NodeStatusUnknown", "1970-01-01T00:00:01Z"];
        assert_eq!(ready(false, None), left);
        let without_worker = ["Unknown", "WorkerNotRunning", "1970-01-01T00:00:09Z"];
        assert_eq!(ready(true, Some(9_000)), without_worker);
    }
}
