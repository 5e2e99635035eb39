//! The strategic merge patch: lists whose items have a key are merged by it.
//!
//! What Kubernetes knows of its types, this knows from a table of the lists that are merged. Of the
//! directives it takes `$patch`, `$setElementOrder/`, `$deleteFromPrimitiveList/` and
//! `$retainKeys`.

use serde_json::{Map, Value};

use crate::failure::Failure;

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListKind {
    /// Item by item, by the value of this field.
    By(&'static str),
    /// As a set of plain values.
    Set,
    /// As one value.
    Atomic,
}

/// The lists that are merged: the kind of the object, or `*`, the path, and how.
const MERGED: [(&str, &str, ListKind); 27] = [
    ("*", "metadata.finalizers", ListKind::Set),
    ("*", "metadata.ownerReferences", ListKind::By("uid")),
    ("Pod", "spec.containers", ListKind::By("name")),
    ("Pod", "spec.containers.env", ListKind::By("name")),
    ("Pod", "spec.containers.ports", ListKind::By("containerPort")),
    ("Pod", "spec.containers.volumeMounts", ListKind::By("mountPath")),
    ("Pod", "spec.containers.volumeDevices", ListKind::By("devicePath")),
    ("Pod", "spec.initContainers", ListKind::By("name")),
    ("Pod", "spec.initContainers.env", ListKind::By("name")),
    ("Pod", "spec.ephemeralContainers", ListKind::By("name")),
    ("Pod", "spec.volumes", ListKind::By("name")),
    ("Pod", "spec.imagePullSecrets", ListKind::By("name")),
    ("Pod", "spec.hostAliases", ListKind::By("ip")),
    ("Pod", "spec.topologySpreadConstraints", ListKind::By("topologyKey")),
    ("Pod", "status.conditions", ListKind::By("type")),
    ("Pod", "status.podIPs", ListKind::By("ip")),
    ("Pod", "status.hostIPs", ListKind::By("ip")),
    ("Pod", "status.resourceClaimStatuses", ListKind::By("name")),
    ("Node", "spec.podCIDRs", ListKind::Set),
    ("Node", "status.conditions", ListKind::By("type")),
    ("Node", "status.addresses", ListKind::By("type")),
    ("Service", "spec.ports", ListKind::By("port")),
    ("Service", "status.conditions", ListKind::By("type")),
    ("Namespace", "status.conditions", ListKind::By("type")),
    ("PersistentVolumeClaim", "status.conditions", ListKind::By("type")),
    ("ServiceAccount", "secrets", ListKind::By("name")),
    ("ServiceAccount", "imagePullSecrets", ListKind::Atomic),
];

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into an object of a kind.
pub(crate) fn merge_strategic(
    kind: &str,
    target: &mut Value,
    patch: &Value,
) -> Result<(), Failure> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(Failure::bad_request("a strategic merge patch is no object"));
    };
    Merging { kind }.map(target, patch, "")
}

struct Merging<'a> {
    kind: &'a str,
}

impl Merging<'_> {
    fn list_kind(&self, path: &str) -> ListKind {
        let mut rows = MERGED.iter();
        let row = rows.find(|(kind, of, _)| (*kind == "*" || *kind == self.kind) && *of == path);
        row.map_or(ListKind::Atomic, |(_, _, list_kind)| *list_kind)
    }

    fn map(
        &self,
        target: &mut Map<String, Value>,
        patch: &Map<String, Value>,
        path: &str,
    ) -> Result<(), Failure> {
        match patch.get(DIRECTIVE).and_then(Value::as_str) {
            None | Some("merge") => {}
            Some("delete") => {
                target.clear();
                return Ok(());
            }
            Some("replace") => {
                target.clone_from(patch);
                target.remove(DIRECTIVE);
                return Ok(());
            }
            Some(other) => return Err(unknown_directive(other)),
        }
        if let Some(Value::Array(kept)) = patch.get(RETAIN) {
            target.retain(|key, _| kept.iter().any(|one| one == key.as_str()));
        }
        for (key, value) in patch {
            if let Some(list) = key.strip_prefix(DELETE_FROM) {
                delete_from(target, list, value);
            } else if let Some(list) = key.strip_prefix(ORDER) {
                // Taken with its list; alone it orders what is there.
                if !patch.contains_key(list) && target.contains_key(list) {
                    self.list(target, list, &[], Some(value), &join(path, list))?;
                }
            } else if key != DIRECTIVE && key != RETAIN {
                self.field(target, patch, key, value, path)?;
            }
        }
        Ok(())
    }

    fn field(
        &self,
        target: &mut Map<String, Value>,
        patch: &Map<String, Value>,
        key: &str,
        value: &Value,
        path: &str,
    ) -> Result<(), Failure> {
        let path = join(path, key);
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(fields) => {
                let into = target.entry(key).or_insert(Value::Null);
                if !into.is_object() {
                    *into = Value::Object(Map::new());
                }
                let Value::Object(into) = into else { return Ok(()) };
                self.map(into, fields, &path)?;
            }
            Value::Array(items) => {
                let order = patch.get(&format!("{ORDER}{key}"));
                self.list(target, key, items, order, &path)?;
            }
            plain => {
                target.insert(key.to_owned(), plain.clone());
            }
        }
        Ok(())
    }

    fn list(
        &self,
        target: &mut Map<String, Value>,
        key: &str,
        items: &[Value],
        order: Option<&Value>,
        path: &str,
    ) -> Result<(), Failure> {
        let before = match target.get(key) {
            Some(Value::Array(before)) => before.clone(),
            _ => Vec::new(),
        };
        let order = order.and_then(Value::as_array).map(Vec::as_slice);
        let merged = match self.list_kind(path) {
            ListKind::Atomic => items.to_vec(),
            ListKind::Set => set(&before, items),
            ListKind::By(field) => self.by_key(&before, items, order, field, path)?,
        };
        target.insert(key.to_owned(), Value::Array(merged));
        Ok(())
    }

    fn by_key(
        &self,
        before: &[Value],
        items: &[Value],
        order: Option<&[Value]>,
        field: &'static str,
        path: &str,
    ) -> Result<Vec<Value>, Failure> {
        if items.iter().any(|item| item[DIRECTIVE] == "replace" && item.get(field).is_none()) {
            let is_content = |item: &&Value| item.get(DIRECTIVE).is_none();
            return Ok(items.iter().filter(is_content).cloned().collect());
        }
        let mut merged = before.to_vec();
        for item in items {
            let Some(key) = item.get(field) else {
                let what = format!("map: {item} does not contain declared merge key: {field}");
                return Err(Failure::internal(what));
            };
            let at = merged.iter().position(|one| one.get(field) == Some(key));
            if item[DIRECTIVE] == "delete" {
                if let Some(at) = at {
                    merged.remove(at);
                }
                continue;
            }
            let Value::Object(fields) = item else { continue };
            let at = at.unwrap_or_else(|| {
                merged.push(Value::Object(Map::new()));
                merged.len() - 1
            });
            if let Value::Object(into) = &mut merged[at] {
                self.map(into, fields, path)?;
            }
        }
        let order: Vec<&Value> = match order {
            Some(order) => order.iter().map(|item| &item[field]).collect(),
            None => items.iter().map(|item| &item[field]).collect(),
        };
        Ok(in_order(merged, before, &order, field))
    }
}

/// The order of a merged list. Items that the patch names are in the order of the patch, the others in
/// that of the server. Of the next of each the one that was first on the server goes first; a new one goes
/// before one of the server.
fn in_order(merged: Vec<Value>, before: &[Value], order: &[&Value], field: &str) -> Vec<Value> {
    let place = |item: &Value| order.iter().position(|key| **key == item[field]);
    let server = |item: &Value| before.iter().position(|one| one[field] == item[field]);
    let (mut named, mut others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| place(item).is_some());
    named.sort_by_key(place);
    others.sort_by_key(server);
    let mut ordered = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let is_named_first = match (named.peek(), others.peek()) {
            (Some(name), Some(other)) => {
                server(name).zip(server(other)).is_none_or(|(name, other)| name < other)
            }
            (Some(_), None) => true,
            (None, _) => false,
        };
        let next = if is_named_first { named.next() } else { others.next() };
        match next {
            Some(item) => ordered.push(item),
            None => return ordered,
        }
    }
}

fn set(before: &[Value], items: &[Value]) -> Vec<Value> {
    let mut merged = before.to_vec();
    for item in items {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    merged
}

fn delete_from(target: &mut Map<String, Value>, list: &str, gone: &Value) {
    if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(list), gone) {
        items.retain(|item| !gone.contains(item));
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn unknown_directive(given: &str) -> Failure {
    Failure::internal(format!("Unknown patch type: {given}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(kind: &str, mut target: Value, patch: &Value) -> Value {
        merge_strategic(kind, &mut target, patch).expect("a patch");
        target
    }

    fn types(conditions: &Value) -> Vec<&str> {
        let items = conditions.as_array().expect("a list").iter();
        items.map(|item| item["type"].as_str().expect("a type")).collect()
    }

    #[test]
    fn conditions_are_merged_by_type_and_ordered_by_the_patch() {
        let before = json!({"status": {"conditions": [
            {"type": "A", "status": "True", "message": "kept"}, {"type": "B", "status": "True"},
        ]}});
        let patch = json!({"status": {"conditions": [
            {"type": "C", "status": "True"}, {"type": "A", "status": "False"},
        ]}});
        let after = merged("Pod", before.clone(), &patch);
        let conditions = &after["status"]["conditions"];
        assert_eq!(types(conditions), ["C", "A", "B"]);
        assert_eq!(conditions[1], json!({"type": "A", "status": "False", "message": "kept"}));
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}],
            "conditions": [{"type": "B", "status": "False"}],
        }});
        assert_eq!(types(&merged("Pod", before, &patch)["status"]["conditions"]), ["B", "A"]);
    }

    #[test]
    fn directives_replace_and_delete() {
        let before = json!({"status": {"podIPs": [{"ip": "1"}, {"ip": "2"}], "phase": "x"}});
        let patch = json!({"status": {"podIPs": [{"$patch": "replace"}, {"ip": "3"}]}});
        let after = merged("Pod", before.clone(), &patch);
        assert_eq!(after["status"], json!({"podIPs": [{"ip": "3"}], "phase": "x"}));
        let patch = json!({"status": {"podIPs": [{"$patch": "delete", "ip": "1"}], "phase": null}});
        assert_eq!(merged("Pod", before, &patch)["status"], json!({"podIPs": [{"ip": "2"}]}));
    }

    #[test]
    fn other_lists_are_replaced_and_finalizers_are_a_set() {
        let before = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"taints": [1]}});
        let patch = json!({
            "metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]},
            "spec": {"taints": [2]},
        });
        let after = merged("Node", before, &patch);
        assert_eq!(after["spec"]["taints"], json!([2]));
        assert_eq!(after["metadata"]["finalizers"], json!(["b", "c"]));
    }
}
