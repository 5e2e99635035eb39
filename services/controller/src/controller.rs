//! The controller as a whole: its tasks, and the handle on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use headwater_follow::WallClock;
use headwater_log::Log;
use headwater_owner::spawn_owner;
use headwater_store::{Engine, EngineError, schema};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::metrics::ControllerMetrics;
use crate::picture::Picture;
use crate::picture::changes::ChangeFeed;
use crate::publisher::backup;
use crate::publisher::{
    IdentityMap, OpenError, Progress, Publisher, SharedInterest, UuidGenerator, WriterTimings,
    open as open_log_fold,
};
use crate::report_fold::ReportFold;
use crate::source::{
    Notice, PublishedObjects, SOURCE_QUEUE_EVENTS, Source, SourceError, SourceSet,
};

/// What the upstream side may command before the downstream side looks.
const COMMANDS_MAX: usize = 256;

/// Notices waiting to be shown.
const NOTICES_MAX: usize = 256;

/// How long a writer may take to say that it stops: a log that works takes far less, one that does
/// not is not waited for.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// How long each task may take to end when the controller stops.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// What a controller is given.
pub struct ControllerDependencies {
    /// The log that it writes.
    pub downstream: Arc<dyn Log>,
    /// The log that it reads reports from.
    pub upstream: Arc<dyn Log>,
    /// Where its fold of the downstream log lies; a cache.
    pub published: Arc<dyn Engine>,
    /// Where its fold of the upstream log lies; a cache.
    pub picture: Arc<dyn Engine>,
    /// Where objects come from.
    pub sources: Vec<Box<dyn Source>>,
    /// Nodes that exist even before they have a pod.
    pub nodes: Vec<NodeName>,
    /// Milliseconds since the Unix epoch.
    pub wall_clock: WallClock,
    /// How it deals with other controllers of the same log.
    pub timings: WriterTimings,
    /// Whether nobody but this process can write the log, as where the log lies in a directory
    /// that it holds locked: it then claims at once, for whoever wrote before is gone. Otherwise a
    /// log that another claimed last, and has not released, is taken only after a silence.
    pub sole_writer: bool,
    /// What it counts.
    pub metrics: ControllerMetrics,
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A store cannot be used.
    #[error("the controller's store cannot be used")]
    Engine(#[from] EngineError),
    /// What was published before cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A running controller.
pub struct ControllerHandle {
    picture: Picture,
    progress: watch::Receiver<Progress>,
    notices: Option<mpsc::Receiver<Notice>>,
    stopped_sources: Option<mpsc::Receiver<SourceError>>,
    /// A handle that is dropped stops the controller too, but waits for nothing.
    stop: DropGuard,
    /// Told first when it stops in order.
    release: CancellationToken,
    publishing: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
}

/// Starts controllers.
#[derive(Debug)]
pub struct Controller;

impl Controller {
    /// Starts a controller: its sources list while it claims the log, or stands by.
    ///
    /// # Errors
    /// See [`ControllerError`].
    pub async fn start(
        dependencies: ControllerDependencies,
    ) -> Result<ControllerHandle, ControllerError> {
        Self::start_with_uuids(dependencies, Arc::new(Uuid::new_v4)).await
    }

    /// As [`Controller::start`], with UUIDs from the caller: a simulation draws its own.
    ///
    /// # Errors
    /// See [`ControllerError`].
    pub async fn start_with_uuids(
        dependencies: ControllerDependencies,
        draw: UuidGenerator,
    ) -> Result<ControllerHandle, ControllerError> {
        schema::CONTROLLER.check(&*dependencies.published)?;
        schema::CONTROLLER.check(&*dependencies.picture)?;
        let (log, upstream) = (&*dependencies.downstream, &*dependencies.upstream);
        let follower =
            open_log_fold(log, upstream, &dependencies.published, &dependencies.wall_clock, &draw)
                .await?;
        let published: Arc<dyn PublishedObjects> =
            Arc::new(backup::published(&*dependencies.published)?);

        let (stop, release) = (CancellationToken::new(), CancellationToken::new());
        let (events, source) = mpsc::channel(SOURCE_QUEUE_EVENTS);
        let (failed, stopped_sources) = mpsc::channel(1);
        let mut tasks = Vec::new();
        if let Some(source) = one_of(dependencies.sources) {
            let (events, stop) = (events.clone(), stop.child_token());
            let counted = dependencies.metrics.publisher.clone();
            tasks.push(tokio::spawn(async move {
                if let Err(error) = source.run(published, events, stop).await {
                    counted.source_failed(&error);
                    // There is room: it fails once.
                    let _ = failed.try_send(error);
                }
            }));
        }
        let interest = SharedInterest::default();
        let changes = ChangeFeed::new();
        let picture = Picture::new(interest.clone(), dependencies.picture.clone(), changes.clone());
        dependencies.metrics.scrape.look_at(&events, &interest);
        let (command, commands) = mpsc::channel(COMMANDS_MAX);
        let (notice, notices) = mpsc::channel(NOTICES_MAX);
        let (progress, progress_seen) = watch::channel(Progress::default());
        let publisher = Publisher {
            log: dependencies.downstream,
            upstream: dependencies.upstream.clone(),
            engine: dependencies.published,
            clock: dependencies.wall_clock,
            draw,
            interest,
            changes: changes.clone(),
            nodes: dependencies.nodes,
            source,
            _source_open: events,
            notices: notice,
            commands,
            waiting: BTreeSet::new(),
            progress,
            metrics: dependencies.metrics.publisher,
            timings: dependencies.timings,
            sole_writer: dependencies.sole_writer,
            stop: release.clone(),
            listing: None,
            listed: false,
            identities: IdentityMap::default(),
        };
        let report_fold = ReportFold {
            log: dependencies.upstream,
            engine: dependencies.picture,
            commands: command,
            changes,
            progress: progress_seen.clone(),
            metrics: dependencies.metrics.report_fold,
        };
        let publishing = spawn_owner(stop.clone(), publisher.run(Some(follower)));
        tasks.push(spawn_owner(stop.clone(), report_fold.run()));
        Ok(ControllerHandle {
            picture,
            progress: progress_seen,
            notices: Some(notices),
            stopped_sources: Some(stopped_sources),
            stop: stop.drop_guard(),
            release,
            publishing,
            tasks,
        })
    }
}

impl ControllerHandle {
    /// The cloud's picture.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// How publishing stands; changes wake whoever waits.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// What sources want a person to know; given out once.
    pub fn take_notices(&mut self) -> Option<mpsc::Receiver<Notice>> {
        self.notices.take()
    }

    /// Why sources stopped; given out once. What they told stays.
    pub fn take_stopped_sources(&mut self) -> Option<mpsc::Receiver<SourceError>> {
        self.stopped_sources.take()
    }

    /// Stops sources and publishing. What was appended is in the log; nothing else is lost. Where
    /// it is the writer, it says so last: another may take over at once.
    pub async fn stop(mut self) {
        self.release.cancel();
        let released = timeout(RELEASE_WITHIN, &mut self.publishing).await;
        drop(self.stop);
        match released {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "publishing ended by itself"),
            Err(_) => self.tasks.push(self.publishing),
        }
        for mut task in self.tasks {
            match timeout(STOP_WITHIN, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, "a task of the controller ended by itself");
                }
                Err(_) => task.abort(),
            }
        }
    }
}

impl Picture {
    /// The JSON of the object at `key`, for a node that asks.
    pub fn answer(&self, key: &ResourceKey) -> Option<Bytes> {
        self.object(key).map(|object| object.payload().clone())
    }
}

/// All sources as one: what one of them lists, another's list does not remove.
fn one_of(mut sources: Vec<Box<dyn Source>>) -> Option<Box<dyn Source>> {
    if sources.len() > 1 { Some(Box::new(SourceSet::new(sources))) } else { sources.pop() }
}

#[cfg(test)]
mod tests;
