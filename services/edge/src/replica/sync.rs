//! Syncs of the state database, beside the fold: the next group is folded and written while one
//! is made durable.
//!
//! ```text
//!  replica --ticket--> syncer --Engine::sync--> what it made durable, or why not --> replica
//! ```
//!
//! One sync is under way at a time: what gathers meanwhile shares the next, and none can succeed
//! beside one that fails.

use std::sync::Arc;

use headwater_store::{Engine, EngineError};
use headwater_view::SyncTicket;
use tokio::sync::mpsc;

use super::ReplicaError;
use super::counts::Stopwatch;

/// One sync is under way at a time, and so is one word of it in either direction.
const UNDER_WAY_MAX: usize = 1;

/// What a sync made durable.
type Outcome = Result<SyncTicket, EngineError>;

/// Syncs when it is asked to; blocks on the disk. Ends with the replica, or with the first sync
/// that fails.
#[derive(Debug)]
pub(crate) struct Syncer {
    engine: Arc<dyn Engine>,
    asked: mpsc::Receiver<SyncTicket>,
    ended: mpsc::Sender<Outcome>,
}

/// The replica's end of its [`Syncer`].
#[derive(Debug)]
pub(super) struct SyncHandle {
    ask: mpsc::Sender<SyncTicket>,
    ended: mpsc::Receiver<Outcome>,
    /// When the sync that is under way began.
    under_way: Option<Stopwatch>,
}

/// A sync that is over, and when it began.
#[derive(Debug)]
pub(super) struct CompletedSync {
    pub(super) ticket: SyncTicket,
    pub(super) began: Stopwatch,
}

impl Syncer {
    /// A syncer of `engine`, and the way to it.
    pub(super) fn new(engine: Arc<dyn Engine>) -> (Self, SyncHandle) {
        let (ask, asked) = mpsc::channel(UNDER_WAY_MAX);
        let (ended_sender, ended) = mpsc::channel(UNDER_WAY_MAX);
        (Self { engine, asked, ended: ended_sender }, SyncHandle { ask, ended, under_way: None })
    }

    /// Syncs until nobody asks any more.
    pub(crate) async fn run(mut self) {
        while self.sync_once().await {}
    }

    /// Whether it goes on.
    pub(super) async fn sync_once(&mut self) -> bool {
        let Some(ticket) = self.asked.recv().await else { return false };
        let outcome = self.engine.sync().map(|()| ticket);
        let is_synced = outcome.is_ok();
        self.ended.send(outcome).await.is_ok() && is_synced
    }
}

impl SyncHandle {
    /// Whether a sync is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Lets the syncer make durable what `ticket` covers. None may be under way.
    pub(super) fn begin(
        &mut self,
        ticket: SyncTicket,
        began: Stopwatch,
    ) -> Result<(), ReplicaError> {
        self.under_way = Some(began);
        self.ask.try_send(ticket).map_err(|_| ReplicaError::NobodySyncs)
    }

    /// Waits for the sync that is under way; for ever if there is none. May be given up.
    pub(super) async fn end(&mut self) -> Result<CompletedSync, ReplicaError> {
        let outcome = self.ended.recv().await;
        self.over(outcome)
    }

    /// The sync that was under way, if it is over.
    pub(super) fn try_end(&mut self) -> Result<Option<CompletedSync>, ReplicaError> {
        match self.ended.try_recv() {
            Ok(outcome) => self.over(Some(outcome)).map(Some),
            Err(mpsc::error::TryRecvError::Empty) => Ok(None),
            Err(mpsc::error::TryRecvError::Disconnected) => self.over(None).map(Some),
        }
    }

    fn over(&mut self, outcome: Option<Outcome>) -> Result<CompletedSync, ReplicaError> {
        let ticket = outcome.ok_or(ReplicaError::NobodySyncs)??;
        let began = self.under_way.take().unwrap_or_default();
        Ok(CompletedSync { ticket, began })
    }
}
