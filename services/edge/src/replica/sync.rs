//! Syncs of the state database beside the fold: the owner folds and writes the next group while the
//! syncer makes one durable.
//!
//! ```text
//!  owner --ticket--> syncer --Engine::sync--> what it made durable, or the error --> owner
//! ```
//!
//! One sync runs at a time. Commits that gather meanwhile share the next one, and no sync can succeed
//! beside one that fails.

use std::sync::Arc;
use std::time::Duration;

use headwater_store::{Engine, EngineError};
use headwater_view::SyncTicket;
use tokio::sync::mpsc;

use super::ReplicaError;
use super::counts::Stopwatch;
use crate::metrics::EdgeCounts;

/// One sync runs at a time, so each channel carries one message at a time.
const RUNNING_MAX: usize = 1;

/// What a sync made durable, or why it failed.
type Outcome = Result<SyncTicket, EngineError>;

/// Syncs on request; blocks on the disk. Ends with the owner, or with the first sync that fails.
#[derive(Debug)]
pub(crate) struct Syncer {
    engine: Arc<dyn Engine>,
    requests: mpsc::Receiver<SyncTicket>,
    outcomes: mpsc::Sender<Outcome>,
}

/// The owner's end of its [`Syncer`], and the time by which the next sync is due.
#[derive(Debug)]
pub(super) struct SyncHandle {
    requests: mpsc::Sender<SyncTicket>,
    outcomes: mpsc::Receiver<Outcome>,
    /// Since the running sync began.
    running: Option<Stopwatch>,
    interval_ms: u64,
    now_ms: u64,
    /// When the last sync began.
    began_ms: u64,
    pub(super) metrics: EdgeCounts,
}

impl Syncer {
    /// A syncer of `engine`, and the handle for its owner. A sync is due every `interval`.
    pub(super) fn new(engine: Arc<dyn Engine>, interval: Duration) -> (Self, SyncHandle) {
        let (request_sender, requests) = mpsc::channel(RUNNING_MAX);
        let (outcome_sender, outcomes) = mpsc::channel(RUNNING_MAX);
        let handle = SyncHandle {
            requests: request_sender,
            outcomes,
            running: None,
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            now_ms: 0,
            began_ms: 0,
            metrics: EdgeCounts::default(),
        };
        (Self { engine, requests, outcomes: outcome_sender }, handle)
    }

    /// Syncs until the owner has ended, or a sync fails.
    pub(crate) async fn run(mut self) {
        while self.sync_once().await {}
    }

    /// Runs the next sync. False: there is no further one.
    pub(super) async fn sync_once(&mut self) -> bool {
        let Some(ticket) = self.requests.recv().await else { return false };
        let outcome = self.engine.sync().map(|()| ticket);
        let is_synced = outcome.is_ok();
        self.outcomes.send(outcome).await.is_ok() && is_synced
    }
}

impl SyncHandle {
    /// Whether a sync is running.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Sets the monotonic clock, which never goes back.
    pub(super) fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Whether the interval has passed since the last sync began.
    pub(super) fn is_due(&self) -> bool {
        self.now_ms.saturating_sub(self.began_ms) >= self.interval_ms
    }

    /// Requests a sync of what `ticket` covers. None may be running.
    pub(super) fn begin(&mut self, ticket: SyncTicket) -> Result<(), ReplicaError> {
        self.began_ms = self.now_ms;
        self.running = Some(Stopwatch::start(&self.metrics));
        self.requests.try_send(ticket).map_err(|_| ReplicaError::SyncerEnded)
    }

    /// Waits for the end of the running sync, and returns what it covered; forever, where none is
    /// running. Dropping the future loses nothing.
    pub(super) async fn end(&mut self) -> Result<SyncTicket, ReplicaError> {
        let outcome = self.outcomes.recv().await;
        self.complete(outcome)
    }

    /// What the running sync covered, if it has ended.
    pub(super) fn try_end(&mut self) -> Result<Option<SyncTicket>, ReplicaError> {
        match self.outcomes.try_recv() {
            Ok(outcome) => self.complete(Some(outcome)).map(Some),
            Err(mpsc::error::TryRecvError::Empty) => Ok(None),
            Err(mpsc::error::TryRecvError::Disconnected) => self.complete(None).map(Some),
        }
    }

    fn complete(&mut self, outcome: Option<Outcome>) -> Result<SyncTicket, ReplicaError> {
        let ticket = outcome.ok_or(ReplicaError::SyncerEnded)??;
        self.metrics.synced(self.running.take().unwrap_or_default().elapsed());
        Ok(ticket)
    }
}
