//! The cluster: the objects that really are, and what each node should hold because of them.
//!
//! What nodes should hold is worked out here by other means than in the controller, so that the
//! two can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use headwater_check::deletion::RemovedUids;
use headwater_controller::{
    Cause, KnownObjects, Source, SourceContext, SourceError, SourceEvent, SourceKind,
};
use headwater_event::{EntryKey, NodeName, ResourceKey, StreamId};
use headwater_object::Object;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::frame::{Frame, lock};

/// Names of pods, and of each of the kinds that they may name.
const PODS: u64 = 6;
const OTHERS: u64 = 4;

/// How long a change is on its way to a controller at most.
const WATCH_MS_MAX: u64 = 20;

/// The cluster. Clones are the same.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    frame: Frame,
    nodes: Vec<NodeName>,
    state: Mutex<State>,
    bell: Notify,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<ResourceKey, Object>,
    changes: Vec<SourceEvent>,
    minted: u64,
    /// What each stream should hold.
    wanted: BTreeMap<StreamId, BTreeMap<ResourceKey, String>>,
    removed: BTreeMap<StreamId, RemovedUids>,
}

impl Cluster {
    pub(crate) fn new(frame: &Frame, nodes: &[NodeName]) -> Self {
        let inner = Inner {
            frame: frame.clone(),
            nodes: nodes.to_vec(),
            state: Mutex::default(),
            bell: Notify::new(),
        };
        Self(Arc::new(inner))
    }

    /// A change of some kind.
    pub(crate) fn change(&self) {
        let frame = &self.0.frame;
        match frame.below(20) {
            0..=6 => self.put_pod(),
            7 => self.delete_pod(false),
            8 | 9 => self.delete_pod(true),
            10..=15 => self.put_other(),
            16..=18 => self.delete_other(),
            _ => {
                self.delete_other();
                self.put_other();
            }
        }
    }

    /// What `stream` should hold: keys and UIDs.
    pub(crate) fn wanted(&self, stream: &StreamId) -> BTreeMap<ResourceKey, String> {
        lock(&self.0.state).wanted.get(stream).cloned().unwrap_or_default()
    }

    /// The object at `key`.
    pub(crate) fn object(&self, key: &ResourceKey) -> Option<Object> {
        lock(&self.0.state).objects.get(key).cloned()
    }

    /// What has really left each stream.
    pub(crate) fn removed(&self, stream: &StreamId) -> RemovedUids {
        lock(&self.0.state).removed.get(stream).cloned().unwrap_or_default()
    }

    /// Every container of a pod under deletion has stopped: the API lets it go.
    pub(crate) fn terminated(&self, pod: &ResourceKey, uid: &str) {
        let is_deleting = self.object(pod).is_some_and(|object| {
            object.uid() == uid && !object.value()["metadata"]["deletionTimestamp"].is_null()
        });
        if is_deleting {
            self.0.frame.count("pod let go after its end");
            self.delete(pod);
        }
    }

    fn put_pod(&self) {
        let frame = &self.0.frame;
        let name = format!("p{}", frame.below(PODS));
        let key = named("pod", &name);
        let before = self.object(&key);
        let node = match before.as_ref().and_then(Object::node) {
            Some(node) => node.clone(),
            None => self.0.nodes[frame.index(self.0.nodes.len())].clone(),
        };
        let is_deleting = before
            .as_ref()
            .is_some_and(|before| !before.value()["metadata"]["deletionTimestamp"].is_null());
        if is_deleting {
            return;
        }
        // The pods of all nodes often name the same ConfigMap.
        let config = if frame.happens(500) { 0 } else { frame.below(OTHERS) };
        let secret = frame.below(OTHERS);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(&name, before.as_ref()),
            "spec": {
                "nodeName": node.as_str(), "terminationGracePeriodSeconds": 3,
                "containers": [{"name": "main", "image": "none", "command": ["run"],
                    "envFrom": [{"configMapRef": {"name": format!("o{config}")}}]}],
                "volumes": [{"name": "s", "secret": {"secretName": format!("o{secret}")}}],
            },
        });
        pod["metadata"]["annotations"]["of"] = format!("<{}>", StreamId::node(&node)).into();
        self.put(pod);
    }

    fn delete_pod(&self, gracefully: bool) {
        let key = named("pod", &format!("p{}", self.0.frame.below(PODS)));
        let Some(before) = self.object(&key) else { return };
        if !gracefully {
            self.delete(&key);
            return;
        }
        let mut pod = before.value();
        if pod["metadata"]["deletionTimestamp"].is_null() {
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
            pod["metadata"]["deletionGracePeriodSeconds"] = 3.into();
            self.put(pod);
        }
    }

    fn put_other(&self) {
        let key = self.other();
        let kind = match key.kind() {
            "configmap" => "ConfigMap",
            "secret" => "Secret",
            _ => "Service",
        };
        let before = self.object(&key);
        let mut object = json!({
            "apiVersion": "v1", "kind": kind, "metadata": self.metadata(key.name(), before.as_ref()),
        });
        match kind {
            "ConfigMap" => object["data"] = json!({"text": "x".repeat(self.0.frame.index(2_000))}),
            "Secret" => object["data"] = json!({"text": "eA=="}),
            _ => object["spec"] = json!({"ports": [{"port": 80}]}),
        }
        self.put(object);
    }

    fn delete_other(&self) {
        let key = self.other();
        if self.object(&key).is_some() {
            self.delete(&key);
        }
    }

    fn other(&self) -> ResourceKey {
        let frame = &self.0.frame;
        let kind = ["configmap", "secret", "service"][frame.index(3)];
        named(kind, &format!("o{}", frame.below(OTHERS)))
    }

    /// The same UID as before; a fresh one for what is new.
    fn metadata(&self, name: &str, before: Option<&Object>) -> Value {
        let mut state = lock(&self.0.state);
        state.minted += 1;
        let minted = state.minted;
        let uid = before.map_or_else(|| format!("uid-{minted}"), |before| before.uid().to_owned());
        json!({
            "namespace": "d", "name": name, "uid": uid, "resourceVersion": minted.to_string(),
            "annotations": {"n": minted.to_string()},
        })
    }

    fn put(&self, value: Value) {
        let object = match Object::from_value(value) {
            Ok(object) => object,
            Err(error) => return self.0.frame.broken(format_args!("the cluster: {error}")),
        };
        self.0.frame.note(format_args!("cluster has {} {}", object.key(), object.uid()));
        let mut state = lock(&self.0.state);
        state.objects.insert(object.key().clone(), object.clone());
        state.changes.push(SourceEvent::Apply(object, Cause::default()));
        state.want(&self.0.nodes);
        drop(state);
        self.0.bell.notify_waiters();
    }

    fn delete(&self, key: &ResourceKey) {
        let mut state = lock(&self.0.state);
        let Some(object) = state.objects.remove(key) else { return };
        self.0.frame.note(format_args!("cluster lost {key} {}", object.uid()));
        state.may_leave(&object);
        let (key, uid) = (key.clone(), object.uid().to_owned());
        state.changes.push(SourceEvent::Delete { key, uid, cause: Cause::default() });
        state.want(&self.0.nodes);
        drop(state);
        self.0.bell.notify_waiters();
    }
}

impl State {
    /// Works out what every stream should hold, and what leaves it.
    fn want(&mut self, nodes: &[NodeName]) {
        let mut keys: BTreeMap<&NodeName, BTreeSet<ResourceKey>> =
            nodes.iter().map(|node| (node, BTreeSet::new())).collect();
        for pod in self.objects.values().filter(|object| object.key().kind() == "pod") {
            let Some(keys) = pod.node().and_then(|node| keys.get_mut(node)) else { continue };
            keys.insert(pod.key().clone());
            keys.extend(named_by(pod));
        }
        let of_nodes =
            keys.into_iter().map(|(node, keys)| (StreamId::node(node), self.there(keys)));
        let mut wanted: BTreeMap<StreamId, BTreeMap<ResourceKey, String>> = of_nodes.collect();
        let services = self.objects.keys().filter(|key| key.kind() == "service").cloned();
        let services = services.collect();
        wanted.insert(StreamId::Cluster, self.there(services));
        for (stream, before) in &self.wanted {
            for (key, uid) in before {
                if wanted[stream].get(key) != Some(uid) {
                    let removed = self.removed.entry(stream.clone()).or_default();
                    removed.remove(EntryKey::from(key.clone()), uid.clone());
                }
            }
        }
        self.wanted = wanted;
    }

    /// The objects that a removed pod names may leave its node and come back for another pod: the node
    /// may report the end of a pod before the source sends the other one.
    fn may_leave(&mut self, pod: &Object) {
        let Some(node) = pod.node().filter(|_| pod.key().kind() == "pod") else { return };
        let removed = self.removed.entry(StreamId::node(node)).or_default();
        for object in named_by(pod).iter().filter_map(|key| self.objects.get(key)) {
            removed.remove(EntryKey::from(object.key().clone()), object.uid().to_owned());
        }
    }

    fn there(&self, keys: BTreeSet<ResourceKey>) -> BTreeMap<ResourceKey, String> {
        let uid = |key: &ResourceKey| Some(self.objects.get(key)?.uid().to_owned());
        keys.into_iter().filter_map(|key| Some((key.clone(), uid(&key)?))).collect()
    }
}

/// The objects that a pod names.
fn named_by(pod: &Object) -> [ResourceKey; 2] {
    let value = pod.value();
    let config = &value["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"];
    let secret = &value["spec"]["volumes"][0]["secret"]["secretName"];
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    [named("configmap", &name(config)), named("secret", &name(secret))]
}

/// One controller's watch of the cluster.
pub(crate) struct Watch(pub(crate) Cluster);

#[async_trait]
impl Source for Watch {
    fn kind(&self) -> SourceKind {
        SourceKind::OTHER
    }

    fn wants_removals(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, mut context: SourceContext) -> Result<(), SourceError> {
        let frame = &self.0.0.frame;
        let stop = context.stop.clone();
        let mut known = KnownObjects::new(SourceKind::OTHER);
        let mut has_listed = false;
        let watching = async {
            loop {
                sleep(frame.delay(WATCH_MS_MAX)).await;
                // A list, and from there on the changes.
                let (objects, mut seen) = {
                    let state = lock(&self.0.0.state);
                    (state.objects.values().cloned().collect::<Vec<_>>(), state.changes.len())
                };
                let events = if has_listed { known.relist(objects) } else { known.list(objects) };
                has_listed = true;
                context.events.send_all(events).await?;
                // Now and then the watch is lost, and the source lists again on its own side.
                while !frame.happens(10) {
                    let bell = self.0.0.bell.notified();
                    let change = lock(&self.0.0.state).changes.get(seen).cloned();
                    match change {
                        None => bell.await,
                        Some(change) => {
                            seen += 1;
                            sleep(frame.delay(WATCH_MS_MAX)).await;
                            let news = match change {
                                SourceEvent::Apply(object, cause) => known.apply(object, cause),
                                SourceEvent::Delete { key, cause, .. } => known.delete(key, cause),
                                other => Some(other),
                            };
                            context.events.send_all(news.into_iter().collect()).await?;
                        }
                    }
                }
                frame.count("relist");
            }
        };
        stop.run_until_cancelled(watching).await.unwrap_or(Ok(()))
    }
}

fn named(kind: &str, name: &str) -> ResourceKey {
    ResourceKey::new(Some("d"), kind, name).expect("plain names make a key")
}
