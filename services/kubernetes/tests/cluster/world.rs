//! A control plane with its kubectl, and controllers that follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_controller::{
    ClusterStream, Controller, ControllerDependencies, ControllerHandle, ControllerMetrics,
    GROUP_EVENTS, PodRemoval, WriterTimings,
};
use headwater_event::{EntryKey, Envelope, Event, StreamId};
use headwater_follow::{Follower, WallClock};
use headwater_kubernetes::{Access, Connection, KubernetesSettings, KubernetesSource};
use headwater_log::{MemoryLog, MemorySettings, Outcome};
use headwater_store::MemoryEngine;
use headwater_view::{Selection, StreamReader};
use prometheus::Registry;
use serde_json::{Value, json};

/// How long a condition may take to hold.
const SOON: Duration = Duration::from_secs(30);
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// A control plane that only stores objects.
pub(crate) fn control_plane() -> ControlPlane {
    ControlPlane::start(only_api()).expect("a control plane")
}

/// Its settings.
pub(crate) fn only_api() -> ControlPlaneSettings {
    ControlPlaneSettings { parts: Vec::new(), ..ControlPlaneSettings::default() }
}

/// kubectl in the hands of a test.
pub(crate) trait Kubectl {
    /// Runs kubectl and returns what it prints.
    fn run(&self, args: &[&str]) -> String;
    /// Creates objects.
    fn create(&self, objects: &[Value]);
}

impl Kubectl for ControlPlane {
    fn run(&self, args: &[&str]) -> String {
        let output = self.kubectl().args(args).output().expect("kubectl starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn create(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut command = self.kubectl();
        command.args(["create", "-f", "-"]).stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("kubectl starts");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(list.to_string().as_bytes()).expect("written");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// An object in the namespace `default`.
pub(crate) fn object(api_version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for (field, content) in more.as_object().expect("fields") {
        value[field] = content.clone();
    }
    value
}

/// A Node with or without the label of edges.
pub(crate) fn node(name: &str, is_edge: bool) -> Value {
    let mut node = object("v1", "Node", name, json!({}));
    if is_edge {
        node["metadata"]["labels"] = json!({"node-role.kubernetes.io/edge": ""});
    }
    node
}

/// A pod of a node, which names a ConfigMap.
pub(crate) fn pod(name: &str, on: &str, config: &str) -> Value {
    let env = json!([{"configMapRef": {"name": config, "optional": true}}]);
    let container = json!({"name": "main", "image": "example.invalid/main", "envFrom": env});
    object("v1", "Pod", name, json!({"spec": {"nodeName": on, "containers": [container]}}))
}

/// A ConfigMap.
pub(crate) fn config(name: &str, value: &str) -> Value {
    object("v1", "ConfigMap", name, json!({"data": {"k": value}}))
}

/// The logs and disks of controllers.
pub(crate) struct World {
    downstream: MemoryLog,
    upstream: MemoryLog,
    published: Arc<MemoryEngine>,
    picture: Arc<MemoryEngine>,
}

/// A running controller.
pub(crate) struct Running {
    pub(crate) controller: ControllerHandle,
}

impl World {
    pub(crate) fn new() -> Self {
        let settings = MemorySettings { partitions: 2, ..MemorySettings::default() };
        Self {
            downstream: MemoryLog::new(settings),
            upstream: MemoryLog::new(settings),
            published: Arc::new(MemoryEngine::new()),
            picture: Arc::new(MemoryEngine::new()),
        }
    }

    /// Starts a controller that follows the API of a kubeconfig.
    pub(crate) async fn start(&self, kubeconfig: &Path) -> Running {
        self.start_with(kubeconfig, KubernetesSettings::default()).await
    }

    pub(crate) async fn start_with(
        &self,
        kubeconfig: &Path,
        settings: KubernetesSettings,
    ) -> Running {
        let access = Access::Kubeconfig { file: kubeconfig.to_owned(), context: None };
        self.start_over(access.connect().await.expect("a client"), settings).await
    }

    /// Starts a controller that follows the API behind a connection.
    pub(crate) async fn start_over(
        &self,
        connection: Connection,
        settings: KubernetesSettings,
    ) -> Running {
        let source = KubernetesSource::new(connection, settings);
        let clock = self.downstream.clone();
        let controller = Controller::start(ControllerDependencies {
            downstream: Arc::new(self.downstream.handle()),
            upstream: Arc::new(self.upstream.handle()),
            published: self.published.clone(),
            picture: self.picture.clone(),
            sources: vec![Box::new(source)],
            sink: Box::new(PodRemoval),
            nodes: Vec::new(),
            address: None,
            wall_clock: Arc::new(move || clock.now_ms()),
            timings: WriterTimings::default(),
            group_events: GROUP_EVENTS,
            sole_writer: true,
            shares_objects: false,
            cluster_stream: ClusterStream::Always,
            metrics: ControllerMetrics::new(&Registry::new()).expect("a fresh registry"),
        })
        .await
        .expect("it starts");
        Running { controller }
    }

    /// The events in the log, and the fold of them.
    async fn read(&self) -> (Vec<Envelope>, Follower<()>) {
        let clock = self.downstream.clone();
        let clock: WallClock = Arc::new(move || clock.now_ms());
        let engine = Arc::new(MemoryEngine::new());
        let opened = Follower::open(&self.downstream, engine, (), clock).await;
        let mut follower = opened.expect("readable");
        let mut events = Vec::new();
        while !follower.is_folded() {
            for outcome in follower.next().await.expect("readable").outcomes {
                if let Outcome::Accepted(envelope) = outcome {
                    events.push(envelope);
                }
            }
        }
        (events, follower)
    }

    /// The keys that a stream has, without the default service account, which each pod names.
    pub(crate) async fn keys(&self, stream: &str) -> BTreeSet<String> {
        let stream: StreamId = stream.parse().expect("a stream");
        let (_, follower) = self.read().await;
        let reader = StreamReader::new(&**follower.state().engine());
        let entries = reader.entries(&stream, Selection::All, None, 10_000).expect("readable");
        let keys = entries.iter().filter_map(|(key, _)| EntryKey::resource(key));
        keys.map(ToString::to_string)
            .filter(|key| !key.ends_with("serviceaccount/default"))
            .collect()
    }

    /// The objects of a stream: key, UID and content.
    pub(crate) async fn objects(&self, stream: &StreamId) -> BTreeMap<String, (String, Value)> {
        let (_, follower) = self.read().await;
        let reader = StreamReader::new(&**follower.state().engine());
        let entries = reader.entries(stream, Selection::All, None, 10_000).expect("readable");
        let of_objects = entries.into_iter().filter_map(|(key, entry)| {
            let key = EntryKey::resource(&key)?.to_string();
            let object = serde_json::from_slice(&entry.object).expect("JSON");
            Some((key, (entry.uid, object)))
        });
        of_objects.collect()
    }

    /// Waits until a stream has exactly these keys.
    pub(crate) async fn has(&self, stream: &str, keys: &[&str]) {
        let expected: BTreeSet<String> = keys.iter().map(ToString::to_string).collect();
        let end = Instant::now() + SOON;
        loop {
            let found = self.keys(stream).await;
            if found == expected {
                return;
            }
            assert!(Instant::now() < end, "{stream} has {found:?}, not {expected:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The value of a ConfigMap in a stream.
    pub(crate) async fn value(&self, stream: &str, name: &str) -> Option<Value> {
        let stream: StreamId = stream.parse().expect("a stream");
        let (_, follower) = self.read().await;
        let reader = StreamReader::new(&**follower.state().engine());
        let entries = reader.entries(&stream, Selection::All, None, 10_000).expect("readable");
        let wanted = format!("default/configmap/{name}");
        let found = entries
            .into_iter()
            .find(|(key, _)| EntryKey::resource(key).is_some_and(|key| key.as_str() == wanted))?;
        let object: Value = serde_json::from_slice(&found.1.object).expect("JSON");
        Some(object["data"]["k"].clone())
    }

    /// The removals in the log so far: stream, key and UID.
    pub(crate) async fn removed(&self) -> Vec<(StreamId, String, String)> {
        let (events, _) = self.read().await;
        let removed = |event: Envelope| match &event.event {
            Event::Removed(removed) => {
                let key = removed.key.to_string();
                Some((event.stream.clone(), key, removed.uid.clone()))
            }
            _ => None,
        };
        events.into_iter().filter_map(removed).collect()
    }

    /// The removals in the log so far.
    pub(crate) async fn removals(&self) -> Vec<String> {
        let (events, _) = self.read().await;
        let removed = events.iter().filter(|event| matches!(event.event, Event::Removed(_)));
        removed.filter_map(|event| event.event.key().map(ToString::to_string)).collect()
    }
}

impl Running {
    /// Waits until everything that is listed is in the log.
    pub(crate) async fn reconciled(&self) {
        let mut progress = self.controller.progress();
        let reached = progress.wait_for(|now| now.reconciled);
        let states = self.controller.source_states();
        match tokio::time::timeout(SOON, reached).await {
            Ok(reached) => drop(reached.expect("it runs")),
            Err(_) => panic!("not reconciled: {:?}", states.borrow().troubles()),
        }
    }

    /// How many events it appended.
    pub(crate) fn appended(&self) -> u64 {
        self.controller.progress().borrow().appended
    }

    /// Waits until the troubles of the source are as a test wants them.
    pub(crate) async fn troubles(
        &self,
        within: Duration,
        what: &str,
        is_so: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let end = Instant::now() + within;
        loop {
            let troubles = self.controller.source_states().borrow().troubles();
            if is_so(&troubles) {
                return troubles;
            }
            assert!(Instant::now() < end, "no {what} within {within:?}: {troubles:?}");
            tokio::time::sleep(POLL).await;
        }
    }
}
