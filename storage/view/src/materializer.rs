//! The loop around a projection, one call a step: fold, commit, sync, release.
//!
//! ```text
//!  input --fold--> open batch --commit--> applied --sync--> durable --release--> effects
//!                     (bounded)            visible           survives power loss
//! ```
//!
//! Invariant: `durable <= applied`. Only effects at or below durable are released, so nothing is
//! started, stopped, reported or acknowledged from above it. The caller owns threads, channels and
//! waiting. It may sync on another thread while it folds on: see [`Materializer::ticket`].
//!
//! ```text
//!  loop {
//!      materializer.fold(next input)          until is_full() or no input is left
//!      materializer.commit()
//!      if effects wait: materializer.sync()   deliver the release
//!  }
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use headwater_event::StreamId;
use headwater_store::{Durability, Engine, EngineError};

use crate::projection::Projection;
use crate::stream::{
    FoldBounds, FoldError, PositionChanges, StatePosition, StreamReader, StreamState,
};

/// The size of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBounds {
    /// A batch of this many inputs is full.
    pub inputs_max: usize,
    /// A batch of this many bytes is full. One input may exceed it.
    pub batch_bytes_max: usize,
    /// Above this number of effects and commits that wait for a sync, each commit is synced at
    /// once, until the caller takes them by [`Materializer::sync`].
    pub waiting_effects_max: usize,
    /// The memory that the fold uses.
    pub fold: FoldBounds,
}

impl Default for CommitBounds {
    /// Batches of 1 MiB, which 1,024 inputs of 1 KiB fill: larger ones gain no throughput, and cost
    /// latency and memory. Waiting effects share their objects with the engine's batch; 8,192 of
    /// 2 KiB are 16 MiB.
    fn default() -> Self {
        Self {
            inputs_max: 1024,
            batch_bytes_max: 1 << 20,
            waiting_effects_max: 8192,
            fold: FoldBounds::default(),
        }
    }
}

/// The number of a commit of one materializer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncTicket(u64);

/// What a sync made durable.
#[derive(Debug)]
pub struct Release<E> {
    /// The effects, in the order of their folds.
    pub effects: Vec<E>,
    /// The streams whose durable position changed.
    pub moved: PositionChanges,
}

/// A commit whose effects wait for a sync.
#[derive(Debug)]
struct Commit<E> {
    ticket: SyncTicket,
    effects: Vec<E>,
    moved: PositionChanges,
}

/// Folds inputs through a projection, commits them in groups, releases durable effects.
///
/// After an engine error every call fails: open the engine again, then a new materializer. That
/// loses only effects; the state has what they reported.
#[derive(Debug)]
pub struct Materializer<P: Projection> {
    projection: P,
    state: StreamState,
    bounds: CommitBounds,
    inputs: usize,
    /// The effects of the open batch.
    effects: Vec<P::Effect>,
    applied: SyncTicket,
    durable: SyncTicket,
    /// The commits above durable, oldest first.
    waiting: VecDeque<Commit<P::Effect>>,
    waiting_effects: usize,
    durable_positions: BTreeMap<StreamId, StatePosition>,
    failed: Option<EngineError>,
}

impl<P: Projection> Materializer<P> {
    /// Opens the state in `engine`, all of which is durable afterwards.
    ///
    /// # Errors
    /// As [`StreamState::open`].
    pub fn open(
        engine: Arc<dyn Engine>,
        projection: P,
        bounds: CommitBounds,
    ) -> Result<Self, EngineError> {
        let state = StreamState::open(engine, bounds.fold)?;
        let positions = StreamReader::new(state.engine()).streams()?.into_iter();
        Ok(Self {
            projection,
            state,
            bounds,
            inputs: 0,
            effects: Vec::new(),
            applied: SyncTicket::default(),
            durable: SyncTicket::default(),
            waiting: VecDeque::new(),
            waiting_effects: 0,
            durable_positions: positions.map(|at| (at.stream, (at.checkpoint, at.hash))).collect(),
            failed: None,
        })
    }

    /// Folds one input into the open batch.
    ///
    /// # Errors
    /// [`FoldError::Refused`]: the input left no trace, the next one may be folded. After
    /// [`FoldError::Engine`] every call fails.
    pub fn fold(&mut self, input: P::Input) -> Result<(), FoldError<P::Refusal>> {
        self.check()?;
        let folded = self.projection.fold(input, &mut self.state, &mut self.effects);
        match &folded {
            Ok(()) => self.inputs += 1,
            Err(FoldError::Refused(_)) => {}
            Err(FoldError::Engine(error)) => self.fail(error),
        }
        folded
    }

    /// Whether the open batch is to be committed before the next fold.
    pub fn is_full(&self) -> bool {
        self.inputs >= self.bounds.inputs_max
            || self.state.batch_bytes() >= self.bounds.batch_bytes_max
    }

    /// Commits the open batch, if it has anything. The batch is visible when this returns, and not
    /// yet durable. Returns the streams that moved.
    ///
    /// # Errors
    /// As [`Engine::write`]; every later call fails.
    pub fn commit(&mut self) -> Result<PositionChanges, EngineError> {
        self.commit_with(match self.commit_syncs() {
            true => Durability::Synced,
            false => Durability::Buffered,
        })
    }

    /// Whether [`Self::commit`] would sync the open batch at once, because more than
    /// [`CommitBounds::waiting_effects_max`] waits for a sync. A caller that syncs on another thread
    /// asks this first.
    pub fn commit_syncs(&self) -> bool {
        let waiting = self.waiting_effects + self.effects.len() + self.waiting.len();
        waiting > self.bounds.waiting_effects_max
    }

    /// Commits the open batch, and makes it and all earlier ones durable.
    ///
    /// # Errors
    /// As [`Engine::write`]; every later call fails.
    pub fn commit_synced(&mut self) -> Result<Release<P::Effect>, EngineError> {
        self.commit_with(Durability::Synced)?;
        Ok(self.release())
    }

    /// Makes every commit so far durable, by one sync, and releases their effects. Without commits
    /// above durable it does not sync.
    ///
    /// # Errors
    /// As [`Engine::sync`]; every later call fails.
    pub fn sync(&mut self) -> Result<Release<P::Effect>, EngineError> {
        self.check()?;
        if self.durable < self.applied {
            if let Err(error) = self.state.engine().sync() {
                self.fail(&error);
                return Err(error);
            }
            self.durable = self.applied;
        }
        Ok(self.release())
    }

    /// The last commit that a sync makes durable if it begins now. For a caller that syncs on
    /// another thread: take the ticket, call [`Engine::sync`] there, then [`Self::synced`].
    pub fn ticket(&self) -> SyncTicket {
        self.applied
    }

    /// Records that [`Engine::sync`] was called after `ticket` was taken, and returned `Ok`.
    pub fn synced(&mut self, ticket: SyncTicket) -> Release<P::Effect> {
        if self.failed.is_none() {
            self.durable = self.durable.max(ticket.min(self.applied));
        }
        self.release()
    }

    /// Whether there are commits above durable.
    pub fn is_ahead_of_durable(&self) -> bool {
        self.durable < self.applied
    }

    /// How many commits wait for a sync.
    pub fn waiting_commits(&self) -> usize {
        self.waiting.len()
    }

    /// How many committed effects wait for a sync.
    pub fn waiting_effects(&self) -> usize {
        self.waiting_effects
    }

    /// The durable position of `stream`: what the edge may acknowledge, and report in a hello.
    pub fn durable_position(&self, stream: &StreamId) -> Option<StatePosition> {
        self.durable_positions.get(stream).copied()
    }

    /// The durable positions of all streams.
    pub fn durable_positions(&self) -> &BTreeMap<StreamId, StatePosition> {
        &self.durable_positions
    }

    /// The projection.
    pub fn projection(&self) -> &P {
        &self.projection
    }

    /// The projection, for changes that are no input.
    pub fn projection_mut(&mut self) -> &mut P {
        &mut self.projection
    }

    /// The state; changes to it belong to the open batch.
    pub fn state(&mut self) -> &mut StreamState {
        &mut self.state
    }

    fn commit_with(&mut self, durability: Durability) -> Result<PositionChanges, EngineError> {
        self.check()?;
        let is_idle = self.state.is_unchanged() && self.effects.is_empty();
        if is_idle && durability == Durability::Buffered {
            return Ok(BTreeMap::new());
        }
        let moved = match self.state.commit(durability) {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(&error);
                return Err(error);
            }
        };
        self.inputs = 0;
        self.applied.0 += 1;
        let effects = std::mem::take(&mut self.effects);
        self.waiting_effects += effects.len();
        self.waiting.push_back(Commit { ticket: self.applied, effects, moved: moved.clone() });
        if durability == Durability::Synced {
            self.durable = self.applied;
        }
        Ok(moved)
    }

    /// Removes everything at or below durable from the queue.
    fn release(&mut self) -> Release<P::Effect> {
        let mut released = Release { effects: Vec::new(), moved: BTreeMap::new() };
        while self.waiting.front().is_some_and(|commit| commit.ticket <= self.durable) {
            let Some(commit) = self.waiting.pop_front() else { break };
            released.effects.extend(commit.effects);
            released.moved.extend(commit.moved);
        }
        self.waiting_effects -= released.effects.len();
        for (stream, position) in &released.moved {
            match position {
                Some(at) => self.durable_positions.insert(stream.clone(), *at),
                None => self.durable_positions.remove(stream),
            };
        }
        released
    }

    fn check(&self) -> Result<(), EngineError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Refuses every later call: whether the failed write took effect is unknown.
    fn fail(&mut self, error: &EngineError) {
        self.state.abort();
        self.failed = Some(error.clone());
    }
}

#[cfg(test)]
mod tests;
