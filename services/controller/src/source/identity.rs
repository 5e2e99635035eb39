//! Whether an object that is described again under the same name is the same object.
//!
//! An API server refuses to change most of a pod's spec: a changed pod there is a deleted one and a
//! new one, with a new UID. A folder or a socket only describes the pod differently, so a source
//! that assigns UIDs draws the line where the API server does.

use headwater_event::ResourceKey;
use headwater_object::payload::canonical;
use serde_json::Value;

/// The label by which a StatefulSet or DaemonSet says which template a pod is from.
const REVISION_LABEL: &str = "controller-revision-hash";

/// Fields of a pod's spec that Kubernetes lets change in place.
const MUTABLE_POD_FIELDS: [&str; 5] = [
    "activeDeadlineSeconds",
    "ephemeralContainers",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
];

/// How a source assigns UIDs to objects that have none.
///
/// Two controllers that read the same source assign different UIDs. A controller that becomes the
/// writer therefore continues with the UIDs that the last writer published, and translates.
pub trait UidAssignment: Send + Sync {
    /// Whether this source assigned the UID of `object`.
    fn is_assigned(&self, object: &Value) -> bool;

    /// Whether `new` is the object that `old` was, so that it keeps its UID.
    fn is_same_object(&self, key: &ResourceKey, old: &Value, new: &Value) -> bool {
        is_same_object(key, old, new)
    }
}

/// Whether `new` is the object that `old` was, changed at most where Kubernetes lets it change.
pub(crate) fn is_same_object(key: &ResourceKey, old: &Value, new: &Value) -> bool {
    if key.kind() != "pod" {
        return true;
    }
    let revision = |pod: &Value| pod["metadata"]["labels"][REVISION_LABEL].clone();
    let immutable = |pod: &Value| immutable_spec(pod["spec"].clone());
    revision(old) == revision(new) && immutable(old) == immutable(new)
}

/// The digest of the fields that no change of the object at `key` may touch, of which `spec` is taken as given. Two
/// objects of one key are the same object, as by [`is_same_object`], if their digests are equal.
pub(crate) fn immutable_digest(key: &ResourceKey, object: &Value, spec: Value) -> blake3::Hash {
    if key.kind() != "pod" {
        return blake3::hash(&[]);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&canonical(&object["metadata"]["labels"][REVISION_LABEL]));
    // No JSON has a zero byte.
    hasher.update(&[0]);
    hasher.update(&canonical(&immutable_spec(spec)));
    hasher.finalize()
}

/// A pod's `spec` without the fields that may change.
fn immutable_spec(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        for field in MUTABLE_POD_FIELDS {
            fields.remove(field);
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "nodeName": "a",
                "containers": [{"name": "c", "image": "i:1", "command": ["run"]}],
                "tolerations": [],
            },
        })
    }

    fn stays_with(change: impl FnOnce(&mut Value)) -> bool {
        let mut new = pod();
        change(&mut new);
        is_same_object(&"d/pod/p".parse().expect("ok"), &pod(), &new)
    }

    #[test]
    fn what_kubernetes_lets_change_leaves_the_pod_the_same() {
        assert!(stays_with(|_| ()));
        assert!(stays_with(|pod| pod["metadata"]["labels"]["app"] = "shop".into()));
        assert!(stays_with(|pod| pod["spec"]["containers"][0]["image"] = "i:2".into()));
        assert!(stays_with(|pod| pod["spec"]["tolerations"] = json!([{"operator": "Exists"}])));
    }

    #[test]
    fn what_it_refuses_makes_another_pod() {
        assert!(!stays_with(|pod| pod["spec"]["containers"][0]["command"] = json!(["walk"])));
        assert!(!stays_with(|pod| pod["spec"]["nodeName"] = "b".into()));
        assert!(!stays_with(|pod| pod["spec"]["hostNetwork"] = true.into()));
        assert!(!stays_with(|pod| pod["spec"]["containers"] = json!([])));
        assert!(!stays_with(|pod| pod["metadata"]["labels"][REVISION_LABEL] = "x".into()));
    }

    #[test]
    fn other_objects_are_the_same_whatever_they_hold() {
        let key = "d/configmap/c".parse().expect("ok");
        assert!(is_same_object(&key, &json!({"data": {"a": "1"}}), &json!({"data": {}})));
    }
}
