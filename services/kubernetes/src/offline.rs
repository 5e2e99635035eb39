//! What becomes of the pods of a node that is away: the cluster evicts them, or they stay.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The annotation of a Node or a Pod that says so, before the setting; that of the Pod counts first.
pub(crate) const OFFLINE_ANNOTATION: &str = "headwater/offline";

/// The taints by which the cluster evicts the pods of a node that is away.
const AWAY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What becomes of the pods of a node that is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfflinePolicy {
    /// They stay: they tolerate the absence without a limit, which is five minutes by default.
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

/// A change of a pod's tolerations by which it stays while its node is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TolerationChange {
    /// The toleration at this place loses its limit.
    Unlimit(u16),
    /// The pod has no list of tolerations, and gets an empty one.
    CreateList,
    /// A toleration of this taint without a limit comes first.
    Insert(&'static str),
}

impl TolerationChange {
    /// The operation of a JSON patch.
    pub(crate) fn operation(self) -> Value {
        match self {
            Self::Unlimit(place) => {
                json!({"op": "remove", "path": format!("/spec/tolerations/{place}/tolerationSeconds")})
            }
            Self::CreateList => json!({"op": "add", "path": "/spec/tolerations", "value": []}),
            Self::Insert(taint) => json!({
                "op": "add", "path": "/spec/tolerations/0",
                "value": {"key": taint, "operator": "Exists", "effect": "NoExecute"},
            }),
        }
    }
}

/// The changes by which a pod stays while its node is away, in the order of their application.
///
/// Of the tolerations that match a taint, the cluster takes the first, and evicts the pod after its limit. The limit of
/// a toleration without a key stays as it is, because it is also that of other taints.
pub(crate) fn toleration_changes(pod: &Value) -> Box<[TolerationChange]> {
    let list = pod["spec"]["tolerations"].as_array();
    let tolerations = list.map(Vec::as_slice).unwrap_or_default();
    // Places count before any insertion.
    let (mut unlimited, mut inserted) = (Vec::new(), Vec::new());
    for taint in AWAY_TAINTS {
        let mut places = (0_u16..).zip(tolerations);
        match places.find(|(_, toleration)| tolerates(toleration, taint)) {
            Some((_, toleration)) if toleration["tolerationSeconds"].is_null() => {}
            Some((place, toleration)) if toleration["key"] == taint => {
                unlimited.push(TolerationChange::Unlimit(place));
            }
            _ => inserted.push(TolerationChange::Insert(taint)),
        }
    }
    let needs_list = list.is_none() && !inserted.is_empty();
    let created = needs_list.then_some(TolerationChange::CreateList);
    unlimited.into_iter().chain(created).chain(inserted).collect()
}

/// Whether a toleration matches a taint of an absence, which has no value.
fn tolerates(toleration: &Value, taint: &str) -> bool {
    let field = |name: &str| toleration[name].as_str().unwrap_or_default();
    matches!(field("effect"), "" | "NoExecute")
        && (field("key").is_empty() || field("key") == taint)
        && match field("operator") {
            "Exists" => true,
            "" | "Equal" => field("value").is_empty(),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_READY: &str = AWAY_TAINTS[0];
    const UNREACHABLE: &str = AWAY_TAINTS[1];

    fn toleration(key: &str, seconds: Option<i64>) -> Value {
        let mut toleration = json!({"operator": "Exists", "effect": "NoExecute"});
        if !key.is_empty() {
            toleration["key"] = key.into();
        }
        if let Some(seconds) = seconds {
            toleration["tolerationSeconds"] = seconds.into();
        }
        toleration
    }

    /// A pod after the changes.
    fn changed(mut pod: Value, changes: &[TolerationChange]) -> Value {
        let tolerations = &mut pod["spec"]["tolerations"];
        for change in changes {
            match *change {
                TolerationChange::Unlimit(place) => {
                    tolerations[usize::from(place)]["tolerationSeconds"] = Value::Null;
                }
                TolerationChange::CreateList => *tolerations = json!([]),
                TolerationChange::Insert(taint) => {
                    tolerations.as_array_mut().expect("a list").insert(0, toleration(taint, None));
                }
            }
        }
        pod
    }

    #[test]
    fn the_first_toleration_of_each_absence_has_no_limit_after_the_changes() {
        use TolerationChange::{CreateList, Insert, Unlimit};
        let with_value = json!({"key": NOT_READY, "value": "other", "effect": "NoExecute"});
        let equal = json!({"key": NOT_READY, "tolerationSeconds": 5});
        let no_schedule = json!({"operator": "Exists", "effect": "NoSchedule"});
        let unlimited_key = json!({"operator": "Exists"});
        let cases: [(&str, Value, &[TolerationChange]); 11] = [
            ("no list", Value::Null, &[CreateList, Insert(NOT_READY), Insert(UNREACHABLE)]),
            ("an empty list", json!([]), &[Insert(NOT_READY), Insert(UNREACHABLE)]),
            (
                "the defaults of the cluster",
                json!([toleration(NOT_READY, Some(300)), toleration(UNREACHABLE, Some(300))]),
                &[Unlimit(0), Unlimit(1)],
            ),
            (
                "limits of its own",
                json!([
                    toleration("maintenance", Some(60)),
                    toleration(UNREACHABLE, Some(0)),
                    toleration(NOT_READY, None),
                ]),
                &[Unlimit(1)],
            ),
            (
                "no key, with a limit",
                json!([toleration("", Some(60))]),
                &[Insert(NOT_READY), Insert(UNREACHABLE)],
            ),
            ("no key, no limit", json!([unlimited_key]), &[]),
            (
                "no key, with a limit, before its own",
                json!([
                    toleration("", Some(60)),
                    toleration(NOT_READY, Some(300)),
                    toleration(UNREACHABLE, None),
                ]),
                &[Insert(NOT_READY), Insert(UNREACHABLE)],
            ),
            (
                "no key, with a limit, between them",
                json!([
                    toleration(NOT_READY, Some(300)),
                    toleration("", Some(60)),
                    toleration(UNREACHABLE, Some(300)),
                ]),
                &[Unlimit(0), Insert(UNREACHABLE)],
            ),
            (
                "a later one with a limit does not count",
                json!([toleration("", None), toleration(NOT_READY, Some(0))]),
                &[],
            ),
            (
                "another effect, another value",
                json!([no_schedule, with_value, toleration(UNREACHABLE, None)]),
                &[Insert(NOT_READY)],
            ),
            ("an equal value", json!([equal, toleration(UNREACHABLE, None)]), &[Unlimit(0)]),
        ];
        for (what, tolerations, expected) in cases {
            let pod = json!({"spec": {"tolerations": tolerations}});
            let changes = toleration_changes(&pod);
            assert_eq!(*changes, *expected, "{what}");
            assert!(toleration_changes(&changed(pod, &changes)).is_empty(), "{what}: again");
        }
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
