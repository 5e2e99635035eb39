//! Entries: what each document of a file describes, or why it describes nothing.

use std::collections::HashSet;

use headwater_event::name::check_dns1123_label;
use headwater_event::{NodeName, ResourceKey};
use headwater_object::defaults::DEFAULT_NAMESPACE;
use headwater_object::object_type::{ObjectType, group};
use headwater_object::payload::canonical;
use headwater_object::{Object, ObjectError};
use headwater_telemetry::error_chain;
use serde_json::Value;

use super::origin::remove_workload;
use super::parse::{Document, Finding, parse};
use super::workload::Workload;
use crate::packed::{PackedPayload, PayloadPacker};
use crate::source::NoticeKind;

/// How deep lists of lists may nest; one is what people write.
const LIST_DEPTH_MAX: usize = 4;

/// Identifies the object that an entry describes. Another version of the same object has the same id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum EntryId {
    /// An object of a replicated type.
    Object {
        /// The kind, as in manifests.
        kind: &'static str,
        /// The key.
        key: ResourceKey,
    },
    /// A workload, or an object that is not replicated.
    Other(Box<OtherId>),
}

/// Identifies an object that is not replicated as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OtherId {
    /// The API group.
    pub(crate) group: String,
    /// The kind.
    pub(crate) kind: String,
    /// The namespace.
    pub(crate) namespace: String,
    /// The name; many objects of kinds that are only counted have none.
    pub(crate) name: String,
}

/// What a document describes.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The line of its document.
    pub(crate) line: u64,
    /// Which object it is.
    pub(crate) id: EntryId,
    /// What it is.
    pub(crate) content: Content,
}

/// What an entry is.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// An object that is replicated as it is, filled in as a cluster would.
    Object(ManifestObject),
    /// An object that an earlier run published from this file, which does not read any more.
    Restored(ManifestObject),
    /// A workload, which unfolds to pods.
    Workload(Box<Workload>),
    /// An object of a kind that is not replicated.
    Other,
}

/// An object of a manifest.
#[derive(Clone, Debug)]
pub(crate) struct ManifestObject {
    /// The object, in canonical JSON.
    pub(crate) payload: PackedPayload,
    /// The node that it names.
    pub(crate) node: PodNode,
}

/// The node that a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodNode {
    /// The object is not a pod.
    NotAPod,
    /// A node; `None`: its name is invalid.
    Named(Option<NodeName>),
    /// No node: the pod has to be placed.
    Floating,
}

/// The content that entries have in common: a folder keeps it once for all of them.
#[derive(Debug, Default)]
pub(crate) struct SharedContent {
    payloads: PayloadPacker,
    nodes: HashSet<NodeName>,
}

/// What a whole file describes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    /// In the order of the file.
    pub(crate) entries: Vec<Entry>,
    /// What of it describes nothing.
    pub(crate) findings: Vec<Finding>,
}

impl Entries {
    /// Reads the text of a file.
    pub(crate) fn read(text: &str, shared: &mut SharedContent) -> Self {
        let (documents, findings) = parse(text);
        let mut file = Self { entries: Vec::new(), findings };
        for document in documents {
            file.add(document, 0, "", shared);
        }
        file
    }

    /// Whether every document could be used: only then does absence mean removal.
    pub(crate) fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind == NoticeKind::Doubtful)
    }

    /// The entry for an object that an earlier run published.
    pub(crate) fn restored(object: &Value, shared: &mut SharedContent) -> Option<Entry> {
        let (object_type, key) = headwater_object::identify(object).ok()?;
        let node = PodNode::of(object_type, object);
        let restored = shared.object(object_type, node, &canonical(object));
        let id = EntryId::Object { kind: object_type.kind, key };
        Some(Entry { line: 1, id, content: Content::Restored(restored) })
    }

    /// Takes up a document, or an item of a list in it: `path` says which, as `items[2]: `.
    fn add(&mut self, document: Document, depth: usize, path: &str, shared: &mut SharedContent) {
        let Document { line, mut value } = document;
        if let Some(items) = take_list_items(&mut value) {
            if depth == LIST_DEPTH_MAX {
                self.find(line, format!("{path}lists nested more than {LIST_DEPTH_MAX} deep"));
                return;
            }
            for (at, value) in items.into_iter().enumerate() {
                let item = Document { line, value };
                self.add(item, depth + 1, &format!("{path}items[{at}]: "), shared);
            }
            return;
        }
        match content(value, shared) {
            Ok((id, content)) => {
                if let Content::Workload(workload) = &content {
                    self.findings.extend(workload.doubts().into_iter().map(|text| {
                        let (line, kind) = (Some(line), NoticeKind::Doubtful);
                        Finding { line, kind, text: format!("{path}{text}") }
                    }));
                }
                self.entries.push(Entry { line, id, content });
            }
            Err(text) => self.find(line, format!("{path}{text}")),
        }
    }

    fn find(&mut self, line: u64, text: String) {
        self.findings.push(Finding { line: Some(line), kind: NoticeKind::Invalid, text });
    }
}

impl EntryId {
    /// The kind, as in manifests.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Object { kind, .. } => kind,
            Self::Other(id) => &id.kind,
        }
    }

    /// The name, with the namespace if it has one, as a person writes it.
    pub(crate) fn title(&self) -> String {
        let (namespace, name) = match self {
            Self::Object { key, .. } => (key.namespace().unwrap_or_default(), key.name()),
            Self::Other(id) => (&*id.namespace, &*id.name),
        };
        if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
    }
}

impl SharedContent {
    fn object(
        &mut self,
        object_type: &'static ObjectType,
        node: PodNode,
        payload: &[u8],
    ) -> ManifestObject {
        let node = match node {
            PodNode::Named(Some(node)) => PodNode::Named(Some(self.node(node))),
            node => node,
        };
        ManifestObject { payload: self.payloads.pack(object_type.name, payload), node }
    }

    fn node(&mut self, node: NodeName) -> NodeName {
        if let Some(known) = self.nodes.get(&node) {
            return known.clone();
        }
        self.nodes.insert(node.clone());
        node
    }
}

impl PodNode {
    /// The node that the object in `value` names.
    pub(crate) fn of(object_type: &ObjectType, value: &Value) -> Self {
        if object_type.name != "pod" {
            return Self::NotAPod;
        }
        match value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            Some(node) => Self::Named(node.parse().ok()),
            None => Self::Floating,
        }
    }
}

/// Takes the items out of a `List`, or of a typed one as `PodList`.
fn take_list_items(value: &mut Value) -> Option<Vec<Value>> {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").filter(|_| is_list)? {
        Value::Array(items) => Some(std::mem::take(items)),
        _ => None,
    }
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

fn content(value: Value, shared: &mut SharedContent) -> Result<(EntryId, Content), String> {
    match headwater_object::identify(&value) {
        Ok((object_type, _)) => {
            let mut value = without_history(value);
            remove_workload(&mut value);
            let node = PodNode::of(object_type, &value);
            let object = Object::from_value(value).map_err(|error| error_chain(&error))?;
            let id = EntryId::Object { kind: object_type.kind, key: object.key().clone() };
            Ok((id, Content::Object(shared.object(object_type, node, object.payload()))))
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
    let id = EntryId::Other(Box::new(OtherId {
        group: group.to_owned(),
        namespace: namespace.to_owned(),
        name: value["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        kind,
    }));
    Ok((id, workload.map_or(Content::Other, |workload| Content::Workload(Box::new(workload)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Entries {
        Entries::read(text, &mut SharedContent::default())
    }

    fn ids(file: &Entries) -> Vec<String> {
        let id = |e: &Entry| format!("{}:{}/{}", e.line, e.id.kind(), e.id.title());
        file.entries.iter().map(id).collect()
    }

    #[test]
    fn objects_lists_workloads_and_other_kinds_are_distinguished() {
        let file = read(
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
            [
                "1:ConfigMap/default/a",
                "1:Secret/default/b",
                "7:StorageClass/default/c",
                "11:Deployment/default/d"
            ]
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
            let file = read(&value.to_string());
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
        let file = read(
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
    #[test]
    fn a_container_name_twice_and_a_wrong_restart_policy_are_refused_with_their_line() {
        let file = read(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n\
             spec: {containers: [{name: a}], initContainers: [{name: a}]}\n\
             ---\napiVersion: v1\nkind: Pod\nmetadata: {name: q}\n\
             spec: {restartPolicy: always, containers: [{name: a}]}\n\
             ---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n\
             spec: {template: {spec: {restartPolicy: Never, containers: [{name: a}]}}}\n",
        );
        assert!(file.entries.is_empty());
        let found: Vec<_> = file.findings.iter().map(|f| (f.line, f.text.as_str())).collect();
        for (found, (line, text)) in found.iter().zip([
            (1, "default/pod/p: spec.containers[0].name: "),
            (6, "default/pod/q: spec.restartPolicy: \"always\" is none"),
            (11, "Deployment \"d\": spec.template.spec.restartPolicy is \"Never\", want Always"),
        ]) {
            assert!(found.0 == Some(line) && found.1.starts_with(text), "{found:?}");
        }
        assert_eq!(found.len(), 3);
    }
}
