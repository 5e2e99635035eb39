//! The replica: one thread owns the node's materialized view, its readers and its watches.
//!
//! ```text
//!  session --Apply--> fold --commit--> applied --sync--> durable --> watches, outbox thread
//!             ^         | Applied                 | Durable
//!             |         v                         v
//!             +------ session <-------------------+
//! ```
//!
//! It folds what is queued, up to a bounded batch, commits it unsynced, and has it synced at once
//! when somebody waits for what it did; else by the clock. While its `Syncer` does that, it folds
//! and commits on. Nobody is told anything from above the durable position: before a reader's
//! question is answered, all that is applied is made durable.

mod counts;
pub(crate) mod fold;
pub(crate) mod integrity;
mod reads;
mod sync;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_event::{Checkpoint, EntryDigest, EntryKey, ResourceKey, StateHash, StreamId};
use headwater_store::{Engine, EngineError};
use headwater_view::{
    CommitBounds, EffectKind, FoldError, Materializer, Refusal, Release, Selection,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use self::counts::ReplicaCounts;
use self::reads::view_change;
pub(crate) use self::sync::Syncer;
use self::sync::{CompletedSync, SyncHandle};
use crate::dependencies::Clock;
use crate::meta::object::Object;
use crate::meta::operation::Operation;
use crate::meta::routing::Group;
use crate::metrics::{EdgeCounts, Resync};
use crate::owner::tell;
use crate::replica::fold::{AppliedEffect, EdgeFold, FoldInput, PreparedPush};
use crate::replica::watch::{Filter, TooManyWatches, Watch, WatchItem, WatchSettings, Watchers};
use crate::upstream::{UpstreamCommand, ViewChange};

/// How long applied state may stay unsynced when nobody waits for it: what a loss of power costs
/// is this much of a tail, read again from the hub.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// How many commits may wait while a sync is under way, those it covers included; then no more is
/// folded until it is over. One that is synced, one that is written, and two that gather for the
/// next: 4 MiB of objects, as much as a session's window.
pub const COMMITS_WAITING_MAX: usize = 4;

/// How the replica folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// See [`SYNC_INTERVAL`].
    pub sync_interval: Duration,
    /// See [`COMMITS_WAITING_MAX`].
    pub commits_waiting_max: usize,
    /// What one commit gathers.
    pub bounds: CommitBounds,
    /// The bounds of watches.
    pub watch: WatchSettings,
}

/// What the replica is asked.
#[derive(Debug)]
pub(crate) enum ReplicaCommand {
    /// Fold a push, or a part of one; `room` is what it takes of the intake until then.
    Apply { push: PreparedPush, room: Option<OwnedSemaphorePermit> },
    /// Remove a stream that the node no longer has.
    Drop(StreamId),
    /// Say what a stream holds, an entry a digest, if there are no more than `entries_max`.
    Summarize { stream: StreamId, nonce: u64, entries_max: usize },
    /// Make everything applied durable and say so of every stream.
    Sync,
    /// The monotonic clock, milliseconds.
    Tick(u64),
    /// Open a watch.
    Watch { filter: Filter, reply: oneshot::Sender<Result<Watch, TooManyWatches>> },
    /// Look one object up.
    Find { key: ResourceKey, reply: oneshot::Sender<Option<Object>> },
    /// Look all objects of a type up.
    List { namespace: Option<String>, kind: String, reply: oneshot::Sender<Vec<Object>> },
    /// Hand an operation to the watches of a group; answered with how many took it.
    Deliver { group: Group, operation: Operation, reply: oneshot::Sender<usize> },
    /// Make everything applied durable and end.
    Stop,
}

/// What the replica says to the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaEvent {
    /// A push is visible, or its hash did not come out.
    Applied { stream: StreamId, checkpoint: Checkpoint, hash: StateHash },
    /// A stream is synced up to here.
    Durable { stream: StreamId, checkpoint: Checkpoint },
    /// What a stream holds, or nothing where that is too much to say.
    Summarized { stream: StreamId, nonce: u64, digests: Vec<EntryDigest> },
}

/// Why the replica cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ReplicaError {
    /// The engine failed.
    #[error("the state engine failed")]
    Engine(#[from] EngineError),
    /// The syncer is gone: a defect.
    #[error("nobody syncs the state database any more")]
    NobodySyncs,
    /// The session let a push through that the state refuses: a defect.
    #[error("a push that the session accepted was refused")]
    Defect(#[source] Refusal),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EdgeReplica {
    settings: ReplicaSettings,
    engine: Arc<dyn Engine>,
    materializer: Materializer<EdgeFold>,
    private: StreamId,
    /// Streams that differ from the log: only a push that begins anew goes on from there.
    stopped: BTreeSet<StreamId>,
    watchers: Watchers,
    session: mpsc::Sender<ReplicaEvent>,
    upstream: mpsc::Sender<UpstreamCommand>,
    /// Inputs in the open batch, and what the session is told when it is committed.
    open: usize,
    answers: Vec<ReplicaEvent>,
    stopping: bool,
    /// Whether the node's whole private stream is there, as far as anybody has been told.
    complete: bool,
    /// Whether what is committed is to be listed anew, once it is durable and before more is folded.
    relists: bool,
    syncing: SyncHandle,
    now_ms: u64,
    /// When the last sync began.
    synced_ms: u64,
    counting: ReplicaCounts,
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        Self {
            sync_interval: SYNC_INTERVAL,
            commits_waiting_max: COMMITS_WAITING_MAX,
            bounds: CommitBounds::default(),
            watch: WatchSettings::default(),
        }
    }
}

impl EdgeReplica {
    /// The replica in `engine`; all that is there is then durable. Its syncer is to run beside it.
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
        let (syncer, syncing) = Syncer::new(Arc::clone(&engine));
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
            answers: Vec::new(),
            stopping: false,
            complete,
            relists: false,
            syncing,
            now_ms: 0,
            synced_ms: 0,
            counting: ReplicaCounts::default(),
        };
        Ok((replica, syncer))
    }

    /// The same, counting.
    #[must_use]
    pub(crate) fn counting(mut self, metrics: EdgeCounts, clock: Arc<dyn Clock>) -> Self {
        self.counting = ReplicaCounts::new(metrics, clock);
        self
    }

    /// Where every stream stands.
    pub(crate) fn positions(&self) -> &BTreeMap<StreamId, (Checkpoint, StateHash)> {
        self.materializer.durable_positions()
    }

    /// Works until it is told to stop, or every asker is gone.
    ///
    /// # Errors
    /// When it cannot go on; nothing from above the durable position was told.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<ReplicaCommand>,
    ) -> Result<(), ReplicaError> {
        self.begin()?;
        while !self.stopping {
            tokio::select! {
                biased;
                synced = self.syncing.end(), if self.syncing.is_under_way() => {
                    self.synced(synced?)?;
                }
                command = commands.recv() => match command {
                    Some(command) => self.group(command, || commands.try_recv().ok()).await?,
                    None => break,
                },
            }
        }
        self.make_durable().await
    }

    /// Tells the outbox what is there.
    fn begin(&mut self) -> Result<(), ReplicaError> {
        let listed = self.list_pods()?;
        self.tell_upstream(listed);
        Ok(())
    }

    /// Does what `first` asks, and with it what else is queued.
    async fn group(
        &mut self,
        first: ReplicaCommand,
        mut queued: impl FnMut() -> Option<ReplicaCommand>,
    ) -> Result<(), ReplicaError> {
        let mut next = Some(first);
        while let Some(command) = next {
            self.take(command).await?;
            let is_full = self.materializer.is_full();
            let replaced = self.materializer.projection().replaced;
            next = if is_full || replaced || self.stopping { None } else { queued() };
            // What has gathered for the next sync need not wait for the rest of this batch.
            if next.is_some()
                && let Some(synced) = self.syncing.try_end()?
            {
                self.synced(synced)?;
            }
        }
        self.settle().await
    }

    async fn take(&mut self, command: ReplicaCommand) -> Result<(), ReplicaError> {
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
                // What it was pushed before is visible then, and its answers are told.
                self.commit().await?;
                let digests = self.digests(&stream, nonce, entries_max)?;
                self.tell_session(ReplicaEvent::Summarized { stream, nonce, digests });
            }
            ReplicaCommand::Sync => {
                self.make_durable().await?;
                for (stream, (checkpoint, _)) in self.positions().clone() {
                    self.tell_session(ReplicaEvent::Durable { stream, checkpoint });
                }
            }
            ReplicaCommand::Tick(now_ms) => self.now_ms = self.now_ms.max(now_ms),
            ReplicaCommand::Watch { filter, reply } => {
                self.make_durable().await?;
                let listing = self.listing(&filter)?;
                let _ = reply.send(self.watchers.open(filter, listing));
                self.counting.watches(self.watchers.open_ones(), self.watchers.lagged());
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
            // It was on its way when the stream stopped; the session expects no answer to it,
            // also where it happens to fit.
            tracing::debug!(%stream, seq = %checkpoint.seq, "passed over");
            return Ok(());
        }
        if let Some(by) = Resync::by(mode).filter(|_| first) {
            self.counting.resynced(by);
        }
        match self.fold(FoldInput::Push(push)) {
            Ok(()) if last => self.answers.push(ReplicaEvent::Applied { stream, checkpoint, hash }),
            Ok(()) => {}
            Err(FoldError::Refused(Refusal::Diverged { found, .. })) => {
                tracing::error!(%stream, seq = %checkpoint.seq, expected = %hash, %found, "diverged");
                self.counting.resynced(Resync::Diverged);
                self.stopped.insert(stream.clone());
                self.answers.push(ReplicaEvent::Applied { stream, checkpoint, hash: found });
            }
            Err(FoldError::Refused(refusal)) => return Err(ReplicaError::Defect(refusal)),
            Err(FoldError::Engine(error)) => return Err(error.into()),
        }
        Ok(())
    }

    fn fold(&mut self, input: FoldInput) -> Result<(), FoldError<Refusal>> {
        let (began, changes) = (self.counting.begin(), input.changes());
        self.materializer.fold(input)?;
        self.counting.folded(changes, &began);
        self.open += 1;
        Ok(())
    }

    /// Commits what is folded, and begins to sync if somebody waits for that or it is time.
    async fn settle(&mut self) -> Result<(), ReplicaError> {
        self.commit().await?;
        if self.relists { self.make_durable().await } else { self.sync_if_due() }
    }

    /// Commits what is folded, and waits until all that is applied is durable and told.
    async fn make_durable(&mut self) -> Result<(), ReplicaError> {
        self.commit().await?;
        while self.materializer.is_ahead_of_durable() {
            self.begin_sync()?;
            self.hear_of_sync().await?;
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), ReplicaError> {
        if self.open > 0 {
            while self.syncing.is_under_way() && self.is_crowded() {
                self.hear_of_sync().await?;
            }
            let began = self.counting.begin();
            let moved = self.materializer.commit()?;
            self.counting.committed(&began);
            self.open = 0;
            let completes =
                moved.get(&self.private).is_some_and(|at| at.is_some() != self.complete);
            let replaced = std::mem::take(&mut self.materializer.projection_mut().replaced);
            self.relists |= completes || replaced;
        }
        for answer in std::mem::take(&mut self.answers) {
            self.tell_session(answer);
        }
        Ok(())
    }

    /// Whether a commit is to wait for the sync that is under way: enough waits already, or it
    /// would be synced itself.
    fn is_crowded(&self) -> bool {
        self.materializer.waiting_commits() >= self.settings.commits_waiting_max
            || self.materializer.commit_syncs()
    }

    fn sync_if_due(&mut self) -> Result<(), ReplicaError> {
        let interval = u64::try_from(self.settings.sync_interval.as_millis()).unwrap_or(u64::MAX);
        let is_time = self.now_ms.saturating_sub(self.synced_ms) >= interval;
        let is_ahead = self.materializer.is_ahead_of_durable();
        if self.materializer.waiting_effects() > 0 || (is_ahead && is_time) {
            self.begin_sync()?;
        }
        Ok(())
    }

    /// Has all that is applied synced; what comes while a sync is under way, after that.
    fn begin_sync(&mut self) -> Result<(), ReplicaError> {
        if self.syncing.is_under_way() {
            return Ok(());
        }
        let ticket = self.materializer.ticket();
        if !self.materializer.is_ahead_of_durable() {
            // The last commit was synced by itself.
            let released = self.materializer.synced(ticket);
            return self.let_out(released);
        }
        self.synced_ms = self.now_ms;
        self.syncing.begin(ticket, self.counting.begin())
    }

    async fn hear_of_sync(&mut self) -> Result<(), ReplicaError> {
        let synced = self.syncing.end().await?;
        self.synced(synced)
    }

    /// Lets out what a sync made durable, and begins the next if somebody waits for it.
    fn synced(
        &mut self,
        CompletedSync { ticket, began }: CompletedSync,
    ) -> Result<(), ReplicaError> {
        self.counting.synced(&began);
        let released = self.materializer.synced(ticket);
        self.let_out(released)?;
        self.sync_if_due()
    }

    /// Tells everyone what has become durable: first the session, then the outbox, which must know
    /// a pod before its status can come, then the watches.
    fn let_out(&mut self, released: Release<AppliedEffect>) -> Result<(), ReplicaError> {
        for (stream, position) in &released.moved {
            if let Some((checkpoint, _)) = *position {
                self.tell_session(ReplicaEvent::Durable { stream: stream.clone(), checkpoint });
            }
        }
        // Else a listing would show what is not durable: the sync that covers it comes next.
        let relist = self.relists && !self.materializer.is_ahead_of_durable();
        if relist {
            self.relists = false;
            self.complete = self.materializer.durable_position(&self.private).is_some();
        }
        let mut changes: Vec<_> = released
            .effects
            .iter()
            .filter(|done| done.effect.stream == self.private)
            .filter_map(|done| view_change(&done.effect.kind))
            .collect();
        if relist {
            changes = self.list_pods()?;
        }
        self.tell_upstream(changes);
        self.counting.visible(released.effects.iter().filter_map(|done| done.appended_ms));
        // Each span ends with its turn here: its change is durable, and let out.
        for AppliedEffect { effect, cause, .. } in released.effects {
            let traceparent = cause.traceparent();
            match effect.kind {
                EffectKind::Added(applied) | EffectKind::Changed(applied) => {
                    if let Some(object) = Object::of_applied(applied)
                        && !relist
                    {
                        let key = object.key.clone();
                        self.watchers.tell(&key, &WatchItem::Applied { object, traceparent });
                    }
                }
                EffectKind::Removed(removed) => {
                    if let EntryKey::Resource(key) = removed.key {
                        let uid = removed.uid;
                        let item = WatchItem::Removed { key: key.clone(), uid, traceparent };
                        self.watchers.tell(&key, &item);
                    }
                }
                EffectKind::Unchanged(_) | EffectKind::Replaced => {}
            }
        }
        if relist {
            let mut watchers =
                std::mem::replace(&mut self.watchers, Watchers::new(self.settings.watch));
            watchers.list(|filter| self.listing(filter))?;
            self.watchers = watchers;
        }
        self.counting.watches(self.watchers.open_ones(), self.watchers.lagged());
        Ok(())
    }

    fn tell_session(&self, answer: ReplicaEvent) {
        // The session takes every answer without waiting for anything; without one, the edge is
        // stopping.
        let _ = tell(&self.session, answer);
    }

    fn tell_upstream(&self, changes: Vec<ViewChange>) {
        if !changes.is_empty() {
            let _ = tell(&self.upstream, UpstreamCommand::View(changes));
        }
    }
}

impl From<FoldError<Refusal>> for ReplicaError {
    fn from(error: FoldError<Refusal>) -> Self {
        match error {
            FoldError::Refused(refusal) => Self::Defect(refusal),
            FoldError::Engine(error) => Self::Engine(error),
        }
    }
}

#[cfg(test)]
mod tests;
