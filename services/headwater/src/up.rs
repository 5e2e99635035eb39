//! `headwater up`: everything in one process.
//!
//! ```text
//!  manifests ─► controller ─► embedded log ─► hub ─► edge of each node ─► its pod worker
//!                   ▲              ▲            │
//!                   └── reports ───┴────────────┘
//! ```
//!
//! The parts and their connections are the same as in processes of their own; only this composition
//! differs.

mod cloud;
mod health;
mod log;
mod nodes;
mod terminal;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_cli::args::Up;
use headwater_cli::exit::{CommandResult, Failure, Outcome};
use headwater_controller::{Notice, SourceError};
use headwater_event::NodeName;
use headwater_hub::WallClock;
use headwater_kubernetes::EventLevel;
use headwater_operator::{
    self as operator, ControllerView, ListenError, OperatorDependencies, PartKind,
};
use headwater_rocks::{Budget, DatabaseMemory};
use headwater_settings::Events;
use headwater_settings::LayeredSettings;
use headwater_telemetry::traces::Traces;
use headwater_telemetry::{NodeNames, server};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::cloud::{Cloud, CloudError};
use self::nodes::NodesNotStarted;
use self::terminal::Terminal;
use crate::data_dir::{DataDir, DataDirError, METRICS_ADDRESS, OWNER_UP};
use crate::database::damaged;
use crate::hub_fleet::HubFleetServer;
use crate::metrics::Metrics;
use crate::node::pod_server::PodServerError;
use crate::node::{Node, NodeMetrics, NodeSettings, cuts};
use crate::part::signals::Signals;
use crate::pod_runtime::{PodRuntime, shared_rights};
use crate::settings::controller::manifests_are_there;
use crate::settings::kubelet::Listen;
use crate::settings::kubernetes::Kubernetes;
use crate::settings::pods::PodBounds;
use crate::settings::streams::Streams;
use crate::settings::up::Settings;
use crate::stores::Stores;
use crate::{clock, open_files, part, protection, runtime, settings};

/// The reason why `up` does not start.
#[derive(Debug, thiserror::Error)]
enum UpError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(transparent)]
    Nodes(#[from] NodesNotStarted),
    #[error(transparent)]
    PodServer(#[from] PodServerError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Serve(#[from] server::ListenError),
    /// A metric is registered twice.
    #[error("the metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// Everything that runs.
struct Composition {
    cloud: Cloud,
    nodes: BTreeMap<NodeName, Node>,
    operator_dependencies: OperatorDependencies,
    notices: mpsc::Receiver<Notice>,
    stopped_sources: mpsc::Receiver<SourceError>,
    stop: CancellationToken,
    answering: tokio::task::JoinHandle<()>,
    /// The kubelet's servers of the nodes, if API servers may ask.
    fleet: Option<HubFleetServer>,
    /// The server of metrics and health, if there is one.
    serving: Option<tokio::task::JoinHandle<()>>,
    /// The data directory, locked while anything runs.
    data: DataDir,
}

/// Runs until a signal ends it.
pub(crate) fn run(args: Up) -> CommandResult {
    let configured = LayeredSettings::<Settings>::load(
        args.running.config.as_deref(),
        &settings::up::flags(&args),
    )
    .map_err(|error| Failure::Usage(error.to_string()))?;
    if args.running.print_config {
        let mut stdout = std::io::stdout().lock();
        for line in &configured.origins {
            writeln!(stdout, "{line}")?;
        }
        return Ok(Outcome::Done);
    }
    check_source(&args, &configured.settings.kubernetes).map_err(Failure::Usage)?;
    if let Some(manifests) = args.manifests.as_ref().filter(|manifests| !manifests.exists()) {
        return Err(Failure::message(format!(
            "{} does not exist: name a folder of manifests",
            manifests.display()
        )));
    }
    if let Some(file) = args.manifests.as_ref().filter(|manifests| !manifests.is_dir()) {
        let file = file.display();
        return Err(Failure::Usage(format!("{file} is a file: name the folder it lies in")));
    }
    if let Some(manifests) = &args.manifests {
        manifests_are_there(manifests).map_err(Failure::Usage)?;
    }
    let nodes = configured.settings.node_names().unwrap_or_default().len();
    protection::apply()?;
    open_files::make_room(nodes)?;
    let runtime = runtime::build()?;
    runtime.block_on(run_traced(args, configured.settings))
}

/// Checks that objects come from somewhere, and not from two places that exclude each other.
fn check_source(args: &Up, kubernetes: &Kubernetes) -> Result<(), String> {
    let has_own = args.manifests.is_some() || args.objects.is_some();
    match kubernetes.access() {
        None if has_own => Ok(()),
        None => Err("there is no source of objects: name a folder, headwater up MANIFESTS; or a \
                     socket, --objects SOCKET; or a Kubernetes API, --kubeconfig FILE"
            .to_owned()),
        Some(_) if has_own => {
            Err("the settings name a Kubernetes API, which excludes manifests and \
                                   objects: leave those out, or unset kubeconfig and in_cluster in \
                                   [kubernetes]"
                .to_owned())
        }
        Some(access) => access.check().map_err(|error| headwater_telemetry::error_chain(&error)),
    }
}

/// Runs with logs and traces.
async fn run_traced(args: Up, settings: Settings) -> CommandResult {
    let endpoint = settings.otlp_endpoint.as_deref();
    let traces = Traces::start(endpoint)
        .map_err(|error| Failure::Usage(headwater_telemetry::error_chain(&error)))?;
    let terminal = Terminal::new();
    terminal
        .set_up_log(settings.log_format, traces.as_ref())
        .map_err(|error| Failure::Usage(headwater_telemetry::error_chain(&error)))?;
    let result = run_until_signal(&terminal, args, settings).await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    result
}

async fn run_until_signal(terminal: &Terminal, args: Up, settings: Settings) -> CommandResult {
    // Installed first, so that an early signal does not kill a half-started process.
    let mut signals = Signals::take()?;
    // A start is short, so a signal during the start takes effect after it.
    let mut stop_early = false;
    let mut starting = std::pin::pin!(Composition::start(&args, &settings));
    let mut composition = loop {
        tokio::select! {
            started = &mut starting => break started?,
            () = signals.any() => {}
        }
        if std::mem::replace(&mut stop_early, true) {
            return Err(Failure::message("stopped at once, during the start"));
        }
        terminal.print_stop_early();
    };
    if !stop_early {
        terminal.print_start(&composition.data, &args, &settings);
        tokio::select! {
            () = terminal.show(&mut composition) => {}
            () = signals.any() => {}
        }
    }
    terminal.print_stopping(settings.stop_grace);
    let stopping = composition.stop(settings.stop_grace);
    tokio::select! {
        remaining = stopping => {
            terminal.print_stopped(remaining);
            if remaining == 0 { Ok(Outcome::Done) } else {
                Err(Failure::message(format!("{remaining} pods did not end in time")))
            }
        }
        () = signals.interrupt() => Err(Failure::message("stopped at once; pods may still run")),
    }
}

impl Composition {
    async fn start(args: &Up, settings: &Settings) -> Result<Self, UpError> {
        let data = DataDir::open(&args.data, OWNER_UP)?;
        let socket = data.operator_socket()?;
        let names = settings.node_names().unwrap_or_default();
        let memory = DatabaseMemory::new(Budget::CLOUD.and_nodes(names.len()));
        let metrics = Metrics::new(&memory)?;
        // Before the start of anything that a failure here would have to stop.
        let listener = match settings.metrics.0 {
            Some(address) => Some(server::listen(address).await?),
            None => None,
        };
        let clock: WallClock = Arc::new(clock::wall_ms);
        let mut cloud = Cloud::start(args, settings, &data, &memory, &metrics, &clock).await?;
        for name in names.iter().filter(|name| cuts::is_cut(&data.node(name))) {
            tracing::warn!(node = %name, "its link is still cut: `headwater link restore {name}`");
            cloud.hub.view().set_link(name, true);
        }
        // The settings were checked.
        let listen = settings.kubelet.door().unwrap_or(Listen::Off);
        let fleet = HubFleetServer::start(cloud.hub.view(), &listen).await?;
        let of_nodes = NodeMetrics::new(&metrics)?;
        let hub = cloud.hub.address();
        let nodes = nodes::start(&names, |name| {
            Node::start(name, node_settings(settings, hub), &data, &memory, &of_nodes)
        });
        let nodes = nodes.await?;
        let stop = CancellationToken::new();
        let (notices, stopped_sources) = (
            cloud.controller.take_notices().unwrap_or_else(|| mpsc::channel(1).1),
            cloud.controller.take_stopped_sources().unwrap_or_else(|| mpsc::channel(1).1),
        );
        let operator_dependencies = OperatorDependencies {
            notes: shared_rights(Some(settings.runtime), true),
            ..operator_dependencies(&cloud, &nodes, &data, &clock, &metrics.stores)
        };
        let answering =
            operator::serve(&socket, operator_dependencies.clone(), stop.child_token())?;
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        data.set_address(METRICS_ADDRESS, address)?;
        let serving = listener.zip(address).map(|(listener, address)| {
            let health = health::of(&cloud, &nodes, &metrics, &answering);
            let names = NodeNames::at(address, settings.metrics_node_names);
            let stop = stop.child_token();
            tokio::spawn(server::serve(listener, metrics.registry, names, health, stop))
        });
        Ok(Self {
            cloud,
            nodes,
            operator_dependencies,
            notices,
            stopped_sources,
            stop,
            answering,
            fleet,
            serving,
            data,
        })
    }

    /// Stops pods, nodes and cloud. Returns the number of pods that did not end.
    async fn stop(self, grace: Duration) -> usize {
        if let Some(fleet) = self.fleet {
            fleet.end().await;
        }
        let mut stopping = tokio::task::JoinSet::new();
        for node in self.nodes.into_values() {
            stopping.spawn(node.stop(grace));
        }
        let remaining = stopping.join_all().await.into_iter().sum();
        self.stop.cancel();
        if let Err(error) = self.answering.await {
            tracing::error!(%error, "the operator API has ended unexpectedly");
        }
        if let Some(serving) = self.serving {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the server of metrics has ended unexpectedly");
            }
            if let Err(error) = self.data.set_address(METRICS_ADDRESS, None) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an address file cannot be removed"
                );
            }
        }
        self.cloud.stop().await;
        remaining
    }
}

/// The settings of each node, whose hub is at `hub`.
fn node_settings(settings: &Settings, hub: SocketAddr) -> NodeSettings {
    NodeSettings {
        hubs: vec![hub.into()],
        tls: None,
        sync_interval: settings.sync_interval,
        // `up` runs pods as its own user, root included.
        runtime: Some(PodRuntime {
            kind: settings.runtime,
            allow_root: true,
            cri: settings.cri.clone(),
        }),
        pod_bounds: PodBounds {
            node_address: settings.node_address,
            pressure: settings.pressure,
            images: settings.images.clone(),
            // The API gets only what the nodes send.
            events: match settings.kubernetes.events {
                EventLevel::All => Events::All,
                EventLevel::None | EventLevel::Warnings => Events::Warnings,
            },
            ..PodBounds::default()
        },
        // One address is not that of several nodes.
        kubelet: Listen::Off,
        // Their hub has one port for all.
        streams: Streams::default(),
        // A reserve for each of many nodes would be most of the disk, and they share one.
        has_reserve: false,
        local_user: None,
        local_socket: None,
    }
}

fn operator_dependencies(
    cloud: &Cloud,
    nodes: &BTreeMap<NodeName, Node>,
    data: &DataDir,
    clock: &WallClock,
    stores: &Stores,
) -> OperatorDependencies {
    let stores = stores.clone();
    let of_controller = part::controller::troubles(&cloud.controller, &cloud.sink_troubles);
    let of_hub = cloud.hub.view();
    let root = data.root().to_owned();
    let node_dir = {
        let root = root.clone();
        move |node: &NodeName| root.join("nodes").join(node.as_str())
    };
    OperatorDependencies {
        part: PartKind::Up,
        logs: Some(cloud.logs.clone()),
        cloud: Some(ControllerView {
            picture: cloud.controller.picture().clone(),
            progress: cloud.controller.progress(),
            published: cloud.published.clone(),
        }),
        hub: Some(cloud.hub.view()),
        nodes: Arc::new(nodes.iter().map(|(name, node)| (name.clone(), node.view())).collect()),
        node_dirs: Arc::new(node_dir.clone()),
        record_link: Arc::new(move |node, cut| cuts::set(&node_dir(node), cut)),
        wall_clock: clock.clone(),
        notes: Vec::new(),
        troubles: Arc::new(move || {
            let of_stores = stores.troubles();
            let of_cloud = of_controller().into_iter().chain(of_hub.troubles());
            of_cloud.chain(of_stores).chain(damaged::kept(&root)).collect()
        }),
    }
}
