//! Descriptions: what all files together describe, workloads expanded and pods placed.
//!
//! Pure: the same entries, nodes and past give the same description, whatever the order in which
//! the files changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use headwater_event::{NodeName, ResourceKey};
use headwater_object::defaults::fill_in;
use headwater_object::host_ports::host_ports_of;
use headwater_object::identify;
use headwater_object::payload::canonical;
use jiff::Timestamp;
use serde_json::Value;

use super::entry::{Content, Entry, EntryId, ManifestObject, PodNode};
use super::fit::NodeTraits;
use super::placement::{Floating, NodeLoad, place};
use super::rollout::DeploymentProgress;
use super::unfolding::{held_state, unfold};
use super::workload::{WORKLOAD_ANNOTATION, Workload};
use crate::packed::{PackedPayload, PayloadPacker};
use crate::source::identity::is_same_object;
use crate::source::workloads::WorkloadState;
use crate::source::{Notice, NoticeKind, PodReports};

/// The most objects of a folder: ten times what Kubernetes supports pods on a thousand nodes, and
/// a bound for a folder that is not meant.
pub(crate) const OBJECTS_MAX: usize = 1_000_000;

/// What a folder describes.
#[derive(Debug, Default)]
pub(crate) struct Description {
    /// Each object, with the file that it comes from.
    pub(crate) objects: BTreeMap<ResourceKey, DescribedObject>,
    /// Messages about it.
    pub(crate) notices: Vec<Notice>,
    /// The workloads, in the order of their files. Those that are held come last.
    pub(crate) workloads: Vec<WorkloadState>,
    /// The pods whose reports may change what is described next.
    pub(crate) waiting: BTreeSet<ResourceKey>,
    /// When something else may be described although nothing changed.
    pub(crate) next: Option<Timestamp>,
    /// The kinds that are counted only, by group and kind.
    pub(crate) other_kinds: BTreeMap<(String, String), OtherKind>,
}

/// An object that a file describes.
#[derive(Clone, Debug)]
pub(crate) struct DescribedObject {
    /// The object, as the file or its workload has it.
    pub(crate) payload: PackedPayload,
    /// The node that a pod names.
    named: PodNode,
    /// The node on which a floating pod is placed.
    pub(crate) placed: Option<NodeName>,
    /// Its place.
    pub(crate) origin: Origin,
    /// The workload that it is a pod of.
    pub(crate) workload: Option<Arc<str>>,
}

impl DescribedObject {
    /// The object, on its node.
    pub(crate) fn value(&self) -> Value {
        let mut value = self.payload.value();
        if let Some(node) = &self.placed {
            set_node(&mut value, node);
        }
        value
    }
}

/// A place in the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// The file, relative to the folder.
    pub(crate) file: Arc<Path>,
    /// The line, from 1.
    pub(crate) line: u64,
}

/// A kind that is not replicated.
#[derive(Debug)]
pub(crate) struct OtherKind {
    /// How many objects of it there are.
    pub(crate) count: usize,
    /// The first of them.
    pub(crate) first: Origin,
}

/// What the objects were before: the last description, or what an earlier run published.
pub(crate) type Past<'a> = dyn Fn(&ResourceKey) -> Option<Value> + 'a;

/// What rollouts depend on.
pub(crate) struct RolloutInputs<'a> {
    /// The pods that are published, by namespace and [`WORKLOAD_ANNOTATION`].
    pub(crate) members: &'a Members,
    /// What the nodes report.
    pub(crate) reports: &'a dyn PodReports,
    pub(crate) now: Timestamp,
}

/// The published pods of each workload, by namespace and [`WORKLOAD_ANNOTATION`].
pub(crate) type Members = HashMap<(String, Arc<str>), Vec<ResourceKey>>;

/// Describes what `files` hold, in the order of their paths.
pub(crate) fn describe<'a>(
    files: impl Iterator<Item = (&'a Path, &'a [Entry])>,
    node_names: &BTreeSet<NodeName>,
    past: &Past<'_>,
    inputs: &RolloutInputs<'_>,
) -> Description {
    let mut builder = Builder::default();
    let (mut restored, mut held) = (Vec::new(), Vec::new());
    for (file, entries) in files {
        let file: Arc<Path> = file.into();
        for entry in entries {
            let origin = Origin { file: file.clone(), line: entry.line };
            match &entry.content {
                Content::Restored(object) => restored.push((&entry.id, object, origin)),
                Content::Held(workload) => held.push(&**workload),
                _ => builder.add(entry, origin),
            }
        }
    }
    let workloads: HashSet<(&str, String)> =
        builder.workloads.iter().map(|(of, _)| (of.namespace(), of.reference())).collect();
    for (id, object, origin) in restored {
        // The present content of a file takes precedence over that of an earlier run.
        if builder.seen.contains_key(id) {
            continue;
        }
        let pod = || object.payload.value();
        let workload = Some(id).filter(|id| id.kind() == "Pod").and_then(|_| workload_of(&pod()));
        // The pods of a workload that is described follow from it.
        let follows = workload.as_ref().is_some_and(|workload| {
            let EntryId::Object { key, .. } = id else { return false };
            let namespace = key.namespace().unwrap_or_default();
            workloads.contains(&(namespace, workload.to_string()))
        });
        if !follows {
            builder.insert(id, object, origin, workload);
        }
    }
    let nodes = builder.nodes(node_names);
    builder.unfold(&nodes, past, inputs);
    builder.place(&nodes, past);
    held.retain(|held| !workloads.contains(&(held.namespace(), held.reference())));
    let held = held.into_iter().map(|workload| held_state(workload, past, inputs));
    builder.description.workloads.extend(held);
    builder.description
}

#[derive(Default)]
struct Builder<'a> {
    description: Description,
    seen: HashMap<&'a EntryId, Origin>,
    workloads: Vec<(&'a Workload, Origin)>,
    packer: PayloadPacker,
}

impl<'a> Builder<'a> {
    fn add(&mut self, entry: &'a Entry, origin: Origin) {
        if let (Content::Other, EntryId::Other(id)) = (&entry.content, &entry.id) {
            let kind = (id.group.clone(), id.kind.clone());
            let first = || OtherKind { count: 0, first: origin };
            self.description.other_kinds.entry(kind).or_insert_with(first).count += 1;
            return;
        }
        if let Some(first) = self.seen.get(&entry.id) {
            let text = format!(
                "{} {} is described already in {}:{}, which stays; this one is left out",
                entry.id.kind(),
                entry.id.title(),
                first.file.display(),
                first.line
            );
            self.notice(&origin, NoticeKind::Duplicate, text);
            return;
        }
        self.seen.insert(&entry.id, origin.clone());
        match &entry.content {
            Content::Object(object) => self.insert(&entry.id, object, origin, None),
            Content::Workload(workload) => self.workloads.push((workload, origin)),
            Content::Other | Content::Restored(_) | Content::Held(_) => {}
        }
    }

    /// Takes up an object, unless its key is taken.
    fn insert(
        &mut self,
        id: &EntryId,
        object: &ManifestObject,
        origin: Origin,
        workload: Option<Arc<str>>,
    ) {
        let EntryId::Object { key, .. } = id else { return };
        let ManifestObject { payload, node } = object;
        self.description.objects.entry(key.clone()).or_insert_with(|| DescribedObject {
            payload: payload.clone(),
            named: node.clone(),
            placed: None,
            origin,
            workload,
        });
    }

    /// The nodes that pods may be placed on: those named, else those described.
    fn nodes(&self, names: &BTreeSet<NodeName>) -> BTreeMap<NodeName, NodeTraits> {
        let objects = &self.description.objects;
        let described: BTreeMap<NodeName, Value> = objects
            .iter()
            .filter(|(key, _)| key.kind() == "node")
            .filter_map(|(key, node)| Some((key.name().parse().ok()?, node.value())))
            .collect();
        let names =
            if names.is_empty() { described.keys().cloned().collect() } else { names.clone() };
        names
            .into_iter()
            .map(|name| (name.clone(), NodeTraits::new(&name, described.get(&name))))
            .collect()
    }

    /// Adds the pods that each workload has next.
    fn unfold(
        &mut self,
        nodes: &BTreeMap<NodeName, NodeTraits>,
        past: &Past<'_>,
        inputs: &RolloutInputs<'_>,
    ) {
        for (workload, origin) in std::mem::take(&mut self.workloads) {
            let unfolded = unfold(workload, nodes, past, inputs);
            self.description.waiting.extend(unfolded.waiting);
            let times = self.description.next.into_iter().chain(unfolded.next);
            self.description.next = times.min();
            if let Some(DeploymentProgress::Exceeded { seconds }) = unfolded.state.progress {
                let text = format!(
                    "{}: its rollout has made no progress for {seconds} s \
                     (spec.progressDeadlineSeconds); `headwater describe pod` shows what its new \
                     pods wait for",
                    workload.title()
                );
                self.notice(&origin, NoticeKind::Stalled, text);
            }
            self.description.workloads.push(unfolded.state);
            let reference: Arc<str> = workload.reference().into();
            for mut value in unfolded.objects {
                let Ok((object_type, key)) = identify(&value) else { continue };
                if self.description.objects.len() >= OBJECTS_MAX {
                    let text = format!("more than {OBJECTS_MAX} objects: the rest is left out");
                    self.notice(&origin, NoticeKind::Invalid, text);
                    return;
                }
                fill_in(object_type, &mut value);
                if let Some(taken) = self.description.objects.get(&key) {
                    // A claim that is there already is what a StatefulSet's pod uses.
                    if key.kind() == "pod" {
                        let text = format!(
                            "{key} of {} is described already in {}:{}, which stays",
                            workload.title(),
                            taken.origin.file.display(),
                            taken.origin.line
                        );
                        self.notice(&origin, NoticeKind::Duplicate, text);
                    }
                    continue;
                }
                let payload = self.packer.pack(object_type.name, &canonical(&value));
                let (named, origin) = (PodNode::of(object_type, &value), origin.clone());
                let workload = Some(reference.clone()).filter(|_| key.kind() == "pod");
                let described = DescribedObject { payload, named, placed: None, origin, workload };
                self.description.objects.insert(key, described);
            }
        }
    }

    fn place(&mut self, nodes: &BTreeMap<NodeName, NodeTraits>, past: &Past<'_>) {
        let objects = &self.description.objects;
        let floating: Vec<Floating<'_>> = objects
            .iter()
            .filter(|(_, described)| described.named == PodNode::Floating)
            .map(|(key, described)| floating_pod(key, &described.value(), past))
            .collect();
        // The ports of pods that name their node are read only for a pod that may collide with them.
        let takes_ports = floating.iter().any(|pod| !pod.ports.is_empty());
        let mut named: BTreeMap<NodeName, NodeLoad> = BTreeMap::new();
        for described in objects.values() {
            if let PodNode::Named(Some(node)) = &described.named {
                let ports = takes_ports.then(|| host_ports_of(&described.value()));
                named.entry(node.clone()).or_default().add(&ports.unwrap_or_default());
            }
        }
        let placed = place(&floating, nodes, &named);
        let homeless: Vec<ResourceKey> = floating
            .iter()
            .filter(|pod| !placed.contains_key(pod.key))
            .map(|pod| pod.key.clone())
            .collect();
        for (key, node) in placed {
            if let Some(described) = self.description.objects.get_mut(&key) {
                described.placed = Some(node);
            }
        }
        self.tell_homeless(&homeless, nodes.len());
    }

    /// Adds a notice for pods that fit no node, once for each place that describes them.
    fn tell_homeless(&mut self, homeless: &[ResourceKey], nodes: usize) {
        let mut by_origin: BTreeMap<Origin, Vec<&ResourceKey>> = BTreeMap::new();
        for key in homeless {
            if let Some(described) = self.description.objects.get(key) {
                by_origin.entry(described.origin.clone()).or_default().push(key);
            }
        }
        for (origin, keys) in by_origin {
            let [first, rest @ ..] = &keys[..] else { continue };
            let who = match rest.len() {
                0 => format!("pod {first} waits"),
                more => format!("pod {first} and {more} more wait"),
            };
            let pod = self.description.objects[*first].value();
            let selector = &pod["spec"]["nodeSelector"];
            let selector = selector.is_object().then(|| selector.to_string());
            let ports = host_ports_of(&pod).into_iter().map(|port| format!("port {port}"));
            let asked: Vec<_> = selector.into_iter().chain(ports).collect();
            let asked = match &asked[..] {
                [] => String::new(),
                asked => format!(", asking for {}", asked.join(" and ")),
            };
            let text = match nodes {
                0 => format!("{who}: there is no node"),
                nodes => format!("{who}: none of {nodes} nodes fits{asked}"),
            };
            self.notice(&origin, NoticeKind::Unplaced, text);
        }
    }

    fn notice(&mut self, origin: &Origin, kind: NoticeKind, text: String) {
        let Origin { file, line } = origin.clone();
        let file = Some(file.to_path_buf());
        self.description.notices.push(Notice { file, line: Some(line), kind, text });
    }
}

/// The workload that a published pod belongs to.
pub(crate) fn workload_of(pod: &Value) -> Option<Arc<str>> {
    pod["metadata"]["annotations"][WORKLOAD_ANNOTATION].as_str().map(Arc::from)
}

fn floating_pod<'a>(key: &'a ResourceKey, pod: &Value, past: &Past<'_>) -> Floating<'a> {
    let earlier = past(key);
    let was_on: Option<NodeName> =
        earlier.as_ref().and_then(|pod| pod["spec"]["nodeName"].as_str()?.parse().ok());
    let is_same = match (&earlier, &was_on) {
        (Some(earlier), Some(node)) => {
            let mut there = pod.clone();
            set_node(&mut there, node);
            is_same_object(key, earlier, &there)
        }
        _ => false,
    };
    let (ports, pod) = (host_ports_of(pod), NodeTraits::asking_pod(pod));
    Floating { key, pod, ports, was_on, is_same }
}

fn set_node(pod: &mut Value, node: &NodeName) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".to_owned(), node.as_str().into());
    }
}
