//! The cloud's picture: the objects of the sources with what the edges say of them.

pub(crate) mod changes;

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::{NodeName, NodeProgress, ReportId, ResourceKey};
use headwater_object::Object;
use headwater_store::{Engine, EngineError, Folded, Json, Read, Table, TableId};
use headwater_view::PodStatusFold;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::changes::ChangeFeed;
pub use self::changes::{ChangeSubscription, PictureChange};
use crate::publisher::SharedInterest;

/// Per node: its Node as it last reported it.
pub(crate) const NODES: Table<NodeName, Json<NodeReport>, Folded> =
    Table::new(TableId::NodePictures);

/// Per node: where it stands, as its hub last said.
pub(crate) const STANDINGS: Table<NodeName, Json<NodeProgress>, Folded> =
    Table::new(TableId::NodeProgress);

/// How long after its last contact a node counts as Ready: the node lifecycle controller's
/// grace period (40 s).
const NODE_GRACE_MS: i64 = 40_000;

/// A Node as it reported itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    pub(crate) id: ReportId,
    pub(crate) object: String,
    /// When the log took its first report, milliseconds since the Unix epoch: a node's age.
    #[serde(default)]
    pub(crate) first_ms: i64,
}

/// Reads the cloud's picture.
#[derive(Clone)]
pub struct Picture {
    interest: SharedInterest,
    engine: Arc<dyn Engine>,
    changes: ChangeFeed,
}

/// Which objects are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Lower-case singular type; empty: every type.
    pub kind: &'a str,
    /// Empty: every namespace. Cluster-scoped objects are in every namespace.
    pub namespace: &'a str,
    /// Empty: every name.
    pub name: &'a str,
}

impl Filter<'_> {
    /// Whether `key` is meant.
    pub fn matches(&self, key: &ResourceKey) -> bool {
        (self.kind.is_empty() || self.kind == key.kind())
            && (self.name.is_empty() || self.name == key.name())
            && (self.namespace.is_empty()
                || key.namespace().is_none_or(|namespace| namespace == self.namespace))
    }
}

impl Picture {
    pub(crate) fn new(
        interest: SharedInterest,
        engine: Arc<dyn Engine>,
        changes: ChangeFeed,
    ) -> Self {
        Self { interest, engine, changes }
    }

    /// Hears from now on which objects may have changed, so that not all are to be looked at. It
    /// does not hear of time: a node that says nothing is not Ready after a while.
    pub fn changes(&self) -> ChangeSubscription {
        self.changes.subscribe()
    }

    /// The objects meant by `filter`, in key order, statuses merged in. `now_ms` decides which
    /// nodes were heard of lately.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn objects(
        &self,
        filter: &Filter<'_>,
        now_ms: i64,
    ) -> Result<BTreeMap<ResourceKey, Value>, EngineError> {
        let mut found: BTreeMap<ResourceKey, Value> = BTreeMap::new();
        {
            let interest = self.interest.read();
            for object in interest.objects().filter(|object| filter.matches(object.key())) {
                found.insert(object.key().clone(), object.value());
            }
            if filter.kind.is_empty() || filter.kind == "node" {
                for node in interest.nodes() {
                    add_node(&mut found, filter, node);
                }
            }
        }
        let from = self.engine.snapshot();
        for row in NODES.rows(&*from) {
            add_node(&mut found, filter, &row?.0);
        }
        for (key, object) in &mut found {
            merge(&*from, key, object, now_ms)?;
        }
        Ok(found)
    }

    /// One object, as among [`Picture::objects`].
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn merged_object(
        &self,
        key: &ResourceKey,
        now_ms: i64,
    ) -> Result<Option<Value>, EngineError> {
        let node: Option<NodeName> =
            if key.kind() == "node" { key.name().parse().ok() } else { None };
        let (object, has_stream) = {
            let interest = self.interest.read();
            let has_stream = node.as_ref().is_some_and(|node| interest.has_stream(node));
            (interest.object(key).map(Object::value), has_stream)
        };
        let from = self.engine.snapshot();
        let object = match (object, &node) {
            (None, Some(node)) if has_stream || NODES.get(&*from, node)?.is_some() => {
                Some(bare_node(node))
            }
            (object, _) => object,
        };
        let Some(mut object) = object else { return Ok(None) };
        merge(&*from, key, &mut object, now_ms)?;
        Ok(Some(object))
    }

    /// One object as the sources have it.
    pub fn object(&self, key: &ResourceKey) -> Option<Object> {
        self.interest.read().object(key).cloned()
    }

    /// The nodes that have a stream.
    pub fn nodes(&self) -> Vec<NodeName> {
        self.interest.read().nodes().cloned().collect()
    }

    /// Where each node stands, as its hub last said.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn standings(&self) -> Result<BTreeMap<NodeName, NodeProgress>, EngineError> {
        let from = self.engine.snapshot();
        STANDINGS
            .rows(&*from)
            .map(|row| row.map(|(node, Json(standing))| (node, standing)))
            .collect()
    }
}

fn add_node(found: &mut BTreeMap<ResourceKey, Value>, filter: &Filter<'_>, node: &NodeName) {
    let Ok(key) = ResourceKey::new(None, "node", node.as_str()) else { return };
    if filter.matches(&key) {
        found.entry(key).or_insert_with(|| bare_node(node));
    }
}

/// A node of which no source tells.
fn bare_node(node: &NodeName) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.as_str()}})
}

/// Adds what the edges say of an object.
fn merge(
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

/// Adds what the node reported of itself, and judges from its last contact whether it is Ready.
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
    let standing = STANDINGS.get(from, &node)?.map(|Json(standing)| standing);
    judge_ready(object, standing.as_ref(), now_ms);
    for part in ["labels", "annotations", "creationTimestamp"] {
        if object["metadata"][part].is_null()
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove(part);
        }
    }
    Ok(())
}

/// Whether a node is connected and was heard of lately: a hub that died said nothing of the end.
pub fn is_reachable(standing: &NodeProgress, now_ms: i64) -> bool {
    standing.connected && now_ms.saturating_sub(standing.contact_ms) <= NODE_GRACE_MS
}

/// The Ready condition as the node lifecycle controller would leave it: what the node says while
/// it is heard of, Unknown when it is not.
fn judge_ready(object: &mut Value, standing: Option<&NodeProgress>, now_ms: i64) {
    let contact_ms = standing.map(|standing| standing.contact_ms);
    let heard = standing.is_some_and(|standing| is_reachable(standing, now_ms));
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
    if !heard && ready["status"] != "Unknown" {
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

    fn standing(connected: bool, contact_ms: i64) -> NodeProgress {
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

    fn ready(standing: Option<&NodeProgress>, now_ms: i64) -> String {
        let mut node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        judge_ready(&mut node, standing, now_ms);
        node["status"]["conditions"][0]["status"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_node_is_ready_while_it_is_heard_of() {
        assert_eq!(ready(Some(&standing(true, 1_000)), 2_000), "True");
        assert_eq!(ready(Some(&standing(true, 1_000)), 1_001 + NODE_GRACE_MS), "Unknown");
        assert_eq!(ready(Some(&standing(false, 1_000)), 2_000), "Unknown");
        assert_eq!(ready(None, 2_000), "Unknown");
    }

    #[test]
    fn a_filter_keeps_to_its_namespace_but_not_for_cluster_scoped_objects() {
        let key = |text: &str| text.parse::<ResourceKey>().expect("a key");
        let filter = Filter { kind: "", namespace: "shop", name: "" };
        assert!(filter.matches(&key("shop/pod/a")) && !filter.matches(&key("other/pod/a")));
        assert!(filter.matches(&key("null/node/a")));
        assert!(!Filter { kind: "pod", ..filter }.matches(&key("shop/secret/a")));
    }
}
