//! Workloads: Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet and Job, and
//! the pods that they stand for.
//!
//! A workload makes its pods under names that depend on nothing but its content, so that reading it
//! again changes nothing. A changed template makes other pods: under new names where a cluster draws
//! names at random, under the old names and with a new revision label (by which they get new UIDs) for
//! the ordinals of a StatefulSet. Which pods there are at a time is the decision of its
//! [`rollout`](super::rollout).

use std::collections::HashSet;
use std::sync::Arc;

use headwater_event::NodeName;
use headwater_event::name::check_dns1123_subdomain;
use headwater_object::payload::canonical;
use headwater_object::{Object, ObjectError};
use serde_json::{Map, Value, json};

use super::pod_name::{is_suffix, is_template_hash, pod_name, template_hash};
use super::rollout::{Rule, RuleError};

/// The annotation of a pod that a workload made: `KIND/NAME` of the workload, in its own namespace.
pub(crate) const WORKLOAD_ANNOTATION: &str = "headwater/workload";

/// The annotation of a pod whose Job failed while it ran: the reason.
pub(crate) const JOB_FAILED_ANNOTATION: &str = "headwater/job-failed";

/// The annotation of a pod that a workload made: the hash of the template that it was made of.
pub(crate) const TEMPLATE_ANNOTATION: &str = "headwater/pod-template";

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
    /// The rule of its rollout.
    rule: Rule,
    first_ordinal: u64,
    /// The document, without what a cluster wrote into it.
    manifest: Value,
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
    /// A field that its rollout follows cannot be used.
    #[error("{kind} {name:?}")]
    Rule { kind: String, name: String, source: RuleError },
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
        let rule = match scheme {
            Scheme::Deployment => Rule::deployment(spec, number("replicas")?.unwrap_or(1)),
            Scheme::Replicas => Ok(Rule::replicas(number("replicas")?.unwrap_or(1))),
            Scheme::StatefulSet => Rule::stateful_set(spec, number("replicas")?.unwrap_or(1)),
            Scheme::DaemonSet => Rule::daemon_set(spec),
            Scheme::Job => Rule::job(spec, number("completions")?, number("parallelism")?),
        };
        let rule = rule.map_err(|source| {
            let (kind, name) = (kind.clone(), name.clone());
            WorkloadError::Rule { kind, name, source }
        })?;
        let claim_templates = match scheme {
            Scheme::StatefulSet => spec["volumeClaimTemplates"].as_array().cloned(),
            _ => None,
        };
        let workload = Self {
            scheme,
            namespace: namespace.to_owned(),
            rule,
            manifest: value.clone(),
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

    /// Fields of a Job that Kubernetes follows and that have no effect here.
    pub(crate) fn doubts(&self) -> Vec<String> {
        if self.scheme != Scheme::Job {
            return Vec::new();
        }
        let spec = &self.manifest["spec"];
        let mut doubts = Vec::new();
        if spec["completionMode"] == "Indexed" {
            doubts.push(format!(
                "Job {:?}: spec.completionMode Indexed is taken as NonIndexed: its pods get no \
                 completion index",
                self.name
            ));
        }
        for field in ["podFailurePolicy", "successPolicy", "backoffLimitPerIndex"] {
            if !spec[field].is_null() {
                doubts.push(format!("Job {:?}: spec.{field} has no effect here", self.name));
            }
        }
        doubts
    }

    /// The namespace of the workload and its pods.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `KIND/NAME`, as its pods carry it.
    pub(crate) fn reference(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// What its pods are found by: the namespace, and the reference that they carry.
    pub(crate) fn owner(&self) -> (String, Arc<str>) {
        (self.namespace.clone(), self.reference().into())
    }

    /// The kind, as in manifests.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The rule of its rollout.
    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The document.
    pub(crate) fn manifest(&self) -> &Value {
        &self.manifest
    }

    /// Whether its pods name the nodes that the workload chose.
    pub(crate) fn names_nodes(&self) -> bool {
        self.scheme == Scheme::DaemonSet
    }

    /// A pod that decides which nodes fit.
    pub(crate) fn sample(&self) -> Value {
        self.pod("sample", None)
    }

    /// Whether `pod`, which is published, was made of the present template. A pod of an earlier version
    /// of this program carries the hash in a label, or nowhere.
    pub(crate) fn is_current(&self, pod: &Value) -> bool {
        let metadata = &pod["metadata"];
        let labels = &metadata["labels"];
        let hashes = [
            &metadata["annotations"][TEMPLATE_ANNOTATION],
            &labels["pod-template-hash"],
            &labels["controller-revision-hash"],
        ];
        let hash = hashes.into_iter().find_map(Value::as_str);
        hash.is_none_or(|hash| hash == self.template_hash)
    }

    /// Whether a pod of this name may have been made by this workload.
    pub(crate) fn may_have_made(&self, pod: &str) -> bool {
        let Some(end) = pod.strip_prefix(&*self.name).and_then(|end| end.strip_prefix('-')) else {
            return false;
        };
        match self.scheme {
            Scheme::StatefulSet => end.bytes().all(|byte| byte.is_ascii_digit()),
            Scheme::Deployment => end
                .split_once('-')
                .is_some_and(|(hash, end)| is_template_hash(hash) && is_suffix(end)),
            Scheme::Replicas | Scheme::Job | Scheme::DaemonSet => is_suffix(end),
        }
    }

    /// The names of its pods, each once: of the slots in order, or of the pods on `nodes`.
    pub(crate) fn pod_names<'a>(
        &'a self,
        nodes: &'a [NodeName],
    ) -> Box<dyn Iterator<Item = String> + 'a> {
        let mut taken = HashSet::new();
        match self.scheme {
            Scheme::DaemonSet => {
                Box::new(nodes.iter().map(move |node| self.drawn_name(node.as_str(), &mut taken)))
            }
            Scheme::StatefulSet => Box::new(
                (self.first_ordinal..).map(move |ordinal| format!("{}-{ordinal}", self.name)),
            ),
            Scheme::Deployment | Scheme::Replicas | Scheme::Job => {
                Box::new((0_u64..).map(move |at| self.drawn_name(&at.to_string(), &mut taken)))
            }
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

    /// The pod of this name, on `node` where the workload chooses nodes.
    pub(crate) fn pod(&self, name: &str, node: Option<&NodeName>) -> Value {
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
        let annotations =
            metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(WORKLOAD_ANNOTATION.to_owned(), self.reference().into());
            annotations.insert(TEMPLATE_ANNOTATION.to_owned(), self.template_hash.as_str().into());
        }
        if let Some(node) = node.filter(|_| self.names_nodes()) {
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

    /// The claims of the pod of this name.
    pub(crate) fn claims(&self, pod: &str) -> Vec<Value> {
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
