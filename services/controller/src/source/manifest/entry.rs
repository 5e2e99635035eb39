//! Entries: what each document of a file describes, or why it describes nothing.

use headwater_event::name::check_dns1123_label;
use headwater_object::defaults::DEFAULT_NAMESPACE;
use headwater_object::object_type::group;
use headwater_object::{Object, ObjectError};
use headwater_telemetry::error_chain;
use serde_json::Value;

use super::parse::{Document, Finding, parse};
use super::workload::Workload;
use crate::source::NoticeKind;

/// How deep lists of lists may nest; one is what people write.
const LIST_DEPTH_MAX: usize = 4;

/// What makes two entries the same object: group, kind, namespace and name, so that another
/// version of the same object is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId {
    /// The API group.
    pub(crate) group: String,
    /// The kind.
    pub(crate) kind: String,
    /// The namespace, empty for objects without one.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
}

/// What a document describes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The line of its document.
    pub(crate) line: u64,
    /// Which object it is.
    pub(crate) id: EntryId,
    /// What it is.
    pub(crate) content: Content,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// An object that is replicated as it is, filled in as a cluster would.
    Object(Value),
    /// An object that an earlier run published from this file, which does not read any more.
    Restored(Value),
    /// A workload, which unfolds to pods.
    Workload(Box<Workload>),
    /// An object of a kind that is not replicated.
    Other,
}

/// What a whole file describes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entries {
    /// In the order of the file.
    pub(crate) entries: Vec<Entry>,
    /// What of it describes nothing.
    pub(crate) findings: Vec<Finding>,
}

impl Entries {
    /// Reads the text of a file.
    pub(crate) fn read(text: &str) -> Self {
        let (documents, findings) = parse(text);
        let mut file = Self { entries: Vec::new(), findings };
        for document in documents {
            file.add(document, 0, "");
        }
        file
    }

    /// Whether every document could be used: only then does absence mean removal.
    pub(crate) fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind == NoticeKind::Doubtful)
    }

    /// The entry for an object that an earlier run published.
    pub(crate) fn restored(object: Value) -> Option<Entry> {
        let (id, _) = content(object.clone()).ok()?;
        Some(Entry { line: 1, id, content: Content::Restored(object) })
    }

    /// Takes up a document, or an item of a list in it: `path` says which, as `items[2]: `.
    fn add(&mut self, document: Document, depth: usize, path: &str) {
        let Document { line, value } = document;
        if let Some(items) = list_items(&value) {
            if depth == LIST_DEPTH_MAX {
                self.find(line, format!("{path}lists nested more than {LIST_DEPTH_MAX} deep"));
                return;
            }
            for (at, item) in items.iter().enumerate() {
                let item = Document { line, value: item.clone() };
                self.add(item, depth + 1, &format!("{path}items[{at}]: "));
            }
            return;
        }
        match content(value) {
            Ok((id, content)) => self.entries.push(Entry { line, id, content }),
            Err(text) => self.find(line, format!("{path}{text}")),
        }
    }

    fn find(&mut self, line: u64, text: String) {
        self.findings.push(Finding { line: Some(line), kind: NoticeKind::Invalid, text });
    }
}

/// The items of a `List`, or of a typed one as `PodList`.
fn list_items(value: &Value) -> Option<&Vec<Value>> {
    let kind = value["kind"].as_str()?;
    kind.ends_with("List").then(|| value["items"].as_array()).flatten()
}

/// What a cluster writes into an object, and people copy out of it: here it means nothing.
const HISTORY: [&str; 7] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "resourceVersion",
    "selfLink",
    "uid",
];

fn without_history(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in HISTORY {
            metadata.remove(field);
        }
    }
    object
}

fn content(value: Value) -> Result<(EntryId, Content), String> {
    match headwater_object::identify(&value) {
        Ok((object_type, key)) => {
            let id = EntryId {
                group: group(object_type.api_version).to_owned(),
                kind: object_type.kind.to_owned(),
                namespace: key.namespace().unwrap_or_default().to_owned(),
                name: key.name().to_owned(),
            };
            let object =
                Object::from_value(without_history(value)).map_err(|error| error_chain(&error))?;
            Ok((id, Content::Object(object.value())))
        }
        Err(ObjectError::NotReplicated { api_version, kind }) => {
            other_content(&api_version, kind, &value)
        }
        Err(error) => Err(error_chain(&error)),
    }
}

fn other_content(
    api_version: &str,
    kind: String,
    value: &Value,
) -> Result<(EntryId, Content), String> {
    let group = group(api_version);
    let namespace = match value["metadata"]["namespace"].as_str() {
        None | Some("") => DEFAULT_NAMESPACE,
        Some(namespace) => namespace,
    };
    let workload =
        Workload::read(group, &kind, namespace, value).map_err(|error| error_chain(&error))?;
    if workload.is_some()
        && let Err(error) = check_dns1123_label(namespace)
    {
        return Err(format!("{kind} with an invalid namespace: {error}"));
    }
    let id = EntryId {
        group: group.to_owned(),
        namespace: namespace.to_owned(),
        // Of kinds that are only counted, many have no name.
        name: value["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        kind,
    };
    Ok((id, workload.map_or(Content::Other, |workload| Content::Workload(Box::new(workload)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(file: &Entries) -> Vec<String> {
        file.entries.iter().map(|e| format!("{}:{}/{}", e.line, e.id.kind, e.id.name)).collect()
    }

    #[test]
    fn objects_lists_workloads_and_other_kinds_are_distinguished() {
        let file = Entries::read(
            "apiVersion: v1\nkind: List\nitems:\n\
             - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n\
             - {apiVersion: v1, kind: SecretList, items: [{apiVersion: v1, kind: Secret, metadata: {name: b}}]}\n\
             ---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: c}\n\
             ---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n\
             spec: {template: {spec: {containers: [{name: x}]}}}\n",
        );
        assert_eq!(file.findings, []);
        assert_eq!(
            ids(&file),
            ["1:ConfigMap/a", "1:Secret/b", "7:StorageClass/c", "11:Deployment/d"]
        );
        assert!(matches!(file.entries[2].content, Content::Other));
        assert!(matches!(file.entries[3].content, Content::Workload(_)));
        assert!(file.is_whole());
    }

    #[test]
    fn an_item_of_a_list_is_named_by_its_place() {
        let list =
            |items: Value| serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
        let inner = list(serde_json::json!([{"kind": "Pod"}]));
        let mut nested = list(serde_json::json!([7, inner]));
        let text = |value: &Value| {
            let file = Entries::read(&value.to_string());
            file.findings.into_iter().map(|finding| finding.text).collect::<Vec<_>>()
        };
        let found = text(&nested);
        assert!(found[0].starts_with("items[0]: not a Kubernetes object"), "{found:?}");
        assert_eq!(found[1], "items[1]: items[0]: not a Kubernetes object: it has no apiVersion");
        for _ in 0..LIST_DEPTH_MAX {
            nested = list(serde_json::json!([nested]));
        }
        assert!(text(&nested)[0].contains("nested more than"));
    }

    #[test]
    fn what_describes_nothing_is_named_with_its_line() {
        let file = Entries::read(
            "a: 1\n---\n- x\n---\nkind: Pod\napiVersion: v1\nmetadata: {generateName: p-}\n\
             ---\n{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 5}}\n",
        );
        assert!(file.entries.is_empty() && !file.is_whole());
        let found: Vec<_> = file.findings.iter().map(|f| (f.line, f.text.as_str())).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], (Some(1), "not a Kubernetes object: it has no kind"));
        assert_eq!(found[2], (Some(5), "Pod without metadata.name"));
        assert_eq!(found[1].0, Some(3));
        assert!(found[3].1.starts_with("default/pod/p: spec.containers: "), "{found:?}");
    }
}
