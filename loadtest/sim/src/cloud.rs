//! The processes of the cloud: hubs and controllers, each with disks of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use headwater_controller::{
    ClusterStream, Controller, ControllerDependencies, ControllerHandle, ControllerMetrics,
    WriterTimings,
};
use headwater_event::WriterEpoch;
use headwater_hub::{
    Hub, HubConfig, HubDependencies, HubHandle, HubLimits, HubMetrics, NoRequestHandler,
};
use headwater_kubernetes::{
    ActAs, Connection, EventLevel, KubernetesSettings, KubernetesSource, OfflinePolicy,
    SinkDependencies, SinkMetrics,
};
use headwater_log::MemoryLog;
use headwater_session::HubSettings;
use headwater_store::{MemoryEngine, Survival};
use prometheus::Registry;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::Cluster;
use crate::frame::{Frame, WallClock};
use crate::log::SimLog;
use crate::network::Network;

/// A hub.
pub(crate) struct SimHub {
    frame: Frame,
    pub(crate) index: usize,
    network: Network,
    pub(crate) clock: WallClock,
    pub(crate) downstream: SimLog,
    pub(crate) upstream: SimLog,
    engine: Arc<MemoryEngine>,
    settings: HubSettings,
    /// How often it started.
    starts: u64,
    pub(crate) handle: Option<Arc<HubHandle>>,
}

/// A controller.
pub(crate) struct SimController {
    frame: Frame,
    index: usize,
    cluster: Cluster,
    pub(crate) clock: WallClock,
    pub(crate) downstream: SimLog,
    pub(crate) upstream: SimLog,
    published: Arc<MemoryEngine>,
    pub(crate) picture: Arc<MemoryEngine>,
    /// What keeps its sink from writing.
    sink_troubles: watch::Sender<Vec<String>>,
    /// How often it started.
    starts: u64,
    handle: Option<ControllerHandle>,
}

/// A hub's stream of presence to a controller. Dropped, it ends.
pub(crate) struct PresenceStream {
    /// The start of the hub; the index of the controller, and its start.
    ends: (u64, usize, u64),
    _sending: AbortOnDropHandle<()>,
}

/// How long a process may take to start; one that takes longer is off.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// Where a hub listens.
pub(crate) fn address(hub: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, u16::try_from(hub).unwrap_or(u16::MAX)).into()
}

impl SimHub {
    pub(crate) fn new(
        frame: &Frame,
        index: usize,
        network: &Network,
        logs: [&MemoryLog; 2],
    ) -> Self {
        let who = format!("hub {index}");
        // Small bounds, so that deltas and snapshots of several parts happen.
        let tail_events_max = [4, 64, 1024][frame.index(3)];
        let frame_bytes_max = [1 << 10, 1 << 20][frame.index(2)];
        let window_bytes = [4 << 10, 4 << 20][frame.index(2)];
        let settings = HubSettings {
            tail_events_max,
            frame_bytes_max,
            window_bytes,
            ..HubSettings::default()
        };
        Self {
            frame: frame.clone(),
            index,
            network: network.clone(),
            clock: frame.wall_clock(),
            downstream: SimLog::new(frame, logs[0], &who),
            upstream: SimLog::new(frame, logs[1], &who),
            engine: Arc::default(),
            settings,
            starts: 0,
            handle: None,
        }
    }

    /// Starts it, unless the log is away.
    pub(crate) async fn start(&mut self) {
        let (clock, name) = (self.clock.clone(), format!("hub-{}", self.index));
        let config = HubConfig {
            name,
            listen: address(self.index),
            tls: None,
            settings: self.settings.clone(),
            limits: HubLimits::default(),
        };
        let Ok(metrics) = HubMetrics::new(&Registry::new()) else { return };
        let seams = HubDependencies {
            downstream: Arc::new(self.downstream.clone()),
            upstream: Arc::new(self.upstream.clone()),
            engine: self.engine.clone(),
            requests: Arc::new(NoRequestHandler),
            wall_clock: Arc::new(move || clock.now_ms()),
            metrics,
        };
        let frame = self.frame.clone();
        let starting = Hub::start_without_listener(config, seams, move || frame.session_age());
        let Ok(started) = timeout(STARTS_WITHIN, starting).await else { return };
        match started {
            Ok(handle) => {
                let handle = Arc::new(handle);
                self.network.listen(self.index, handle.clone());
                self.starts += 1;
                self.handle = Some(handle);
            }
            Err(error) => {
                self.frame.note(format_args!("hub {} does not start: {error}", self.index));
            }
        }
    }

    /// It ends at once; its disk loses what was not synced, or all.
    pub(crate) fn crash(&mut self, survives: Option<Survival>) {
        self.handle = None;
        self.network.hub_gone(self.index);
        self.engine = crashed(&self.engine, survives);
        self.downstream.handle.set_frozen(false);
        self.upstream.handle.set_frozen(false);
    }
}

impl SimController {
    pub(crate) fn new(
        frame: &Frame,
        index: usize,
        logs: [&MemoryLog; 2],
        cluster: &Cluster,
    ) -> Self {
        let who = format!("controller {index}");
        Self {
            frame: frame.clone(),
            index,
            cluster: cluster.clone(),
            clock: frame.wall_clock(),
            downstream: SimLog::new(frame, logs[0], &who),
            upstream: SimLog::new(frame, logs[1], &who),
            published: Arc::default(),
            picture: Arc::default(),
            sink_troubles: watch::Sender::default(),
            starts: 0,
            handle: None,
        }
    }

    /// Starts it, unless the log is away.
    pub(crate) async fn start(&mut self) {
        let (clock, of_sink) = (self.clock.clone(), self.clock.clone());
        let registry = Registry::new();
        let metrics = ControllerMetrics::new(&registry).expect("the registry is new");
        let connection = Connection::over(self.cluster.server.clone(), "the server in memory");
        let source = KubernetesSource::new(connection, KubernetesSettings::default());
        let sink = source.sink(SinkDependencies {
            act_as: ActAs::Node,
            offline: OfflinePolicy::Keep,
            kubelet: None,
            events: EventLevel::default(),
            wall_clock: Arc::new(move || of_sink.now_ms()),
            metrics: SinkMetrics::new(&registry).expect("the registry is new"),
            troubles: self.sink_troubles.clone(),
        });
        let seams = ControllerDependencies {
            downstream: Arc::new(self.downstream.clone()),
            upstream: Arc::new(self.upstream.clone()),
            published: self.published.clone(),
            picture: self.picture.clone(),
            sources: vec![Box::new(source)],
            sink: Box::new(sink),
            nodes: Vec::new(),
            address: None,
            wall_clock: Arc::new(move || clock.now_ms()),
            timings: WriterTimings::default(),
            group_events: headwater_controller::GROUP_EVENTS,
            sole_writer: false,
            shares_objects: true,
            cluster_stream: ClusterStream::Always,
            metrics,
        };
        let frame = self.frame.clone();
        let starting = Controller::start_with_uuids(seams, Arc::new(move || frame.uuid()));
        let Ok(started) = timeout(STARTS_WITHIN, starting).await else { return };
        match started {
            Ok(handle) => {
                self.starts += 1;
                self.handle = Some(handle);
            }
            Err(error) => self.frame.note(format_args!("controller does not start: {error}")),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.handle.is_some()
    }

    /// The epoch of its last claim, if it is on.
    pub(crate) fn epoch(&self) -> Option<WriterEpoch> {
        Some(self.handle.as_ref()?.progress().borrow().epoch)
    }

    /// What its source, its publisher and its sink wait for.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let Some(handle) = &self.handle else { return vec!["it is off".to_owned()] };
        let of_source = format!("{:?}", handle.source_states().borrow().troubles());
        let of_publisher = handle.progress().borrow().trouble.clone();
        let of_sink = self.sink_troubles.borrow().clone();
        [of_source].into_iter().chain(of_publisher).chain(of_sink).collect()
    }

    /// It ends at once; its disks lose what was not synced, or all.
    pub(crate) fn crash(&mut self, survives: Option<Survival>) {
        self.handle = None;
        self.published = crashed(&self.published, survives);
        self.picture = crashed(&self.picture, survives);
        self.downstream.handle.set_frozen(false);
        self.upstream.handle.set_frozen(false);
    }

    /// Stops, or lets go on, whatever it is doing.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        self.downstream.handle.set_frozen(is_frozen);
        self.upstream.handle.set_frozen(is_frozen);
    }
}

impl PresenceStream {
    /// The stream between the two: `before` where it is still that of both, `None` where one is off.
    pub(crate) fn between(
        hub: &SimHub,
        controller: &SimController,
        before: Option<Self>,
    ) -> Option<Self> {
        let (sender, receiver) = (hub.handle.as_ref()?, controller.handle.as_ref()?);
        let ends = (hub.starts, controller.index, controller.starts);
        if let Some(before) = before.filter(|before| before.ends == ends) {
            return Some(before);
        }
        let mut feed = sender.view().presence();
        let link = receiver.presence().connect(&format!("hub-{}", hub.index));
        let sending = tokio::spawn(async move {
            loop {
                link.receive(feed.next().await);
            }
        });
        Some(Self { ends, _sending: AbortOnDropHandle::new(sending) })
    }
}

fn crashed(engine: &MemoryEngine, survives: Option<Survival>) -> Arc<MemoryEngine> {
    // The old engine accepts no more writes, from any holder.
    let found = engine.crash(survives.unwrap_or(Survival::Synced));
    Arc::new(if survives.is_some() { found } else { MemoryEngine::new() })
}
