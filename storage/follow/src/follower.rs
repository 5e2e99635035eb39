//! The loop: next batch of the log, accept, fold, commit.
//!
//! ```text
//!  open ──► stored cursors stand, inside the window ──► follow
//!   │                                                     │ expired, truncated, re-created
//!   └─────► empty state, fold from the start ──► follow   ▼
//!                         ▲────────────────────────── open again
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{Cursor, Offset, Partition, Seq, StreamId};
use headwater_log::acceptance::{AcceptedPosition, Mode, Outcome, PartitionState};
use headwater_log::{
    Acceptance, Batch, ClaimAttempt, ClaimError, Claimant, Log, MetadataError, ReadError, Reader,
    StoredRecord, Writer, begin_fold, read_metadata,
};
use headwater_store::{
    Durability, Engine, EngineError, FOLD_TABLES_END, Folded, Json, Table, TableId, WriteBatch,
};
use headwater_view::{
    ACCEPTANCE, Continuity, Effect, FoldBounds, FoldError, Refusal, StreamReader, StreamState,
};

use crate::derived_rows::DerivedRows;

/// Milliseconds since the Unix epoch. Decides only whether a stored cursor may be too old.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How far each stream was accepted, beside the partition's own state.
const STREAMS: Table<StreamId, Json<AcceptedPosition>, Folded> =
    Table::new(TableId::AcceptedStreams);

/// Folded rows gathered before they are committed. An engine takes 8 MiB at once; one more event
/// brings its object (at most 1.5 MiB) to the state and perhaps to a table of the part's own.
const COMMIT_BYTES: usize = 1 << 20;

/// The first byte behind the schema: everything from here to [`FOLD_TABLES_END`] is folded and
/// may be folded again.
const FOLDED_FROM: u8 = TableId::Meta.prefix() + 1;

/// A view that follows a log.
pub struct Follower<R> {
    reader: Box<dyn Reader>,
    acceptance: Acceptance,
    state: StreamState,
    rows: R,
    clock: WallClock,
    damaged: BTreeSet<StreamId>,
    folded: bool,
}

/// What one batch of the log brought.
#[derive(Debug, Default)]
pub struct Step {
    /// What became of each record, in order.
    pub outcomes: Vec<Outcome>,
    /// What changed in the streams, in order.
    pub effects: Vec<Effect>,
    /// Whether the first fold came to its end with this batch.
    pub first_fold_ended: bool,
    /// How far the batch's partition is read now, and where it ended then.
    pub read: Option<(Cursor, Offset)>,
}

/// Why a view cannot follow its log.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The log has no birth yet: its writer has not come up.
    #[error("the log is empty: no controller has written to it yet")]
    EmptyLog,
    /// The log's birth cannot be used.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The log cannot be read on from here; opening again decides what stands.
    #[error("the log cannot be read on")]
    Read(#[from] ReadError),
    /// The engine failed; open it again.
    #[error("the fold cannot be stored")]
    Engine(#[from] EngineError),
    /// Compaction dropped what was not read yet: the reader was away for longer than the replay
    /// window, as a machine that was suspended is. Fold again from the start.
    #[error("compaction passed this reader of stream {stream} by: seq {expected} is gone")]
    CompactedAway {
        /// The stream.
        stream: StreamId,
        /// What was to come next.
        expected: Seq,
    },
    /// A later writer went on below what is folded: the log does not have the rest any more. Fold
    /// again from the start.
    #[error("stream {stream} goes on at seq {found}, where this reader expected {expected}")]
    SeqRegressed {
        /// The stream.
        stream: StreamId,
        /// What was to come next.
        expected: Seq,
        /// What came.
        found: Seq,
    },
    /// The state does not hash to what the log says: fold again from the start.
    #[error("the fold of stream {stream} differs from the log")]
    Diverged {
        /// The stream.
        stream: StreamId,
        /// What was found.
        source: Refusal,
    },
}

/// Why a follower did not become the writer of its log.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The log could not be read on.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The claim was lost, or could not be made.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

impl FollowError {
    /// Whether the stored fold must be given up before opening again.
    pub fn needs_rebuild(&self) -> bool {
        match self {
            Self::Diverged { .. } | Self::CompactedAway { .. } | Self::SeqRegressed { .. } => true,
            Self::Read(error) => !matches!(error, ReadError::Unavailable { .. }),
            Self::EmptyLog | Self::Metadata(_) | Self::Engine(_) => false,
        }
    }
}

impl<R: DerivedRows> Follower<R> {
    /// Opens the fold that `engine` holds and goes on from its cursors; where they no longer
    /// stand for a prefix of the log, or are older than half its replay window, the stored fold
    /// is dropped and folded anew.
    ///
    /// # Errors
    /// See [`FollowError`].
    pub async fn open(
        log: &dyn Log,
        engine: Arc<dyn Engine>,
        rows: R,
        clock: WallClock,
    ) -> Result<Self, FollowError> {
        let log_metadata = read_metadata(log).await?.ok_or(FollowError::EmptyLog)?;
        let description = log.describe().await?;
        if let Some(acceptance) = restore(&*engine, log_metadata)? {
            let now_ms = clock();
            let stands = |state: &PartitionState| {
                state.cursor.topic == description.topic
                    && is_recent(state, now_ms, description.replay_window_ms)
            };
            if acceptance.partitions().values().all(stands) && is_intact(&*engine)? {
                match log.read(acceptance.cursors()).await {
                    Ok(reader) => {
                        let state = StreamState::open(engine, FoldBounds::default())?;
                        return Self::new(reader, acceptance, state, rows, clock);
                    }
                    Err(error @ ReadError::Unavailable { .. }) => return Err(error.into()),
                    Err(error) => tracing::warn!(%error, "the stored fold is void"),
                }
            }
        }
        Self::rebuild(log, engine, rows, clock).await
    }

    /// Drops the stored fold and begins anew from the start of the log.
    ///
    /// # Errors
    /// See [`FollowError`].
    pub async fn rebuild(
        log: &dyn Log,
        engine: Arc<dyn Engine>,
        mut rows: R,
        clock: WallClock,
    ) -> Result<Self, FollowError> {
        let log_metadata = read_metadata(log).await?.ok_or(FollowError::EmptyLog)?;
        discard_fold(&*engine)?;
        rows.reset();
        let acceptance = begin_fold(log, log_metadata, clock()).await?;
        let reader = log.read(acceptance.cursors()).await?;
        let state = StreamState::open(engine, FoldBounds::default())?;
        Self::new(reader, acceptance, state, rows, clock)
    }

    fn new(
        reader: Box<dyn Reader>,
        acceptance: Acceptance,
        state: StreamState,
        rows: R,
        clock: WallClock,
    ) -> Result<Self, FollowError> {
        let folded = acceptance.is_folded();
        let damaged = BTreeSet::new();
        let mut follower = Self { reader, acceptance, state, rows, clock, damaged, folded };
        if folded {
            follower.damaged = follower.incomplete()?;
        }
        Ok(follower)
    }

    /// What has been accepted so far: the log's birth, claims, positions, repairs due.
    pub fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// The folded streams.
    pub fn state(&self) -> &StreamState {
        &self.state
    }

    /// The folded streams, to ask what the next fold would find.
    pub fn state_mut(&mut self) -> &mut StreamState {
        &mut self.state
    }

    /// Streams whose first fold did not hash to what the log says, or ended before a hole that
    /// compaction may have made: nothing of them is to be shown. They heal when a writer appends
    /// their truth again.
    pub fn damaged(&self) -> &BTreeSet<StreamId> {
        &self.damaged
    }

    /// Whether the log was read to the end at which the fold began: before that, nothing of the
    /// state may be shown.
    pub fn is_folded(&self) -> bool {
        self.folded
    }

    /// Waits for the next batch of the log, folds it and commits it with its cursor, buffered:
    /// after power loss state and cursor fall back together. Cancel safe while it waits.
    ///
    /// # Errors
    /// See [`FollowError`]; the follower is then of no further use.
    pub async fn next(&mut self) -> Result<Step, FollowError> {
        let batch = self.reader.next().await?;
        self.fold(&batch)
    }

    /// Claims the log, following it all the while: when this returns, what is folded is all that
    /// former writers have written. Where that is not what they recorded, the writer goes on from
    /// what is there, so that the stream heals.
    ///
    /// # Errors
    /// See [`TakeOverError`].
    pub async fn take_over(
        &mut self,
        log: &Arc<dyn Log>,
        claimant: &Claimant,
    ) -> Result<Writer, TakeOverError> {
        let mut claiming = ClaimAttempt::begin(&**log, &self.acceptance, claimant).await?;
        loop {
            self.next().await?;
            if let Some(mut writer) = claiming.advance(log, &self.acceptance).await? {
                for stream in &self.damaged {
                    let position = self.state.position(stream).map_err(FollowError::from)?;
                    if let Some((_, found)) = position {
                        writer.rebase(stream, found);
                    }
                }
                return Ok(writer);
            }
        }
    }

    /// Folds one batch of the log, and commits it in as many batches of the engine as it takes.
    fn fold(&mut self, batch: &Batch) -> Result<Step, FollowError> {
        let read = Some((batch.cursor, batch.high));
        let mut step = Step { read, ..Step::default() };
        let Some((last, rest)) = batch.records.split_last() else {
            self.take_in(batch, &mut step)?;
            self.commit(&mut step)?;
            return Ok(step);
        };
        for recorded in rest {
            let (next, leader_epoch) = (recorded.offset.next(), recorded.leader_epoch);
            let cursor = Cursor { next, leader_epoch, ..batch.cursor };
            self.take_in(&only(recorded, cursor, batch), &mut step)?;
            if self.state.batch_bytes() >= COMMIT_BYTES {
                self.commit(&mut step)?;
            }
        }
        self.take_in(&only(last, batch.cursor, batch), &mut step)?;
        self.commit(&mut step)?;
        Ok(step)
    }

    /// Accepts what is in `batch` and folds it into the open batch.
    fn take_in(&mut self, batch: &Batch, step: &mut Step) -> Result<(), FollowError> {
        let partition = self.acceptance.partitions().get(&batch.cursor.partition);
        let is_folding = partition.is_some_and(|state| matches!(state.mode, Mode::Fold { .. }));
        let log_id = self.acceptance.metadata().log_id;
        let outcomes = self.acceptance.accept_batch(batch, (self.clock)());
        for outcome in &outcomes {
            if let Outcome::Hole(hole) = outcome
                && !is_folding
            {
                let (stream, expected, found) = (hole.stream.clone(), hole.expected, hole.found);
                if found < expected {
                    return Err(FollowError::SeqRegressed { stream, expected, found });
                }
                if self.misses_behind(&stream) {
                    return Err(FollowError::CompactedAway { stream, expected });
                }
            }
            let Outcome::Accepted(envelope) = outcome else { continue };
            // A damaged stream has another hash than the log until what it lacks comes again.
            let is_sparse = is_folding || self.damaged.contains(&envelope.stream);
            let continuity = if is_sparse { Continuity::Sparse } else { Continuity::Dense };
            self.rows.derive(envelope, continuity, &mut self.state)?;
            let folded =
                self.state.apply_event(log_id, envelope.clone(), continuity, &mut step.effects);
            match folded {
                Ok(()) => {}
                Err(FoldError::Engine(error)) => return Err(error.into()),
                Err(FoldError::Refused(source)) => {
                    return Err(FollowError::Diverged { stream: envelope.stream.clone(), source });
                }
            }
        }
        step.outcomes.extend(outcomes);
        Ok(())
    }

    /// Whether records are missing from the log behind the last one of `stream` that was read.
    fn misses_behind(&self, stream: &StreamId) -> bool {
        let partition = stream.partition(self.acceptance.metadata().partitions);
        let partition = self.acceptance.partitions().get(&partition);
        let position = self.acceptance.stream(stream);
        partition.zip(position).is_some_and(|(partition, at)| partition.misses_behind(at))
    }

    /// Streams of which not all is known: the fold has another hash than the log says, or it
    /// stands before a hole that compaction may have made.
    fn incomplete(&self) -> Result<BTreeSet<StreamId>, EngineError> {
        let streams = self.acceptance.streams();
        let stopped = streams.filter(|(_, position)| position.stopped.is_some());
        let stopped = stopped.filter(|(stream, _)| self.misses_behind(stream));
        let stopped = stopped.map(|(stream, _)| stream.clone());
        Ok(self.state.differing()?.into_iter().chain(stopped).collect())
    }

    /// Commits the open batch with the cursors that it was read up to.
    fn commit(&mut self, step: &mut Step) -> Result<(), FollowError> {
        let changes = self.acceptance.take_changes();
        let may_heal = changes.streams.iter().any(|(stream, _)| self.damaged.contains(stream));
        for (stream, position) in changes.streams {
            self.state.batch().put(&STREAMS, &stream, &Json(position));
        }
        for (_, state) in changes.partitions {
            // Bytes that cannot be read back are folded anew, see `restore`.
            let bytes = serde_json::to_vec(&state).map(Bytes::from).unwrap_or_default();
            self.state.read_up_to(state.cursor, bytes);
        }
        let moved = self.state.commit(Durability::Buffered)?;
        self.rows.after_commit(&moved);
        let first_fold_ended = !self.folded && self.acceptance.is_folded();
        if first_fold_ended {
            self.folded = true;
            step.first_fold_ended = true;
        }
        if first_fold_ended || may_heal {
            self.look_for_damage()?;
        }
        Ok(())
    }

    fn look_for_damage(&mut self) -> Result<(), EngineError> {
        let damaged = self.incomplete()?;
        for stream in damaged.difference(&self.damaged) {
            let seq = self.folded_to(stream);
            tracing::error!(%stream, seq, "the fold differs from the log; the stream is not served");
        }
        for stream in self.damaged.difference(&damaged) {
            let seq = self.folded_to(stream);
            tracing::info!(%stream, seq, "the stream agrees with the log again");
        }
        self.damaged = damaged;
        Ok(())
    }

    /// The last seq that is folded of a stream, for those who read the log lines.
    fn folded_to(&self, stream: &StreamId) -> u64 {
        let position = StreamReader::new(&**self.state.engine()).position(stream);
        position.ok().flatten().map_or(0, |(checkpoint, _)| checkpoint.seq.0)
    }
}

/// One record of `batch`, behind which the log is read up to `cursor`.
fn only(recorded: &StoredRecord, cursor: Cursor, batch: &Batch) -> Batch {
    Batch { records: vec![recorded.clone()], cursor, high: batch.high }
}

/// Whether a reader that stands so has missed nothing that compaction may have dropped since. A
/// fold that was broken off goes on only as long as one that was not could have taken.
fn is_recent(state: &PartitionState, now_ms: i64, replay_window_ms: u64) -> bool {
    match state.mode {
        Mode::Follow => state.inside_window(now_ms, replay_window_ms),
        Mode::Fold { intact_from_ms, .. } => {
            let age_ms = now_ms.checked_sub(intact_from_ms).and_then(|age| u64::try_from(age).ok());
            age_ms.is_some_and(|age_ms| age_ms <= replay_window_ms)
        }
    }
}

/// Whether the stored objects are the folded ones.
fn is_intact(engine: &dyn Engine) -> Result<bool, EngineError> {
    let snapshot = engine.snapshot();
    let damage = StreamReader::new(&*snapshot).find_damage()?;
    if let Some((stream, _)) = &damage {
        tracing::error!(%stream, "the stored fold has lost objects; it is folded anew");
    }
    Ok(damage.is_none())
}

/// Empties what was folded into `engine`, cursors included: all but its schema and the tables that
/// are made to outlive it.
///
/// # Errors
/// As [`Engine::write`].
pub fn discard_fold(engine: &dyn Engine) -> Result<(), EngineError> {
    let mut wipe = WriteBatch::default();
    wipe.delete_range(vec![FOLDED_FROM], vec![FOLD_TABLES_END]);
    engine.write(wipe, Durability::Buffered)
}

/// What an earlier run accepted, where all of it is there and of this log.
fn restore(
    engine: &dyn Engine,
    log_metadata: LogMetadata,
) -> Result<Option<Acceptance>, EngineError> {
    let mut partitions = Vec::new();
    for row in ACCEPTANCE.rows(engine) {
        let (partition, bytes) = row?;
        // A form that this build does not know is folded anew.
        let Ok(state) = serde_json::from_slice::<PartitionState>(&bytes) else { return Ok(None) };
        // Nor is one that lies in another's place: its cursor would be another's.
        if state.cursor.partition != partition {
            return Ok(None);
        }
        partitions.push((partition, state));
    }
    let expected = (0..log_metadata.partitions).map(Partition);
    if !partitions.iter().map(|(partition, _)| *partition).eq(expected) {
        return Ok(None);
    }
    let mut streams = Vec::new();
    for row in STREAMS.rows(engine) {
        let (stream, Json(position)) = row?;
        streams.push((stream, position));
    }
    Ok(Some(Acceptance::restore(log_metadata, partitions, streams)))
}

#[cfg(test)]
mod tests;
