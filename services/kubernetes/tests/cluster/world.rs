//! A control plane with its kubectl, and controllers that follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_apiserver::ApiServer;
use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_controller::{
    ClusterStream, Controller, ControllerDependencies, ControllerHandle, ControllerMetrics,
    GROUP_EVENTS, PodRemoval, Sink, WriterTimings,
};
use headwater_event::{EntryKey, Envelope, Event, StreamId};
use headwater_follow::{Follower, WallClock};
use headwater_kubernetes::{
    Access, ActAs, Connection, EventLevel, KubernetesSettings, KubernetesSource, OfflinePolicy,
    SinkDependencies, SinkMetrics,
};
use headwater_log::{Log, MemoryLog, MemorySettings, Outcome};
use headwater_store::MemoryEngine;
use headwater_view::{Selection, StreamReader};
use http::Method;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

/// How long a condition may take to hold.
const SOON: Duration = Duration::from_secs(30);
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// The timings of a writer that is soon taken for dead.
const QUICK: WriterTimings = WriterTimings {
    heartbeat_interval: Duration::from_secs(1),
    heartbeats_missed: 4,
    source_loss_max: headwater_controller::SOURCE_LOSS_MAX,
};

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
    /// kubectl, for this control plane.
    fn command(&self) -> Command;

    /// Runs kubectl and returns what it prints.
    fn run(&self, args: &[&str]) -> String {
        let output = self.command().args(args).output().expect("kubectl starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Creates objects.
    fn create(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut command = self.command();
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

impl Kubectl for ControlPlane {
    fn command(&self) -> Command {
        self.kubectl()
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

/// The server in memory, in virtual time.
pub(crate) fn twin() -> ApiServer {
    let began = tokio::time::Instant::now();
    let clock = move || 1_700_000_000_000 + i64::try_from(began.elapsed().as_millis()).unwrap_or(0);
    let mut drawn = 0;
    let draw = move || {
        drawn += 1;
        drawn
    };
    ApiServer::new(clock, draw)
}

/// Creates objects of the server in memory, those with a namespace in `default`.
pub(crate) fn put(server: &ApiServer, objects: &[Value]) {
    for object in objects {
        let path = match object["kind"].as_str() {
            Some("Node") => "/api/v1/nodes",
            Some("Pod") => "/api/v1/namespaces/default/pods",
            Some("Secret") => "/api/v1/namespaces/default/secrets",
            _ => "/api/v1/namespaces/default/configmaps",
        };
        let (code, answer) = server.request(Method::POST, path, Some(object));
        assert_eq!(code, 201, "{answer}");
    }
}

/// The logs and disks of controllers.
pub(crate) struct World {
    pub(crate) downstream: MemoryLog,
    pub(crate) upstream: MemoryLog,
    published: Arc<MemoryEngine>,
    picture: Arc<MemoryEngine>,
    timings: WriterTimings,
    /// Whether no other controller writes the log.
    sole_writer: bool,
}

/// A running controller.
pub(crate) struct Running {
    pub(crate) controller: ControllerHandle,
    /// What the controller and its sink count.
    registry: Registry,
    /// The troubles of its sink.
    sink_troubles: watch::Receiver<Vec<String>>,
}

impl World {
    pub(crate) fn new() -> Self {
        let settings = MemorySettings { partitions: 2, ..MemorySettings::default() };
        Self {
            downstream: MemoryLog::new(settings),
            upstream: MemoryLog::new(settings),
            published: Arc::new(MemoryEngine::new()),
            picture: Arc::new(MemoryEngine::new()),
            timings: WriterTimings::default(),
            sole_writer: true,
        }
    }

    /// A world whose writers are taken for dead after 4 s.
    pub(crate) fn quick() -> Self {
        Self { timings: QUICK, ..Self::new() }
    }

    /// Another controller of the same logs, with disks of its own.
    pub(crate) fn beside(&self) -> Self {
        Self {
            downstream: self.downstream.clone(),
            upstream: self.upstream.clone(),
            sole_writer: false,
            ..Self::quick()
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
        let upstream = Arc::new(self.upstream.handle());
        let shown = watch::channel(Vec::new()).1;
        self.start_source(source, upstream, Registry::new(), Box::new(PodRemoval), shown).await
    }

    /// Starts a controller that follows the API of a kubeconfig, and writes to it as the nodes.
    pub(crate) async fn start_with_sink(&self, kubeconfig: &Path) -> Running {
        self.start_with_sink_as(kubeconfig, ActAs::Node).await
    }

    /// Starts a controller that follows the API of a kubeconfig, and writes to it.
    pub(crate) async fn start_with_sink_as(&self, kubeconfig: &Path, act_as: ActAs) -> Running {
        let access = Access::Kubeconfig { file: kubeconfig.to_owned(), context: None };
        let connection = access.connect().await.expect("a client");
        self.start_sink(connection, act_as, Arc::new(self.upstream.handle())).await
    }

    /// Starts a controller that follows the API behind a connection, writes to it, and reads the reports from `upstream`.
    pub(crate) async fn start_with_sink_over(
        &self,
        connection: Connection,
        upstream: Arc<dyn Log>,
    ) -> Running {
        self.start_sink(connection, ActAs::Node, upstream).await
    }

    async fn start_sink(
        &self,
        connection: Connection,
        act_as: ActAs,
        upstream: Arc<dyn Log>,
    ) -> Running {
        let source = KubernetesSource::new(connection, KubernetesSettings::default());
        let (registry, (troubles, shown)) = (Registry::new(), watch::channel(Vec::new()));
        let sink = source.sink(SinkDependencies {
            act_as,
            offline: OfflinePolicy::Keep,
            kubelet: None,
            events: EventLevel::default(),
            wall_clock: Arc::new(|| jiff::Timestamp::now().as_millisecond()),
            metrics: SinkMetrics::new(&registry).expect("a fresh registry"),
            troubles,
        });
        self.start_source(source, upstream, registry, Box::new(sink), shown).await
    }

    async fn start_source(
        &self,
        source: KubernetesSource,
        upstream: Arc<dyn Log>,
        registry: Registry,
        sink: Box<dyn Sink>,
        sink_troubles: watch::Receiver<Vec<String>>,
    ) -> Running {
        let clock = self.downstream.clone();
        let controller = Controller::start(ControllerDependencies {
            downstream: Arc::new(self.downstream.handle()),
            upstream,
            published: self.published.clone(),
            picture: self.picture.clone(),
            sources: vec![Box::new(source)],
            sink,
            nodes: Vec::new(),
            address: None,
            wall_clock: Arc::new(move || clock.now_ms()),
            timings: self.timings,
            group_events: GROUP_EVENTS,
            sole_writer: self.sole_writer,
            shares_objects: false,
            cluster_stream: ClusterStream::Always,
            metrics: ControllerMetrics::new(&registry).expect("a fresh registry"),
        })
        .await
        .expect("it starts");
        Running { controller, registry, sink_troubles }
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
    pub(crate) async fn removed(&self) -> Vec<(StreamId, EntryKey, String)> {
        let (events, _) = self.read().await;
        let removed = |event: Envelope| match &event.event {
            Event::Removed(removed) => {
                Some((event.stream.clone(), removed.key.clone(), removed.uid.clone()))
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

    /// How many requests of a kind had an outcome, as `patch pods/status`, `done`.
    pub(crate) fn requests(&self, request: &str, outcome: &str) -> u64 {
        let families = self.registry.gather();
        let family =
            families.iter().find(|f| f.name() == "headwater_controller_api_requests_total");
        let of = |metric: &prometheus::proto::Metric| {
            let labels: Vec<&str> = metric.get_label().iter().map(|label| label.value()).collect();
            labels.contains(&request) && labels.contains(&outcome)
        };
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        metrics.iter().filter(|m| of(m)).map(|m| m.get_counter().get_value() as u64).sum()
    }

    /// How many objects wait for a comparison or a write.
    pub(crate) fn behind(&self) -> usize {
        let families = self.registry.gather();
        let mut of = families.iter();
        let family = of.find(|family| family.name() == "headwater_controller_api_objects_behind");
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        metrics.iter().map(|metric| metric.get_gauge().get_value() as usize).sum()
    }

    /// Whether a part of the source is followed, as the metrics have it.
    pub(crate) fn following(&self, part: &str) -> Option<i64> {
        let families = self.registry.gather();
        let mut of = families.iter();
        let family = of.find(|family| family.name() == "headwater_controller_source_following")?;
        let of_part = family.get_metric().iter().find(|metric| {
            let labels = metric.get_label();
            labels.iter().any(|it| it.value() == "kubernetes")
                && labels.iter().any(|it| it.value() == part)
        })?;
        Some(of_part.get_gauge().get_value() as i64)
    }

    /// Waits until so many requests of a kind had an outcome: the API may show what a request did before
    /// the sink has the answer. There are no more then.
    pub(crate) async fn requested(&self, request: &str, outcome: &str, count: u64) {
        self.requested_at_least(request, outcome, count).await;
        assert_eq!(self.requests(request, outcome), count, "{request}: {outcome}");
    }

    /// Waits until so many requests of a kind, or more, had an outcome.
    pub(crate) async fn requested_at_least(&self, request: &str, outcome: &str, count: u64) {
        let end = Instant::now() + SOON;
        while self.requests(request, outcome) < count {
            assert!(Instant::now() < end, "{request}: {outcome}: fewer than {count}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits for a trouble of the sink.
    pub(crate) async fn sink_trouble(&self, part: &str) {
        let mut troubles = self.sink_troubles.clone();
        let named = troubles.wait_for(|now| now.iter().any(|one| one.contains(part)));
        match tokio::time::timeout(SOON, named).await {
            Ok(named) => drop(named.expect("it runs")),
            Err(_) => panic!("no trouble {part:?}: {:?}", self.sink_troubles.borrow()),
        }
    }

    /// Waits until the sink has no such trouble.
    pub(crate) async fn sink_trouble_ends(&self, part: &str) {
        let mut troubles = self.sink_troubles.clone();
        let gone = troubles.wait_for(|now| now.iter().all(|one| !one.contains(part)));
        let gone = tokio::time::timeout(SOON, gone).await;
        drop(gone.expect("the trouble ends").expect("it runs"));
    }

    /// How many events it appended.
    pub(crate) fn appended(&self) -> u64 {
        self.controller.progress().borrow().appended
    }

    /// Waits until it has appended `count` events since it had appended `before`. There are no more then.
    pub(crate) async fn appended_since(&self, before: u64, count: u64) {
        let end = Instant::now() + SOON;
        while self.appended() < before + count && Instant::now() < end {
            tokio::time::sleep(POLL).await;
        }
        assert_eq!(self.appended() - before, count, "events");
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
