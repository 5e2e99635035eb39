//! The fields of an object that the Kubernetes API does not have.
//!
//! The types of the API ignore unknown fields, so a mistyped field would mean nothing, silently. Each
//! type passes the names of its fields to the deserializer that makes a value of it; `reader` compares
//! them with the fields of the object.

mod reader;

use std::fmt;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::node::v1 as node;
use k8s_openapi::api::storage::v1 as storage;
use serde_json::Value;

use crate::nearest::nearest;

/// The most findings of one object: more than an author repairs at once, and a bound.
pub const FINDINGS_MAX: usize = 20;

/// The place of a field in an object. The text form is `spec.containers[0].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(pub Vec<PathStep>);

/// One step into an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The value of a field.
    Field(String),
    /// An item of a list, from 0.
    Item(usize),
}

/// A field that a cluster would not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFinding {
    /// The field.
    pub path: FieldPath,
    /// What is wrong with it.
    pub fault: FieldFault,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldFault {
    /// The type at this place has no such field.
    Unknown {
        /// The field of the type that is most likely meant.
        nearest: Option<&'static str>,
    },
    /// The value is not of the field's type. Fields after it were not checked.
    Misfit {
        /// The reason, in words.
        reason: String,
    },
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Field(name) if at == 0 => f.write_str(name)?,
                PathStep::Field(name) => write!(f, ".{name}")?,
                PathStep::Item(item) => write!(f, "[{item}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for FieldFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            FieldFault::Unknown { nearest: Some(nearest) } => {
                write!(f, "unknown field {}; did you mean {nearest}?", self.path)
            }
            FieldFault::Unknown { nearest: None } => write!(
                f,
                "unknown field {}; remove it, or correct its spelling or place",
                self.path
            ),
            FieldFault::Misfit { reason } => write!(f, "{}: {reason}", self.path),
        }
    }
}

/// Returns the fields of `object` that its type does not have, at most [`FINDINGS_MAX`], and the first
/// one of a wrong type. Objects of kinds and versions that Headwater does not read have none.
pub fn check_fields(object: &Value) -> Vec<FieldFinding> {
    let (Some(api_version), Some(kind)) = (object["apiVersion"].as_str(), object["kind"].as_str())
    else {
        return Vec::new();
    };
    match (api_version, kind) {
        ("v1", "Pod") => reader::read::<core::Pod>(object),
        ("v1", "Node") => reader::read::<core::Node>(object),
        ("v1", "ConfigMap") => reader::read::<core::ConfigMap>(object),
        ("v1", "Secret") => reader::read::<core::Secret>(object),
        ("v1", "Service") => reader::read::<core::Service>(object),
        ("v1", "Endpoints") => reader::read::<core::Endpoints>(object),
        ("v1", "PersistentVolume") => reader::read::<core::PersistentVolume>(object),
        ("v1", "PersistentVolumeClaim") => reader::read::<core::PersistentVolumeClaim>(object),
        ("v1", "ServiceAccount") => reader::read::<core::ServiceAccount>(object),
        ("v1", "ReplicationController") => reader::read::<core::ReplicationController>(object),
        ("discovery.k8s.io/v1", "EndpointSlice") => {
            reader::read::<discovery::EndpointSlice>(object)
        }
        ("storage.k8s.io/v1", "VolumeAttachment") => {
            reader::read::<storage::VolumeAttachment>(object)
        }
        ("storage.k8s.io/v1", "CSIDriver") => reader::read::<storage::CSIDriver>(object),
        ("node.k8s.io/v1", "RuntimeClass") => reader::read::<node::RuntimeClass>(object),
        ("apps/v1", "Deployment") => reader::read::<apps::Deployment>(object),
        ("apps/v1", "ReplicaSet") => reader::read::<apps::ReplicaSet>(object),
        ("apps/v1", "StatefulSet") => reader::read::<apps::StatefulSet>(object),
        ("apps/v1", "DaemonSet") => reader::read::<apps::DaemonSet>(object),
        ("batch/v1", "Job") => reader::read::<batch::Job>(object),
        _ => Vec::new(),
    }
}

/// A finding about an unknown field, with the nearest of the known ones.
fn unknown(path: FieldPath, name: &str, known: &'static [&'static str]) -> FieldFinding {
    let nearest = nearest(name, known.iter().copied());
    FieldFinding { path, fault: FieldFault::Unknown { nearest } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(object: &Value) -> Vec<String> {
        check_fields(object).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_unknown_field_at_any_depth_is_named_with_the_nearest_one() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "extra": 1,
            "spec": {
                "replcas": 3,
                "template": {"spec": {"containers": [
                    {"name": "a", "image": "i"},
                    {"name": "b", "imagePullpolicy": "Always", "env": [{"naem": "X"}],
                     "resources": {"limits": {"cpu": "1"}, "limit": {}}},
                ]}},
            },
        });
        let mut lines = found(&deployment);
        lines.sort();
        assert_eq!(
            lines,
            [
                "unknown field extra; remove it, or correct its spelling or place",
                "unknown field spec.replcas; did you mean replicas?",
                "unknown field spec.template.spec.containers[1].env[0].naem; did you mean name?",
                "unknown field spec.template.spec.containers[1].imagePullpolicy; did you mean \
                 imagePullPolicy?",
                "unknown field spec.template.spec.containers[1].resources.limit; did you mean limits?",
            ]
        );
    }

    #[test]
    fn free_maps_and_values_of_several_types_have_no_unknown_field() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "labels": {"any": "thing"}, "annotations": null,
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:any": {}}}}],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"containers": [{
                "name": "c", "env": null, "resources": {"limits": {"cpu": 1, "any/thing": "2Gi"}},
                "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 3},
                "readinessProbe": {"tcpSocket": {"port": 80}},
            }]},
        });
        assert_eq!(found(&pod), [""; 0]);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "data": {"any": "eA=="}, "stringData": {"other": "x"},
        });
        assert_eq!(found(&secret), [""; 0]);
    }

    #[test]
    fn a_value_of_a_wrong_type_is_named_with_its_place() {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"backoffLimit": "many", "template": {}},
        });
        let [line] = &found(&job)[..] else { panic!("one finding: {:?}", found(&job)) };
        assert!(line.starts_with("spec.backoffLimit: invalid type: string \"many\""), "{line}");
    }

    #[test]
    fn the_value_of_a_secret_is_in_no_finding() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "data": {"any": "not base64 at all!"},
        });
        let lines = found(&secret);
        assert_eq!(lines, ["data.any: not the type of the Kubernetes API (data is base64)"]);
    }

    #[test]
    fn findings_are_bounded_and_other_kinds_have_none() {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        for n in 0..2 * FINDINGS_MAX {
            map[format!("field-{n}")] = Value::Null;
        }
        assert_eq!(found(&map).len(), FINDINGS_MAX);
        map["kind"] = "Widget".into();
        assert_eq!(found(&map), [""; 0]);
        assert_eq!(found(&json!([1, 2])), [""; 0]);
    }
}
