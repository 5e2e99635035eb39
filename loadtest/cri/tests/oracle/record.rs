//! The record of a kubelet: the plain pod with its requests, and of every other pod what differs from that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::canonical::{Flat, PodRequests};
use crate::cases::merge;

/// The file.
const FILE: &str = include_str!("kubelet.json");

/// The fields of an object that differ from run to run.
const VOLATILE: [&str; 3] = ["creationTimestamp", "managedFields", "resourceVersion"];

/// The beginning of the name of the volume that the API server adds; five letters follow.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// The name of the plain pod, and of its container.
const PLAIN: &str = "plain";
const MAIN: &str = "main";

/// A pod, and what a kubelet asked for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedPod {
    pub(crate) name: String,
    pub(crate) pod: Value,
    pub(crate) requests: PodRequests,
}

/// A pod in the file: merge patches (RFC 7386) of the plain one. A container is a patch of that of the plain pod.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    pod: Value,
    sandbox: Value,
    containers: BTreeMap<String, Value>,
}

/// The record in the file.
pub(crate) fn stored() -> Vec<RecordedPod> {
    let entries: Vec<Entry> = serde_json::from_str(FILE).expect("a record");
    let plain = entries.first().expect("the plain pod");
    let (pod, sandbox) = (plain.pod.clone(), plain.sandbox.clone());
    let container = plain.containers[MAIN].clone();
    let patched = |base: &Value, patch: &Value| {
        let mut value = base.clone();
        merge(&mut value, patch);
        value
    };
    let flat = |value: Value| -> Flat { serde_json::from_value(value).expect("values by path") };
    let read = entries.iter().map(|entry| {
        let pod = patched(&pod, &entry.pod);
        let containers = entry.containers.iter();
        RecordedPod {
            name: pod["metadata"]["name"].as_str().expect("a name").to_owned(),
            requests: PodRequests {
                sandbox: flat(patched(&sandbox, &entry.sandbox)),
                containers: containers
                    .map(|(name, patch)| (name.clone(), flat(patched(&container, patch))))
                    .collect(),
            },
            pod,
        }
    });
    read.collect()
}

/// The text of the file for these pods.
pub(crate) fn text(mut pods: Vec<RecordedPod>) -> String {
    pods.sort_by_key(|pod| (pod.name != PLAIN, pod.name.clone()));
    let pods: Vec<RecordedPod> = pods.into_iter().map(cleaned).collect();
    let plain = pods.first().expect("the plain pod").clone();
    let main = json!(plain.requests.containers[MAIN]);
    let entry = |pod: &RecordedPod| {
        let is_plain = pod.name == PLAIN;
        let patch = |base: &Value, value: Value| if is_plain { value } else { diff(base, &value) };
        let containers = pod.requests.containers.iter();
        Entry {
            pod: patch(&plain.pod, pod.pod.clone()),
            sandbox: patch(&json!(plain.requests.sandbox), json!(pod.requests.sandbox)),
            containers: containers
                .map(|(name, flat)| (name.clone(), patch(&main, json!(flat))))
                .collect(),
        }
    };
    let lines = pods.iter().map(|pod| serde_json::to_string(&entry(pod)).expect("JSON"));
    format!("[\n{}\n]\n", lines.collect::<Vec<_>>().join(",\n"))
}

/// The pod without what differs from run to run.
fn cleaned(mut pod: RecordedPod) -> RecordedPod {
    let object = pod.pod.as_object_mut().expect("an object");
    object.remove("status");
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    VOLATILE.iter().for_each(|field| drop(metadata.remove(*field)));
    metadata.insert("uid".to_owned(), format!("u-{}", pod.name).into());
    let volumes = pod.pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    match names.find(|name| name.starts_with(TOKEN_VOLUME)).map(str::to_owned) {
        None => pod,
        Some(volume) => {
            let text = serde_json::to_string(&pod).expect("JSON");
            let text = text.replace(&volume, &format!("{TOKEN_VOLUME}00000"));
            serde_json::from_str(&text).expect("the same")
        }
    }
}

/// The merge patch that makes `base` this value.
fn diff(base: &Value, value: &Value) -> Value {
    let (Value::Object(base), Value::Object(fields)) = (base, value) else { return value.clone() };
    let mut patch = Map::new();
    for name in base.keys().filter(|name| !fields.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in fields {
        let before = base.get(name).unwrap_or(&Value::Null);
        if before != value {
            patch.insert(name.clone(), diff(before, value));
        }
    }
    Value::Object(patch)
}
