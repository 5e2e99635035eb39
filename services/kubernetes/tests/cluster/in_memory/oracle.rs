//! What each stream should have because of the objects of the server, worked out by other means than in
//! the source; and what left a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_apiserver::{Change, Place};
use headwater_event::StreamId;
use serde_json::Value;
use tokio::time::Instant;

/// The label of edge nodes.
pub(crate) const EDGE: &str = "node-role.kubernetes.io/edge";

/// How far the watch of one kind may be behind that of another: a silent watch, a freeze, a pause.
const BEHIND: Duration = Duration::from_secs(300);

/// The nodes of a run.
pub(crate) const NODES: [&str; 2] = ["gw-0", "gw-1"];

/// What a stream should have: the UID and the mark of each key.
pub(crate) type Wanted = BTreeMap<String, (String, String)>;

/// See the module.
#[derive(Default)]
pub(crate) struct Oracle {
    objects: BTreeMap<Place, Arc<Value>>,
    wanted: BTreeMap<StreamId, Wanted>,
    /// What each stream would have if its node were an edge.
    bound: BTreeMap<StreamId, Wanted>,
    left: BTreeSet<(StreamId, String, String)>,
    /// When a stream last had no use for a key any more, and when it last ended.
    released: BTreeMap<(StreamId, String), Instant>,
    ended: BTreeMap<StreamId, Instant>,
}

impl Oracle {
    /// Takes a change of the server.
    pub(crate) fn observe(&mut self, change: &Change) {
        match &change.after {
            Some(after) => self.objects.insert(change.place.clone(), after.clone()),
            None => self.objects.remove(&change.place),
        };
        if let Some(before) = &change.before
            && change.place.plural == "pods"
        {
            self.let_go_of_named(before);
        }
        self.want();
    }

    /// What every stream should have.
    pub(crate) fn wanted(&self) -> BTreeMap<StreamId, Wanted> {
        self.wanted.clone()
    }

    /// Whether an object has left a stream.
    pub(crate) fn has_left(&self, stream: &StreamId, key: &str, uid: &str) -> bool {
        self.left.contains(&(stream.clone(), key.to_owned(), uid.to_owned()))
    }

    /// What a pod names that changed may leave its node, and come back for another pod: a source may receive
    /// its end before the other, and either long after or before the objects that they name.
    fn let_go_of_named(&mut self, pod: &Value) {
        let Some(stream) = pod["spec"]["nodeName"].as_str().map(stream_of) else { return };
        for (key, plural, name) in named_by(pod) {
            self.released.insert((stream.clone(), key.clone()), Instant::now());
            if let Some(object) = self.find(plural, &format!("default/{name}")) {
                let uid = uid(object);
                self.left.insert((stream.clone(), key, uid));
            }
        }
    }

    /// Notes objects that came to a stream, although a source may receive an earlier reason for their removal
    /// later: two watches have no common order.
    fn note_what_may_leave(&mut self, stream: &StreamId, key: &str, uid: &str) {
        let key = key.to_owned();
        let released = self.released.get(&(stream.clone(), key.clone()));
        let ended = self.ended.get(stream);
        if released.into_iter().chain(ended).any(|at| at.elapsed() < BEHIND) {
            self.left.insert((stream.clone(), key, uid.to_owned()));
        }
    }

    fn find(&self, plural: &str, path: &str) -> Option<&Arc<Value>> {
        let mut objects = self.objects.iter();
        let is_it = |place: &Place| place.plural == plural && place.path == path;
        objects.find(|(place, _)| is_it(place)).map(|(_, object)| object)
    }

    fn of<'a>(&'a self, plural: &'static str) -> impl Iterator<Item = (&'a Place, &'a Value)> {
        let objects = self.objects.iter().filter(move |(place, _)| place.plural == plural);
        objects.map(|(place, object)| (place, &**object))
    }

    /// Works out what every stream should have, and what leaves it.
    fn want(&mut self) {
        let mut wanted: BTreeMap<StreamId, Wanted> = BTreeMap::new();
        let mut bound = BTreeMap::new();
        for node in NODES {
            let of_node = self.bound_to(node);
            let is_edge = |node: &Arc<Value>| !node["metadata"]["labels"][EDGE].is_null();
            let is_edge = self.find("nodes", node).is_some_and(is_edge);
            wanted.insert(stream_of(node), if is_edge { of_node.clone() } else { Wanted::new() });
            bound.insert(stream_of(node), of_node);
        }
        let mut cluster = Wanted::new();
        for (place, object) in self.of("services") {
            cluster.insert(format!("default/service/{}", place.name()), mark(object));
        }
        wanted.insert(StreamId::Cluster, cluster);
        let before = std::mem::replace(&mut self.wanted, wanted.clone());
        let bound_before = std::mem::replace(&mut self.bound, bound.clone());
        for (stream, now) in &wanted {
            let nothing = Wanted::new();
            let gone = before.get(stream).unwrap_or(&nothing);
            let is_in = |keys: &Wanted, key: &str, uid: &str| {
                keys.get(key).is_some_and(|(other, _)| other == uid)
            };
            if now.is_empty() && !gone.is_empty() {
                self.ended.insert(stream.clone(), Instant::now());
            }
            for (key, (uid, _)) in gone.iter().filter(|(key, (uid, _))| !is_in(now, key, uid)) {
                self.left.insert((stream.clone(), key.clone(), uid.clone()));
            }
            // Also on a node that is no edge any more: a source may still take it for one.
            let came = [(&wanted, &before), (&bound, &bound_before)].map(|(now, before)| {
                let (now, before) = (now.get(stream), before.get(stream));
                now.into_iter().flatten().filter(move |(key, (uid, _))| {
                    !before.is_some_and(|before| is_in(before, key, uid))
                })
            });
            for (key, (uid, _)) in came.into_iter().flatten() {
                self.note_what_may_leave(stream, key, uid);
            }
        }
    }

    fn bound_to(&self, node: &str) -> Wanted {
        let mut wanted = Wanted::new();
        let Some(found) = self.find("nodes", node) else { return wanted };
        wanted.insert(format!("null/node/{node}"), mark(found));
        for (place, pod) in self.of("pods").filter(|(_, pod)| pod["spec"]["nodeName"] == node) {
            wanted.insert(format!("default/pod/{}", place.name()), mark(pod));
            for (key, plural, name) in named_by(pod) {
                if let Some(object) = self.find(plural, &format!("default/{name}")) {
                    wanted.insert(key, mark(object));
                }
            }
        }
        let attachments = self.of("volumeattachments");
        for (place, one) in attachments.filter(|(_, one)| one["spec"]["nodeName"] == node) {
            wanted.insert(format!("null/volumeattachment/{}", place.name()), mark(one));
        }
        wanted
    }
}

fn stream_of(node: &str) -> StreamId {
    format!("node/{node}").parse().expect("a stream")
}

/// The objects that a pod names: key, plural and name.
fn named_by(pod: &Value) -> [(String, &'static str, String); 2] {
    let spec = &pod["spec"];
    let config = &spec["containers"][0]["envFrom"][0]["configMapRef"]["name"];
    let secret = &spec["volumes"][0]["secret"]["secretName"];
    [("configmap", "configmaps", config), ("secret", "secrets", secret)].map(
        |(kind, plural, name)| {
            let name = name.as_str().unwrap_or_default().to_owned();
            (format!("default/{kind}/{name}"), plural, name)
        },
    )
}

fn mark(object: &Value) -> (String, String) {
    let mark = object["metadata"]["annotations"]["n"].as_str().unwrap_or_default();
    (uid(object), mark.to_owned())
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
