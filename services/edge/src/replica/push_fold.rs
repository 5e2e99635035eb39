//! Pushes into the view: the open batch, the events that follow its commit, and the commits that
//! wait for a sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_event::{Checkpoint, StateHash, StreamId};
use headwater_store::{Engine, EngineError};
use headwater_view::{FoldError, Materializer, PositionChanges, Refusal, Release, SyncTicket};

use super::counts::FoldCounts;
use super::fold::{AppliedEffect, EdgeFold, FoldInput, PreparedPush};
use super::{ReplicaError, ReplicaEvent, ReplicaSettings};
use crate::metrics::Resync;

/// Folds pushes and commits them.
#[derive(Debug)]
pub(super) struct PushFold {
    materializer: Materializer<EdgeFold>,
    commits_waiting_max: usize,
    /// Streams that differ from the log. Only a push that begins anew continues one.
    stopped: BTreeSet<StreamId>,
    /// Inputs in the open batch.
    open: usize,
    /// Events for the session that follow the commit of the open batch.
    events: Vec<ReplicaEvent>,
    pub(super) counts: FoldCounts,
}

/// What a commit made visible.
#[derive(Debug)]
pub(super) struct VisibleChanges {
    /// The streams that moved.
    pub(super) moved: PositionChanges,
    /// Whether a catch-up became visible as a whole: the view must be listed again before more is
    /// folded.
    pub(super) replaced: bool,
}

impl PushFold {
    /// Opens the view in `engine`. Everything that the engine has is durable.
    pub(super) fn open(
        engine: Arc<dyn Engine>,
        settings: &ReplicaSettings,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            materializer: Materializer::open(engine, EdgeFold::default(), settings.bounds)?,
            commits_waiting_max: settings.commits_waiting_max,
            stopped: BTreeSet::new(),
            open: 0,
            events: Vec::new(),
            counts: FoldCounts::default(),
        })
    }

    /// The durable position of every stream.
    pub(super) fn positions(&self) -> &BTreeMap<StreamId, (Checkpoint, StateHash)> {
        self.materializer.durable_positions()
    }

    /// Folds a push, or one part of it.
    pub(super) fn apply(&mut self, push: PreparedPush) -> Result<(), ReplicaError> {
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

    /// Removes a stream that the node no longer has.
    pub(super) fn remove(&mut self, stream: StreamId) -> Result<(), ReplicaError> {
        self.stopped.remove(&stream);
        Ok(self.fold(FoldInput::Drop(stream))?)
    }

    fn fold(&mut self, input: FoldInput) -> Result<(), FoldError<Refusal>> {
        let (stopwatch, changes) = (self.counts.start(), input.changes());
        self.materializer.fold(input)?;
        self.counts.folded(changes, &stopwatch);
        self.open += 1;
        Ok(())
    }

    /// Whether the open batch must be committed before the next push.
    pub(super) fn is_full(&self) -> bool {
        self.materializer.is_full() || self.materializer.projection().replaced
    }

    /// Whether the open batch has anything.
    pub(super) fn has_open_batch(&self) -> bool {
        self.open > 0
    }

    /// Commits the open batch.
    pub(super) fn commit(&mut self) -> Result<VisibleChanges, EngineError> {
        let stopwatch = self.counts.start();
        let moved = self.materializer.commit()?;
        self.counts.committed(&stopwatch);
        self.open = 0;
        let replaced = std::mem::take(&mut self.materializer.projection_mut().replaced);
        Ok(VisibleChanges { moved, replaced })
    }

    /// Takes the events that follow the last commit.
    pub(super) fn take_events(&mut self) -> Vec<ReplicaEvent> {
        std::mem::take(&mut self.events)
    }

    /// How many commits wait for a sync.
    pub(super) fn waiting_commits(&self) -> usize {
        self.materializer.waiting_commits()
    }

    /// Whether a commit must wait for the running sync: enough commits wait already, or the commit
    /// would be synced by itself.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting_commits() >= self.commits_waiting_max || self.materializer.commit_syncs()
    }

    /// Whether an effect waits for a sync.
    pub(super) fn has_waiting_effects(&self) -> bool {
        self.materializer.waiting_effects() > 0
    }

    /// Whether there are commits above durable.
    pub(super) fn is_ahead_of_durable(&self) -> bool {
        self.materializer.is_ahead_of_durable()
    }

    /// The last commit that a sync makes durable if it begins now.
    pub(super) fn ticket(&self) -> SyncTicket {
        self.materializer.ticket()
    }

    /// What a sync of `ticket` made durable.
    pub(super) fn synced(&mut self, ticket: SyncTicket) -> Release<AppliedEffect> {
        self.materializer.synced(ticket)
    }
}
