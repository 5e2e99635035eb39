//! The Events that nodes reported, until the API has them or an hour is over.
//!
//! A node may send anything as an Event, so the fold takes only the fields that an Event of a kubelet has,
//! in their bounds, and names the node itself as the source. An Event is about the Node of its sender, or
//! about a pod that is bound to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use headwater_event::{NodeName, ReportId, ResourceKey};
use headwater_store::{EngineError, Json};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Picture;
use super::tables::{EVENTS, EventReport};

/// How long an Event stays: the default of an API server (`--event-ttl`).
pub(crate) const EVENT_TTL_MS: i64 = 3_600_000;

/// Discards that wait for the fold; of more of them, the sink discards again what it still finds.
const DISCARDS_MAX: usize = 4_096;

/// Characters of a reason and of a message, as the API server validates them.
const REASON_CHARS_MAX: usize = 128;
const MESSAGE_CHARS_MAX: usize = 1_024;

/// The component that Events name as their source.
const COMPONENT: &str = "edged";

/// The namespace of Events about objects without one.
const DEFAULT_NAMESPACE: &str = "default";

/// An Event that a node reported.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEvent {
    /// The Event, as `<namespace>/event/<name>`.
    pub key: ResourceKey,
    /// The node that reported it.
    pub node: NodeName,
    /// The position of its report. An Event that happens again has a greater one.
    pub id: ReportId,
    /// The Event, `v1` of the Kubernetes API.
    pub event: Value,
}

/// The Events that are needed no longer. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventDiscards(Arc<Mutex<BTreeMap<ResourceKey, ReportId>>>);

/// Why an Event is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventFault {
    #[error("it is malformed")]
    Malformed(#[from] serde_json::Error),
    #[error("{0}")]
    Invalid(&'static str),
}

/// The fields of an Event that a node may set.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportedEvent {
    involved_object: InvolvedObject,
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(rename = "type")]
    severity: Severity,
    count: u32,
    first_timestamp: Timestamp,
    last_timestamp: Timestamp,
}

#[derive(Debug, Deserialize, Serialize)]
enum Severity {
    Normal,
    Warning,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct InvolvedObject {
    kind: InvolvedKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field_path: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
enum InvolvedKind {
    Pod,
    Node,
}

/// The Event under `key` as the picture keeps it.
///
/// # Errors
/// See [`EventFault`].
pub(crate) fn accept(
    node: &NodeName,
    key: &ResourceKey,
    object: &[u8],
) -> Result<String, EventFault> {
    let event: ReportedEvent = serde_json::from_slice(object)?;
    let about = &event.involved_object;
    let (kind, namespace) = match about.kind {
        InvolvedKind::Node if about.name != node.as_str() => {
            return Err(EventFault::Invalid("it is about another node"));
        }
        InvolvedKind::Node => ("node", None),
        InvolvedKind::Pod => ("pod", about.namespace.as_deref()),
    };
    if ResourceKey::new(namespace, kind, &about.name).is_err() {
        return Err(EventFault::Invalid("involvedObject is no object"));
    }
    if key.namespace() != Some(namespace.unwrap_or(DEFAULT_NAMESPACE)) {
        return Err(EventFault::Invalid("its namespace is not that of involvedObject"));
    }
    let is_too_long = |text: &str, max| text.chars().nth(max).is_some();
    if event.reason.is_empty() || is_too_long(&event.reason, REASON_CHARS_MAX) {
        return Err(EventFault::Invalid("its reason has no or too many characters"));
    }
    if is_too_long(&event.message, MESSAGE_CHARS_MAX) {
        return Err(EventFault::Invalid("its message has too many characters"));
    }
    if event.count == 0 || event.first_timestamp > event.last_timestamp {
        return Err(EventFault::Invalid("its count or its times contradict each other"));
    }
    let mut object = serde_json::to_value(&event)?;
    let whole = |time: Timestamp| format!("{time:.0}");
    object["firstTimestamp"] = whole(event.first_timestamp).into();
    object["lastTimestamp"] = whole(event.last_timestamp).into();
    object["involvedObject"]["apiVersion"] = "v1".into();
    object["apiVersion"] = "v1".into();
    object["kind"] = "Event".into();
    object["metadata"] = json!({
        "name": key.name(), "namespace": key.namespace(),
        "creationTimestamp": whole(event.first_timestamp),
    });
    object["source"] = json!({"component": COMPONENT, "host": node.as_str()});
    object["reportingComponent"] = COMPONENT.into();
    object["reportingInstance"] = node.as_str().into();
    Ok(object.to_string())
}

impl Picture {
    /// The Events that `node` reported, in key order.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn events(&self, node: &NodeName) -> Result<Vec<NodeEvent>, EngineError> {
        let from = self.engine.snapshot();
        let mut events = Vec::new();
        for row in EVENTS.rows(&*from) {
            let (key, Json(report)) = row?;
            if report.node == *node {
                events.extend(self.node_event(key, report));
            }
        }
        Ok(events)
    }

    /// The Event under `key`, as `<namespace>/event/<name>`. [`Picture::changes`] names such keys.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn event(&self, key: &ResourceKey) -> Result<Option<NodeEvent>, EngineError> {
        let report = EVENTS.get(&*self.engine, key)?;
        Ok(report.and_then(|Json(report)| self.node_event(key.clone(), report)))
    }

    /// The Event under `key`, about whatever object. The caller checks whose object that is.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn reported_event(&self, key: &ResourceKey) -> Result<Option<NodeEvent>, EngineError> {
        let report = EVENTS.get(&*self.engine, key)?;
        Ok(report.and_then(|Json(report)| NodeEvent::of(key.clone(), report)))
    }

    /// The next `max` Events after the key `after`, in key order, about whatever objects, and the key after
    /// which the next ones begin; `None` at the end.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn reported_events(
        &self,
        after: Option<&ResourceKey>,
        max: usize,
    ) -> Result<(Vec<NodeEvent>, Option<ResourceKey>), EngineError> {
        let rows = EVENTS.chunk(&*self.engine, after, max)?;
        let next = rows.last().filter(|_| rows.len() >= max).map(|(key, _)| key.clone());
        let events = rows.into_iter().filter_map(|(key, Json(report))| NodeEvent::of(key, report));
        Ok((events.collect(), next))
    }

    /// Discards an Event that is needed no longer, because the API has it. While this controller is
    /// the writer, it removes the Event from the log; then it leaves the picture. One that happened again
    /// meanwhile stays.
    pub fn discard_event(&self, event: &NodeEvent) {
        self.event_discards.add(&event.key, event.id);
    }

    /// The Event of a row; `None`: it is about a pod of another node.
    pub(super) fn node_event(&self, key: ResourceKey, report: EventReport) -> Option<NodeEvent> {
        let event = NodeEvent::of(key, report)?;
        let about = &event.event["involvedObject"];
        if about["kind"] == "Pod" {
            let pod = ResourceKey::new(about["namespace"].as_str(), "pod", about["name"].as_str()?)
                .ok()?;
            let bound = self.object(&pod).map(|pod| pod.versioned_value());
            let bound = bound.as_ref().and_then(|pod| pod["spec"]["nodeName"].as_str());
            // A pod that is gone may have had its last Event.
            if bound.is_some_and(|bound| bound != event.node.as_str()) {
                return None;
            }
        }
        Some(event)
    }
}

impl NodeEvent {
    /// The Event of a row; `None`: the row has no JSON.
    fn of(key: ResourceKey, report: EventReport) -> Option<Self> {
        let EventReport { node, id, object, .. } = report;
        let event = serde_json::from_str(&object).ok()?;
        Some(Self { key, node, id, event })
    }
}

/// Whether an Event that the log accepted at `logged_ms` is too old at `now_ms`.
pub(crate) fn is_expired(logged_ms: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(logged_ms) > EVENT_TTL_MS
}

impl EventDiscards {
    fn add(&self, key: &ResourceKey, id: ReportId) {
        let mut discards = self.lock();
        if discards.len() < DISCARDS_MAX || discards.contains_key(key) {
            discards.insert(key.clone(), id);
        }
    }

    /// Takes what waits.
    pub(crate) fn take(&self) -> BTreeMap<ResourceKey, ReportId> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ResourceKey, ReportId>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported() -> Value {
        json!({
            "involvedObject": {"kind": "Pod", "namespace": "d", "name": "p", "uid": "u"},
            "reason": "BackOff", "message": "m", "type": "Warning", "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00.5Z",
        })
    }

    fn accepted(key: &str, event: &Value) -> Result<Value, String> {
        let (node, key) = ("a".parse().expect("a name"), key.parse().expect("a key"));
        let accepted = accept(&node, &key, event.to_string().as_bytes());
        let accepted = accepted.map_err(|fault| fault.to_string())?;
        Ok(serde_json::from_str(&accepted).expect("JSON"))
    }

    #[test]
    fn an_event_keeps_what_a_node_may_set_and_names_its_node() {
        let mut event = reported();
        event["source"] = json!({"component": "kube-apiserver", "host": "master"});
        event["metadata"] = json!({"name": "other", "labels": {"a": "b"}});
        event["surprise"] = json!({"deep": [1]});
        let expected = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {
                "name": "p.1", "namespace": "d", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "d", "name": "p", "uid": "u",
            },
            "reason": "BackOff", "message": "m", "type": "Warning", "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z",
            "source": {"component": "edged", "host": "a"},
            "reportingComponent": "edged", "reportingInstance": "a",
        });
        assert_eq!(accepted("d/event/p.1", &event), Ok(expected));
    }

    #[test]
    fn what_is_no_event_of_the_node_is_refused_with_its_reason() {
        let with = |field: &str, value: Value| {
            let mut event = reported();
            event[field] = value;
            event
        };
        let node = json!({"kind": "Node", "name": "a"});
        assert!(accepted("default/event/a.1", &with("involvedObject", node.clone())).is_ok());
        let other = json!({"kind": "Node", "name": "b"});
        let secret = json!({"kind": "Secret", "namespace": "d", "name": "s"});
        for (key, event, fault) in [
            ("d/event/a.1", with("involvedObject", node), "namespace"),
            ("default/event/b.1", with("involvedObject", other), "another node"),
            ("d/event/s.1", with("involvedObject", secret), "malformed"),
            ("other/event/p.1", reported(), "namespace"),
            ("d/event/p.1", with("reason", json!("")), "reason"),
            ("d/event/p.1", with("reason", json!("x".repeat(129))), "reason"),
            ("d/event/p.1", with("message", json!("x".repeat(1_025))), "message"),
            ("d/event/p.1", with("message", json!(7)), "malformed"),
            ("d/event/p.1", with("type", json!("Fatal")), "malformed"),
            ("d/event/p.1", with("count", json!(0)), "count"),
            ("d/event/p.1", with("count", json!(-1)), "malformed"),
            ("d/event/p.1", with("lastTimestamp", json!("2025-01-01T00:00:00Z")), "times"),
            ("d/event/p.1", with("firstTimestamp", json!("yesterday")), "malformed"),
            ("d/event/p.1", json!([]), "malformed"),
        ] {
            let refused = accepted(key, &event).expect_err(fault);
            assert!(refused.contains(fault), "{refused}: want {fault}");
        }
    }
}
