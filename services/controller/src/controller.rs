//! The controller as a whole: its tasks, and the handle on them.

mod handle;

use std::sync::Arc;

use headwater_event::NodeName;
use headwater_follow::WallClock;
use headwater_log::Log;
use headwater_owner::spawn_owner;
use headwater_store::{Engine, EngineError, schema};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::interest::{ClusterStream, Interest, SharedInterest};
use crate::metrics::ControllerMetrics;
use crate::picture::changes::ChangeFeed;
use crate::picture::{DepartedPods, Picture, PictureReports, PresenceReceiver};
use crate::publisher::{
    DownstreamLog, OpenError, Progress, PublishedFold, Publisher, PublisherDependencies,
    SharedConsumption, SharedSnapshotRequests, UnadoptedKeys, UuidGenerator, WriterTimings,
};
use crate::report_fold::ReportFold;
use crate::sink::{ObjectRemovals, Sink, SinkContext};
use crate::source::{
    SOURCE_QUEUE_EVENTS, SetContext, SharedWorkloads, Source, SourceKind, SourceSet,
    SourceStateSender, SourceStates, Wanted, WorkloadContext, WriterRole,
};

pub use self::handle::{ControllerHandle, Readiness};

/// Commands that may wait for the publisher.
const COMMANDS_MAX: usize = 256;

/// Notices that may wait for a reader.
const NOTICES_MAX: usize = 256;

/// What a controller needs from outside.
pub struct ControllerDependencies {
    /// The log that it writes.
    pub downstream: Arc<dyn Log>,
    /// The log that it reads reports from.
    pub upstream: Arc<dyn Log>,
    /// The database of its fold of the downstream log; a cache.
    pub published: Arc<dyn Engine>,
    /// The database of its fold of the upstream log; a cache.
    pub picture: Arc<dyn Engine>,
    /// Where objects come from.
    pub sources: Vec<Box<dyn Source>>,
    /// Where the picture goes.
    pub sink: Box<dyn Sink>,
    /// Nodes that exist even before they have a pod.
    pub nodes: Vec<NodeName>,
    /// Where hubs reach this controller, HOST:PORT; its claims carry it. `None`: it does not listen.
    pub address: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub wall_clock: WallClock,
    /// How it shares the log with other controllers.
    pub timings: WriterTimings,
    /// How many source events are applied before their differences are appended; at least 1.
    pub group_events: usize,
    /// Whether no other process can write the log, as where the log lies in a directory that this
    /// process holds locked. The controller then claims at once. Otherwise it claims a log that
    /// another controller claimed last, and has not released, only after a silence.
    pub sole_writer: bool,
    /// Whether the log has an object that many nodes use once in a partition, as
    /// [`headwater_log::Draft::is_shared`] describes. Every hub of the log must read that.
    pub shares_objects: bool,
    /// Which nodes get the shared stream.
    pub cluster_stream: ClusterStream,
    /// What it counts.
    pub metrics: ControllerMetrics,
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A store cannot be used.
    #[error("the controller's store cannot be used")]
    Engine(#[from] EngineError),
    /// The log, or the fold of it, cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Starts controllers.
#[derive(Debug)]
pub struct Controller;

impl Controller {
    /// Starts a controller. Its sources list first; then it claims the log, or is a standby.
    ///
    /// # Errors
    /// See [`ControllerError`].
    pub async fn start(
        dependencies: ControllerDependencies,
    ) -> Result<ControllerHandle, ControllerError> {
        Self::start_with_uuids(dependencies, Arc::new(Uuid::new_v4)).await
    }

    /// As [`Controller::start`], with UUIDs from the caller: a simulation generates its own.
    ///
    /// # Errors
    /// See [`ControllerError`].
    pub async fn start_with_uuids(
        dependencies: ControllerDependencies,
        new_uuid: UuidGenerator,
    ) -> Result<ControllerHandle, ControllerError> {
        let ControllerDependencies { picture, published, wall_clock, metrics, .. } = dependencies;
        schema::CONTROLLER.check(&*published)?;
        schema::CONTROLLER.check(&*picture)?;
        let downstream = DownstreamLog {
            log: dependencies.downstream,
            upstream: dependencies.upstream.clone(),
            engine: published.clone(),
            clock: wall_clock.clone(),
            new_uuid,
            unadopted: UnadoptedKeys::default(),
            departed: DepartedPods::default(),
        };
        let departed = downstream.departed.clone();
        let follower = downstream.open().await?;
        let earlier = Arc::new(PublishedFold(published.clone()));

        let (stop, release) = (CancellationToken::new(), CancellationToken::new());
        let sources = SourceSet::new(dependencies.sources);
        let mut interest = Interest::with_cluster_stream(dependencies.cluster_stream);
        if sources.sends_only_used() {
            interest.forget_unused();
        }
        let interest = SharedInterest::from(interest);
        let changes = ChangeFeed::new();
        let (missing, missing_version) = watch::channel(0);
        let (events, source) = mpsc::channel(SOURCE_QUEUE_EVENTS);
        let (states, source_states) = watch::channel(SourceStates::default());
        let (failed, stopped_sources) = mpsc::channel(1);
        let (commands, commands_receiver) = mpsc::channel(COMMANDS_MAX);
        let snapshot_requests = SharedSnapshotRequests::default();
        let consumption = SharedConsumption::default();
        let (notices_sender, notices) = mpsc::channel(NOTICES_MAX);
        let (progress, progress_receiver) = watch::channel(Progress::default());
        metrics.scrape.look_at(&events, &interest);

        let uid_assignments = sources.uid_assignments();
        let (role, role_receiver) = watch::channel(WriterRole::default());
        let workloads = SharedWorkloads::default();
        let publisher = Publisher::new(PublisherDependencies {
            downstream,
            follower,
            address: dependencies.address,
            interest: interest.clone(),
            changes: changes.of_objects(),
            missing,
            nodes: dependencies.nodes,
            source,
            group_events: dependencies.group_events,
            source_states: source_states.clone(),
            source_open: events.clone(),
            uid_assignments,
            answering_sources: sources.answering(),
            role,
            notices: notices_sender,
            commands: commands_receiver,
            snapshot_requests: snapshot_requests.clone(),
            consumption: consumption.clone(),
            progress,
            metrics: metrics.publisher.clone(),
            timings: dependencies.timings,
            sole_writer: dependencies.sole_writer,
            shares_objects: dependencies.shares_objects,
            stop: release.clone(),
        });
        let picture_engine = picture;
        let presence = PresenceReceiver::new(changes.clone());
        let picture = Picture::new(
            interest.clone(),
            picture_engine.clone(),
            changes.clone(),
            presence.clone(),
            workloads.clone(),
        );
        let (picture_troubles, picture_troubles_receiver) = watch::channel(Vec::new());
        let report_fold = ReportFold {
            log: dependencies.upstream,
            engine: picture_engine,
            published: published.clone(),
            snapshot_requests,
            consumption,
            changes,
            presence: presence.clone(),
            event_discards: picture.event_discards(),
            registrations: picture.registration_notes(),
            progress: progress_receiver.clone(),
            troubles: picture_troubles,
            metrics: metrics.report_fold,
        };
        let reports = Arc::new(PictureReports::new(picture.clone(), departed, wall_clock.clone()));
        let sink_context = SinkContext {
            picture: picture.clone(),
            progress: progress_receiver.clone(),
            removals: sources.wants_removals().then(|| ObjectRemovals::new(commands)),
            stop: stop.child_token(),
        };
        let set_context = SetContext {
            published: earlier,
            wanted: Wanted::new(interest, missing_version),
            workloads: WorkloadContext { reports, workloads, role: role_receiver },
            events,
            states: SourceStateSender::new(
                SourceKind::OTHER,
                states,
                wall_clock,
                metrics.publisher.clone(),
            ),
            stop: stop.child_token(),
        };

        let publishing = spawn_owner(stop.clone(), publisher.run());
        let folding = spawn_owner(stop.clone(), report_fold.run());
        let counted = metrics.publisher;
        let reading = tokio::spawn(async move {
            if let Err(error) = sources.run(set_context).await {
                counted.source_failed(&error);
                // The channel has room: the sources fail once.
                let _ = failed.try_send(error);
            }
        });
        let (watched, watch_stop) = (presence.clone(), stop.clone());
        let watching = tokio::spawn(async move {
            let _ = watch_stop.run_until_cancelled(watched.watch_silence()).await;
        });
        let (sink, sink_stop) = (dependencies.sink, stop.clone());
        let sinking = tokio::spawn(async move {
            let _ = sink_stop.run_until_cancelled(sink.run(sink_context)).await;
        });
        Ok(ControllerHandle {
            picture,
            published,
            presence,
            progress: progress_receiver,
            picture_troubles: picture_troubles_receiver,
            source_states,
            notices: Some(notices),
            stopped_sources: Some(stopped_sources),
            stop: stop.drop_guard(),
            release,
            publishing,
            tasks: vec![reading, folding, sinking, watching],
        })
    }
}

#[cfg(test)]
mod tests;
