//! What the API shows of edge nodes and their pods, as far as the sink compares it: a digest of each.
//!
//! The watches of the source fill it, and so do the answers to the sink's own requests. An answer may come
//! before the events of the changes before it: an event that is older than the answer is dropped. So is the
//! event of the write itself, which has the version of the answer: it changes nothing.
//!
//! | module | what it owns |
//! |---|---|
//! | `node` | a Node |
//! | `pod` | a pod |

mod node;
mod pod;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{NodeName, ResourceKey};
use tokio::sync::Notify;

pub(crate) use self::node::NodeView;
pub(crate) use self::pod::{Deletion, PodView};
use crate::digest::Digest;
use crate::kind::Kind;
use crate::node_object::NodeStatus;
use crate::pod_status::OwnedStatus;
use crate::raw_object::RawObject;
use crate::reflector::Step;

/// Pods that are remembered after they are gone, some 100 bytes each: the last Event of a pod may come then.
const GONE_MAX: usize = 1_024;

/// An object that the sink writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ObjectId {
    /// A Node.
    Node(NodeName),
    /// A pod, for what its node reports of it.
    Pod(ResourceKey),
    /// A pod, as the mirror of a static pod.
    Mirror(ResourceKey),
}

/// See the module. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ClusterView(Arc<ViewState>);

#[derive(Default)]
struct ViewState {
    objects: Mutex<ViewObjects>,
    changed: Notify,
}

/// The objects of a view.
#[derive(Debug, Default)]
pub(crate) struct ViewObjects {
    nodes: HashMap<NodeName, NodeView>,
    pods: HashMap<ResourceKey, PodView>,
    pods_of: HashMap<NodeName, BTreeSet<ResourceKey>>,
    /// The UIDs of pods that are gone, and the nodes that they were bound to.
    gone: VecDeque<(Box<str>, NodeName)>,
    /// The numbers of the newest lists.
    node_list: u32,
    pod_list: u32,
    has_listed_nodes: bool,
    /// How often the history of the API went back: versions of different histories may have one order.
    histories: u32,
    /// What changed since a reader asked; `None`: there is no reader.
    changed: Option<BTreeSet<ObjectId>>,
}

impl ClusterView {
    /// Applies what the list or the watch of a kind says.
    pub(crate) fn step(&self, kind: Kind, step: &Step) {
        if matches!(kind, Kind::Node | Kind::Pod) {
            self.change(|objects| objects.step(kind, step));
        }
    }

    /// Applies pods that were requested by themselves.
    pub(crate) fn requested<'a>(&self, pods: impl Iterator<Item = &'a RawObject>) {
        self.change(|objects| pods.for_each(|pod| objects.apply_pod(pod)));
    }

    /// Applies the object with which the API answered a request to write it. Of a Node that is not here it counts only if
    /// the request has made it (`is_new`): the watch may have removed it since the request was sent.
    ///
    /// Returns the digest of the status in the answer, as the view has it of an object.
    pub(crate) fn answered(&self, kind: Kind, object: &RawObject, is_new: bool) -> Digest {
        let status = self.change(|objects| match kind {
            Kind::Node => {
                if is_new || objects.has_node(object) {
                    objects.apply_node(object);
                }
                objects.status_of_node(object)
            }
            _ => {
                objects.apply_pod(object);
                objects.status_of_pod(object)
            }
        });
        // The view has another version by now, or does not have the object.
        status.unwrap_or_else(|| match kind {
            Kind::Node => NodeStatus::of(&object.value()["status"]).digest,
            _ => OwnedStatus::of(&object.value()["status"]).digest,
        })
    }

    /// Forgets which versions are newer than others: the history of the API went back.
    pub(crate) fn forget_versions(&self) {
        let mut objects = self.lock();
        objects.histories += 1;
        objects.nodes.values_mut().for_each(|node| node.order = None);
        objects.pods.values_mut().for_each(|pod| pod.order = None);
    }

    /// Begins to collect changes. What there is by now is no change.
    pub(crate) fn subscribe(&self) {
        self.lock().changed = Some(BTreeSet::new());
    }

    /// Waits until something may have changed. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// What changed since the last call, in order, so that a run in a simulation is the same again.
    pub(crate) fn take_changes(&self) -> BTreeSet<ObjectId> {
        self.lock().changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes the objects, and wakes the reader if there is a change that it has not taken.
    fn change<R>(&self, apply: impl FnOnce(&mut ViewObjects) -> R) -> R {
        let mut objects = self.lock();
        let returned = apply(&mut objects);
        let has_changes = objects.changed.as_ref().is_some_and(|changed| !changed.is_empty());
        drop(objects);
        if has_changes {
            self.0.changed.notify_one();
        }
        returned
    }

    /// Reads the objects. Nothing may wait while they are read.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ViewObjects> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewObjects {
    /// Whether the Nodes were listed once: one that is not here is not there.
    pub(crate) fn has_listed_nodes(&self) -> bool {
        self.has_listed_nodes
    }

    /// How often the history of the API went back.
    pub(crate) fn histories(&self) -> u32 {
        self.histories
    }

    /// A Node.
    pub(crate) fn node(&self, node: &NodeName) -> Option<&NodeView> {
        self.nodes.get(node)
    }

    /// A pod of an edge node.
    pub(crate) fn pod(&self, pod: &ResourceKey) -> Option<&PodView> {
        self.pods.get(pod)
    }

    /// The edge nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// The pods of edge nodes.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &ResourceKey> {
        self.pods.keys()
    }

    /// The pods of a node.
    pub(crate) fn pods_of(&self, node: &NodeName) -> impl Iterator<Item = &ResourceKey> {
        self.pods_of.get(node).into_iter().flatten()
    }

    /// Whether the pod of this UID was bound to the node and is gone since a short time.
    pub(crate) fn was_bound(&self, uid: &str, node: &NodeName) -> bool {
        self.gone.iter().any(|(of, on)| **of == *uid && on == node)
    }

    fn step(&mut self, kind: Kind, step: &Step) {
        match (step, kind) {
            (Step::Init, Kind::Node) => self.node_list += 1,
            (Step::Init, _) => self.pod_list += 1,
            (Step::InitDone { .. }, Kind::Node) => self.end_node_list(),
            (Step::InitDone { .. }, _) => self.end_pod_list(),
            (Step::InitApply(raw) | Step::Apply(raw), Kind::Node) => self.apply_node(raw),
            (Step::InitApply(raw) | Step::Apply(raw), _) => self.apply_pod(raw),
            (Step::Delete(raw), Kind::Node) => {
                if let Ok(node) = raw.name().parse()
                    && self.nodes.get(&node).is_some_and(|view| *view.uid == *raw.uid())
                {
                    self.remove_node(&node);
                }
            }
            (Step::Delete(raw), _) => {
                if let Ok(key) = raw.key(kind)
                    && self.pods.get(&key).is_some_and(|view| *view.uid == *raw.uid())
                {
                    self.remove_pod(&key);
                }
            }
        }
    }

    fn end_node_list(&mut self) {
        self.has_listed_nodes = true;
        let list = self.node_list;
        let gone: Vec<NodeName> = self
            .nodes
            .iter()
            .filter(|(_, view)| view.list != list)
            .map(|(node, _)| node.clone())
            .collect();
        gone.iter().for_each(|node| self.remove_node(node));
    }

    fn end_pod_list(&mut self) {
        let list = self.pod_list;
        let gone: Vec<ResourceKey> = self
            .pods
            .iter()
            .filter(|(_, view)| view.list != list)
            .map(|(pod, _)| pod.clone())
            .collect();
        gone.iter().for_each(|pod| self.remove_pod(pod));
    }

    fn has_node(&self, raw: &RawObject) -> bool {
        raw.name().parse::<NodeName>().is_ok_and(|node| self.nodes.contains_key(&node))
    }

    /// The digest of the status of a Node, if the view has this version of it.
    fn status_of_node(&self, raw: &RawObject) -> Option<Digest> {
        let view = self.nodes.get(&raw.name().parse::<NodeName>().ok()?)?;
        is_version(raw, &view.uid, view.order).then_some(view.status)
    }

    /// The digest of the status of a pod, if the view has this version of it.
    fn status_of_pod(&self, raw: &RawObject) -> Option<Digest> {
        let view = self.pods.get(&raw.key(Kind::Pod).ok()?)?;
        is_version(raw, &view.uid, view.order).then_some(view.status)
    }

    fn apply_node(&mut self, raw: &RawObject) {
        let Ok(node) = raw.name().parse::<NodeName>() else { return };
        if let Some(before) = self.nodes.get_mut(&node)
            && is_known(raw, &before.uid, before.order)
        {
            before.list = self.node_list;
            return;
        }
        self.nodes.insert(node.clone(), NodeView::of(raw, self.node_list));
        self.note(ObjectId::Node(node));
    }

    fn apply_pod(&mut self, raw: &RawObject) {
        let Ok(key) = raw.key(Kind::Pod) else { return };
        let Some(node) = raw.node().filter(|node| self.nodes.contains_key(node)) else { return };
        if let Some(before) = self.pods.get_mut(&key) {
            if is_known(raw, &before.uid, before.order) {
                before.list = self.pod_list;
                return;
            }
            if before.node != node || *before.uid != *raw.uid() {
                self.remove_pod(&key);
            }
        }
        self.pods_of.entry(node.clone()).or_default().insert(key.clone());
        self.pods.insert(key.clone(), PodView::of(raw, node, self.pod_list));
        self.note(ObjectId::Pod(key));
    }

    fn remove_node(&mut self, node: &NodeName) {
        self.nodes.remove(node);
        for pod in self.pods_of.remove(node).into_iter().flatten() {
            if let Some(view) = self.pods.remove(&pod) {
                self.note_gone(view);
            }
            self.note(ObjectId::Pod(pod));
        }
        self.note(ObjectId::Node(node.clone()));
    }

    fn remove_pod(&mut self, pod: &ResourceKey) {
        let Some(view) = self.pods.remove(pod) else { return };
        if let Some(pods) = self.pods_of.get_mut(&view.node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods_of.remove(&view.node);
            }
        }
        self.note_gone(view);
        self.note(ObjectId::Pod(pod.clone()));
    }

    fn note_gone(&mut self, view: PodView) {
        if self.gone.len() >= GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back((view.uid, view.node));
    }

    fn note(&mut self, id: ObjectId) {
        if let Some(changed) = &mut self.changed {
            changed.insert(id);
        }
    }
}

/// Whether `raw` brings nothing new beside the version `known` of an object with this UID: it is older, or it is this
/// very version.
fn is_known(raw: &RawObject, uid: &str, known: Option<u64>) -> bool {
    raw.order().zip(known).is_some_and(|(of_raw, known)| of_raw < known)
        || is_version(raw, uid, known)
}

/// Whether `raw` is the version `known` of the object with this UID.
fn is_version(raw: &RawObject, uid: &str, known: Option<u64>) -> bool {
    known.is_some() && raw.order() == known && *raw.uid() == *uid
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str) -> RawObject {
        let metadata = json!({"name": name, "uid": format!("u-{name}"), "resourceVersion": "1"});
        RawObject::new(json!({ "metadata": metadata }))
    }

    fn pod(name: &str, on: &str, uid: &str, version: u64, phase: &str) -> RawObject {
        RawObject::new(json!({
            "metadata": {
                "name": name, "namespace": "d", "uid": uid, "resourceVersion": version.to_string(),
            },
            "spec": {"nodeName": on},
            "status": {"phase": phase},
        }))
    }

    fn key(name: &str) -> ResourceKey {
        format!("d/pod/{name}").parse().expect("a key")
    }

    fn digest(view: &ClusterView, name: &str) -> Option<Digest> {
        view.lock().pod(&key(name)).map(|pod| pod.status)
    }

    fn of_phase(phase: &str) -> Digest {
        let status: Value = json!({ "phase": phase });
        OwnedStatus::of(&status).digest
    }

    /// Whether the reader of the changes is awake.
    fn is_awake(view: &ClusterView) -> bool {
        view.changed().now_or_never().is_some()
    }

    #[test]
    fn pods_of_edge_nodes_are_kept_until_they_or_their_nodes_are_gone() {
        let view = ClusterView::default();
        view.subscribe();
        view.step(Kind::Node, &Step::Apply(node("gw")));
        view.step(Kind::Pod, &Step::Apply(pod("a", "gw", "u1", 2, "Pending")));
        view.step(Kind::Pod, &Step::Apply(pod("b", "cloud", "u2", 3, "Pending")));
        assert_eq!(digest(&view, "a"), Some(of_phase("Pending")));
        assert_eq!(digest(&view, "b"), None);
        let changed = [ObjectId::Node("gw".parse().expect("a name")), ObjectId::Pod(key("a"))];
        assert_eq!(view.take_changes(), BTreeSet::from(changed));
        view.step(Kind::Pod, &Step::Delete(pod("a", "gw", "another", 4, "")));
        assert!(digest(&view, "a").is_some(), "another pod of its name was deleted");
        view.step(Kind::Node, &Step::Delete(node("gw")));
        assert_eq!(digest(&view, "a"), None);
        assert_eq!(view.lock().pods_of(&"gw".parse().expect("a name")).count(), 0);
    }

    #[test]
    fn an_event_that_is_older_than_an_answer_is_dropped() {
        let view = ClusterView::default();
        view.step(Kind::Node, &Step::Apply(node("gw")));
        view.answered(Kind::Pod, &pod("a", "gw", "u1", 9, "Running"), false);
        view.step(Kind::Pod, &Step::Apply(pod("a", "gw", "u1", 8, "Pending")));
        assert_eq!(digest(&view, "a"), Some(of_phase("Running")));
        view.forget_versions();
        view.step(Kind::Pod, &Step::Apply(pod("a", "gw", "u1", 8, "Pending")));
        assert_eq!(digest(&view, "a"), Some(of_phase("Pending")));
    }

    #[test]
    fn the_event_of_a_write_whose_answer_is_here_changes_nothing_but_keeps_the_object_listed() {
        let view = ClusterView::default();
        view.step(Kind::Node, &Step::Apply(node("gw")));
        view.step(Kind::Pod, &Step::Apply(pod("a", "gw", "u1", 2, "Pending")));
        view.subscribe();
        assert!(!is_awake(&view), "what there was is no change");
        let written = pod("a", "gw", "u1", 3, "Running");
        assert_eq!(view.answered(Kind::Pod, &written, false), of_phase("Running"));
        assert!(is_awake(&view));
        assert_eq!(view.take_changes(), BTreeSet::from([ObjectId::Pod(key("a"))]));
        view.step(Kind::Pod, &Step::Init);
        view.step(Kind::Pod, &Step::InitApply(written.clone()));
        view.step(Kind::Pod, &Step::InitDone { order: None });
        view.step(Kind::Pod, &Step::Apply(written));
        view.step(Kind::Node, &Step::Apply(node("gw")));
        assert_eq!((view.take_changes(), is_awake(&view)), (BTreeSet::new(), false));
        assert_eq!(digest(&view, "a"), Some(of_phase("Running")));
        // Another pod of its name, whatever its version.
        view.step(Kind::Pod, &Step::Apply(pod("a", "gw", "u2", 3, "Pending")));
        assert_eq!(digest(&view, "a"), Some(of_phase("Pending")));
        assert!(is_awake(&view));
    }

    #[test]
    fn an_answer_gives_the_digest_of_its_own_status_whatever_the_view_has() {
        let view = ClusterView::default();
        view.step(Kind::Node, &Step::Apply(node("gw")));
        view.step(Kind::Pod, &Step::Apply(pod("a", "gw", "u1", 9, "Failed")));
        let overtaken = pod("a", "gw", "u1", 8, "Running");
        assert_eq!(view.answered(Kind::Pod, &overtaken, false), of_phase("Running"));
        assert_eq!(digest(&view, "a"), Some(of_phase("Failed")));
        let of_no_edge = pod("b", "cloud", "u2", 3, "Running");
        assert_eq!(view.answered(Kind::Pod, &of_no_edge, false), of_phase("Running"));
        let of_node = view.lock().node(&"gw".parse().expect("a name")).map(|node| node.status);
        assert_eq!(Some(view.answered(Kind::Node, &node("gw"), false)), of_node);
    }

    #[test]
    fn an_answer_brings_no_node_back_that_the_watch_has_removed() {
        let view = ClusterView::default();
        let name: NodeName = "gw".parse().expect("a name");
        view.step(Kind::Node, &Step::Apply(node("gw")));
        view.step(Kind::Node, &Step::Delete(node("gw")));
        view.answered(Kind::Node, &node("gw"), false);
        assert!(view.lock().node(&name).is_none(), "of a request that was sent before");
        view.answered(Kind::Node, &node("gw"), true);
        assert!(view.lock().node(&name).is_some());
    }

    #[test]
    fn a_new_list_removes_what_it_does_not_have() {
        let view = ClusterView::default();
        assert!(!view.lock().has_listed_nodes());
        for step in [Step::Init, Step::InitApply(node("gw")), Step::InitDone { order: None }] {
            view.step(Kind::Node, &step);
        }
        assert!(view.lock().has_listed_nodes());
        let list = |names: &[&str]| {
            view.step(Kind::Pod, &Step::Init);
            for name in names {
                view.step(Kind::Pod, &Step::InitApply(pod(name, "gw", name, 2, "Pending")));
            }
            view.step(Kind::Pod, &Step::InitDone { order: None });
        };
        list(&["a", "b"]);
        list(&["b"]);
        assert_eq!((digest(&view, "a").is_some(), digest(&view, "b").is_some()), (false, true));
    }
}
