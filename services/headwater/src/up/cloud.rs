//! The cloud's side in one process: embedded log, hub, controller.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_controller::source::manifest::{ManifestFolder, ManifestSettings};
use headwater_controller::source::objects::ObjectsSocket;
use headwater_controller::{
    Controller, ControllerError, ControllerHandle, ControllerMetrics, ControllerSeams, Picture,
    Source,
};
use headwater_embedded::{EmbeddedError, EmbeddedLog, EmbeddedSettings, LogMetrics, LogTopic};
use headwater_event::{NodeName, ResourceKey};
use headwater_hub::{
    Answers, Hub, HubConfig, HubError, HubHandle, HubLimits, HubMetrics, HubSeams, WallClock,
};
use headwater_log::{BirthError, ReadError, read_birth};
use headwater_rocks::{RocksEngine, Role, Shared};
use headwater_session::HubSettings;
use headwater_session::message::RequestError;
use headwater_store::{Engine, EngineError, schema};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::data_dir::DataDir;
use super::whole;
use crate::cli::Up;
use crate::settings::Settings;
use crate::telemetry::Metrics;

/// How often superseded records are dropped from the embedded log: work that nobody waits for.
const COMPACT_INTERVAL: Duration = Duration::from_secs(60);

/// The name of the one hub, as position records say it.
const HUB_NAME: &str = "embedded";

/// The cloud's side.
pub(crate) struct Cloud {
    pub(crate) downstream: Arc<EmbeddedLog>,
    pub(crate) upstream: Arc<EmbeddedLog>,
    pub(crate) hub: HubHandle,
    pub(crate) controller: ControllerHandle,
    /// The controller's fold of the downstream log.
    pub(crate) published: Arc<dyn Engine>,
    /// Held so that the set of nodes never ends.
    _nodes: watch::Sender<BTreeSet<NodeName>>,
    compacting: Vec<JoinHandle<()>>,
}

/// Why the cloud's side does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloudError {
    /// A database cannot be opened.
    #[error("the database {path} cannot be opened")]
    Engine {
        /// Which.
        path: String,
        /// What is wrong.
        source: EngineError,
    },
    /// The log's database is damaged. Everything else can be made from it, it from nothing.
    #[error(
        "the log's database {path} is damaged; nothing was changed. Put a copy of it back that was \
         made while nothing ran; or move it aside: a log then begins anew from what the manifests \
         say, and what runs goes on"
    )]
    DamagedLog {
        /// Where it lies.
        path: String,
        /// What is wrong.
        source: EngineError,
    },
    /// The embedded log cannot be opened.
    #[error("the embedded log cannot be opened")]
    Log(#[from] EmbeddedError),
    /// The hub does not start.
    #[error("the hub does not start")]
    Hub(#[from] HubError),
    /// The controller does not start.
    #[error("the controller does not start")]
    Controller(#[from] ControllerError),
    /// Two parts count under one name.
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
        memory: &Shared,
        seen: &Metrics,
        clock: &WallClock,
    ) -> Result<Self, CloudError> {
        let open = |store, path, role, schema| {
            let engine = open(&data.cloud(path), role, memory, schema)?;
            seen.stores.opened(store, None, &engine);
            Ok::<Arc<dyn Engine>, CloudError>(engine)
        };
        let log = open("log", "log", Role::Log, schema::LOG)?;
        let log_metrics = LogMetrics::new(&seen.registry)?;
        let open_log = |topic| {
            let window = u64::try_from(settings.replay_window.as_millis()).unwrap_or(u64::MAX);
            let settings = EmbeddedSettings {
                replay_window_ms: window,
                delete_retention_ms: window.saturating_mul(2),
                ..EmbeddedSettings::new(topic)
            };
            let log = log.clone();
            EmbeddedLog::open_counted(log, settings, clock.clone(), &log_metrics).map(Arc::new)
        };
        let downstream = open_log(LogTopic::Downstream)?;
        refuse_damaged(&downstream, &data.cloud("log")).await?;
        let upstream = open_log(LogTopic::Upstream)?;

        let nodes: BTreeSet<NodeName> =
            settings.node_names().unwrap_or_default().into_iter().collect();
        let (nodes_held, nodes_seen) = watch::channel(nodes.clone());
        let published = open("published", "controller/published", Role::Fold, schema::CONTROLLER)?;
        let controller = Controller::start(ControllerSeams {
            downstream: downstream.clone(),
            upstream: upstream.clone(),
            published: published.clone(),
            picture: open("picture", "controller/picture", Role::Fold, schema::CONTROLLER)?,
            sources: sources(args, settings, &nodes_seen),
            nodes: nodes.into_iter().collect(),
            wall_clock: clock.clone(),
            metrics: ControllerMetrics::new(&seen.registry)?,
        })
        .await?;
        let hub = Hub::start(
            HubConfig {
                name: HUB_NAME.to_owned(),
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                settings: HubSettings::default(),
                limits: HubLimits::default(),
            },
            HubSeams {
                downstream: downstream.clone(),
                upstream: upstream.clone(),
                engine: open("hub", "hub", Role::Fold, schema::HUB)?,
                answers: Arc::new(PictureAnswers(controller.picture().clone())),
                wall_clock: clock.clone(),
                metrics: HubMetrics::new(&seen.registry)?,
            },
        )
        .await?;
        let compacting = [&downstream, &upstream].map(|log| tokio::spawn(compact(log.clone())));
        Ok(Self {
            downstream,
            upstream,
            hub,
            controller,
            published,
            _nodes: nodes_held,
            compacting: compacting.into(),
        })
    }

    /// Stops hub, controller and log, in this order.
    pub(crate) async fn stop(self) {
        for task in self.compacting {
            task.abort();
        }
        self.hub.stop().await;
        self.controller.stop().await;
        self.downstream.close().await;
        self.upstream.close().await;
    }
}

/// A log whose first record is damaged cannot be followed by anybody: here it can still be said
/// what to do.
async fn refuse_damaged(log: &EmbeddedLog, path: &Path) -> Result<(), CloudError> {
    match read_birth(log).await {
        Err(BirthError::Read(ReadError::Corrupt { reason, .. })) => Err(CloudError::DamagedLog {
            path: path.display().to_string(),
            source: EngineError::Corrupt { reason },
        }),
        // Whatever else there is, whoever needs the log says it.
        _ => Ok(()),
    }
}

/// Opens a database of the cloud's side.
fn open(
    path: &Path,
    role: Role,
    memory: &Shared,
    schema: headwater_store::Schema,
) -> Result<Arc<RocksEngine>, CloudError> {
    let failed = |source| CloudError::Engine { path: path.display().to_string(), source };
    let opened = match role {
        Role::Fold => whole::open(path, role, memory, schema),
        // As long as the replay window: it is read by whoever needs it.
        _ => RocksEngine::open(path, role, memory, schema),
    };
    match opened {
        Ok(engine) => Ok(Arc::new(engine)),
        // A fold is a cache: it is folded again. A log is not, and is never moved by itself.
        Err(EngineError::Corrupt { reason }) if role == Role::Fold => {
            let aside = headwater_rocks::move_aside(path)
                .map_err(|error| failed(EngineError::Read { reason: error.to_string() }))?;
            tracing::error!(
                path = %path.display(), aside = %aside.display(), %reason,
                "the database is damaged; it was moved aside and is folded anew"
            );
            Ok(Arc::new(RocksEngine::open(path, role, memory, schema).map_err(failed)?))
        }
        Err(source @ EngineError::Corrupt { .. }) => {
            Err(CloudError::DamagedLog { path: path.display().to_string(), source })
        }
        Err(error) => Err(failed(error)),
    }
}

fn sources(
    args: &Up,
    settings: &Settings,
    nodes: &watch::Receiver<BTreeSet<NodeName>>,
) -> Vec<Box<dyn Source>> {
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    if let Some(folder) = &args.manifests {
        let manifests =
            ManifestSettings { allow_empty: settings.allow_empty, ..ManifestSettings::new(folder) };
        sources.push(Box::new(ManifestFolder::new(manifests, nodes.clone())));
    }
    if let Some(socket) = &args.objects {
        sources.push(Box::new(ObjectsSocket::new(socket)));
    }
    sources
}

async fn compact(log: Arc<EmbeddedLog>) {
    let mut interval = tokio::time::interval(COMPACT_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        loop {
            match log.compact(EmbeddedSettings::COMPACTION_RECORDS_MAX).await {
                Ok(compacted) if compacted.more => tokio::task::yield_now().await,
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "the log was not compacted");
                    break;
                }
            }
        }
    }
}

/// Answers nodes from the cloud's picture.
struct PictureAnswers(Picture);

#[tonic::async_trait]
impl Answers for PictureAnswers {
    async fn answer(&self, _node: &NodeName, key: &ResourceKey) -> Result<Bytes, RequestError> {
        self.0.answer(key).ok_or(RequestError::NotFound)
    }
}
