//! What of a pod's status its node owns, and the patch that brings it into the API.
//!
//! A node owns the fields of [`FIELDS`] and the conditions of [`CONDITIONS`] and of Headwater. Others own
//! the rest: readiness gates, the disruption controller, the scheduler. A patch leaves that alone.

use serde_json::{Map, Value, json};

use crate::digest::{Digest, StatusDigest};
use crate::whole_seconds;

/// The fields that a node owns. Not `qosClass`, which the API server sets and never changes.
const FIELDS: [&str; 12] = [
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "observedGeneration",
    "startTime",
];

/// The fields that a patch removes where the node does not report them any more.
const REMOVABLE: [&str; 6] = [
    "reason",
    "message",
    "podIP",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// The lists that the API server would merge by address: a patch replaces them.
const ADDRESSES: [&str; 2] = ["hostIPs", "podIPs"];

/// The conditions that a kubelet owns.
const CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// The conditions of a node that are absent where they do not hold: two of a kubelet's, and Headwater's own.
const OPTIONAL_CONDITIONS: [&str; 5] = [
    "PodResizePending",
    "PodResizeInProgress",
    "headwater/RestartNeeded",
    "headwater/SpecHonoured",
    "headwater/ProbeFailing",
];

/// A condition that several components set, and the reason of a node's own (KEP-3329).
const DISRUPTION: &str = "DisruptionTarget";
const OF_NODE: &str = "TerminationByKubelet";

/// The fields of a condition. Not the time of its last probe, which changes with nothing else.
const CONDITION_FIELDS: [&str; 6] =
    ["type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"];

/// The largest status that is written, in bytes of JSON: a pod with some hundred containers, each with
/// the longest message, has less. etcd takes 1.5 MiB for the whole object.
pub(crate) const STATUS_BYTES_MAX: usize = 256 << 10;

/// The phase of a pod, as far as it decides what may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It may run.
    #[default]
    Open,
    /// All its containers ended well, for good.
    Succeeded,
    /// It failed for good.
    Failed,
}

/// What a node owns of a pod's status, as far as it decides about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnedStatus {
    pub(crate) digest: Digest,
    pub(crate) phase: Phase,
    /// Not all its containers have started.
    pub(crate) is_pending: bool,
    /// The generation of the pod that it is the status of.
    pub(crate) generation: Option<i64>,
}

/// A pod's status as its node reports it: a JSON object.
#[derive(Debug, PartialEq)]
pub(crate) struct ReportedStatus(Value);

/// Why a status is not written, whatever the API server would say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitStatus {
    /// It is too large.
    #[error("its node reports a status of {bytes} bytes; at most {STATUS_BYTES_MAX} are written")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is no JSON object.
    #[error("its node reports a status that is no JSON object")]
    NoObject,
}

impl Phase {
    fn of(status: &Value) -> Self {
        match status["phase"].as_str() {
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            _ => Self::Open,
        }
    }

    /// Whether `next` may follow. A terminal phase is never taken back.
    pub(crate) fn may_become(self, next: Self) -> bool {
        self == Self::Open || self == next
    }
}

impl OwnedStatus {
    /// The owned part of a status.
    pub(crate) fn of(status: &Value) -> Self {
        let mut digest = StatusDigest::new();
        for field in FIELDS {
            digest.field(field, &status[field]);
        }
        for condition in owned_conditions(status) {
            digest.item();
            for field in CONDITION_FIELDS {
                digest.field(field, &condition[field]);
            }
        }
        Self {
            digest: digest.finish(),
            phase: Phase::of(status),
            is_pending: status["phase"] == "Pending",
            generation: status["observedGeneration"].as_i64(),
        }
    }
}

impl ReportedStatus {
    /// The status in a report.
    pub(crate) fn parse(status: &[u8]) -> Result<Self, UnfitStatus> {
        let bytes = status.len();
        if bytes > STATUS_BYTES_MAX {
            return Err(UnfitStatus::TooLarge { bytes });
        }
        match serde_json::from_slice(status) {
            Ok(status @ Value::Object(_)) => Ok(Self(status)),
            _ => Err(UnfitStatus::NoObject),
        }
    }

    /// What the node owns of it.
    pub(crate) fn owned(&self) -> OwnedStatus {
        OwnedStatus::of(&self.0)
    }

    /// The strategic merge patch that makes the pod of this UID show it.
    pub(crate) fn into_patch(self, uid: &str) -> Value {
        let mut patch = json!({"metadata": {"uid": uid}});
        // `json!` would copy them.
        patch["status"] = Value::Object(self.into_fields());
        patch
    }

    /// The fields of the patch.
    fn into_fields(self) -> Map<String, Value> {
        let Self(mut reported) = self;
        let mut conditions: Vec<Value> = owned_conditions(&reported).map(written_fields).collect();
        let is_reported = |kind: &str| conditions.iter().any(|one| one["type"] == *kind);
        let gone: Vec<_> =
            OPTIONAL_CONDITIONS.into_iter().filter(|kind| !is_reported(kind)).collect();
        conditions.extend(gone.into_iter().map(|kind| json!({"type": kind, "$patch": "delete"})));
        let mut status = Map::new();
        for field in FIELDS {
            let value = reported.get_mut(field).map(Value::take);
            if let Some(value) = value.filter(|value| !value.is_null()) {
                status.insert(field.to_owned(), value);
            }
        }
        status.insert("conditions".to_owned(), Value::Array(conditions));
        for field in REMOVABLE {
            status.entry(field).or_insert(Value::Null);
        }
        for field in ADDRESSES {
            let addresses = status.entry(field).or_insert_with(|| json!([]));
            if let Some(addresses) = addresses.as_array_mut() {
                addresses.push(json!({"$patch": "replace"}));
            }
        }
        status.iter_mut().for_each(|(field, value)| whole_seconds::cut_field(field, value));
        status
    }
}

/// The conditions that a node owns, by type.
fn owned_conditions(status: &Value) -> impl Iterator<Item = &Value> {
    let all = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_type = move |kind: &'static str| all.iter().find(move |one| one["type"] == *kind);
    let owned = CONDITIONS.into_iter().chain(OPTIONAL_CONDITIONS).filter_map(of_type);
    let disruption = of_type(DISRUPTION).filter(|condition| condition["reason"] == OF_NODE);
    owned.chain(disruption)
}

/// The fields of a condition that a patch writes: a reason and a message that are not there any more are removed.
fn written_fields(condition: &Value) -> Value {
    let fields = CONDITION_FIELDS.into_iter().filter_map(|field| {
        let value = condition.get(field).filter(|value| !value.is_null()).cloned();
        let removed = ["reason", "message"].contains(&field).then_some(Value::Null);
        Some((field.to_owned(), value.or(removed)?))
    });
    Value::Object(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    fn patch(reported: &Value) -> Value {
        ReportedStatus(reported.clone()).into_patch("u")
    }

    #[test]
    fn what_others_own_is_neither_compared_nor_patched() {
        let reported = json!({
            "phase": "Running", "qosClass": "Burstable", "nominatedNodeName": "x",
            "startTime": "2026-01-01T00:00:00.5Z",
            "conditions": [condition("Ready", "True"), condition("example.com/gate", "True")],
        });
        let mut shown = reported.clone();
        shown["qosClass"] = "Guaranteed".into();
        shown["startTime"] = "2026-01-01T00:00:00Z".into();
        shown["conditions"] =
            json!([condition("DisruptionTarget", "True"), condition("Ready", "True")]);
        assert_eq!(OwnedStatus::of(&reported), OwnedStatus::of(&shown));
        let patch = patch(&reported);
        assert_eq!(patch["metadata"], json!({"uid": "u"}));
        let kinds = patch["status"]["conditions"].as_array().expect("a list").iter();
        let kinds: Vec<_> = kinds.map(|condition| condition["type"].clone()).collect();
        let others = ["example.com/gate", "DisruptionTarget"];
        assert!(kinds.iter().all(|kind| others.iter().all(|other| kind != other)), "{kinds:?}");
        for field in ["qosClass", "nominatedNodeName"] {
            assert!(patch["status"].get(field).is_none(), "{field}");
        }
    }

    #[test]
    fn a_disruption_by_the_node_is_its_own_and_one_by_another_component_is_not() {
        let of = |reason: &str| {
            let mut disruption = condition("DisruptionTarget", "True");
            disruption["reason"] = reason.into();
            json!({"phase": "Failed", "conditions": [disruption]})
        };
        let none = json!({"phase": "Failed"});
        let digest = |status: &Value| OwnedStatus::of(status).digest;
        assert_eq!(digest(&of("DeletionByTaintManager")), digest(&none));
        let own = of("TerminationByKubelet");
        assert_ne!(digest(&own), digest(&none));
        let patched = patch(&own).to_string();
        assert!(patched.contains("DisruptionTarget"), "{patched}");
        // It stays for good, as a terminal phase does.
        assert!(!patch(&none).to_string().contains("DisruptionTarget"));
    }

    #[test]
    fn a_patch_replaces_addresses_and_removes_what_is_not_reported_any_more() {
        let patch = patch(&json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}));
        let patch = &patch["status"];
        assert_eq!(patch["podIPs"], json!([{"ip": "10.0.0.1"}, {"$patch": "replace"}]));
        assert_eq!(patch["hostIPs"], json!([{"$patch": "replace"}]));
        assert_eq!(patch["reason"], Value::Null);
        assert!(patch.as_object().expect("fields").contains_key("containerStatuses"));
        let gone = json!({"type": "headwater/ProbeFailing", "$patch": "delete"});
        assert!(patch["conditions"].as_array().expect("a list").contains(&gone));
    }

    #[test]
    fn every_owned_change_changes_the_digest() {
        let base = json!({
            "phase": "Running", "podIP": "10.0.0.1",
            "conditions": [condition("Ready", "True")],
            "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0}],
        });
        let first = OwnedStatus::of(&base).digest;
        for (pointer, value) in [
            ("/phase", json!("Failed")),
            ("/podIP", json!("10.0.0.2")),
            ("/conditions/0/status", json!("False")),
            ("/conditions/0/lastTransitionTime", json!("2026-01-01T00:00:01Z")),
            ("/containerStatuses/0/restartCount", json!(1)),
        ] {
            let mut changed = base.clone();
            *changed.pointer_mut(pointer).expect("a field") = value;
            assert_ne!(OwnedStatus::of(&changed).digest, first, "{pointer}");
        }
    }

    #[test]
    fn a_status_that_is_too_large_or_no_object_is_refused() {
        let large = format!(r#"{{"message":"{}"}}"#, "x".repeat(STATUS_BYTES_MAX));
        let bytes = large.len();
        assert_eq!(ReportedStatus::parse(large.as_bytes()), Err(UnfitStatus::TooLarge { bytes }));
        assert_eq!(ReportedStatus::parse(b"[]"), Err(UnfitStatus::NoObject));
        assert!(ReportedStatus::parse(b"{}").is_ok());
    }

    #[test]
    fn a_terminal_phase_is_not_taken_back() {
        use Phase::{Failed, Open, Succeeded};
        assert!(Open.may_become(Succeeded) && Failed.may_become(Failed));
        assert!(!Succeeded.may_become(Open) && !Succeeded.may_become(Failed));
    }

    #[test]
    fn no_type_of_a_field_ends_the_sink() {
        let wrong = [json!(7), json!("x"), json!([]), json!({}), json!([7]), json!({"a": [null]})];
        for field in FIELDS.into_iter().chain(["conditions"]) {
            for value in &wrong {
                let status = json!({ field: value });
                OwnedStatus::of(&status);
                patch(&status);
            }
        }
    }
}
