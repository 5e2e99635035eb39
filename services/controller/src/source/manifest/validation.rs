//! Validation: what a cluster would not accept of a document that can be used.
//!
//! Such a document takes effect and has a finding, as with `kubectl --validate=warn`; under `--strict`
//! it is refused.

use headwater_object::OBJECT_TYPES;
use headwater_object::fields::{FieldPath, PathStep, check_fields};
use headwater_object::nearest::nearest;
use headwater_object::object_type::group;
use serde_json::Value;

use super::selector;

/// What is done with a document that a cluster would not accept, though it can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Validation {
    /// It takes effect, and a finding names it.
    #[default]
    Warn,
    /// It is refused. What its file described before stays in place.
    Strict,
}

/// One thing that a cluster would not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The field that it is about.
    pub(crate) path: FieldPath,
    /// In words, without the name of the object.
    pub(crate) text: String,
}

/// The workloads that unfold to pods, with the version that a cluster serves.
const WORKLOADS: [(&str, &str); 6] = [
    ("DaemonSet", "apps/v1"),
    ("Deployment", "apps/v1"),
    ("Job", "batch/v1"),
    ("ReplicaSet", "apps/v1"),
    ("ReplicationController", "v1"),
    ("StatefulSet", "apps/v1"),
];

/// The API groups in which every kind is one of Kubernetes, so that a kind with a name like one of
/// ours is a mistyped one. Elsewhere it may be a kind of its own.
const BUILT_IN_GROUPS: [&str; 5] = ["", "apps", "batch", "discovery.k8s.io", "extensions"];

/// Returns what a cluster would not accept of the fields of `object`: unknown ones, values of a wrong
/// type, and a selector that does not select the pods of its own template.
pub(crate) fn doubts(object: &Value) -> Vec<Doubt> {
    let fields = check_fields(object)
        .into_iter()
        .map(|finding| Doubt { text: finding.to_string(), path: finding.path });
    let selector = selector::mismatch(object).map(|text| {
        let steps = ["spec", "selector"].map(|name| PathStep::Field(name.to_owned()));
        Doubt { path: FieldPath(steps.into()), text }
    });
    fields.chain(selector).collect()
}

/// Returns the doubt about a kind that is not replicated; `None` where it is no mistyped one.
pub(crate) fn kind_doubt(api_version: &str, kind: &str) -> Option<Doubt> {
    let of = group(api_version);
    let known = || {
        let replicated = OBJECT_TYPES.iter().filter(|object_type| object_type.replicated);
        replicated.map(|object_type| (object_type.kind, object_type.api_version)).chain(WORKLOADS)
    };
    let is_built_in = BUILT_IN_GROUPS.contains(&of);
    let (field, meant) = match known().find(|(name, _)| *name == kind) {
        Some((_, version)) if is_built_in || nearest(of, [group(version)]).is_some() => {
            ("apiVersion", format!("apiVersion {version}"))
        }
        Some(_) => return None,
        None if is_built_in => ("kind", nearest(kind, known().map(|(name, _)| name))?.to_owned()),
        None => return None,
    };
    let text =
        format!("{kind} of {api_version} is no kind that is replicated; did you mean {meant}?");
    Some(Doubt { path: FieldPath(vec![PathStep::Field(field.to_owned())]), text })
}

#[cfg(test)]
mod tests {
    use headwater_object::identify;
    use serde_json::json;

    use super::super::workload::Workload;
    use super::*;

    #[test]
    fn a_mistyped_kind_or_group_has_a_doubt_and_a_kind_of_its_own_has_none() {
        for (api_version, kind, meant) in [
            ("apps/v1", "Deploymnt", Some("did you mean Deployment?")),
            ("v1", "Configmap", Some("did you mean ConfigMap?")),
            ("v1", "Deployment", Some("did you mean apiVersion apps/v1?")),
            ("app/v1", "Deployment", Some("did you mean apiVersion apps/v1?")),
            ("batch/v1", "CronJob", None),
            ("v1", "Namespace", None),
            ("networking.k8s.io/v1", "Ingress", None),
            ("serving.knative.dev/v1", "Service", None),
            ("example.org/v1", "Mode", None),
        ] {
            let doubt = kind_doubt(api_version, kind).map(|doubt| doubt.text);
            let text = doubt.as_deref().unwrap_or_default();
            assert_eq!(doubt.is_some(), meant.is_some(), "{api_version} {kind}: {text}");
            assert!(text.ends_with(meant.unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn every_workload_of_the_list_unfolds() {
        for (kind, api_version) in WORKLOADS {
            let value = json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"name": "w"},
                "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            });
            assert!(identify(&value).is_err(), "{kind}");
            let mut value = value;
            if kind == "Job" {
                value["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
            }
            let read = Workload::read(group(api_version), kind, "default", &value);
            assert!(read.expect(kind).is_some(), "{kind}");
        }
    }
}
