//! A controller and a hub of a fleet, over two logs.

use std::sync::Arc;
use std::time::Duration;

use headwater_controller::{
    Cause, ClusterStream, Controller, ControllerDependencies, ControllerHandle, ControllerMetrics,
    GROUP_EVENTS, PodRemoval, SourceEvent, WriterTimings,
};
use headwater_event::upstream::encode_report;
use headwater_event::{Incarnation, NodeName, ObjectHash, Partition, Report, ReportBody, ReportId};
use headwater_hub::{
    Hub, HubConfig, HubDependencies, HubHandle, HubLimits, HubMetrics, NoRequestHandler, WallClock,
};
use headwater_log::{Append, Log, Record};
use headwater_object::Object;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_session::HubSettings;
use headwater_store::{Engine, Schema, schema};
use prometheus::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::counted_log::CountedLog;
use crate::exponent::Cost;
use crate::source::ListedSource;

/// Pods of a node.
const PODS: u32 = 3;

/// Bytes that make an object as large as a real one.
const FILLER_BYTES: usize = 500;

/// In paused time: passes when no task has work, and before anything is due.
const REST: Duration = Duration::from_millis(1);

/// The time limit of a start, in paused time.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Fleet {
    runtime: Arc<Runtime>,
    nodes: u32,
    downstream: CountedLog,
    upstream: CountedLog,
    published: Arc<dyn Engine>,
    picture: Arc<dyn Engine>,
    fold: Arc<dyn Engine>,
    hub: Option<HubHandle>,
    controller: Option<ControllerHandle>,
    changes: mpsc::Sender<SourceEvent>,
    _folder: TempDir,
}

impl Fleet {
    /// A fleet of so many nodes with their pods, each with a ConfigMap, and one Service. Every pod
    /// has reported.
    pub(crate) fn start(nodes: u32) -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        let folder = tempfile::tempdir().expect("a folder");
        let database = |name: &str, role, schema: Schema| -> Arc<dyn Engine> {
            let memory = DatabaseMemory::new(Budget::CLOUD_PART);
            let engine = RocksEngine::open(folder.path().join(name), role, &memory, schema);
            Arc::new(engine.expect("opens"))
        };
        let mut fleet = Self {
            runtime: Arc::new(runtime.expect("it needs nothing of the machine")),
            nodes,
            downstream: CountedLog::new(),
            upstream: CountedLog::new(),
            published: database("published", Role::Fold, schema::CONTROLLER),
            picture: database("picture", Role::Fold, schema::CONTROLLER),
            fold: database("hub", Role::Fold, schema::HUB),
            hub: None,
            controller: None,
            changes: mpsc::channel(1).0,
            _folder: folder,
        };
        let runtime = fleet.runtime.clone();
        runtime.block_on(async {
            fleet.start_controller().await;
            fleet.start_hub().await;
            for node in 0..nodes {
                for pod in 0..PODS {
                    fleet.append_report(node, pod, 0).await;
                }
            }
            rest().await;
        });
        fleet
    }

    /// What `action` costs, with all the work that it leads to.
    pub(crate) fn cost(&mut self, action: impl FnOnce(&mut Self)) -> Cost {
        let before = self.counted();
        let allocated = allocation_counter::measure(|| action(self));
        let after = self.counted();
        let [records, bytes, read] = std::array::from_fn(|at| after[at] - before[at]);
        let (allocations, allocated) = (allocated.count_total, allocated.bytes_total);
        Cost { records, bytes, read, allocations, allocated }
    }

    /// Changes a pod of one node.
    pub(crate) fn change_pod(&mut self, turn: u32) {
        self.change(pod(self.nodes / 2, 0, turn + 1));
    }

    /// Changes the Service.
    pub(crate) fn change_service(&mut self, turn: u32) {
        self.change(service(turn + 1));
    }

    /// Changes the ConfigMap that every pod names. Returns the bytes of the object.
    pub(crate) fn change_shared_config(&mut self, turn: u32) -> u64 {
        let config = shared_config(turn + 1);
        let bytes = config.to_applied().object.len() as u64;
        self.change(config);
        bytes
    }

    /// One node reports a new status of a pod.
    pub(crate) fn report(&mut self, turn: u32) {
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            self.append_report(self.nodes / 2, 0, turn + 1).await;
            rest().await;
        });
    }

    /// Stops the hub, and starts it over its disk.
    pub(crate) fn restart_hub(&mut self) {
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            if let Some(hub) = self.hub.take() {
                hub.stop().await;
            }
            self.start_hub().await;
            rest().await;
        });
    }

    /// Stops the controller, and starts it over its disk.
    pub(crate) fn restart_controller(&mut self) {
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            if let Some(controller) = self.controller.take() {
                controller.stop().await;
            }
            self.start_controller().await;
            rest().await;
        });
    }

    fn change(&mut self, object: Object) {
        let event = SourceEvent::Apply(object, Cause::default());
        self.runtime.block_on(async {
            self.changes.send(event).await.expect("the source runs");
            rest().await;
        });
    }

    /// Records and bytes appended, and records read.
    fn counted(&self) -> [u64; 3] {
        let of = |log: &CountedLog| [log.records(), log.bytes(), log.read()];
        let (down, up) = (of(&self.downstream), of(&self.upstream));
        std::array::from_fn(|at| down[at] + up[at])
    }

    fn clock(&self) -> WallClock {
        let log = self.downstream.clone();
        Arc::new(move || log.now_ms())
    }

    async fn start_controller(&mut self) {
        let mut objects = vec![service(0), shared_config(0)];
        for node in 0..self.nodes {
            objects.push(config(node));
            objects.extend((0..PODS).map(|number| pod(node, number, 0)));
        }
        let (changes, source) = ListedSource::new(objects);
        let controller = Controller::start(ControllerDependencies {
            downstream: Arc::new(self.downstream.clone()),
            upstream: Arc::new(self.upstream.clone()),
            published: self.published.clone(),
            picture: self.picture.clone(),
            sources: vec![Box::new(source)],
            sink: Box::new(PodRemoval),
            nodes: Vec::new(),
            address: None,
            wall_clock: self.clock(),
            timings: WriterTimings::default(),
            group_events: GROUP_EVENTS,
            sole_writer: true,
            shares_objects: true,
            cluster_stream: ClusterStream::Always,
            metrics: ControllerMetrics::new(&Registry::new()).expect("a fresh registry"),
        });
        let controller = controller.await.expect("starts");
        let mut progress = controller.progress();
        let reconciled = timeout(STARTED_WITHIN, progress.wait_for(|now| now.reconciled));
        reconciled.await.expect("a writer in time").expect("the controller runs");
        self.controller = Some(controller);
        self.changes = changes;
    }

    async fn start_hub(&mut self) {
        let config = HubConfig {
            name: "hub".to_owned(),
            listen: ([127, 0, 0, 1], 1).into(),
            tls: None,
            settings: HubSettings::default(),
            limits: HubLimits::default(),
        };
        let dependencies = HubDependencies {
            downstream: Arc::new(self.downstream.clone()),
            upstream: Arc::new(self.upstream.clone()),
            engine: self.fold.clone(),
            requests: Arc::new(NoRequestHandler),
            wall_clock: self.clock(),
            metrics: HubMetrics::new(&Registry::new()).expect("a fresh registry"),
        };
        let hub = Hub::start_without_listener(config, dependencies, || 0.5).await.expect("starts");
        let view = hub.view();
        let serves = async {
            while !view.is_reconciled() {
                rest().await;
            }
        };
        timeout(STARTED_WITHIN, serves).await.expect("a hub that serves in time");
        self.hub = Some(hub);
    }

    /// Appends the report of a pod's status, as a hub does.
    async fn append_report(&self, node: u32, number: u32, turn: u32) {
        let status = json!({"phase": "Running", "message": filler(turn)}).to_string();
        let pod_key = format!("shop/pod/{}", pod_name(node, number)).parse().expect("a key");
        let body = ReportBody::PodStatus {
            pod: pod_key,
            uid: pod_uid(node, number),
            status: status.into(),
        };
        let seq = u64::from(turn * PODS + number + 1);
        let id = ReportId { incarnation: Incarnation(1), boot: 1, seq };
        let report = Report { id, body, traceparent: None };
        let encoded = encode_report(&node_name(node), &report).expect("well-formed");
        let record = Record {
            key: encoded.key,
            value: encoded.value,
            header: encoded.header,
            traceparent: None,
        };
        let append = Append { partition: Partition(0), record };
        self.upstream.append(vec![append]).await.expect("appended");
    }
}

async fn rest() {
    sleep(REST).await;
}

fn node_name(node: u32) -> NodeName {
    format!("gw-{node:06}").parse().expect("a name")
}

fn pod_name(node: u32, number: u32) -> String {
    format!("web-{node:06}-{number}")
}

fn pod_uid(node: u32, number: u32) -> String {
    format!("00000000-0000-4000-8000-{node:08}{number:04}")
}

/// As long in each turn.
fn filler(turn: u32) -> String {
    format!("{turn:08}").repeat(FILLER_BYTES / 8)
}

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn pod(node: u32, number: u32, turn: u32) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(node, number), "namespace": "shop", "uid": pod_uid(node, number),
            "annotations": {"filler": filler(turn)},
        },
        "spec": {"nodeName": node_name(node).as_str(), "containers": [{
            "name": "web", "image": "shop/web:1.27",
            "envFrom": [
                {"configMapRef": {"name": format!("config-{node:06}")}},
                {"configMapRef": {"name": "shared"}},
            ],
        }]},
    }))
}

fn config(node: u32) -> Object {
    let name = format!("config-{node:06}");
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
        "data": {"filler": filler(0)},
    }))
}

/// A ConfigMap that no compression makes small: 64 KiB.
fn shared_config(turn: u32) -> Object {
    let part = |at: u32| {
        let hash = ObjectHash::of(format!("{turn} {at}").as_bytes());
        hash.0.map(|byte| format!("{byte:02x}")).concat()
    };
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "shared", "namespace": "shop", "uid": "uid-shared"},
        "data": {"filler": (0..1_024).map(part).collect::<String>()},
    }))
}

fn service(turn: u32) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "uid-web",
            "annotations": {"filler": filler(turn)},
        },
        "spec": {"ports": [{"port": 80}]},
    }))
}
