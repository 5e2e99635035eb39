//! Objects of the sources with what their nodes reported: pod statuses, Nodes, the Ready condition.

use headwater_event::{NodeName, NodeProgress, ResourceKey};
use headwater_store::{EngineError, Json, Read};
use headwater_view::PodStatusFold;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::tables::{NODE_PROGRESS, NODES};

/// How long after its last contact a node counts as Ready: the grace period of the node lifecycle
/// controller (40 s).
const NODE_GRACE_MS: i64 = 40_000;

/// Adds what the node reported of an object. `now_ms` decides whether a Node is Ready.
pub(super) fn merge(
    from: &dyn Read,
    key: &ResourceKey,
    object: &mut Value,
    now_ms: i64,
) -> Result<(), EngineError> {
    match key.kind() {
        "pod" => merge_status(from, key, object),
        "node" => merge_node(from, key.name(), object, now_ms),
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
    let status = reported
        .filter(|reported| reported.uid == uid)
        .and_then(|reported| serde_json::from_slice(&reported.status).ok())
        .unwrap_or_else(|| json!({"phase": "Pending"}));
    pod["status"] = status;
    Ok(())
}

/// Adds the Node object that the node reported, and sets its Ready condition from its last contact.
fn merge_node(
    from: &dyn Read,
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
    let progress = NODE_PROGRESS.get(from, &node)?.map(|Json(progress)| progress);
    set_ready(object, progress.as_ref(), now_ms);
    for part in ["labels", "annotations", "creationTimestamp"] {
        if object["metadata"][part].is_null()
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove(part);
        }
    }
    Ok(())
}

/// Whether a node is connected and its last contact is recent: a hub that died wrote no position
/// record for the end of the session.
pub fn is_reachable(progress: &NodeProgress, now_ms: i64) -> bool {
    progress.connected && now_ms.saturating_sub(progress.contact_ms) <= NODE_GRACE_MS
}

/// Sets the Ready condition as the node lifecycle controller does: the node's own while the node is
/// reachable, otherwise Unknown.
fn set_ready(object: &mut Value, progress: Option<&NodeProgress>, now_ms: i64) {
    let contact_ms = progress.map(|progress| progress.contact_ms);
    let reachable = progress.is_some_and(|progress| is_reachable(progress, now_ms));
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
    if !reachable && ready["status"] != "Unknown" {
        ready["status"] = "Unknown".into();
        ready["reason"] = "NodeStatusUnknown".into();
        ready["message"] = "the node is not connected to a hub".into();
        if let Some(contact) = contact_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()) {
            ready["lastTransitionTime"] = format!("{contact:.0}").into();
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
    use headwater_event::{Boot, Incarnation};

    use super::*;

    fn progress(connected: bool, contact_ms: i64) -> NodeProgress {
        NodeProgress {
            hub: "hub".to_owned(),
            connected,
            incarnation: Incarnation(1),
            boot: Boot::default(),
            outbox_depth: 0,
            contact_ms,
            meta_sync_ms: 0,
            streams: Vec::new(),
        }
    }

    fn ready(progress: Option<&NodeProgress>, now_ms: i64) -> String {
        let mut node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        set_ready(&mut node, progress, now_ms);
        node["status"]["conditions"][0]["status"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_node_is_ready_while_it_is_reachable() {
        assert_eq!(ready(Some(&progress(true, 1_000)), 2_000), "True");
        assert_eq!(ready(Some(&progress(true, 1_000)), 1_001 + NODE_GRACE_MS), "Unknown");
        assert_eq!(ready(Some(&progress(false, 1_000)), 2_000), "Unknown");
        assert_eq!(ready(None, 2_000), "Unknown");
    }
}
