//! Workloads: Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet and Job, and
//! the pods that they stand for.
//!
//! A workload expands to its number of pods under names that depend on nothing but its content, so
//! that reading it again changes nothing. A changed template brings other pods: under new names
//! where a cluster draws names at random, under the old names and with a new revision label (by
//! which they get new UIDs) for the ordinals of a StatefulSet.

use std::collections::HashSet;

use headwater_event::NodeName;
use headwater_event::name::check_dns1123_subdomain;
use headwater_object::payload::canonical;
use headwater_object::{Object, ObjectError};
use serde_json::{Map, Value, json};

use super::pod_name::{pod_name, template_hash};

/// The most pods of one workload: more than a cluster of the size Kubernetes supports would run
/// of it on edge nodes, and a bound for a number typed wrong.
pub(crate) const REPLICAS_MAX: u64 = 10_000;

/// How a workload makes its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// Interchangeable pods, named after a template hash as a Deployment's ReplicaSets are.
    Deployment,
    /// Interchangeable pods: ReplicaSet, ReplicationController.
    Replicas,
    /// Interchangeable pods that run to completion.
    Job,
    /// Pods with an ordinal, and claims of their own.
    StatefulSet,
    /// One pod on each matching node.
    DaemonSet,
}

/// A workload, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Workload {
    kind: String,
    scheme: Scheme,
    namespace: String,
    name: String,
    /// How many pods; a DaemonSet has as many as nodes fit.
    count: u64,
    first_ordinal: u64,
    /// The pod, without name and node.
    template: Value,
    template_hash: String,
    service_name: Option<Value>,
    claim_templates: Vec<Value>,
}

/// Why a workload is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkloadError {
    /// `metadata.name` is missing.
    #[error("{kind} without metadata.name")]
    Nameless { kind: String },
    /// `metadata.name` is none that Kubernetes allows.
    #[error("{kind} with an invalid name")]
    Name { kind: String, source: headwater_event::NameError },
    /// A number is none.
    #[error("{kind} {name:?}: spec.{field} is {found}, want a number from 0 to {REPLICAS_MAX}")]
    Count { kind: String, name: String, field: &'static str, found: Value },
    /// There is no pod template.
    #[error("{kind} {name:?}: it has no spec.template with containers")]
    NoTemplate { kind: String, name: String },
    /// The pods would restart when they must not, or not when they must.
    #[error(
        "{kind} {name:?}: spec.template.spec.restartPolicy is {found}, want {wanted}: its pods \
         {why}"
    )]
    RestartPolicy {
        kind: String,
        name: String,
        found: String,
        wanted: &'static str,
        why: &'static str,
    },
    /// The pods would be invalid.
    #[error("{kind} {name:?}: its pods would be invalid")]
    Template { kind: String, name: String, source: Box<ObjectError> },
    /// The claims would be invalid.
    #[error("{kind} {name:?}: its claims would be invalid")]
    Claim { kind: String, name: String, source: Box<ObjectError> },
}

/// What the workload `kind` of `group` is, if it is one that expands.
fn scheme(group: &str, kind: &str) -> Option<Scheme> {
    match (group, kind) {
        ("apps" | "extensions", "Deployment") => Some(Scheme::Deployment),
        ("apps" | "extensions", "ReplicaSet") | ("", "ReplicationController") => {
            Some(Scheme::Replicas)
        }
        ("apps", "StatefulSet") => Some(Scheme::StatefulSet),
        ("apps" | "extensions", "DaemonSet") => Some(Scheme::DaemonSet),
        ("batch", "Job") => Some(Scheme::Job),
        _ => None,
    }
}

impl Workload {
    /// Reads a workload; `None` if it is of another kind.
    pub(crate) fn read(
        group: &str,
        kind: &str,
        namespace: &str,
        value: &Value,
    ) -> Result<Option<Self>, WorkloadError> {
        let Some(scheme) = scheme(group, kind) else { return Ok(None) };
        let kind = kind.to_owned();
        let Some(name) = value["metadata"]["name"].as_str().filter(|name| !name.is_empty()) else {
            return Err(WorkloadError::Nameless { kind });
        };
        if let Err(source) = check_dns1123_subdomain(name) {
            return Err(WorkloadError::Name { kind, source });
        }
        let name = name.to_owned();
        let spec = &value["spec"];
        let template = &spec["template"];
        if !template["spec"]["containers"].is_array() {
            return Err(WorkloadError::NoTemplate { kind, name });
        }
        let number = |field: &'static str| match &spec[field] {
            Value::Null => Ok(None),
            found => match found.as_u64().filter(|count| *count <= REPLICAS_MAX) {
                Some(count) => Ok(Some(count)),
                None => Err(WorkloadError::Count {
                    kind: kind.clone(),
                    name: name.clone(),
                    field,
                    found: found.clone(),
                }),
            },
        };
        let count = match scheme {
            Scheme::Job if spec["suspend"] == Value::Bool(true) => 0,
            // The source does not see that a pod completes, so all pods run at once.
            Scheme::Job => number("completions")?.or(number("parallelism")?).unwrap_or(1),
            Scheme::DaemonSet => 0,
            _ => number("replicas")?.unwrap_or(1),
        };
        let claim_templates = match scheme {
            Scheme::StatefulSet => spec["volumeClaimTemplates"].as_array().cloned(),
            _ => None,
        };
        let workload = Self {
            scheme,
            namespace: namespace.to_owned(),
            count,
            first_ordinal: spec["ordinals"]["start"].as_u64().unwrap_or(0),
            template_hash: template_hash(&canonical(template)),
            template: template.clone(),
            service_name: spec.get("serviceName").filter(|name| name.is_string()).cloned(),
            claim_templates: claim_templates.unwrap_or_default(),
            kind,
            name,
        };
        workload.check_restart_policy()?;
        workload.check_sample()?;
        Ok(Some(workload))
    }

    /// What a person calls it: `Deployment default/web`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// The claims and pods that it unfolds to, the claims first.
    ///
    /// `fitting` gives the nodes that a pod of a DaemonSet may run on.
    pub(crate) fn expand(&self, fitting: impl FnOnce(&Value) -> Vec<NodeName>) -> Vec<Value> {
        let mut taken = HashSet::new();
        match self.scheme {
            Scheme::DaemonSet => fitting(&self.pod("sample", None))
                .into_iter()
                .map(|node| self.pod(&self.drawn_name(node.as_str(), &mut taken), Some(&node)))
                .collect(),
            Scheme::StatefulSet => (0..self.count)
                .flat_map(|at| {
                    let name = format!("{}-{}", self.name, self.first_ordinal.saturating_add(at));
                    let mut objects = self.claims(&name);
                    objects.push(self.pod(&name, None));
                    objects
                })
                .collect(),
            Scheme::Deployment | Scheme::Replicas | Scheme::Job => (0..self.count)
                .map(|at| self.pod(&self.drawn_name(&at.to_string(), &mut taken), None))
                .collect(),
        }
    }

    /// A name where a cluster draws one at random: here drawn from what the pod is, again if
    /// another pod drew the same.
    fn drawn_name(&self, of: &str, taken: &mut HashSet<String>) -> String {
        let owner = match self.scheme {
            Scheme::Deployment => format!("{}-{}", self.name, self.template_hash),
            _ => self.name.clone(),
        };
        let mut drawn_from =
            [&self.kind, &self.namespace, &self.name, &self.template_hash, of].join("\0");
        loop {
            let name = pod_name(&owner, drawn_from.as_bytes());
            if taken.insert(name.clone()) {
                return name;
            }
            drawn_from.push('+');
        }
    }

    fn pod(&self, name: &str, node: Option<&NodeName>) -> Value {
        let mut spec = self.template["spec"].clone();
        let mut metadata = Map::new();
        for field in ["labels", "annotations"] {
            if let Some(Value::Object(fields)) = self.template["metadata"].get(field) {
                metadata.insert(field.to_owned(), Value::Object(fields.clone()));
            }
        }
        metadata.insert("name".to_owned(), name.into());
        metadata.insert("namespace".to_owned(), self.namespace.as_str().into());
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
        if let Some(labels) = labels.as_object_mut() {
            labels.extend(self.labels(name));
        }
        if let Some(node) = node {
            spec["nodeName"] = node.as_str().into();
        }
        if self.scheme == Scheme::StatefulSet {
            self.give_identity(name, &mut spec);
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }

    /// The labels that the controller of this kind adds.
    fn labels(&self, pod: &str) -> Vec<(String, Value)> {
        let label = |key: &str, value: &str| (key.to_owned(), Value::from(value));
        match self.scheme {
            Scheme::Deployment => vec![label("pod-template-hash", &self.template_hash)],
            Scheme::Replicas => Vec::new(),
            Scheme::Job => vec![
                label("batch.kubernetes.io/job-name", &self.name),
                label("job-name", &self.name),
            ],
            Scheme::StatefulSet => vec![
                label("controller-revision-hash", &self.template_hash),
                label("statefulset.kubernetes.io/pod-name", pod),
                label("apps.kubernetes.io/pod-index", ordinal_of(pod)),
            ],
            Scheme::DaemonSet => vec![label("controller-revision-hash", &self.template_hash)],
        }
    }

    /// A StatefulSet's pod has its own host name, and its claims in place of their templates.
    fn give_identity(&self, pod: &str, spec: &mut Value) {
        spec["hostname"] = pod.into();
        if let Some(service) = &self.service_name {
            spec["subdomain"] = service.clone();
        }
        if self.claim_templates.is_empty() {
            return;
        }
        let claimed: Vec<&str> = self.claim_names().collect();
        let declared = spec["volumes"].as_array().cloned().unwrap_or_default();
        let mut volumes: Vec<Value> = declared
            .into_iter()
            .filter(|volume| volume["name"].as_str().is_none_or(|name| !claimed.contains(&name)))
            .collect();
        volumes.extend(claimed.iter().map(|name| {
            json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-{pod}")}})
        }));
        spec["volumes"] = Value::Array(volumes);
    }

    fn claims(&self, pod: &str) -> Vec<Value> {
        let make = |template: &Value| {
            let name = template["metadata"]["name"].as_str()?;
            let mut claim = template.clone();
            claim["apiVersion"] = "v1".into();
            claim["kind"] = "PersistentVolumeClaim".into();
            claim["metadata"]["name"] = format!("{name}-{pod}").into();
            claim["metadata"]["namespace"] = self.namespace.as_str().into();
            Some(claim)
        };
        self.claim_templates.iter().filter_map(make).collect()
    }

    fn claim_names(&self) -> impl Iterator<Item = &str> {
        self.claim_templates.iter().filter_map(|claim| claim["metadata"]["name"].as_str())
    }

    /// Checks the restart policy of the template, as an API server does for each kind.
    fn check_restart_policy(&self) -> Result<(), WorkloadError> {
        let policy = &self.template["spec"]["restartPolicy"];
        let found = policy.as_str().unwrap_or_default();
        let (wanted, why) = match self.scheme {
            Scheme::Job if matches!(found, "OnFailure" | "Never") => return Ok(()),
            Scheme::Job => ("OnFailure or Never", "run to completion"),
            _ if matches!(found, "" | "Always") => return Ok(()),
            _ => ("Always", "run until the workload changes"),
        };
        let found = if policy.is_null() { "missing".to_owned() } else { policy.to_string() };
        let (kind, name) = (self.kind.clone(), self.name.clone());
        Err(WorkloadError::RestartPolicy { kind, name, found, wanted, why })
    }

    /// Checks a pod and its claims as they would be made, so that a mistake in the template is
    /// reported once, with its place.
    fn check_sample(&self) -> Result<(), WorkloadError> {
        let name = match self.scheme {
            Scheme::StatefulSet => format!("{}-0", self.name),
            _ => self.drawn_name("0", &mut HashSet::new()),
        };
        let (kind, title) = (self.kind.clone(), self.name.clone());
        if !self.claim_templates.iter().all(|claim| claim["metadata"]["name"].is_string()) {
            let source = ObjectError::Nameless { kind: "PersistentVolumeClaim".to_owned() };
            return Err(WorkloadError::Claim { kind, name: title, source: Box::new(source) });
        }
        for claim in self.claims(&name) {
            if let Err(source) = Object::from_value(claim) {
                return Err(WorkloadError::Claim { kind, name: title, source: Box::new(source) });
            }
        }
        match Object::from_value(self.pod(&name, None)) {
            Ok(_) => Ok(()),
            Err(source) => {
                Err(WorkloadError::Template { kind, name: title, source: Box::new(source) })
            }
        }
    }
}

fn ordinal_of(pod: &str) -> &str {
    pod.rsplit_once('-').map_or("0", |(_, ordinal)| ordinal)
}

#[cfg(test)]
mod tests;
