//! What a node owns of its Node: labels, annotations and status.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::NodeName;
use serde_json::{Map, Value, json};

use crate::cluster_view::NodeView;
use crate::csi_node::{self, OwnedDrivers};
use crate::digest::{Digest, digest};
use crate::kubelet_address::KubeletAddress;
use crate::mirror_pod::{self, StatedPods};
use crate::settings::EDGE_NODES;
use crate::whole_seconds;

/// The labels of Kubernetes that a node may set on itself, by the admission plugin NodeRestriction.
const LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The prefixes of such labels.
const LABEL_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io/", "node.kubernetes.io/"];

/// The labels of the role, which a node reports and only the controller writes.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

/// The fields of a Node's status that a node owns. Not `volumesAttached`, which the attach controller
/// owns.
const FIELDS: [&str; 10] = [
    "capacity",
    "allocatable",
    "addresses",
    "daemonEndpoints",
    "nodeInfo",
    "images",
    "volumesInUse",
    "runtimeHandlers",
    "features",
    "declaredFeatures",
];

/// The fields that name resources.
const RESOURCES: [&str; 2] = ["capacity", "allocatable"];

/// The conditions that a node owns. Not `NetworkUnavailable`, which the network owns.
const CONDITIONS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];

/// The largest Node that is taken from an edge, in bytes of JSON: a thousand images have less.
const NODE_BYTES_MAX: usize = 512 << 10;

/// The most annotations of a node, and labels, that are written.
const ENTRIES_MAX: usize = 64;

/// What a node owns of its Node, as it reports it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnedNode {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Labels that a node may not set.
    pub(crate) refused_labels: BTreeSet<String>,
    /// Its storage drivers; `None`: it is not set up for any.
    pub(crate) drivers: Option<OwnedDrivers>,
    /// Its static pods; `None`: it has not stated them. A statement that is none keeps nothing else from being written.
    pub(crate) static_pods: Result<Option<StatedPods>, UnfitNode>,
    pub(crate) status: NodeStatus,
}

/// What a node owns of its Node's status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeStatus {
    fields: Map<String, Value>,
    /// Of everything but times and extended resources, which others may set, too.
    pub(crate) digest: Digest,
    /// Of everything but extended resources.
    pub(crate) timed: Digest,
    /// The status of the condition Ready.
    pub(crate) ready: Box<str>,
    /// The names of the resources in `capacity` and `allocatable`.
    pub(crate) resources: Box<[Box<str>]>,
}

/// Why a Node is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitNode {
    /// It is too large.
    #[error("it reports a Node of {bytes} bytes; at most {NODE_BYTES_MAX} are written")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is no JSON object.
    #[error("it reports a Node that is no JSON object")]
    NoObject,
    /// Its storage drivers are none.
    #[error("it reports a Node whose annotation {} lists no storage drivers", csi_node::ANNOTATION)]
    NoDrivers,
    /// Its static pods are none.
    #[error("it reports a Node whose annotation {} lists no static pods", mirror_pod::ANNOTATION)]
    NoStaticPods,
}

impl OwnedNode {
    /// The owned part of the Node that `node` reports.
    pub(crate) fn parse(object: &str, node: &str) -> Result<Self, UnfitNode> {
        let bytes = object.len();
        if bytes > NODE_BYTES_MAX {
            return Err(UnfitNode::TooLarge { bytes });
        }
        let object: Value = serde_json::from_str(object).map_err(|_| UnfitNode::NoObject)?;
        if !object.is_object() {
            return Err(UnfitNode::NoObject);
        }
        let (labels, refused): (BTreeMap<_, _>, BTreeMap<_, _>) =
            entries(&object, "labels").partition(|(key, _)| may_label(key));
        let is_role = |key: &String| key.starts_with(ROLE_PREFIX);
        let is_stated = |key: &str| [csi_node::ANNOTATION, mirror_pod::ANNOTATION].contains(&key);
        let (stated, annotations): (BTreeMap<_, _>, BTreeMap<_, _>) =
            entries(&object, "annotations").partition(|(key, _)| is_stated(key));
        let drivers = stated.get(csi_node::ANNOTATION);
        let drivers = drivers.map(|text| OwnedDrivers::parse(text)).transpose()?;
        let static_pods = stated.get(mirror_pod::ANNOTATION);
        let static_pods = static_pods.map(|text| StatedPods::parse(text, node)).transpose();
        Ok(Self {
            labels: labels.into_iter().take(ENTRIES_MAX).collect(),
            annotations: annotations.into_iter().take(ENTRIES_MAX).collect(),
            refused_labels: refused
                .into_keys()
                .filter(|key| !is_role(key))
                .take(ENTRIES_MAX)
                .collect(),
            drivers,
            static_pods,
            status: NodeStatus::of(&object["status"]),
        })
    }

    /// The Node that the controller creates: with the label of the role, which a node may not set, and
    /// those by which the source selects edge nodes.
    pub(crate) fn new_object(&self, node: &NodeName, selector: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert(EDGE_NODES.to_owned(), String::new());
        labels.extend(labels_of_selector(selector));
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": node.as_str(), "labels": labels, "annotations": self.annotations,
            },
        })
    }

    /// The merge patch that adds labels and annotations, or overwrites them; none is removed.
    pub(crate) fn metadata_patch(&self, uid: &str) -> Value {
        json!({"metadata": {
            "uid": uid, "labels": self.labels, "annotations": self.annotations,
        }})
    }

    /// The digest of labels and annotations.
    pub(crate) fn metadata_digest(&self) -> Digest {
        digest(&json!([self.labels, self.annotations]))
    }
}

impl NodeStatus {
    /// The owned part of a Node's status.
    pub(crate) fn of(status: &Value) -> Self {
        let mut fields = Map::new();
        for field in FIELDS {
            if let Some(value) = status.get(field).filter(|value| !value.is_null()) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
        let conditions = conditions(status);
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let ready = ready.and_then(|ready| ready["status"].as_str()).unwrap_or_default().into();
        fields.insert("conditions".to_owned(), Value::Array(conditions));
        let mut owned = Value::Object(fields);
        whole_seconds::cut(&mut owned);
        let mut untimed = owned.clone();
        for part in RESOURCES {
            if let Some(resources) = untimed.get_mut(part).and_then(Value::as_object_mut) {
                resources.retain(|name, _| !is_extended(name));
            }
        }
        let timed = digest(&untimed);
        for condition in untimed["conditions"].as_array_mut().into_iter().flatten() {
            if let Some(condition) = condition.as_object_mut() {
                condition.remove("lastHeartbeatTime");
                condition.remove("lastTransitionTime");
            }
        }
        let digest = digest(&untimed);
        let Value::Object(fields) = owned else { unreachable!("it was made of fields") };
        let resources = RESOURCES.iter().filter_map(|part| fields.get(*part)?.as_object());
        let resources: BTreeSet<&String> = resources.flat_map(Map::keys).collect();
        let resources = resources.into_iter().map(|name| name.as_str().into()).collect();
        Self { fields, digest, timed, ready, resources }
    }

    /// This status with the kubelet's server at another address.
    pub(crate) fn reached_at(self, address: &KubeletAddress, node: &NodeName) -> Self {
        let mut status = Value::Object(self.fields);
        address.put(node, &mut status);
        Self::of(&status)
    }

    /// The strategic merge patch that makes the Node `view` show this status. A condition Ready that
    /// changes does so `now_s` seconds after the Unix epoch.
    pub(crate) fn patch(&self, view: &NodeView, now_s: i64) -> Value {
        let shown_ready = &*view.ready;
        let mut status = self.fields.clone();
        // What it reports no more is gone.
        for field in FIELDS.into_iter().filter(|field| !RESOURCES.contains(field)) {
            status.entry(field).or_insert(Value::Null);
        }
        // The API server merges maps, and drops one with `$patch: replace` where it has none yet.
        for resources in RESOURCES {
            let resources = status.entry(resources).or_insert_with(|| json!({}));
            let Some(resources) = resources.as_object_mut() else { continue };
            let shown = view.resources.iter().filter(|name| !is_extended(name));
            for gone in shown.filter(|name| !self.resources.contains(name)) {
                resources.insert(gone.to_string(), Value::Null);
            }
        }
        if let Some(addresses) = status.get_mut("addresses").and_then(Value::as_array_mut) {
            addresses.push(json!({"$patch": "replace"}));
        }
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            for field in ["reason", "message"] {
                condition.entry(field).or_insert(Value::Null);
            }
            // While the node was away, others wrote the condition: it changes now.
            let was_overwritten = !shown_ready.is_empty() && shown_ready != &*self.ready;
            if was_overwritten && condition["type"] == "Ready" {
                condition
                    .insert("lastTransitionTime".to_owned(), whole_seconds::whole(now_s).into());
            }
        }
        json!({"metadata": {"uid": view.uid}, "status": status})
    }
}

/// Whether `resource` is an extended one, of a domain that is not Kubernetes'. A node does not own those
/// that it does not report: an administrator advertises them by the API, and a kubelet keeps them.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// Whether a node may set the label `key` on itself, by NodeRestriction's list. Labels outside of
/// Kubernetes' own domains, which NodeRestriction leaves open, would let an edge attract workloads.
pub(crate) fn may_label(key: &str) -> bool {
    LABELS.contains(&key) || LABEL_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// The labels that a selector requires, as far as it names them.
fn labels_of_selector(selector: &str) -> impl Iterator<Item = (String, String)> {
    selector.split(',').filter_map(|requirement| {
        let requirement = requirement.trim();
        if requirement.contains("!=") || requirement.starts_with('!') {
            return None;
        }
        let (key, value) = requirement.split_once('=').unwrap_or((requirement, ""));
        let (key, value) = (key.trim(), value.trim_start_matches('=').trim());
        let is_plain =
            !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || "()".contains(c));
        is_plain.then(|| (key.to_owned(), value.to_owned()))
    })
}

/// Whether labels meet a selector. One that names sets is not decided here, and not met.
pub(crate) fn meets(selector: &str, labels: &Value) -> bool {
    let requirements = selector.split(',').map(str::trim);
    let mut plain = requirements.filter(|requirement| !requirement.is_empty());
    plain.all(|requirement| {
        if requirement.contains(|c: char| c.is_whitespace() || "()".contains(c)) {
            return false;
        }
        if let Some((key, value)) = requirement.split_once("!=") {
            return labels[key] != *value;
        }
        match (requirement.strip_prefix('!'), requirement.split_once('=')) {
            (Some(key), _) => labels[key].is_null(),
            (None, Some((key, value))) => labels[key] == *value.trim_start_matches('='),
            (None, None) => !labels[requirement].is_null(),
        }
    })
}

/// The labels or annotations of an object. A value that is no text is left out.
fn entries(object: &Value, part: &str) -> impl Iterator<Item = (String, String)> {
    let entries = object["metadata"][part].as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
}

/// The owned conditions, by type.
fn conditions(status: &Value) -> Vec<Value> {
    let all = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_type = |kind: &&str| all.iter().find(|condition| condition["type"] == **kind).cloned();
    CONDITIONS.iter().filter_map(of_type).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_object::RawObject;

    #[test]
    fn labels_meet_a_selector_that_names_them() {
        let labels = json!({"role": "edge", "zone": "a"});
        for met in ["", "role", "role=edge", "role==edge, zone!=b", "!pool", "zone=a,!pool"] {
            assert!(meets(met, &labels), "{met:?}");
        }
        for other in ["pool", "role=cloud", "zone!=a", "!zone", "zone in (a, b)", "zone in (a)"] {
            assert!(!meets(other, &labels), "{other:?}");
        }
    }

    fn node() -> Value {
        json!({
            "metadata": {"labels": {
                "kubernetes.io/hostname": "gw", "node.kubernetes.io/size": "s",
                "node-role.kubernetes.io/edge": "", "node-role.kubernetes.io/control-plane": "",
                "node-restriction.kubernetes.io/team": "a", "team": "a",
            }},
            "status": {
                "capacity": {"cpu": "4"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
                "volumesAttached": [{"name": "v"}],
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "EdgedReady",
                    "lastHeartbeatTime": "2026-01-01T00:00:09.5Z",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        })
    }

    fn owned(node: &Value) -> OwnedNode {
        OwnedNode::parse(&node.to_string(), "gw").expect("a node")
    }

    #[test]
    fn a_node_sets_the_labels_of_node_restriction_alone() {
        let owned = owned(&node());
        let labels: Vec<_> = owned.labels.keys().map(String::as_str).collect();
        assert_eq!(labels, ["kubernetes.io/hostname", "node.kubernetes.io/size"]);
        let refused: Vec<_> = owned.refused_labels.iter().map(String::as_str).collect();
        assert_eq!(refused, ["node-restriction.kubernetes.io/team", "team"]);
        let created = owned.new_object(&"gw".parse().expect("a name"), "tier in (a), edge=yes,!x");
        let labels = created["metadata"]["labels"].as_object().expect("labels");
        let keys: Vec<_> = labels.keys().map(String::as_str).collect();
        assert_eq!(keys, ["edge", "kubernetes.io/hostname", EDGE_NODES, "node.kubernetes.io/size"]);
        assert_eq!(labels["edge"], "yes");
    }

    #[test]
    fn drivers_are_no_annotation_of_the_node() {
        let mut node = node();
        assert_eq!(owned(&node).drivers, None);
        node["metadata"]["annotations"] = json!({"a": "b", csi_node::ANNOTATION: "[]"});
        let owned = owned(&node);
        assert!(owned.drivers.is_some());
        assert_eq!(owned.annotations.keys().map(String::as_str).collect::<Vec<_>>(), ["a"]);
        node["metadata"]["annotations"][csi_node::ANNOTATION] = "{}".into();
        assert_eq!(OwnedNode::parse(&node.to_string(), "gw"), Err(UnfitNode::NoDrivers));
    }

    #[test]
    fn times_alone_change_only_the_timed_digest() {
        let first = owned(&node()).status;
        let mut later = node();
        later["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:05:09Z".into();
        later["status"]["volumesAttached"] = json!([]);
        let later = owned(&later).status;
        assert_eq!(first.digest, later.digest);
        assert_ne!(first.timed, later.timed);
        let mut other = node();
        other["status"]["conditions"][0]["status"] = "False".into();
        assert_ne!(owned(&other).status.digest, first.digest);
    }

    #[test]
    fn an_extended_resource_of_others_is_neither_compared_nor_removed() {
        let mut shown = node();
        shown["status"]["capacity"]["example.com/dongle"] = "4".into();
        let (reported, view) = (owned(&node()).status, RawObject::new(shown.clone()));
        let shown = owned(&shown).status;
        assert_eq!((reported.digest, reported.timed), (shown.digest, shown.timed));
        let patch = reported.patch(&NodeView::of(&view, 0), 0);
        assert_eq!(patch["status"]["capacity"], json!({"cpu": "4"}));
        let patch = shown.patch(&NodeView::of(&RawObject::new(node()), 0), 0);
        assert_eq!(patch["status"]["capacity"]["example.com/dongle"], "4", "its own is written");
    }

    #[test]
    fn a_patch_removes_resources_replaces_addresses_and_dates_a_condition_that_others_wrote() {
        let status = owned(&node()).status;
        let shown = |ready: &str| {
            let object = json!({
                "metadata": {"uid": "u"},
                "status": {
                    "capacity": {"cpu": "2", "hugepages-2Mi": "1Gi"},
                    "conditions": [{"type": "Ready", "status": ready}],
                },
            });
            NodeView::of(&RawObject::new(object), 0)
        };
        let patch = status.patch(&shown("Unknown"), 1_000_000_000);
        assert_eq!(patch["status"]["capacity"], json!({"cpu": "4", "hugepages-2Mi": null}));
        assert_eq!(patch["status"]["addresses"][1], json!({"$patch": "replace"}));
        let ready = &patch["status"]["conditions"][0];
        assert_eq!(ready["lastTransitionTime"], "2001-09-09T01:46:40Z");
        assert_eq!(ready["lastHeartbeatTime"], "2026-01-01T00:00:09Z");
        assert!(patch["status"].get("volumesAttached").is_none());
        assert_eq!(patch["status"].get("volumesInUse"), Some(&Value::Null));
        let patch = status.patch(&shown("True"), 1_000_000_000);
        let ready = &patch["status"]["conditions"][0];
        assert_eq!(ready["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn no_type_of_a_field_ends_the_sink() {
        let wrong = [json!(7), json!("x"), json!([]), json!({}), json!([7]), json!({"a": [null]})];
        let shown = NodeView::of(&RawObject::new(node()), 0);
        for field in FIELDS.into_iter().chain(["conditions"]) {
            for value in &wrong {
                let mut hostile = node();
                hostile["status"][field] = value.clone();
                owned(&hostile).status.patch(&shown, 0);
                hostile["metadata"] = value.clone();
                owned(&hostile).status.patch(&NodeView::of(&RawObject::new(hostile), 0), 0);
            }
        }
    }
}
