//! The owner of the state database: runs the commands in groups, and commits each group once.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::{Assignment, Checkpoint, NodeName, StateHash, StreamId};
use headwater_store::{Engine, EngineError};
use headwater_view::Selection;
use tokio::sync::mpsc;

use super::counts::{DeliveryCounts, FoldCounts};
use super::push_fold::PushFold;
use super::subscribers::Subscribers;
use super::sync::{SyncHandle, Syncer};
use super::view_reader::ViewReader;
use super::{ReplicaCommand, ReplicaError, ReplicaEvent, ReplicaSettings};
use crate::dependencies::Clock;
use crate::metrics::EdgeCounts;
use crate::upstream::UpstreamCommand;

/// The owner of the state database.
#[derive(Debug)]
pub(crate) struct EdgeReplica {
    pub(super) fold: PushFold,
    pub(super) sync: SyncHandle,
    pub(super) reader: ViewReader,
    pub(super) subscribers: Subscribers,
    /// Whether the watches need a new listing, once the commits are durable and before more is
    /// folded.
    pub(super) relists: bool,
    stopping: bool,
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
        let fold = PushFold::open(Arc::clone(&engine), &settings)?;
        let (syncer, sync) = Syncer::new(Arc::clone(&engine), settings.sync_interval);
        let reader = ViewReader::new(engine, private, fold.positions());
        let subscribers = Subscribers::new(session, upstream, settings.watch);
        let replica = Self { fold, sync, reader, subscribers, relists: false, stopping: false };
        Ok((replica, syncer))
    }

    /// The same replica, with metrics.
    #[must_use]
    pub(crate) fn counting(mut self, metrics: EdgeCounts, clock: Arc<dyn Clock>) -> Self {
        self.fold.counts = FoldCounts::new(metrics.clone());
        self.sync.metrics = metrics.clone();
        self.subscribers.counts = DeliveryCounts::new(metrics, clock);
        self
    }

    /// The durable position of every stream.
    pub(crate) fn positions(&self) -> &BTreeMap<StreamId, (Checkpoint, StateHash)> {
        self.fold.positions()
    }

    /// The streams that the private stream assigns to `node`; `None`: the replica has nothing of that
    /// stream, or its entry cannot be decoded.
    ///
    /// # Errors
    /// As the engine.
    pub(crate) fn assignment(&self, node: &NodeName) -> Result<Option<Assignment>, EngineError> {
        self.reader.assignment(node)
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
        let listed = self.reader.list_pods()?;
        self.subscribers.send_upstream(listed).await;
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
            next = if self.fold.is_full() || self.stopping { None } else { queued() };
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
                self.fold.apply(push)?;
                drop(room);
            }
            ReplicaCommand::Drop(stream) => self.fold.remove(stream)?,
            ReplicaCommand::Summarize { stream, nonce, entries_max } => {
                // Earlier pushes are visible then, and their events are sent.
                self.commit().await?;
                let digests = self.reader.digests(&stream, nonce, entries_max)?;
                let event = ReplicaEvent::Summarized { stream, nonce, digests };
                self.subscribers.send_session(event).await;
            }
            ReplicaCommand::Sync => {
                self.make_durable().await?;
                for (stream, (checkpoint, _)) in self.positions().clone() {
                    let event = ReplicaEvent::Durable { stream, checkpoint };
                    self.subscribers.send_session(event).await;
                }
            }
            ReplicaCommand::Tick(now_ms) => self.sync.tick(now_ms),
            ReplicaCommand::Watch { filter, reply } => {
                self.make_durable().await?;
                let listing = self.reader.listing(&filter, self.positions().keys())?;
                let _ = reply.send(self.subscribers.open_watch(filter, listing));
            }
            ReplicaCommand::Find { key, reply } => {
                self.make_durable().await?;
                let _ = reply.send(self.reader.find(key, self.positions().keys())?);
            }
            ReplicaCommand::List { namespace, kind, reply } => {
                self.make_durable().await?;
                let selection = match &namespace {
                    Some(namespace) => Selection::KindIn(&kind, namespace),
                    None => Selection::Kind(&kind),
                };
                let _ = reply.send(self.reader.list(selection, self.positions().keys())?);
            }
            ReplicaCommand::Stop => self.stopping = true,
            ReplicaCommand::Deliver { group, operation, reply } => {
                let _ = reply.send(self.subscribers.deliver(group, &operation));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
