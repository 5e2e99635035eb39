//! The loop around a projection, as calls: fold, commit, sync, release.
//!
//! ```text
//!  input --fold--> open batch --commit--> applied --sync--> durable --release--> effects
//!                     (bounded)            visible           survives power loss
//! ```
//!
//! `durable <= applied` at all times, and an effect is released only from at or below durable:
//! nothing is started, stopped, reported or acknowledged from above it. Waiting, threads and
//! channels are the caller's; a caller may sync on another thread while it folds on, see
//! [`Materializer::ticket`].
//!
//! ```text
//!  loop {
//!      materializer.fold(next input)          until is_full() or no input is waiting
//!      materializer.commit()
//!      if effects wait: materializer.sync()   deliver what is released
//!  }
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use headwater_event::StreamId;
use headwater_store::{Durability, Engine, EngineError};

use crate::position::{PositionChanges, StatePosition};
use crate::projection::{FoldError, Projection};
use crate::stream_reader::StreamReader;
use crate::stream_state::{FoldBounds, StreamState};

/// How much one commit gathers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBounds {
    /// The most inputs in a batch.
    pub inputs_max: usize,
    /// A batch of more bytes takes no further input. Not a limit of one input.
    pub batch_bytes_max: usize,
    /// When more effects and commits than this wait to be released, each commit is synced by
    /// itself, until the caller takes them by [`Materializer::sync`].
    pub waiting_effects_max: usize,
    /// The memory of the fold.
    pub fold: FoldBounds,
}

impl Default for CommitBounds {
    /// Batches of 1 MiB: larger ones gain no throughput and cost latency and memory; 1,024
    /// inputs of 1 KiB fill one. Waiting effects share their objects with the engine's batch;
    /// 8,192 of 2 KiB are 16 MiB.
    fn default() -> Self {
        Self {
            inputs_max: 1024,
            batch_bytes_max: 1 << 20,
            waiting_effects_max: 8192,
            fold: FoldBounds::default(),
        }
    }
}

/// A commit: counts the commits of one materializer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncTicket(u64);

/// What became durable.
#[derive(Debug)]
pub struct Release<E> {
    /// The effects, in the order they were folded.
    pub effects: Vec<E>,
    /// The streams whose durable position moved, and where it now is (`None`: dropped).
    pub moved: PositionChanges,
}

/// A commit whose effects are not yet released.
#[derive(Debug)]
struct Commit<E> {
    ticket: SyncTicket,
    effects: Vec<E>,
    moved: PositionChanges,
}

/// Folds inputs through a projection, commits them in groups, releases what is durable.
///
/// After an engine error it takes nothing more: open the engine again, then a new one. Nothing
/// is lost by that but effects, which a reader of the state finds there.
#[derive(Debug)]
pub struct Materializer<P: Projection> {
    projection: P,
    state: StreamState,
    bounds: CommitBounds,
    inputs: usize,
    /// Effects of the open batch.
    effects: Vec<P::Effect>,
    applied: SyncTicket,
    durable: SyncTicket,
    /// Commits above durable, oldest first.
    waiting: VecDeque<Commit<P::Effect>>,
    waiting_effects: usize,
    durable_positions: BTreeMap<StreamId, StatePosition>,
    failed: Option<EngineError>,
}

impl<P: Projection> Materializer<P> {
    /// A materializer over the state in `engine`, which is then durable.
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
    /// [`FoldError::Refused`]: the input left no trace; go on with the next. After
    /// [`FoldError::Engine`] nothing more is taken.
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

    /// Whether the open batch is to be committed before more is folded.
    pub fn is_full(&self) -> bool {
        self.inputs >= self.bounds.inputs_max
            || self.state.batch_bytes() >= self.bounds.batch_bytes_max
    }

    /// Commits the open batch: visible when this returns, not yet durable. An empty one is
    /// nothing. Gives the streams that moved, and where they now are.
    ///
    /// # Errors
    /// As [`Engine::write`]; nothing more is taken then.
    pub fn commit(&mut self) -> Result<PositionChanges, EngineError> {
        self.commit_with(match self.commit_syncs() {
            true => Durability::Synced,
            false => Durability::Buffered,
        })
    }

    /// Whether [`Self::commit`] would make the open batch durable at once, as more waits to be
    /// released than [`CommitBounds::waiting_effects_max`]. A caller that syncs on another thread hears
    /// of that first.
    pub fn commit_syncs(&self) -> bool {
        let waiting = self.waiting_effects + self.effects.len() + self.waiting.len();
        waiting > self.bounds.waiting_effects_max
    }

    /// Commits the open batch and makes it durable at once, and all before it.
    ///
    /// # Errors
    /// As [`Engine::write`]; nothing more is taken then.
    pub fn commit_synced(&mut self) -> Result<Release<P::Effect>, EngineError> {
        self.commit_with(Durability::Synced)?;
        Ok(self.release())
    }

    /// Makes every commit so far durable and releases what waited for that. One sync serves
    /// all; none is made when nothing is above durable.
    ///
    /// # Errors
    /// As [`Engine::sync`]; nothing more is taken then.
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

    /// What a sync that begins now makes durable. For a caller that syncs the engine on
    /// another thread: take the ticket, call [`Engine::sync`] there, then [`Self::synced`].
    pub fn ticket(&self) -> SyncTicket {
        self.applied
    }

    /// Notes that [`Engine::sync`] was called after `ticket` was taken, and returned `Ok`.
    pub fn synced(&mut self, ticket: SyncTicket) -> Release<P::Effect> {
        if self.failed.is_none() {
            self.durable = self.durable.max(ticket.min(self.applied));
        }
        self.release()
    }

    /// Whether commits are applied and not yet durable.
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

    /// Where `stream` stands durably: what may be acknowledged, and said in a hello.
    pub fn durable_position(&self, stream: &StreamId) -> Option<StatePosition> {
        self.durable_positions.get(stream).copied()
    }

    /// Where every stream stands durably.
    pub fn durable_positions(&self) -> &BTreeMap<StreamId, StatePosition> {
        &self.durable_positions
    }

    /// The projection.
    pub fn projection(&self) -> &P {
        &self.projection
    }

    /// The projection, to tell it what is no input.
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

    /// Takes everything at or below durable out of the queue.
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

    /// The state is not known any more: no more is folded, committed or released.
    fn fail(&mut self, error: &EngineError) {
        self.state.abort();
        self.failed = Some(error.clone());
    }
}

#[cfg(test)]
mod tests;
