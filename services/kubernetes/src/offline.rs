//! What becomes of the pods of a node that is away: the cluster evicts them, or they stay.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The annotation of a Node or a Pod that says so, before the setting; that of the Pod counts first.
pub(crate) const OFFLINE_ANNOTATION: &str = "headwater/offline";

/// The taints by which the cluster evicts the pods of a node that is away.
const AWAY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What becomes of the pods of a node that is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfflinePolicy {
    /// They stay: their tolerations of the absence lose their limit, which is five minutes by default.
    #[default]
    Keep,
    /// The cluster evicts them after their tolerations, and replaces them.
    Evict,
}

impl OfflinePolicy {
    /// The policy in the annotations of an object.
    pub(crate) fn of_object(object: &Value) -> Option<Self> {
        match object["metadata"]["annotations"][OFFLINE_ANNOTATION].as_str()? {
            "keep" => Some(Self::Keep),
            "evict" => Some(Self::Evict),
            _ => None,
        }
    }
}

/// The places of a pod's tolerations of an absence that have a limit.
pub(crate) fn limited_tolerations(pod: &Value) -> Box<[u16]> {
    let tolerations = pod["spec"]["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let places = (0_u16..).zip(tolerations).filter(|(_, toleration)| {
        toleration["key"].as_str().is_some_and(|key| AWAY_TAINTS.contains(&key))
            && toleration["effect"] == "NoExecute"
            && !toleration["tolerationSeconds"].is_null()
    });
    places.map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_limits_of_an_absence_are_found() {
        let toleration = |key: &str, seconds: Value| {
            json!({"key": key, "effect": "NoExecute", "operator": "Exists",
                "tolerationSeconds": seconds})
        };
        let pod = json!({"spec": {"tolerations": [
            toleration("maintenance", json!(60)),
            toleration("node.kubernetes.io/not-ready", json!(300)),
            toleration("node.kubernetes.io/unreachable", Value::Null),
            toleration("node.kubernetes.io/unreachable", json!(0)),
        ]}});
        assert_eq!(*limited_tolerations(&pod), [1, 3]);
        assert!(limited_tolerations(&json!({})).is_empty());
    }

    #[test]
    fn an_annotation_names_the_policy() {
        let with =
            |policy: &str| json!({"metadata": {"annotations": {OFFLINE_ANNOTATION: policy}}});
        assert_eq!(OfflinePolicy::of_object(&with("evict")), Some(OfflinePolicy::Evict));
        assert_eq!(OfflinePolicy::of_object(&with("keep")), Some(OfflinePolicy::Keep));
        assert_eq!(OfflinePolicy::of_object(&with("perhaps")), None);
        assert_eq!(OfflinePolicy::of_object(&json!({})), None);
    }
}
