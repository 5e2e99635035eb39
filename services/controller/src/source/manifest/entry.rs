//! Entries: what each document of a file describes, or why it describes nothing.

use std::collections::HashSet;

use headwater_event::name::check_dns1123_label;
use headwater_event::{NodeName, ResourceKey};
use headwater_object::defaults::DEFAULT_NAMESPACE;
use headwater_object::fields::{FieldPath, PathStep};
use headwater_object::object_type::{ObjectType, group};
use headwater_object::payload::canonical;
use headwater_object::{Object, ObjectError};
use headwater_telemetry::error_chain;
use serde_json::Value;

use super::origin::remove_workload;
use super::parse::{DocumentText, Finding, parse};
use super::validation::{Doubt, Validation, doubts, kind_doubt};
use super::workload::Workload;
use crate::packed::{PackedPayload, PayloadPacker};
use crate::source::NoticeKind;

/// How deep lists of lists may nest; one is what people write.
const LIST_DEPTH_MAX: usize = 4;

/// The steps from a list to an item of it: the field `items`, and the item.
const STEPS_PER_LIST: usize = 2;

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
    /// A workload of a file that did not read when this controller took over. The other controller may have
    /// read a newer one, so its pods stay as they are published.
    Held(Box<Workload>),
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

/// The place of an object in a file.
#[derive(Clone)]
struct Place<'a> {
    /// The line of its document.
    line: u64,
    /// The text of its document.
    text: DocumentText<'a>,
    /// The way to the object in its document: empty, or through lists.
    path: FieldPath,
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
    pub(crate) fn read(text: &str, validation: Validation, shared: &mut SharedContent) -> Self {
        let (documents, findings) = parse(text, validation);
        let mut file = Self { entries: Vec::new(), findings };
        for document in documents {
            let place =
                Place { line: document.line, text: document.text, path: FieldPath::default() };
            file.add(document.value, &place, validation, shared);
        }
        file
    }

    /// Whether every document could be used: only then does absence mean removal.
    pub(crate) fn is_whole(&self) -> bool {
        !self.findings.iter().any(Finding::leaves_out)
    }

    /// The entry for an object that an earlier run published.
    pub(crate) fn restored(object: &Value, shared: &mut SharedContent) -> Option<Entry> {
        let (object_type, key) = headwater_object::identify(object).ok()?;
        let node = PodNode::of(object_type, object);
        let restored = shared.object(object_type, node, &canonical(object));
        let id = EntryId::Object { kind: object_type.kind, key };
        Some(Entry { line: 1, id, content: Content::Restored(restored) })
    }

    /// Takes up a document, or an item of a list in it.
    fn add(
        &mut self,
        mut value: Value,
        place: &Place<'_>,
        validation: Validation,
        shared: &mut SharedContent,
    ) {
        if let Some(items) = take_list_items(&mut value) {
            if place.path.0.len() >= STEPS_PER_LIST * LIST_DEPTH_MAX {
                let text = format!("lists nested more than {LIST_DEPTH_MAX} deep");
                self.find(place, NoticeKind::Invalid, text);
                return;
            }
            for (at, value) in items.into_iter().enumerate() {
                self.add(value, &place.item(at), validation, shared);
            }
            return;
        }
        let api_version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
        let doubts = doubts(&value);
        match content(value, shared) {
            Ok((id, content)) => {
                let of_kind = match content {
                    Content::Other => kind_doubt(&api_version, id.kind()),
                    _ => None,
                };
                let is_mistyped = of_kind.is_some();
                let all: Vec<Doubt> = of_kind.into_iter().chain(doubts).collect();
                let is_refused = validation == Validation::Strict && !all.is_empty();
                self.find_doubts(place, &id, all, validation);
                // Nothing else is reported of a mistyped kind.
                if !is_refused && !is_mistyped {
                    if let Content::Workload(workload) = &content {
                        for text in workload.doubts() {
                            self.find(place, NoticeKind::Doubtful, text);
                        }
                    }
                    self.entries.push(Entry { line: place.line, id, content });
                }
            }
            Err(text) => self.find(place, NoticeKind::Invalid, text),
        }
    }

    fn find(&mut self, place: &Place<'_>, kind: NoticeKind, text: String) {
        let text = format!("{}{text}", place.item_prefix());
        self.findings.push(Finding { line: Some(place.line), kind, text });
    }

    /// Adds a finding for each doubt about an object, at the line of its field.
    fn find_doubts(
        &mut self,
        place: &Place<'_>,
        id: &EntryId,
        doubts: Vec<Doubt>,
        validation: Validation,
    ) {
        if doubts.is_empty() {
            return;
        }
        let (kind, end) = match validation {
            Validation::Warn => (NoticeKind::Doubtful, ""),
            Validation::Strict => (NoticeKind::Invalid, " (refused under --strict)"),
        };
        let paths: Vec<FieldPath> = doubts.iter().map(|doubt| place.field(&doubt.path)).collect();
        let lines = place.text.lines(paths.iter(), place.line);
        let of = format!("{}{} {}", place.item_prefix(), id.kind(), id.title());
        self.findings.extend(doubts.into_iter().zip(lines).map(|(doubt, line)| Finding {
            line: Some(line),
            kind,
            text: format!("{of}: {}{end}", doubt.text),
        }));
    }
}

impl Place<'_> {
    /// The place of an item of a list at this place.
    fn item(&self, at: usize) -> Self {
        let mut path = self.path.clone();
        path.0.extend([PathStep::Field("items".to_owned()), PathStep::Item(at)]);
        Self { path, ..*self }
    }

    /// The path in the document of a field of the object at this place.
    fn field(&self, path: &FieldPath) -> FieldPath {
        FieldPath(self.path.0.iter().chain(&path.0).cloned().collect())
    }

    /// Which item of a list it is, as `items[2]: `; empty for the document itself.
    fn item_prefix(&self) -> String {
        let of = |step: &PathStep| match step {
            PathStep::Item(at) => Some(format!("items[{at}]: ")),
            PathStep::Field(_) => None,
        };
        self.path.0.iter().filter_map(of).collect()
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
        Entries::read(text, Validation::Warn, &mut SharedContent::default())
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
    fn an_unknown_field_and_a_selector_without_pods_are_doubted_and_refused_under_strict() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n\
             ---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replcas: 2\n\
             \x20 selector: {matchLabels: {app: x}}\n\
             \x20 template: {spec: {containers: [{name: c}]}}\n\
             ---\nkind: List\napiVersion: v1\nitems:\n\
             - {apiVersion: apps/v1, kind: Deploymnt, metadata: {name: e}}\n";
        let file = read(text);
        let found: Vec<_> = file.findings.iter().map(|f| (f.line, f.text.as_str())).collect();
        let expected = [
            (9, "Deployment default/d: unknown field spec.replcas; did you mean replicas?"),
            (10, "Deployment default/d: spec.selector does not match"),
            (
                16,
                "items[0]: Deploymnt default/e: Deploymnt of apps/v1 is no kind that is replicated; did you mean Deployment?",
            ),
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, (line, text)) in found.iter().zip(expected) {
            assert!(found.0 == Some(line) && found.1.starts_with(text), "{found:?}");
        }
        assert!(file.is_whole() && file.entries.len() == 2, "{:?}", ids(&file));

        let file = Entries::read(text, Validation::Strict, &mut SharedContent::default());
        assert_eq!(ids(&file), ["1:ConfigMap/default/a"]);
        assert!(!file.is_whole());
        assert!(file.findings.iter().all(|finding| finding.kind == NoticeKind::Invalid));
        assert!(file.findings[0].text.ends_with("(refused under --strict)"));
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
