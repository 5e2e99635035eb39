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

/// Lists of containers in a pod's spec.
const CONTAINER_LISTS: [&str; 2] = ["containers", "initContainers"];

/// The field of a container that Kubernetes lets change in place.
const IMAGE: &str = "image";

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
    key.kind() != "pod" || immutable_part(old.clone()) == immutable_part(new.clone())
}

/// The digest of the fields that no change of the object at `key` may touch. Two objects of one key are
/// the same object, as by [`is_same_object`], if their digests are equal.
pub(crate) fn immutable_digest(key: &ResourceKey, object: Value) -> blake3::Hash {
    let immutable = if key.kind() == "pod" { immutable_part(object) } else { Value::Null };
    blake3::hash(&canonical(&immutable))
}

/// The fields of a pod that may not change.
fn immutable_part(mut pod: Value) -> Value {
    let labels = pod.pointer_mut("/metadata/labels");
    let revision = labels.and_then(|labels| labels.get_mut(REVISION_LABEL)).map(Value::take);
    let mut spec = pod.get_mut("spec").map(Value::take).unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        for field in MUTABLE_POD_FIELDS {
            fields.remove(field);
        }
    }
    for list in CONTAINER_LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove(IMAGE);
            }
        }
    }
    Value::Array(vec![revision.unwrap_or_default(), spec])
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
                "containers": [
                    {"name": "c", "image": "i:1", "command": ["run"]},
                    {"name": "d", "image": "i:1"},
                ],
                "initContainers": [{"name": "b", "image": "i:1"}],
                "tolerations": [],
            },
        })
    }

    fn stays_with(change: impl FnOnce(&mut Value)) -> bool {
        let mut new = pod();
        change(&mut new);
        let key = "d/pod/p".parse().expect("ok");
        let is_same = is_same_object(&key, &pod(), &new);
        let digest = |pod: &Value| immutable_digest(&key, pod.clone());
        assert_eq!(digest(&pod()) == digest(&new), is_same, "{new}");
        is_same
    }

    #[test]
    fn what_kubernetes_lets_change_leaves_the_pod_the_same() {
        assert!(stays_with(|_| ()));
        assert!(stays_with(|pod| pod["metadata"]["labels"]["app"] = "shop".into()));
        assert!(stays_with(|pod| pod["spec"]["containers"][1]["image"] = "i:2".into()));
        assert!(stays_with(|pod| pod["spec"]["initContainers"][0]["image"] = "i:2".into()));
        assert!(stays_with(|pod| pod["spec"]["tolerations"] = json!([{"operator": "Exists"}])));
    }

    #[test]
    fn what_it_refuses_makes_another_pod() {
        assert!(!stays_with(|pod| pod["spec"]["containers"][0]["command"] = json!(["walk"])));
        assert!(!stays_with(|pod| pod["spec"]["nodeName"] = "b".into()));
        assert!(!stays_with(|pod| pod["spec"]["hostNetwork"] = true.into()));
        assert!(!stays_with(|pod| pod["spec"]["initContainers"][0]["name"] = "x".into()));
        assert!(!stays_with(|pod| pod["spec"]["containers"]
            .as_array_mut()
            .expect("a list")
            .swap(0, 1)));
        assert!(!stays_with(|pod| pod["spec"]["containers"] = json!([])));
        assert!(!stays_with(|pod| pod["spec"]["containers"][0] = json!({"name": "c"})));
        assert!(!stays_with(|pod| pod["spec"]["containers"] = json!("none")));
        assert!(!stays_with(|pod| pod["spec"] = json!(null)));
        // No text of one field is that of several.
        assert!(!stays_with(|pod| {
            let spec = pod["spec"].as_object_mut().expect("a map");
            let node = spec.remove("nodeName").expect("placed");
            spec.insert(format!("initContainers\0{}\0nodeName", spec["initContainers"]), node);
            spec.remove("initContainers");
        }));
        assert!(!stays_with(|pod| pod["metadata"]["labels"][REVISION_LABEL] = "x".into()));
    }

    #[test]
    fn other_objects_are_the_same_whatever_they_hold() {
        let key = "d/configmap/c".parse().expect("ok");
        assert!(is_same_object(&key, &json!({"data": {"a": "1"}}), &json!({"data": {}})));
    }
}
