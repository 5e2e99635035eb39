//! The owner of the state database: runs the commands in groups, and commits each group once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_event::{Checkpoint, StateHash, StreamId};
use headwater_store::{Engine, EngineError};
use headwater_view::{FoldError, Materializer, Refusal, Selection};
use tokio::sync::mpsc;

use super::counts::ReplicaCounts;
use super::fold::{EdgeFold, FoldInput, PreparedPush};
use super::sync::{SyncHandle, Syncer};
use super::watch::Watchers;
use super::{ReplicaCommand, ReplicaError, ReplicaEvent, ReplicaSettings};
use crate::dependencies::Clock;
use crate::metrics::{EdgeCounts, Resync};
use crate::upstream::{UpstreamCommand, ViewChange};

/// The owner of the state database.
#[derive(Debug)]
pub(crate) struct EdgeReplica {
    pub(super) settings: ReplicaSettings,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) materializer: Materializer<EdgeFold>,
    /// The node's own stream.
    pub(super) private: StreamId,
    /// Streams that differ from the log. Only a push that begins anew continues one.
    stopped: BTreeSet<StreamId>,
    pub(super) watchers: Watchers,
    session: mpsc::Sender<ReplicaEvent>,
    upstream: mpsc::Sender<UpstreamCommand>,
    /// Inputs in the open batch.
    pub(super) open: usize,
    /// Events for the session that follow the commit of the open batch.
    pub(super) events: Vec<ReplicaEvent>,
    stopping: bool,
    /// Whether the durable view has the node's whole private stream.
    pub(super) complete: bool,
    /// Whether the watches need a new listing, once the commits are durable and before more is
    /// folded.
    pub(super) relists: bool,
    pub(super) sync: SyncHandle,
    pub(super) now_ms: u64,
    /// When the last sync began.
    pub(super) synced_ms: u64,
    pub(super) counts: ReplicaCounts,
}

impl EdgeReplica {
    /// Opens the replica in `engine`; all that it holds is durable then. The caller runs the syncer
    /// beside it.
    ///
    /// # Errors
    /// As the engine.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        private: StreamId,
        settings: ReplicaSettings,
        session: mpsc::Sender<ReplicaEvent>,
        upstream: mpsc::Sender<UpstreamCommand>,
    ) -> Result<(Self, Syncer), EngineError> {
        let materializer =
            Materializer::open(Arc::clone(&engine), EdgeFold::default(), settings.bounds)?;
        let complete = materializer.durable_position(&private).is_some();
        let (syncer, sync) = Syncer::new(Arc::clone(&engine));
        let replica = Self {
            settings,
            engine,
            materializer,
            private,
            stopped: BTreeSet::new(),
            watchers: Watchers::new(settings.watch),
            session,
            upstream,
            open: 0,
            events: Vec::new(),
            stopping: false,
            complete,
            relists: false,
            sync,
            now_ms: 0,
            synced_ms: 0,
            counts: ReplicaCounts::default(),
        };
        Ok((replica, syncer))
    }

    /// The same replica, with metrics.
    #[must_use]
    pub(crate) fn counting(mut self, metrics: EdgeCounts, clock: Arc<dyn Clock>) -> Self {
        self.counts = ReplicaCounts::new(metrics, clock);
        self
    }

    /// The durable position of every stream.
    pub(crate) fn positions(&self) -> &BTreeMap<StreamId, (Checkpoint, StateHash)> {
        self.materializer.durable_positions()
    }

    /// Runs commands until one stops it, or all senders are gone.
    ///
    /// # Errors
    /// When it cannot go on. Nothing above the durable position was released.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<ReplicaCommand>,
    ) -> Result<(), ReplicaError> {
        self.begin().await?;
        while !self.stopping {
            tokio::select! {
                biased;
                synced = self.sync.end(), if self.sync.is_running() => {
                    self.synced(synced?).await?;
                }
                command = commands.recv() => match command {
                    Some(command) => {
                        self.run_group(command, || commands.try_recv().ok()).await?;
                    }
                    None => break,
                },
            }
        }
        self.make_durable().await
    }

    /// Sends the outbox thread the pods of the view.
    pub(super) async fn begin(&mut self) -> Result<(), ReplicaError> {
        let listed = self.list_pods()?;
        self.send_upstream(listed).await;
        Ok(())
    }

    /// Runs `first`, and with it the commands that are queued.
    pub(super) async fn run_group(
        &mut self,
        first: ReplicaCommand,
        mut queued: impl FnMut() -> Option<ReplicaCommand>,
    ) -> Result<(), ReplicaError> {
        let mut next = Some(first);
        while let Some(command) = next {
            self.run_command(command).await?;
            let is_full = self.materializer.is_full();
            let replaced = self.materializer.projection().replaced;
            next = if is_full || replaced || self.stopping { None } else { queued() };
            // The next sync need not wait for the rest of this batch.
            if next.is_some()
                && let Some(synced) = self.sync.try_end()?
            {
                self.synced(synced).await?;
            }
        }
        self.settle().await
    }

    async fn run_command(&mut self, command: ReplicaCommand) -> Result<(), ReplicaError> {
        match command {
            ReplicaCommand::Apply { push, room } => {
                self.apply(push)?;
                drop(room);
            }
            ReplicaCommand::Drop(stream) => {
                self.stopped.remove(&stream);
                self.fold(FoldInput::Drop(stream)).map_err(ReplicaError::from)?;
            }
            ReplicaCommand::Summarize { stream, nonce, entries_max } => {
                // Earlier pushes are visible then, and their events are sent.
                self.commit().await?;
                let digests = self.digests(&stream, nonce, entries_max)?;
                self.send_session(ReplicaEvent::Summarized { stream, nonce, digests }).await;
            }
            ReplicaCommand::Sync => {
                self.make_durable().await?;
                for (stream, (checkpoint, _)) in self.positions().clone() {
                    self.send_session(ReplicaEvent::Durable { stream, checkpoint }).await;
                }
            }
            ReplicaCommand::Tick(now_ms) => self.now_ms = self.now_ms.max(now_ms),
            ReplicaCommand::Watch { filter, reply } => {
                self.make_durable().await?;
                let listing = self.listing(&filter)?;
                let _ = reply.send(self.watchers.open(filter, listing));
                self.counts.watches(self.watchers.len(), self.watchers.lagged());
            }
            ReplicaCommand::Find { key, reply } => {
                self.make_durable().await?;
                let _ = reply.send(self.find(key)?);
            }
            ReplicaCommand::List { namespace, kind, reply } => {
                self.make_durable().await?;
                let selection = match &namespace {
                    Some(namespace) => Selection::KindIn(&kind, namespace),
                    None => Selection::Kind(&kind),
                };
                let mut objects = Vec::new();
                for stream in self.positions().keys() {
                    self.read(stream, selection, |object| objects.push(object))?;
                }
                let _ = reply.send(objects);
            }
            ReplicaCommand::Stop => self.stopping = true,
            ReplicaCommand::Deliver { group, operation, reply } => {
                let _ = reply.send(self.watchers.deliver(group, &operation));
            }
        }
        Ok(())
    }

    fn apply(&mut self, push: PreparedPush) -> Result<(), ReplicaError> {
        let advance = &push.advance;
        let (stream, checkpoint, hash) = (advance.stream.clone(), advance.to, advance.hash);
        let (mode, first, last) = (advance.mode, advance.part == 0, advance.last_part);
        if mode.begins_anew() && first {
            self.stopped.remove(&stream);
        } else if self.stopped.contains(&stream) {
            // The push was in flight when the stream stopped. The session expects no event for it,
            // even where it happens to fit.
            tracing::debug!(%stream, seq = %checkpoint.seq, "discarded a push of a stopped stream");
            return Ok(());
        }
        if let Some(by) = Resync::by(mode).filter(|_| first) {
            self.counts.resynced(by);
        }
        match self.fold(FoldInput::Push(push)) {
            Ok(()) if last => self.events.push(ReplicaEvent::Applied { stream, checkpoint, hash }),
            Ok(()) => {}
            Err(FoldError::Refused(Refusal::Diverged { found, .. })) => {
                tracing::error!(%stream, seq = %checkpoint.seq, expected = %hash, %found, "diverged");
                self.counts.resynced(Resync::Diverged);
                self.stopped.insert(stream.clone());
                self.events.push(ReplicaEvent::Applied { stream, checkpoint, hash: found });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn fold(&mut self, input: FoldInput) -> Result<(), FoldError<Refusal>> {
        let (stopwatch, changes) = (self.counts.start(), input.changes());
        self.materializer.fold(input)?;
        self.counts.folded(changes, &stopwatch);
        self.open += 1;
        Ok(())
    }

    /// Sends an event to the session, which takes every event without waiting for an owner. Without
    /// a session the edge is stopping.
    pub(super) async fn send_session(&self, event: ReplicaEvent) {
        let _ = self.session.send(event).await;
    }

    /// Sends changes of the view to the outbox thread, which never waits for the replica.
    pub(super) async fn send_upstream(&self, changes: Vec<ViewChange>) {
        if !changes.is_empty() {
            let _ = self.upstream.send(UpstreamCommand::View(changes)).await;
        }
    }
}

#[cfg(test)]
mod tests;
