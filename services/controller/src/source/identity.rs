//! Whether an object that is described again under the same name is the same object.
//!
//! An API server refuses to change most of a pod's spec: a changed pod there is a deleted one and a
//! new one, with a new UID. A folder or a socket only describes the pod differently, so a source
//! that assigns UIDs draws the line where the API server does.

use std::collections::BTreeMap;

use headwater_event::ResourceKey;
use serde_json::Value;
use serde_json::value::RawValue;

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
    if key.kind() != "pod" {
        return true;
    }
    let revision = |pod: &Value| pod["metadata"]["labels"][REVISION_LABEL].clone();
    let immutable = |pod: &Value| immutable_spec(pod["spec"].clone());
    revision(old) == revision(new) && immutable(old) == immutable(new)
}

/// The digest of the fields that no change of the object at `key` may touch. Two checked objects of one key are the same
/// object, as by [`is_same_object`], if the digests of their payloads are equal.
///
/// A payload is canonical, so equal fields are equal bytes. The payload is parsed down to the fields that may change.
pub(crate) fn immutable_digest(key: &ResourceKey, payload: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    if key.kind() == "pod" {
        hash_pod(&mut hasher, payload);
    }
    hasher.finalize()
}

/// Hashes the fields of a pod that may not change. A zero byte ends each part: no JSON text has one, and no name of a
/// field of Kubernetes.
fn hash_pod(hasher: &mut blake3::Hasher, payload: &[u8]) {
    let pod = serde_json::from_slice::<Fields<'_>>(payload).unwrap_or_default();
    let labels = pod.get("metadata").and_then(|metadata| fields(metadata)?.remove("labels"));
    let revision = labels.and_then(|labels| fields(labels)?.remove(REVISION_LABEL));
    hasher.update(revision.map_or("", RawValue::get).as_bytes()).update(&[0]);
    let spec = pod.get("spec").and_then(|spec| fields(spec)).unwrap_or_default();
    for (name, text) in spec {
        let name = name.as_str();
        if MUTABLE_POD_FIELDS.contains(&name) {
            continue;
        }
        hasher.update(name.as_bytes()).update(&[0]);
        if CONTAINER_LISTS.contains(&name) {
            hash_containers(hasher, text);
        } else {
            hasher.update(text.get().as_bytes());
        }
        hasher.update(&[0]);
    }
}

/// The fields of a JSON map, each as its text.
type Fields<'t> = BTreeMap<String, &'t RawValue>;

fn fields(text: &RawValue) -> Option<Fields<'_>> {
    serde_json::from_str(text.get()).ok()
}

/// Hashes a list of containers without their images. Other JSON counts as it is.
fn hash_containers(hasher: &mut blake3::Hasher, list: &RawValue) {
    let Ok(containers) = serde_json::from_str::<Vec<Fields<'_>>>(list.get()) else {
        hasher.update(list.get().as_bytes());
        return;
    };
    for container in containers {
        for (name, text) in container.iter().filter(|(name, _)| *name != IMAGE) {
            hasher.update(name.as_bytes()).update(&[0]).update(text.get().as_bytes()).update(&[0]);
        }
        hasher.update(&[0]);
    }
}

/// A pod's `spec` without the fields that may change.
fn immutable_spec(mut spec: Value) -> Value {
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
    spec
}

#[cfg(test)]
mod tests {
    use headwater_object::payload::canonical;
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
        let digest = |pod: &Value| immutable_digest(&key, &canonical(pod));
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
        assert!(!stays_with(|pod| pod["metadata"]["labels"][REVISION_LABEL] = "x".into()));
    }

    #[test]
    fn other_objects_are_the_same_whatever_they_hold() {
        let key = "d/configmap/c".parse().expect("ok");
        assert!(is_same_object(&key, &json!({"data": {"a": "1"}}), &json!({"data": {}})));
    }
}
