//! What a folder of manifests asks for, read without Headwater's own code, and compared with what
//! the nodes hold.
//!
//! Known here are pods that name their node, the pods of a Deployment by their number, and the
//! ConfigMaps and Secrets that pods name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use headwater_event::{NodeName, StreamId};
use serde_json::Value;

use crate::evidence::Evidence;

/// A kind, a namespace and a name: `("ConfigMap", "default", "words")`.
type Name = (String, String, String);

/// Where a pod names others, and the field with the name.
const NAMED: [(&str, &str, &str); 8] = [
    ("configMap", "name", "ConfigMap"),
    ("configMapRef", "name", "ConfigMap"),
    ("configMapKeyRef", "name", "ConfigMap"),
    ("secret", "secretName", "Secret"),
    ("secret", "name", "Secret"),
    ("secretRef", "name", "Secret"),
    ("secretKeyRef", "name", "Secret"),
    ("imagePullSecrets", "name", "Secret"),
];

/// The objects that a folder of manifests describes.
///
/// # Panics
/// When a file of it cannot be read, or is neither JSON nor YAML.
pub fn objects(folder: &Path) -> Vec<Value> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let read = files.flat_map(|file| {
        let text = fs::read_to_string(file.path()).expect("a manifest");
        if let Ok(document) = serde_json::from_str(&text) {
            return vec![document];
        }
        let documents: Result<Vec<Value>, _> = serde_saphyr::from_multiple(&text);
        documents.unwrap_or_else(|error| panic!("{}: {error}", file.path().display()))
    });
    read.filter(|document| !document.is_null()).flat_map(items).collect()
}

/// The objects of a list; any other document is one itself.
fn items(mut document: Value) -> Vec<Value> {
    match document["items"].take() {
        Value::Array(items) if document["kind"] == "List" => items,
        _ => vec![document],
    }
}

/// Compares what every node that is not away holds with `objects`.
///
/// # Errors
/// Says what is missing at a node, is otherwise there, or should not be there.
pub fn check(objects: &[Value], evidence: &Evidence) -> Result<(), String> {
    let wanted: BTreeMap<Name, &Value> = objects.iter().map(|it| (name_of(it), it)).collect();
    let mut crews: BTreeMap<&Name, u64> = BTreeMap::new();
    for (node, _) in evidence.nodes.iter().filter(|(_, found)| !found.is_away) {
        let held = held(evidence, node);
        let on_node = |pod: &Value| pod["spec"]["nodeName"] == node.as_str();
        let is_here = |name: &Name, it: &Value| name.0 == "Pod" && on_node(it);
        let mut due: BTreeSet<Name> =
            wanted.iter().filter(|(name, it)| is_here(name, it)).map(|(n, _)| n.clone()).collect();
        for (name, pod) in held.iter().filter(|(name, _)| name.0 == "Pod") {
            if !due.contains(name) {
                // The names of a Deployment's pods are made.
                let crew = wanted.keys().find(|it| is_of(name, it));
                let crew = crew.ok_or_else(|| format!("{node} has {name:?}, which is nowhere"))?;
                *crews.entry(crew).or_default() += 1;
                due.insert(name.clone());
            }
            let mut named = BTreeSet::new();
            collect(&pod["spec"], "", &name.1, &mut named);
            due.extend(named.into_iter().filter(|name| wanted.contains_key(name)));
        }
        for name in &due {
            let found = held.get(name).ok_or_else(|| format!("{node} has no {name:?}"))?;
            let Some(it) = wanted.get(name) else { continue };
            for part in ["spec", "data"] {
                if !is_within(&it[part], &found[part]) {
                    let (is, wanted) = (&found[part], &it[part]);
                    return Err(format!("{node} has {name:?} with {is}, not {wanted}"));
                }
            }
        }
        let more = held.keys().find(|name| !due.contains(*name));
        if let Some(more) = more.filter(|name| ["ConfigMap", "Secret"].contains(&&*name.0)) {
            return Err(format!("{node} has {more:?}, which no pod there names"));
        }
    }
    let everyone = evidence.nodes.values().all(|node| !node.is_away);
    for (name, it) in wanted.iter().filter(|(name, _)| everyone && name.0 == "Deployment") {
        let (is, due) = (crews.get(name).copied().unwrap_or(0), &it["spec"]["replicas"]);
        if due.as_u64().unwrap_or(1) != is {
            return Err(format!("{name:?} has {is} pods, not {due}"));
        }
    }
    Ok(())
}

/// What the node's own stream says that there is.
fn held(evidence: &Evidence, node: &NodeName) -> BTreeMap<Name, Value> {
    let replicas = evidence.nodes.get(node).map(|found| &found.replicas);
    let own = replicas.and_then(|replicas| replicas.get(&StreamId::node(node)));
    let objects = own.into_iter().flat_map(|own| own.objects.values());
    let objects = objects.filter_map(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let known = objects.filter(|it| it["kind"] != "Node");
    known.map(|object| (name_of(&object), object)).collect()
}

fn name_of(object: &Value) -> Name {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
    (text(&object["kind"]), namespace, text(&object["metadata"]["name"]))
}

/// Whether a pod is by its name of this Deployment.
fn is_of(pod: &Name, deployment: &Name) -> bool {
    let rest = pod.2.strip_prefix(&deployment.2).is_some_and(|rest| rest.starts_with('-'));
    deployment.0 == "Deployment" && pod.1 == deployment.1 && rest
}

/// The ConfigMaps and Secrets that a pod's `value` in the field `field` names.
fn collect(value: &Value, field: &str, namespace: &str, names: &mut BTreeSet<Name>) {
    match value {
        Value::Object(fields) => {
            for (_, by, kind) in NAMED.iter().filter(|(under, ..)| *under == field) {
                if let Some(name) = value[by].as_str() {
                    names.insert(((*kind).to_owned(), namespace.to_owned(), name.to_owned()));
                }
            }
            fields.iter().for_each(|(field, value)| collect(value, field, namespace, names));
        }
        Value::Array(values) => {
            values.iter().for_each(|value| collect(value, field, namespace, names));
        }
        _ => {}
    }
}

/// Whether `found` has everything of `asked`; it may have more.
fn is_within(asked: &Value, found: &Value) -> bool {
    match (asked, found) {
        (Value::Null, _) => true,
        (Value::Object(asked), Value::Object(_)) => {
            asked.iter().all(|(field, value)| is_within(value, &found[field]))
        }
        (Value::Array(asked), Value::Array(found)) => {
            asked.len() == found.len() && asked.iter().zip(found).all(|(a, f)| is_within(a, f))
        }
        (asked, found) => asked == found,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_a_pod_names_is_found_in_any_field() {
        let spec = json!({
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"configMap": {"name": "words"}},
                {"projected": {"sources": [{"secret": {"name": "key"}}]}},
            ],
            "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "hush"}}}]}],
            "containers": [{"envFrom": [{"configMapRef": {"name": "colours"}}]}],
        });
        let mut named = BTreeSet::new();
        collect(&spec, "", "default", &mut named);
        let named: Vec<String> = named.into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(named, ["colours", "words", "hush", "key", "pull"]);
    }

    #[test]
    fn defaults_may_be_added_and_nothing_may_be_missing() {
        let asked = json!({"containers": [{"name": "c"}]});
        assert!(is_within(&asked, &json!({"containers": [{"name": "c", "image": ""}], "x": 1})));
        assert!(!is_within(&asked, &json!({"containers": [{"name": "d"}]})));
        assert!(!is_within(&asked, &json!({"containers": []})));
        assert!(!is_within(&asked, &json!({})));
    }
}
