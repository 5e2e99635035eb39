//! Payloads: the replicated part of an object, as canonical bytes.
//!
//! A payload omits `metadata.managedFields`, and the `status` of Pods and Nodes, except what is input
//! of the node: the pod conditions that the pod's readiness gates name, and the resource claims of the
//! pod. It also omits `metadata.resourceVersion`, which travels beside it. So a report of an edge never
//! returns to it as a change. The bytes are canonical (sorted keys, no white space), so that equal
//! objects have equal hashes.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::object_type::ObjectType;

/// The largest payload in bytes: the limit of Kubernetes for one object (etcd's request size).
pub const OBJECT_BYTES_MAX: usize = 3 * 512 * 1024;

/// The field of `metadata` that is no part of a payload.
const RESOURCE_VERSION: &str = "resourceVersion";

/// The annotation in which `kubectl apply` keeps a copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The annotation with the time of the change that an EndpointSlice follows. It differs with each
/// write of the slice, and only a measurement reads it.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Makes `object`, as a Kubernetes API sent it, independent of the client that wrote it: removes the
/// annotations that are about the write.
pub(crate) fn prune_cluster(object_type: &ObjectType, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.insert("apiVersion".to_owned(), object_type.api_version.into());
    fields.insert("kind".to_owned(), object_type.kind.into());
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
        annotations.remove(TRIGGER_TIME);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Removes the fields of `object` that are not replicated. Returns whether it had any.
pub(crate) fn prune(object_type: &ObjectType, object: &mut Value) -> bool {
    let mut is_changed = false;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", RESOURCE_VERSION] {
            is_changed |= metadata.remove(field).is_some();
        }
    }
    let status = match object_type.name {
        "pod" => node_input(object),
        "node" => None,
        _ => return is_changed,
    };
    if let Some(fields) = object.as_object_mut()
        && fields.get("status") != status.as_ref()
    {
        is_changed = true;
        match status {
            Some(status) => fields.insert("status".to_owned(), status),
            None => fields.remove("status"),
        };
    }
    is_changed
}

/// The canonical JSON of `value`. Published payloads stay as they are, so they may have the form of an earlier build.
pub fn canonical(value: &Value) -> Bytes {
    // A value has only text keys, and every type in it serializes.
    let payload = serde_json::to_vec(&Canonical(value)).unwrap_or_default();
    // Without the room that the writing left: objects are kept for long.
    payload.into_boxed_slice().into()
}

/// Sets the resource version of an object that has none; an empty one changes nothing.
pub fn set_resource_version(object: &mut Value, version: &str) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata.filter(|_| !version.is_empty()) {
        metadata.insert(RESOURCE_VERSION.to_owned(), version.into());
    }
}

/// A payload with its resource version, as a reader of the whole object expects it: the payload itself
/// where the version is empty, or the object has one.
pub fn with_resource_version(payload: &Bytes, version: &str) -> Bytes {
    if version.is_empty() {
        return payload.clone();
    }
    versioned_text(payload, version).unwrap_or_else(|| payload.clone())
}

/// The text with the version as the first field of its metadata. The payload is not parsed into a
/// value, because an edge does this with each object that it hands out.
fn versioned_text(payload: &Bytes, version: &str) -> Option<Bytes> {
    /// An object without anything but its metadata.
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }

    #[derive(Deserialize)]
    struct Metadata {
        #[serde(rename = "resourceVersion")]
        resource_version: Option<IgnoredAny>,
    }

    let Whole { metadata } = serde_json::from_slice(payload).ok()?;
    let known: Metadata = serde_json::from_str(metadata.get()).ok()?;
    let fields = metadata.get().strip_prefix('{')?;
    if known.resource_version.is_some() {
        return None;
    }
    // The metadata is a part of the payload.
    let at = fields.as_ptr().addr() - payload.as_ptr().addr();
    // Quotes and a comma; opaque versions are numbers in practice, which need no escapes.
    let mut text = Vec::with_capacity(payload.len() + RESOURCE_VERSION.len() + version.len() + 6);
    text.extend_from_slice(&payload[..at]);
    text.extend_from_slice(b"\"");
    text.extend_from_slice(RESOURCE_VERSION.as_bytes());
    text.extend_from_slice(b"\":");
    serde_json::to_writer(&mut text, version).ok()?;
    if !fields.trim_start().starts_with('}') {
        text.push(b',');
    }
    text.extend_from_slice(&payload[at..]);
    Some(text.into())
}

/// What of a pod's status is input of its node, if anything is: the conditions that its readiness gates
/// name, and its resource claims.
fn node_input(pod: &Value) -> Option<Value> {
    let claims = pod.pointer("/status/resourceClaimStatuses").cloned();
    let kept = Map::from_iter(
        [("conditions", gated_conditions(pod)), ("resourceClaimStatuses", claims)]
            .into_iter()
            .filter_map(|(field, value)| Some((field.to_owned(), value?))),
    );
    (!kept.is_empty()).then_some(Value::Object(kept))
}

/// The conditions of a pod that its readiness gates name, if there are any.
fn gated_conditions(pod: &Value) -> Option<Value> {
    let gates = pod.pointer("/spec/readinessGates")?.as_array()?;
    let is_gated = |condition: &&Value| {
        gates.iter().any(|gate| {
            gate.get("conditionType").is_some_and(|named| condition.get("type") == Some(named))
        })
    };
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    let kept: Vec<Value> = conditions.iter().filter(is_gated).cloned().collect();
    (!kept.is_empty()).then_some(Value::Array(kept))
}

/// Serializes with sorted keys, for both map types of `serde_json`: one is sorted, and one keeps the order of insertion.
struct Canonical<'a>(&'a Value);

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => to.collect_seq(items.iter().map(Canonical)),
            // The map type of this build is sorted: nothing is to be sorted again.
            Value::Object(fields) if fields.keys().is_sorted() => {
                to.collect_map(fields.iter().map(|(key, value)| (key, Canonical(value))))
            }
            Value::Object(fields) => {
                let sorted: BTreeMap<&str, &Value> =
                    fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
                to.collect_map(sorted.into_iter().map(|(key, value)| (key, Canonical(value))))
            }
            scalar => scalar.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pruned(kind: &str, mut object: Value) -> Value {
        prune(ObjectType::of("v1", kind).expect("known"), &mut object);
        object
    }

    #[test]
    fn what_an_edge_reports_is_no_part_of_a_payload() {
        let metadata = json!({"name": "a", "managedFields": [{"manager": "kubelet"}]});
        for kind in ["Pod", "Node"] {
            assert_eq!(
                pruned(kind, json!({"metadata": metadata, "status": {"phase": "Running"}})),
                json!({"metadata": {"name": "a"}})
            );
        }
        let claim = json!({"metadata": {"name": "a"}, "status": {"phase": "Bound"}});
        assert_eq!(pruned("PersistentVolumeClaim", claim.clone()), claim);
    }

    #[test]
    fn conditions_that_readiness_gates_name_stay() {
        let pod = json!({
            "spec": {"readinessGates": [{"conditionType": "lb-ready"}]},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "lb-ready", "status": "True"},
            ]},
        });
        assert_eq!(
            pruned("Pod", pod)["status"],
            json!({"conditions": [{"type": "lb-ready", "status": "True"}]})
        );
    }

    #[test]
    fn the_resource_claims_of_a_pod_stay() {
        let claims = json!([{"name": "gpu", "resourceClaimName": "web-gpu"}]);
        let pod = json!({"status": {"phase": "Running", "resourceClaimStatuses": claims}});
        assert_eq!(pruned("Pod", pod)["status"], json!({ "resourceClaimStatuses": claims }));
    }

    #[test]
    fn canonical_bytes_do_not_depend_on_order_or_space() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let a = canonical(&parse(r#"{"b": [1, {"d": null, "c": "é"}], "a": 1.0}"#));
        assert_eq!(a, canonical(&parse(r#"{"a":1.0,"b":[1,{"c":"é","d":null}]}"#)));
        assert_eq!(&a[..], r#"{"a":1.0,"b":[1,{"c":"é","d":null}]}"#.as_bytes());
    }

    #[test]
    fn the_resource_version_travels_beside_the_payload() {
        let of = |metadata: Value| json!({"metadata": metadata, "data": {"k": "v"}});
        let whole = of(json!({"name": "a", "resourceVersion": "7"}));
        let payload = canonical(&pruned("ConfigMap", whole.clone()));
        assert_eq!(payload, canonical(&of(json!({"name": "a"}))));
        let read = |payload: &Bytes, version| {
            let text = with_resource_version(payload, version);
            serde_json::from_slice::<Value>(&text).expect("JSON")
        };
        assert_eq!(read(&payload, "7"), whole);
        assert_eq!(with_resource_version(&payload, ""), payload);
        let empty = canonical(&of(json!({})));
        assert_eq!(read(&empty, "a\"b"), of(json!({"resourceVersion": "a\"b"})));
        // An earlier version published it inside.
        assert_eq!(with_resource_version(&canonical(&whole), "8"), canonical(&whole));
        for text in ["{", "[]", r#"{"metadata":7}"#, r#"{"data":{}}"#] {
            let damaged = Bytes::from_static(text.as_bytes());
            assert_eq!(with_resource_version(&damaged, "7"), damaged);
        }
    }
}
