//! The cluster: the API server in memory, what users do to its objects, and what each node should hold
//! because of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use headwater_apiserver::{ApiServer, Change, Faults};
use headwater_check::cluster_oracle::{ClusterOracle, EDGE_LABEL, Wanted};
use headwater_check::deletion::RemovedUids;
use headwater_event::{NodeName, ResourceKey, StreamId};
use headwater_object::{Object, ObjectType};
use http::Method;
use serde_json::{Value, json};

use crate::frame::{Frame, lock};

/// Names of pods, and of each of the kinds that they may name.
const PODS: u64 = 6;
const OTHERS: u64 = 4;

/// The namespace of all objects.
const NAMESPACE: &str = "default";

/// The cluster. Clones are the same.
#[derive(Clone)]
pub(crate) struct Cluster {
    frame: Frame,
    nodes: Vec<NodeName>,
    pub(crate) server: ApiServer,
    oracle: Arc<Mutex<ClusterOracle>>,
    /// The writes so far: each one marks its object.
    written: Arc<Mutex<u64>>,
}

impl Cluster {
    pub(crate) fn new(frame: &Frame, nodes: &[NodeName]) -> Self {
        let (clock, chance) = (frame.clone(), frame.clone());
        let server = ApiServer::new(move || clock.true_ms(), move || chance.draw());
        let oracle = Arc::new(Mutex::new(ClusterOracle::new(nodes.iter().cloned())));
        let observer = Observer { frame: frame.clone(), oracle: oracle.clone() };
        server.observe(move |change| observer.observe(change));
        let cluster = Self {
            frame: frame.clone(),
            nodes: nodes.to_vec(),
            server,
            oracle,
            written: Arc::default(),
        };
        for node in nodes {
            let labels = json!({"metadata": {"labels": {EDGE_LABEL: ""}}});
            cluster.put("/api/v1/nodes", node.as_str(), labels);
        }
        cluster
    }

    /// A change of some kind.
    pub(crate) fn change(&self) {
        match self.frame.below(20) {
            0..=6 => self.put_pod(),
            7 => self.delete_pod("?gracePeriodSeconds=0"),
            8 | 9 => self.delete_pod(""),
            10..=15 => self.put_other(),
            16..=18 => self.delete_other(),
            _ => {
                self.delete_other();
                self.put_other();
            }
        }
    }

    /// What befalls requests and watches. A watch that hangs is noticed after a minute: until then a
    /// controller knows less than another.
    pub(crate) fn disturb(&self) {
        self.server.set_faults(Faults {
            way_ms_max: self.frame.below(50),
            request_lost: 50,
            answer_lost: 50,
            silent: 200,
            throttled: 50,
            unavailable: 50,
            store_timeout: 20,
            slow: 50,
            slow_ms_max: 15_000,
            expired: 20,
            watch_ends: 50,
            watch_hangs: 100,
            event_ms_max: self.frame.below(200),
            ..Faults::default()
        });
    }

    /// The server answers, and everything that it is asked.
    pub(crate) fn heal(&self) {
        self.server.set_faults(Faults::default());
        self.server.set_frozen(false);
        self.server.start();
    }

    /// What `stream` should hold.
    pub(crate) fn wanted(&self, stream: &StreamId) -> Wanted {
        lock(&self.oracle).wanted().get(stream).cloned().unwrap_or_default()
    }

    /// The object at `key`, as a stream has it.
    pub(crate) fn object(&self, key: &ResourceKey) -> Option<Object> {
        let object_type = ObjectType::named(key.kind())?;
        let path = key.namespace().map_or_else(
            || key.name().to_owned(),
            |namespace| format!("{namespace}/{}", key.name()),
        );
        let value = lock(&self.oracle).find(object_type.plural, &path)?.as_ref().clone();
        match Object::of_cluster(object_type, value) {
            Ok(object) => Some(object),
            Err(error) => {
                self.frame.broken(format_args!("the cluster: {error}"));
                None
            }
        }
    }

    /// What the API shows of the status of each pod, by key.
    pub(crate) fn statuses(&self) -> BTreeMap<ResourceKey, Value> {
        let pods = self.server.objects("pods").into_iter();
        let status = |pod: Arc<Value>| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            (named("pod", &name), pod["status"].clone())
        };
        pods.map(status).collect()
    }

    /// What has really left a stream.
    pub(crate) fn removed(&self, stream: &StreamId) -> RemovedUids {
        lock(&self.oracle).left(stream)
    }

    fn put_pod(&self) {
        let frame = &self.frame;
        let name = format!("p{}", frame.below(PODS));
        let node = &self.nodes[frame.index(self.nodes.len())];
        // The pods of all nodes often name the same ConfigMap.
        let config = if frame.happens(500) { 0 } else { frame.below(OTHERS) };
        let secret = frame.below(OTHERS);
        let env = json!([{"configMapRef": {"name": format!("o{config}"), "optional": true}}]);
        let pod = json!({
            "metadata": {"annotations": {"of": format!("<{}>", StreamId::node(node))}},
            "spec": {
                "nodeName": node.as_str(), "terminationGracePeriodSeconds": 3,
                "containers": [
                    {"name": "main", "image": "none", "command": ["run"], "envFrom": env},
                ],
                "volumes": [{"name": "s", "secret": {"secretName": format!("o{secret}")}}],
            },
        });
        self.put(&path("pods"), &name, pod);
    }

    fn delete_pod(&self, query: &str) {
        let name = format!("p{}", self.frame.below(PODS));
        self.delete(&format!("{}/{name}{query}", path("pods")));
    }

    fn put_other(&self) {
        let (plural, name) = self.other();
        let object = match plural {
            "configmaps" => json!({"data": {"text": "x".repeat(self.frame.index(2_000))}}),
            "secrets" => json!({"data": {"text": "eA=="}}),
            _ => json!({"spec": {"ports": [{"port": 80}]}}),
        };
        self.put(&path(plural), &name, object);
    }

    fn delete_other(&self) {
        let (plural, name) = self.other();
        self.delete(&format!("{}/{name}", path(plural)));
    }

    fn other(&self) -> (&'static str, String) {
        let plural = ["configmaps", "secrets", "services"][self.frame.index(3)];
        (plural, format!("o{}", self.frame.below(OTHERS)))
    }

    /// Creates an object, or writes a new mark on it if it is there.
    fn put(&self, path: &str, name: &str, mut object: Value) {
        let mark = {
            let mut written = lock(&self.written);
            *written += 1;
            written.to_string()
        };
        object["metadata"]["name"] = name.into();
        object["metadata"]["annotations"]["n"] = mark.clone().into();
        let (code, answer) = self.server.request(Method::POST, path, Some(&object));
        let (code, answer) = if code == 409 {
            let change = json!({"metadata": {"annotations": {"n": mark}}});
            self.server.request(Method::PATCH, &format!("{path}/{name}"), Some(&change))
        } else {
            (code, answer)
        };
        if !matches!(code, 200 | 201) {
            self.frame.broken(format_args!("the cluster: {answer}"));
        }
    }

    fn delete(&self, path: &str) {
        let (code, answer) = self.server.request(Method::DELETE, path, None);
        if !matches!(code, 200 | 404) {
            self.frame.broken(format_args!("the cluster: {answer}"));
        }
    }
}

/// Notes every change of the server.
struct Observer {
    frame: Frame,
    oracle: Arc<Mutex<ClusterOracle>>,
}

impl Observer {
    fn observe(&self, change: &Change) {
        let (place, before) = (&change.place, change.before.as_deref());
        if change.after.is_none() {
            self.frame.note(format_args!("cluster lost {} {}", place.plural, place.path));
            if place.plural == "pods"
                && before.is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
            {
                self.frame.count("pod let go after its end");
            }
        } else {
            self.frame.note(format_args!("cluster has {} {}", place.plural, place.path));
        }
        let now_ms = self.frame.now_ms();
        let mut oracle = lock(&self.oracle);
        oracle.observe(now_ms, place.plural, &place.path, before, change.after.as_ref());
    }
}

fn path(plural: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
}

fn named(kind: &str, name: &str) -> ResourceKey {
    ResourceKey::new(Some(NAMESPACE), kind, name).expect("plain names make a key")
}
