//! What each stream should have because of the objects of a cluster, worked out by other means than in a
//! source; and what left a stream.
//!
//! The oracle knows Nodes, Services, VolumeAttachments, and pods that name one ConfigMap, in `envFrom` of
//! their first container, and one Secret, in their first volume, all in the namespace `default`.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::{EntryKey, NodeName, ResourceKey, StreamId};
use serde_json::Value;

use crate::deletion::RemovedUids;

/// The label of edge nodes.
pub const EDGE_LABEL: &str = "node-role.kubernetes.io/edge";

/// How far the watch of one kind may be behind that of another, in milliseconds: a silent watch, a freeze,
/// a pause.
const BEHIND_MS: u64 = 300_000;

/// An object that a stream should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedObject {
    /// Its UID.
    pub uid: String,
    /// The annotation `n`, which a test changes with each write.
    pub mark: String,
}

/// What a stream should have.
pub type Wanted = BTreeMap<ResourceKey, WantedObject>;

/// A place in the cluster: the plural of a resource, and the namespace and name or the name.
type Place = (String, String);

/// See the module.
#[derive(Debug)]
pub struct ClusterOracle {
    nodes: Vec<NodeName>,
    objects: BTreeMap<Place, Arc<Value>>,
    wanted: BTreeMap<StreamId, Wanted>,
    /// What each stream would have if its node were an edge.
    bound: BTreeMap<StreamId, Wanted>,
    left: BTreeMap<StreamId, RemovedUids>,
    /// When a stream last had no use for a key any more, and when it last ended, in milliseconds.
    released: BTreeMap<(StreamId, ResourceKey), u64>,
    ended: BTreeMap<StreamId, u64>,
    now_ms: u64,
}

impl ClusterOracle {
    /// An oracle of the streams of `nodes` and of the shared one.
    pub fn new(nodes: impl IntoIterator<Item = NodeName>) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            objects: BTreeMap::new(),
            wanted: BTreeMap::new(),
            bound: BTreeMap::new(),
            left: BTreeMap::new(),
            released: BTreeMap::new(),
            ended: BTreeMap::new(),
            now_ms: 0,
        }
    }

    /// Takes a change of the cluster: the object at `path` of the resource `plural` was `before` and is
    /// `after`. `now_ms` only grows.
    pub fn observe(
        &mut self,
        now_ms: u64,
        plural: &str,
        path: &str,
        before: Option<&Value>,
        after: Option<&Arc<Value>>,
    ) {
        self.now_ms = now_ms;
        let place = (plural.to_owned(), path.to_owned());
        match after {
            Some(after) => self.objects.insert(place, after.clone()),
            None => self.objects.remove(&place),
        };
        if let Some(before) = before.filter(|_| plural == "pods") {
            self.release_named(before);
        }
        if let Some(after) = after {
            self.note_late_release(plural, path, after);
        }
        if let Some(before) =
            before.filter(|before| after.is_none_or(|after| uid(after) != uid(before)))
        {
            self.note_end(plural, path, before);
        }
        self.update_wanted();
    }

    /// What every stream should have.
    pub fn wanted(&self) -> &BTreeMap<StreamId, Wanted> {
        &self.wanted
    }

    /// The object at `path` of the resource `plural`.
    pub fn find(&self, plural: &str, path: &str) -> Option<&Arc<Value>> {
        self.objects.get(&(plural.to_owned(), path.to_owned()))
    }

    /// What has left a stream.
    pub fn left(&self, stream: &StreamId) -> RemovedUids {
        self.left.get(stream).cloned().unwrap_or_default()
    }

    fn note_left(&mut self, stream: &StreamId, key: ResourceKey, uid: String) {
        self.left.entry(stream.clone()).or_default().remove(EntryKey::from(key), uid);
    }

    /// Notes that the objects that a changed pod names may leave its node, and come back for another pod: a
    /// source may receive the end of the one pod before the other pod, and either long after or before the
    /// objects.
    fn release_named(&mut self, pod: &Value) {
        let Some(stream) = stream_of_pod(pod) else { return };
        for (plural, key) in named_by(pod) {
            self.released.insert((stream.clone(), key.clone()), self.now_ms);
            if let Some(object) = self.find(plural, &format!("default/{}", key.name())) {
                let uid = uid(object);
                self.note_left(&stream, key, uid);
            }
        }
    }

    /// Notes that an object may come to a stream that has no use for its key any more, and leave it again: a
    /// source may receive it before the end of the pod that named it.
    fn note_late_release(&mut self, plural: &str, path: &str, object: &Value) {
        let Some(kind) = named_kind(plural) else { return };
        let key = key(Some("default"), kind, name_of(path));
        let released = self
            .released
            .iter()
            .filter(|((_, of), at)| *of == key && self.now_ms < **at + BEHIND_MS);
        let streams: Vec<StreamId> = released.map(|((stream, _), _)| stream.clone()).collect();
        for stream in streams {
            self.note_left(&stream, key.clone(), uid(object));
        }
    }

    /// Notes that an object which is gone may still come to a stream, and leave it: a source may receive its
    /// end late.
    fn note_end(&mut self, plural: &str, path: &str, object: &Value) {
        let Some(kind) = named_kind(plural) else { return };
        let key = key(Some("default"), kind, name_of(path));
        let streams: Vec<StreamId> = self.wanted.keys().cloned().collect();
        for stream in streams {
            self.note_left(&stream, key.clone(), uid(object));
        }
    }

    /// Notes that an object that came to a stream may leave it again: a source may receive an earlier reason
    /// for its removal later, because two watches have no common order.
    fn note_early_arrival(&mut self, stream: &StreamId, key: &ResourceKey, uid: &str) {
        let released = self.released.get(&(stream.clone(), key.clone()));
        let ended = self.ended.get(stream);
        if released.into_iter().chain(ended).any(|at| self.now_ms < at + BEHIND_MS) {
            self.note_left(stream, key.clone(), uid.to_owned());
        }
    }

    fn of<'a>(&'a self, plural: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let objects = self.objects.iter().filter(move |((of, _), _)| of == plural);
        objects.map(|((_, path), object)| (name_of(path), &**object))
    }

    /// Works out what every stream should have, and what leaves it.
    fn update_wanted(&mut self) {
        let mut wanted: BTreeMap<StreamId, Wanted> = BTreeMap::new();
        let mut bound = BTreeMap::new();
        for node in &self.nodes {
            let of_node = self.bound_to(node);
            let is_edge = |node: &Arc<Value>| !node["metadata"]["labels"][EDGE_LABEL].is_null();
            let is_edge = self.find("nodes", node.as_str()).is_some_and(is_edge);
            let stream = StreamId::node(node);
            wanted.insert(stream.clone(), if is_edge { of_node.clone() } else { Wanted::new() });
            bound.insert(stream, of_node);
        }
        let services = self.of("services");
        let services =
            services.map(|(name, one)| (key(Some("default"), "service", name), mark(one)));
        wanted.insert(StreamId::Cluster, services.collect());
        let before = std::mem::replace(&mut self.wanted, wanted.clone());
        let bound_before = std::mem::replace(&mut self.bound, bound.clone());
        for (stream, now) in &wanted {
            let nothing = Wanted::new();
            let had = before.get(stream).unwrap_or(&nothing);
            if now.is_empty() && !had.is_empty() {
                self.ended.insert(stream.clone(), self.now_ms);
            }
            for (key, object) in had.iter().filter(|(key, object)| !has(now, key, object)) {
                self.note_left(stream, key.clone(), object.uid.clone());
            }
            // Also on a node that is no edge any more: a source may still take it for one.
            for (now, before) in [(&wanted, &before), (&bound, &bound_before)] {
                let had = before.get(stream).unwrap_or(&nothing);
                for (key, object) in now.get(stream).into_iter().flatten() {
                    if !has(had, key, object) {
                        self.note_early_arrival(stream, key, &object.uid);
                    }
                }
            }
        }
    }

    fn bound_to(&self, node: &NodeName) -> Wanted {
        let mut wanted = Wanted::new();
        let node = node.as_str();
        let Some(found) = self.find("nodes", node) else { return wanted };
        wanted.insert(key(None, "node", node), mark(found));
        for (name, pod) in self.of("pods").filter(|(_, pod)| pod["spec"]["nodeName"] == node) {
            wanted.insert(key(Some("default"), "pod", name), mark(pod));
            for (plural, key) in named_by(pod) {
                if let Some(object) = self.find(plural, &format!("default/{}", key.name())) {
                    wanted.insert(key, mark(object));
                }
            }
        }
        let attachments = self.of("volumeattachments");
        for (name, one) in attachments.filter(|(_, one)| one["spec"]["nodeName"] == node) {
            wanted.insert(key(None, "volumeattachment", name), mark(one));
        }
        wanted
    }
}

fn has(wanted: &Wanted, key: &ResourceKey, object: &WantedObject) -> bool {
    wanted.get(key).is_some_and(|other| other.uid == object.uid)
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The type in keys of a resource that pods name.
fn named_kind(plural: &str) -> Option<&'static str> {
    match plural {
        "configmaps" => Some("configmap"),
        "secrets" => Some("secret"),
        _ => None,
    }
}

fn stream_of_pod(pod: &Value) -> Option<StreamId> {
    let node = pod["spec"]["nodeName"].as_str()?.parse().ok()?;
    Some(StreamId::node(&node))
}

/// The objects that a pod names: plural and key.
fn named_by(pod: &Value) -> Vec<(&'static str, ResourceKey)> {
    let spec = &pod["spec"];
    let config = &spec["containers"][0]["envFrom"][0]["configMapRef"]["name"];
    let secret = &spec["volumes"][0]["secret"]["secretName"];
    let named = [("configmaps", "configmap", config), ("secrets", "secret", secret)];
    let named = named.into_iter().filter_map(|(plural, kind, name)| {
        let key = ResourceKey::new(Some("default"), kind, name.as_str()?).ok()?;
        Some((plural, key))
    });
    named.collect()
}

fn key(namespace: Option<&str>, kind: &str, name: &str) -> ResourceKey {
    ResourceKey::new(namespace, kind, name).expect("the names of a test make keys")
}

fn mark(object: &Value) -> WantedObject {
    let mark = object["metadata"]["annotations"]["n"].as_str().unwrap_or_default();
    WantedObject { uid: uid(object), mark: mark.to_owned() }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn oracle() -> ClusterOracle {
        let mut oracle = ClusterOracle::new(["gw-0".parse().expect("a name")]);
        let node = json!({"metadata": {"name": "gw-0", "uid": "n", "labels": {EDGE_LABEL: ""}}});
        oracle.observe(1, "nodes", "gw-0", None, Some(&Arc::new(node)));
        oracle
    }

    fn stream() -> StreamId {
        "node/gw-0".parse().expect("a stream")
    }

    fn wanted(oracle: &ClusterOracle) -> Vec<String> {
        oracle.wanted()[&stream()].keys().map(ToString::to_string).collect()
    }

    #[test]
    fn a_stream_has_its_node_its_pods_and_what_they_name_while_it_is_there() {
        let mut oracle = oracle();
        let env = json!([{"configMapRef": {"name": "c"}}]);
        let pod = json!({
            "metadata": {"uid": "p"}, "spec": {"nodeName": "gw-0", "containers": [{"envFrom": env}]},
        });
        let pod = Arc::new(pod);
        oracle.observe(2, "pods", "default/p", None, Some(&pod));
        assert_eq!(wanted(&oracle), ["default/pod/p", "null/node/gw-0"]);
        let config = Arc::new(json!({"metadata": {"uid": "c"}}));
        oracle.observe(3, "configmaps", "default/c", None, Some(&config));
        oracle.observe(3, "configmaps", "default/other", None, Some(&config));
        let all = ["default/configmap/c", "default/pod/p", "null/node/gw-0"];
        assert_eq!(wanted(&oracle), all);
        let c = EntryKey::from(key(Some("default"), "configmap", "c"));
        assert!(!oracle.left(&stream()).contains(&c, "c"));
        oracle.observe(4, "pods", "default/p", Some(&pod), None);
        assert_eq!(wanted(&oracle), ["null/node/gw-0"]);
        assert!(oracle.left(&stream()).contains(&c, "c"));
    }

    #[test]
    fn a_node_that_loses_the_label_has_nothing() {
        let mut oracle = oracle();
        let node = Arc::new(json!({"metadata": {"name": "gw-0", "uid": "n"}}));
        oracle.observe(2, "nodes", "gw-0", None, Some(&node));
        assert!(wanted(&oracle).is_empty());
    }
}
