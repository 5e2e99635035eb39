//! `headwater controller`: it publishes its sources to the log, and folds reports into the cloud's
//! picture.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use headwater_cli::args::part::Controller as ControllerArgs;
use headwater_cli::exit::{CommandResult, Failure};
use headwater_controller::source::NoticeKind;
use headwater_controller::source::manifest::{ManifestFolder, ManifestSettings};
use headwater_controller::source::objects::ObjectsSocket;
use headwater_controller::{
    Controller, ControllerDependencies, ControllerHandle, ControllerMetrics, Notice,
    PresenceReceiver, Progress, Source, SourceError,
};
use headwater_event::NodeName;
use headwater_identity::Acceptor;
use headwater_lane::{LaneServer, PresenceIntake, UpdateHandler};
use headwater_operator::{ControllerView, Logs, OperatorDependencies, PartKind};
use headwater_rocks::{Budget, Role};
use headwater_store::{Engine, EngineError, schema};
use headwater_telemetry::error_chain;
use headwater_telemetry::health::{CheckKind, Health};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Part, PartDependencies};
use crate::controller_doors::{ControllerDoors, KubernetesApi, SinkTroubles};
use crate::data_dir::CONTROLLER_ADDRESS;
use crate::requests::CloudRequestHandler;
use crate::settings::controller::ControllerSettings;
use crate::{database, part};

/// A controller as a process.
pub(crate) struct ControllerPart {
    controller: ControllerHandle,
    notices: mpsc::Receiver<Notice>,
    stopped_sources: mpsc::Receiver<SourceError>,
    progress: watch::Receiver<Progress>,
    logs: Logs,
    /// Its fold of the downstream log.
    published: Arc<dyn Engine>,
    sink_troubles: SinkTroubles,
    no_presence: Option<&'static str>,
    /// Ends the streams of hubs when it is dropped.
    _lane: DropGuard,
    /// Never dropped, so that the set of nodes does not end.
    _nodes: watch::Sender<BTreeSet<NodeName>>,
}

/// Why a cluster shows every node as away, where hubs cannot reach the controller.
const NO_PRESENCE: &str = "hubs cannot send which nodes are present, because the controller does not \
                           listen: set listen; until then no Lease is renewed and no status is \
                           written to the cluster";

/// The address for hubs, bound before the controller claims the log with it.
struct Lane {
    listener: TcpListener,
    tls: Option<Acceptor>,
    listening: SocketAddr,
    /// Where hubs reach it.
    address: String,
}

/// Brings the presence of a hub's nodes into the picture.
struct PictureIntake(PresenceReceiver);

impl Lane {
    /// Binds the address of the settings, if there is one.
    async fn bind(settings: &ControllerSettings) -> Result<Option<Self>, Failure> {
        let Some(listen) = settings.listen else { return Ok(None) };
        let tls = settings.tls().acceptor()?;
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            Failure::message(format!("the controller cannot listen for hubs at {listen}: {error}"))
        })?;
        let listening =
            listener.local_addr().map_err(|error| Failure::message(error.to_string()))?;
        let address = settings.advertise.clone().unwrap_or_else(|| listening.to_string());
        Ok(Some(Self { listener, tls, listening, address }))
    }
}

impl PresenceIntake for PictureIntake {
    fn connect(&self, hub: &str) -> UpdateHandler {
        let link = self.0.connect(hub);
        Box::new(move |update| link.receive(update))
    }
}

/// Runs a controller until a signal ends it.
pub(crate) fn run(args: &ControllerArgs) -> CommandResult {
    part::run::<ControllerPart>(&args.process, &args.flags())
}

impl Part for ControllerPart {
    const NAME: &'static str = "controller";
    const BUDGET: Budget = Budget::CLOUD_PART;
    type Settings = ControllerSettings;

    async fn start(
        settings: ControllerSettings,
        dependencies: &PartDependencies,
    ) -> Result<Self, Failure> {
        // Before the log is reached, so that wrong credentials end the start whatever else is away.
        let kubernetes = KubernetesApi::connect(&settings.kubernetes).await?;
        let registry = &dependencies.metrics.registry;
        let logs = part::log::open_when_reachable(&settings.kafka, Self::NAME, registry).await?;
        let published = open(dependencies, "published")?;
        let lane = Lane::bind(&settings).await?;
        let nodes = settings.node_names();
        let no_presence = (kubernetes.is_some() && lane.is_none()).then_some(NO_PRESENCE);
        if let Some(trouble) = no_presence {
            tracing::warn!("{trouble}");
        }
        let (nodes_held, nodes_seen) = watch::channel(nodes.iter().cloned().collect());
        let doors = match kubernetes {
            Some(api) => api.doors(registry, dependencies.clock.clone())?,
            None => ControllerDoors::without_api(sources(
                SourceSettings {
                    manifests: settings.manifests.as_deref(),
                    objects: settings.objects.as_deref(),
                    allow_empty: settings.allow_empty,
                    strict: settings.strict,
                },
                &nodes_seen,
            )),
        };
        let ControllerDoors { sources, sink, answers, sink_troubles } = doors;
        let mut controller = Controller::start(ControllerDependencies {
            downstream: logs.downstream.clone(),
            upstream: logs.upstream.clone(),
            published: published.clone(),
            picture: open(dependencies, "picture")?,
            sources,
            sink,
            nodes,
            address: lane.as_ref().map(|lane| lane.address.clone()),
            wall_clock: dependencies.clock.clone(),
            timings: settings.timings(),
            group_events: headwater_controller::GROUP_EVENTS,
            sole_writer: false,
            shares_objects: settings.share_objects,
            cluster_stream: settings.cluster_stream,
            metrics: ControllerMetrics::new(&dependencies.metrics.registry)?,
        })
        .await?;
        let lane_stop = CancellationToken::new();
        if let Some(lane) = lane {
            tracing::info!(address = %lane.address, "hubs may connect");
            dependencies.data.set_address(CONTROLLER_ADDRESS, Some(lane.listening))?;
            let presence = Arc::new(PictureIntake(controller.presence()));
            let asks = Arc::new(CloudRequestHandler(answers.of(&controller)));
            let server = LaneServer { listener: lane.listener, tls: lane.tls, presence, asks };
            tokio::spawn(server.run(lane_stop.clone()));
        }
        Ok(Self {
            _lane: lane_stop.drop_guard(),
            notices: controller.take_notices().unwrap_or_else(|| mpsc::channel(1).1),
            stopped_sources: controller
                .take_stopped_sources()
                .unwrap_or_else(|| mpsc::channel(1).1),
            progress: controller.progress(),
            logs,
            published,
            controller,
            sink_troubles,
            no_presence,
            _nodes: nodes_held,
        })
    }

    fn health(&self, health: &mut Health) {
        check(&self.controller, &self.sink_troubles, health);
    }

    fn operator_dependencies(
        &self,
        dependencies: &PartDependencies,
    ) -> Option<OperatorDependencies> {
        let of_controller = troubles(&self.controller, &self.sink_troubles);
        let no_presence = self.no_presence;
        let base = dependencies.operator_dependencies(PartKind::Controller);
        let others = base.troubles.clone();
        Some(OperatorDependencies {
            logs: Some(self.logs.clone()),
            cloud: Some(ControllerView {
                picture: self.controller.picture().clone(),
                progress: self.controller.progress(),
                published: self.published.clone(),
            }),
            troubles: Arc::new(move || {
                let no_presence = no_presence.map(ToOwned::to_owned);
                of_controller().into_iter().chain(no_presence).chain(others()).collect()
            }),
            ..base
        })
    }

    /// Logs the notices of the sources and the progress of publishing.
    async fn ended(&mut self) -> Failure {
        let mut logged = Progress::default();
        loop {
            tokio::select! {
                Some(notice) = self.notices.recv() => {
                    match notice.kind {
                        NoticeKind::Repaired => tracing::info!(%notice, "a notice of a source"),
                        _ => tracing::warn!(%notice, "a notice of a source"),
                    }
                }
                Some(error) = self.stopped_sources.recv() => {
                    let error = error_chain(&error);
                    tracing::error!(error, "the source stopped; running pods are not affected");
                }
                changed = self.progress.changed() => {
                    if changed.is_err() {
                        return Failure::message("the publisher task has ended");
                    }
                    let now = self.progress.borrow_and_update().clone();
                    log_progress(&logged, &now);
                    logged = now;
                }
            }
        }
    }

    async fn hand_over(self) {
        self.controller.stop().await;
    }
}

/// Logs changes of the publisher's progress; other code logs its troubles.
fn log_progress(before: &Progress, now: &Progress) {
    if now.is_standby && !before.is_standby {
        tracing::info!("another controller writes the log; this one is a standby");
    }
    if now.epoch != before.epoch {
        tracing::info!(epoch = now.epoch.0, "this controller is the writer of the log");
    }
    if now.reconciled && !before.reconciled {
        tracing::info!(events = now.appended, "the log has everything that the sources list");
    }
}

/// Opens a database of the controller.
fn open(
    dependencies: &PartDependencies,
    store: &'static str,
) -> Result<Arc<dyn Engine>, EngineError> {
    let path = dependencies.data.part(ControllerPart::NAME).join(store);
    let engine = database::open(&path, Role::Fold, &dependencies.memory, schema::CONTROLLER)?;
    dependencies.metrics.stores.opened(store, None, &engine);
    Ok(engine)
}

/// Adds the checks of liveness and readiness of a controller.
pub(crate) fn check(
    controller: &ControllerHandle,
    sink_troubles: &SinkTroubles,
    health: &mut Health,
) {
    let publishing = controller.progress();
    health.check(CheckKind::Live, "publishing", move || {
        let runs = publishing.has_changed().is_ok();
        if runs { Ok(()) } else { Err("the publisher task has ended".to_owned()) }
    });
    let readiness = controller.readiness();
    health.check(CheckKind::Ready, "controller", move || readiness.check());
    health.warn(warnings(controller, sink_troubles));
}

/// What leaves a controller ready, and is wrong: the objects that are too large for the log, the reports that cannot be read,
/// then each part of its sources, then its sink.
fn warnings(
    controller: &ControllerHandle,
    sink_troubles: &SinkTroubles,
) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
    let (progress, source_states) = (controller.progress(), controller.source_states());
    let (of_picture, of_sink) = (controller.picture_troubles(), sink_troubles.clone());
    move || {
        let left_out = progress.borrow().left_out.clone();
        let of_picture = of_picture.borrow().clone();
        let of_sink = of_sink.borrow().clone();
        let of_sources = source_states.borrow().troubles();
        left_out.into_iter().chain(of_picture).chain(of_sources).chain(of_sink).collect()
    }
}

/// What is wrong with a controller now: its publishing, then its [`warnings`].
pub(crate) fn troubles(
    controller: &ControllerHandle,
    sink_troubles: &SinkTroubles,
) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
    let (progress, warnings) = (controller.progress(), warnings(controller, sink_troubles));
    move || {
        let trouble = progress.borrow().trouble.clone();
        trouble.into_iter().chain(warnings()).collect()
    }
}

/// Where objects come from.
pub(crate) struct SourceSettings<'a> {
    /// The folder of manifests.
    pub(crate) manifests: Option<&'a Path>,
    /// The socket that receives objects.
    pub(crate) objects: Option<&'a Path>,
    /// Whether to remove everything when all manifests disappear at once.
    pub(crate) allow_empty: bool,
    /// Whether to refuse manifests that a cluster would not accept.
    pub(crate) strict: bool,
}

/// Returns the sources of a controller.
pub(crate) fn sources(
    settings: SourceSettings<'_>,
    nodes: &watch::Receiver<BTreeSet<NodeName>>,
) -> Vec<Box<dyn Source>> {
    let SourceSettings { manifests, objects, allow_empty, strict } = settings;
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    if let Some(folder) = manifests {
        let manifests = ManifestSettings { allow_empty, strict, ..ManifestSettings::new(folder) };
        sources.push(Box::new(ManifestFolder::new(manifests, nodes.clone())));
    }
    if let Some(socket) = objects {
        sources.push(Box::new(ObjectsSocket::new(socket)));
    }
    sources
}
