//! The controller as a whole: its tasks, and the handle on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use headwater_follow::{WallClock, on_its_own_thread};
use headwater_log::Log;
use headwater_store::{Engine, EngineError, schema};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::changes::Teller;
use crate::downstream::{
    self, Adopted, Downstream, DrawUuid, OpenError, Progress, SharedInterest, WriterTimings,
};
use crate::inherited;
use crate::metrics::ControllerMetrics;
use crate::picture::Picture;
use crate::source::{Notice, Published, SOURCE_QUEUE_EVENTS, Several, Source, SourceError};
use crate::upstream::Upstream;

/// What the upstream side may demand before the downstream side looks.
const DEMANDS_MAX: usize = 256;

/// Notices waiting to be shown.
const NOTICES_MAX: usize = 256;

/// How long a writer may take to say that it stops: a log that works takes far less, one that does
/// not is not waited for.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// How long each task may take to end when the controller stops.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// What a controller is given.
pub struct ControllerSeams {
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
    pub async fn start(seams: ControllerSeams) -> Result<ControllerHandle, ControllerError> {
        Self::start_drawing(seams, Arc::new(Uuid::new_v4)).await
    }

    /// As [`Controller::start`], with UUIDs from the caller: a simulation draws its own.
    ///
    /// # Errors
    /// See [`ControllerError`].
    pub async fn start_drawing(
        seams: ControllerSeams,
        draw: DrawUuid,
    ) -> Result<ControllerHandle, ControllerError> {
        schema::CONTROLLER.check(&*seams.published)?;
        schema::CONTROLLER.check(&*seams.picture)?;
        let (log, upstream) = (&*seams.downstream, &*seams.upstream);
        let follower =
            downstream::open(log, upstream, &seams.published, &seams.wall_clock, &draw).await?;
        let published: Arc<dyn Published> = Arc::new(inherited::published(&*seams.published)?);

        let (stop, release) = (CancellationToken::new(), CancellationToken::new());
        let (events, source) = mpsc::channel(SOURCE_QUEUE_EVENTS);
        let (failed, stopped_sources) = mpsc::channel(1);
        let mut tasks = Vec::new();
        if let Some(source) = one_of(seams.sources) {
            let (events, stop) = (events.clone(), stop.child_token());
            let counted = seams.metrics.downstream.clone();
            tasks.push(tokio::spawn(async move {
                if let Err(error) = source.run(published, events, stop).await {
                    counted.source_failed(&error);
                    // There is room: it fails once.
                    let _ = failed.try_send(error);
                }
            }));
        }
        let interest = SharedInterest::default();
        let changes = Teller::new();
        let picture = Picture::new(interest.clone(), seams.picture.clone(), changes.clone());
        seams.metrics.scrape.look_at(&events, &interest);
        let (demand, demands) = mpsc::channel(DEMANDS_MAX);
        let (notice, notices) = mpsc::channel(NOTICES_MAX);
        let (progress, progress_seen) = watch::channel(Progress::default());
        let downstream = Downstream {
            log: seams.downstream,
            upstream: seams.upstream.clone(),
            engine: seams.published,
            clock: seams.wall_clock,
            draw,
            interest,
            changes: changes.clone(),
            nodes: seams.nodes,
            source,
            _source_open: events,
            notices: notice,
            demands,
            waiting: BTreeSet::new(),
            progress,
            metrics: seams.metrics.downstream,
            timings: seams.timings,
            sole_writer: seams.sole_writer,
            stop: release.clone(),
            listing: None,
            listed: false,
            adopted: Adopted::default(),
        };
        let upstream = Upstream {
            log: seams.upstream,
            engine: seams.picture,
            demands: demand,
            changes,
            progress: progress_seen.clone(),
            metrics: seams.metrics.upstream,
        };
        let publishing = on_its_own_thread(stop.clone(), downstream.run(Some(follower)));
        tasks.push(on_its_own_thread(stop.clone(), upstream.run()));
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
    if sources.len() > 1 { Some(Box::new(Several::new(sources))) } else { sources.pop() }
}

#[cfg(test)]
mod tests;
