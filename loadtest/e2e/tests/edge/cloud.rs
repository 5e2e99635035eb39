//! A cloud in this process: controller and hub on logs in memory, which edges reach over TCP.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_controller::source::manifest::{ManifestFolder, ManifestSettings};
use headwater_controller::{
    ClusterStream, Controller, ControllerDependencies, ControllerHandle, ControllerMetrics,
    NodePresence, PodRemoval, WriterTimings,
};
use headwater_event::NodeName;
use headwater_hub::{
    Hub, HubConfig, HubDependencies, HubHandle, HubLimits, HubMetrics, NoRequestHandler, WallClock,
};
use headwater_log::{MemoryLog, MemorySettings};
use headwater_session::HubSettings;
use headwater_store::MemoryEngine;
use prometheus::Registry;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A controller that follows a folder of manifests, and a hub.
pub(crate) struct Cloud {
    folder: TempDir,
    hub: HubHandle,
    controller: ControllerHandle,
    _nodes: watch::Sender<BTreeSet<NodeName>>,
    _runtime: Runtime,
}

impl Cloud {
    /// Starts one with these manifests.
    pub(crate) fn start(manifests: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        fs::write(folder.path().join("all.yaml"), manifests).expect("written");
        let runtime = Runtime::new().expect("threads");
        let clock: WallClock = Arc::new(now_ms);
        let registry = Registry::new();
        let log = || {
            let log = MemoryLog::new(MemorySettings::default());
            log.set_clock(now_ms());
            Arc::new(log)
        };
        let (downstream, upstream) = (log(), log());
        let (nodes, nodes_seen) = watch::channel(BTreeSet::new());
        let settings =
            ManifestSettings { allow_empty: true, ..ManifestSettings::new(folder.path()) };
        let controller = ControllerDependencies {
            downstream: downstream.clone(),
            upstream: upstream.clone(),
            published: Arc::new(MemoryEngine::new()),
            picture: Arc::new(MemoryEngine::new()),
            sources: vec![Box::new(ManifestFolder::new(settings, nodes_seen))],
            sink: Box::new(PodRemoval),
            nodes: Vec::new(),
            timings: WriterTimings::default(),
            group_events: headwater_controller::GROUP_EVENTS,
            sole_writer: true,
            shares_objects: true,
            cluster_stream: ClusterStream::Always,
            address: None,
            wall_clock: clock.clone(),
            metrics: ControllerMetrics::new(&registry).expect("a fresh registry"),
        };
        let config = HubConfig {
            name: "hub-1".to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            tls: None,
            settings: HubSettings::default(),
            limits: HubLimits::default(),
        };
        let seams = HubDependencies {
            downstream,
            upstream,
            engine: Arc::new(MemoryEngine::new()),
            requests: Arc::new(NoRequestHandler),
            wall_clock: clock,
            metrics: HubMetrics::new(&registry).expect("a fresh registry"),
        };
        let (controller, hub) = runtime.block_on(async {
            let controller = Controller::start(controller).await.expect("starts");
            (controller, Hub::start(config, seams).await.expect("starts"))
        });
        let (mut feed, link) = (hub.view().presence(), controller.presence().connect("hub-1"));
        runtime.spawn(async move {
            loop {
                link.receive(feed.next().await);
            }
        });
        Self { folder, hub, controller, _nodes: nodes, _runtime: runtime }
    }

    /// Whether the node and its worker live, as hubs send it.
    pub(crate) fn presence(&self, node: &str) -> NodePresence {
        self.controller.picture().node_presence(&node.parse().expect("a name"))
    }

    /// The Ready condition of the node: its status and its reason.
    pub(crate) fn ready(&self, node: &str) -> Option<(String, String)> {
        let key = format!("null/node/{node}").parse().expect("a key");
        let node = self.controller.picture().merged_object(&key, now_ms()).expect("readable")?;
        let conditions = node["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason")))
    }

    /// The pod of this name with its reported status.
    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        let key = format!("default/pod/{name}").parse().expect("a key");
        self.controller.picture().merged_object(&key, now_ms()).expect("readable")
    }

    /// Where the hub listens.
    pub(crate) fn hub(&self) -> SocketAddr {
        self.hub.address()
    }

    /// The folder of manifests.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Replaces the manifests.
    pub(crate) fn write(&self, manifests: &str) {
        let draft = self.folder.path().join("all.new");
        fs::write(&draft, manifests).expect("written");
        fs::rename(draft, self.folder.path().join("all.yaml")).expect("replaced");
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}
