//! A part as a process of its own: the common steps, from the command line to the exit status.
//!
//! ```text
//!  settings ─► logs, traces ─► data directory ─► start ─► ready ─► a signal ─► hand over
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`controller`], [`hub`] | the parts of the cloud |
//! | [`edge`], [`edged`] | the parts of a node |
//! | [`log`] | the log of the cloud's parts |
//! | [`signals`] | the signals that end a process |
//! | [`notify`] | notifications for a service manager |

pub(crate) mod controller;
pub(crate) mod edge;
pub(crate) mod edged;
pub(crate) mod hub;
pub(crate) mod log;
mod notify;
pub(crate) mod signals;

use std::io::{self, Write};
use std::sync::Arc;

use headwater_cli::args::part::Process as Args;
use headwater_cli::exit::{CommandResult, Failure, Outcome};
use headwater_event::NodeName;
use headwater_hub::WallClock;
use headwater_operator::{self as operator, OperatorDependencies, PartKind};
use headwater_rocks::{Budget, DatabaseMemory};
use headwater_settings::{Flags, LayeredSettings};
use headwater_telemetry::error_chain;
use headwater_telemetry::health::{CheckKind, Health};
use headwater_telemetry::traces::Traces;
use headwater_telemetry::{self as telemetry, NodeNames, server};
use tokio_util::sync::CancellationToken;

use self::signals::Signals;
use crate::data_dir::{CONTROLLER_ADDRESS, DataDir, HUB_ADDRESS, METRICS_ADDRESS};
use crate::database::damaged;
use crate::metrics::Metrics;
use crate::node::cuts;
use crate::settings::process::PartSettings;
use crate::{clock, open_files, protection, runtime};

/// The default filter of a part's log lines: warnings and errors, and when it starts, is ready and
/// stops.
const FILTER_DEFAULT: &str = "warn,headwater=info";

/// The dependencies of a part.
pub(crate) struct PartDependencies {
    pub(crate) data: DataDir,
    /// The memory of its databases.
    pub(crate) memory: DatabaseMemory,
    pub(crate) metrics: Metrics,
    pub(crate) clock: WallClock,
    /// Cancelled when the part stops.
    pub(crate) stop: CancellationToken,
}

impl PartDependencies {
    /// The dependencies of the operator API that every part has; a part adds its own.
    pub(crate) fn operator_dependencies(&self, part: PartKind) -> OperatorDependencies {
        let stores = self.metrics.stores.clone();
        let root = self.data.root().to_owned();
        let node_dir = {
            let root = root.clone();
            move |node: &NodeName| root.join("nodes").join(node.as_str())
        };
        OperatorDependencies {
            part,
            logs: None,
            cloud: None,
            hub: None,
            nodes: Arc::default(),
            node_dirs: Arc::new(node_dir.clone()),
            notes: Vec::new(),
            record_link: Arc::new(move |node, cut| cuts::set(&node_dir(node), cut)),
            wall_clock: self.clock.clone(),
            troubles: Arc::new(move || {
                stores.troubles().into_iter().chain(damaged::kept(&root)).collect()
            }),
        }
    }
}

/// A part that runs as a process of its own.
pub(crate) trait Part: Sized {
    /// Its name on the command line.
    const NAME: &'static str;

    /// The memory of its databases.
    const BUDGET: Budget;

    /// Its settings.
    type Settings: PartSettings;

    /// Starts it. If the caller drops the start, nothing keeps running.
    ///
    /// # Errors
    /// The reason, for people.
    async fn start(
        settings: Self::Settings,
        dependencies: &PartDependencies,
    ) -> Result<Self, Failure>;

    /// Adds its checks of liveness and readiness.
    fn health(&self, health: &mut Health);

    /// Returns the dependencies of its operator API; `None`: it has none.
    fn operator_dependencies(
        &self,
        dependencies: &PartDependencies,
    ) -> Option<OperatorDependencies>;

    /// Waits until it ends by itself, and returns the reason. Most parts never do.
    async fn ended(&mut self) -> Failure {
        std::future::pending().await
    }

    /// Stops it, so that another instance can take over at once.
    async fn hand_over(self);
}

/// Runs a part until a signal ends it.
pub(crate) fn run<P: Part>(args: &Args, flags: &Flags) -> CommandResult {
    let configured = LayeredSettings::<P::Settings>::load(args.running.config.as_deref(), flags)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let mut stdout = io::stdout().lock();
    if args.running.print_config {
        for line in &configured.origins {
            writeln!(stdout, "{line}")?;
        }
        return Ok(Outcome::Done);
    }
    configured.settings.check_files().map_err(Failure::Usage)?;
    if args.check {
        writeln!(stdout, "the settings of the {} are valid", P::NAME)?;
        return Ok(Outcome::Done);
    }
    drop(stdout);
    protection::apply()?;
    open_files::make_room(1)?;
    let runtime = runtime::build()?;
    runtime.block_on(run_traced::<P>(configured.settings))
}

/// Runs with logs and traces.
async fn run_traced<P: Part>(settings: P::Settings) -> CommandResult {
    let process = settings.process();
    let usage = |error: &dyn std::error::Error| Failure::Usage(error_chain(error));
    let traces = Traces::start(process.otlp_endpoint).map_err(|error| usage(&error))?;
    let json = process.log_format.is_json();
    telemetry::log::set_up(json, FILTER_DEFAULT, io::stderr, traces.as_ref())
        .map_err(|error| usage(&error))?;
    let result = run_until_signal::<P>(settings).await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    result
}

async fn run_until_signal<P: Part>(settings: P::Settings) -> CommandResult {
    let mut signals = Signals::take()?;
    let process = settings.process();
    let data = DataDir::open(process.data, &settings.owner())?;
    let socket = data.operator_socket()?;
    let memory = DatabaseMemory::new(P::BUDGET);
    let metrics = Metrics::new(&memory)?;
    let names_nodes = process.metrics_node_names;
    // Before the start of anything that a failure here would have to stop.
    let listener = match process.metrics.0 {
        Some(address) => Some(server::listen(address).await?),
        None => None,
    };
    let clock: WallClock = Arc::new(clock::wall_ms);
    let stop = CancellationToken::new();
    let dependencies = PartDependencies { data, memory, metrics, clock, stop };
    let root = dependencies.data.root().display();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), data = %root, "the {} starts", P::NAME);
    let mut part = tokio::select! {
        started = P::start(settings, &dependencies) => started?,
        () = signals.any() => {
            notify::stopping();
            return Ok(Outcome::Done);
        }
        never = notify::starting() => match never {},
    };

    let mut health = Health::default();
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(operator_dependencies) = part.operator_dependencies(&dependencies) {
        let serving =
            operator::serve(&socket, operator_dependencies, dependencies.stop.child_token())?;
        let operator = serving.abort_handle();
        health.check(CheckKind::Live, "operator", move || {
            if operator.is_finished() { Err("the operator API has ended".into()) } else { Ok(()) }
        });
        tasks.spawn(async move { drop(serving.await) });
    }
    part.health(&mut health);
    let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    dependencies.data.set_address(METRICS_ADDRESS, address)?;
    if let Some((listener, address)) = listener.zip(address) {
        let names = NodeNames::at(address, names_nodes);
        let registry = dependencies.metrics.registry.clone();
        let (health, stop) = (health.clone(), dependencies.stop.child_token());
        tasks.spawn(server::serve(listener, registry, names, health, stop));
    }
    tasks.spawn(notify::run(health, dependencies.stop.child_token()));

    let ended = tokio::select! {
        why = part.ended() => Some(why),
        () = signals.any() => None,
    };
    notify::stopping();
    tracing::info!("the {} hands over", P::NAME);
    let handing_over = async {
        part.hand_over().await;
        dependencies.stop.cancel();
        tasks.join_all().await;
    };
    tokio::select! {
        () = handing_over => {}
        () = signals.any() => return Err(Failure::message("stopped at once, during the handover")),
    }
    for file in [METRICS_ADDRESS, HUB_ADDRESS, CONTROLLER_ADDRESS] {
        if let Err(error) = dependencies.data.set_address(file, None) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "an address file cannot be removed"
            );
        }
    }
    ended.map_or(Ok(Outcome::Done), Err)
}
