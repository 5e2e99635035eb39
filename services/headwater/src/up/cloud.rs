//! The cloud's parts in one process: log, hub, controller.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use headwater_cli::args::Up;
use headwater_controller::{
    ClusterStream, Controller, ControllerDependencies, ControllerError, ControllerHandle,
    ControllerMetrics, PresenceLink, WriterTimings,
};
use headwater_event::NodeName;
use headwater_hub::{
    Hub, HubConfig, HubDependencies, HubError, HubHandle, HubLimits, HubMetrics, PresenceFeed,
    WallClock,
};
use headwater_kubernetes::AccessError;
use headwater_operator::Logs;
use headwater_rocks::{DatabaseMemory, Role};
use headwater_session::HubSettings;
use headwater_store::{Engine, EngineError, schema};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::log::{LogError, UpLog};
use crate::controller_doors::{ControllerDoors, KubernetesApi, SinkTroubles};
use crate::data_dir::DataDir;
use crate::database;
use crate::metrics::Metrics;
use crate::part::controller::{SourceSettings, sources};
use crate::requests::CloudRequestHandler;
use crate::settings::up::Settings;

/// The name of the hub in progress records.
const HUB_NAME: &str = "embedded";

/// The cloud's parts.
pub(crate) struct Cloud {
    pub(crate) logs: Logs,
    pub(crate) hub: HubHandle,
    pub(crate) controller: ControllerHandle,
    pub(crate) sink_troubles: SinkTroubles,
    /// The controller's fold of the downstream log.
    pub(crate) published: Arc<dyn Engine>,
    log: UpLog,
    /// Brings the presence of nodes from the hub to the controller.
    presence: JoinHandle<()>,
    /// Never dropped, so that the set of nodes does not end.
    _nodes: watch::Sender<BTreeSet<NodeName>>,
}

/// The reason why the cloud's parts do not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloudError {
    /// A database cannot be opened.
    #[error("the database {path} cannot be opened")]
    Engine {
        /// The database.
        path: String,
        /// The cause.
        source: EngineError,
    },
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The hub does not start.
    #[error("the hub does not start")]
    Hub(#[from] HubError),
    /// The controller does not start.
    #[error("the controller does not start")]
    Controller(#[from] ControllerError),
    /// The Kubernetes API cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] AccessError),
    /// A metric is registered twice.
    #[error("the metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

impl Cloud {
    /// Starts log, controller and hub, in this order.
    ///
    /// # Errors
    /// See [`CloudError`].
    pub(crate) async fn start(
        args: &Up,
        settings: &Settings,
        data: &DataDir,
        memory: &DatabaseMemory,
        seen: &Metrics,
        clock: &WallClock,
    ) -> Result<Self, CloudError> {
        let kubernetes = KubernetesApi::connect(&settings.kubernetes).await?;
        let open = |store, path, schema| {
            let path = data.cloud(path);
            let engine = database::open(&path, Role::Fold, memory, schema).map_err(|source| {
                CloudError::Engine { path: path.display().to_string(), source }
            })?;
            seen.stores.opened(store, None, &engine);
            Ok::<Arc<dyn Engine>, CloudError>(engine)
        };
        let log = UpLog::open(settings, data, memory, seen, clock).await?;
        let Logs { downstream, upstream } = log.logs.clone();

        let nodes = settings.node_names().unwrap_or_default();
        let (nodes_held, nodes_seen) = watch::channel(nodes.iter().cloned().collect());
        let of_sources = SourceSettings {
            manifests: args.manifests.as_deref(),
            objects: args.objects.as_deref(),
            allow_empty: settings.allow_empty,
            strict: settings.strict,
        };
        let published = open("published", "controller/published", schema::CONTROLLER)?;
        let doors = match kubernetes {
            Some(api) => api.doors(&seen.registry, clock.clone())?,
            None => ControllerDoors::without_api(sources(of_sources, &nodes_seen)),
        };
        let ControllerDoors { sources, sink, answers, sink_troubles } = doors;
        let controller = Controller::start(ControllerDependencies {
            downstream: downstream.clone(),
            upstream: upstream.clone(),
            published: published.clone(),
            picture: open("picture", "controller/picture", schema::CONTROLLER)?,
            sources,
            sink,
            nodes,
            address: None,
            wall_clock: clock.clone(),
            timings: WriterTimings::default(),
            group_events: headwater_controller::GROUP_EVENTS,
            sole_writer: log.is_embedded(),
            shares_objects: true,
            // The nodes are in this process: an event costs nothing on its way to them.
            cluster_stream: ClusterStream::Always,
            metrics: ControllerMetrics::new(&seen.registry)?,
        })
        .await?;
        let hub = Hub::start(
            HubConfig {
                name: HUB_NAME.to_owned(),
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                tls: None,
                settings: HubSettings::default(),
                limits: HubLimits::default(),
            },
            HubDependencies {
                downstream,
                upstream,
                engine: open("hub", "hub", schema::HUB)?,
                requests: Arc::new(CloudRequestHandler(answers.of(&controller))),
                wall_clock: clock.clone(),
                metrics: HubMetrics::new(&seen.registry)?,
            },
        )
        .await?;
        let (feed, link) = (hub.view().presence(), controller.presence().connect(HUB_NAME));
        let presence = tokio::spawn(bring(feed, link));
        let logs = log.logs.clone();
        Ok(Self {
            logs,
            hub,
            controller,
            sink_troubles,
            published,
            log,
            presence,
            _nodes: nodes_held,
        })
    }

    /// Whether the log is in the data directory.
    pub(crate) fn has_embedded_log(&self) -> bool {
        self.log.is_embedded()
    }

    /// Stops hub, controller and log, in this order.
    pub(crate) async fn stop(self) {
        self.hub.stop().await;
        self.presence.abort();
        self.controller.stop().await;
        self.log.close().await;
    }
}

/// Brings the presence of nodes from the hub to the controller.
async fn bring(mut feed: PresenceFeed, link: PresenceLink) {
    loop {
        link.receive(feed.next().await);
    }
}
