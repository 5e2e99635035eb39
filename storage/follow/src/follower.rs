//! The loop: read a batch of the log, accept, fold, commit.
//!
//! ```text
//!  open ──► stored cursors valid, inside the window ──► follow ◄──► unavailable: reconnect
//!   │                                                     │ expired, truncated, re-created
//!   └─────► empty state, fold from the start ──► follow   ▼
//!                         ▲────────────────────────── open again
//! ```
//!
//! A log that is unavailable for a while changes nothing of what is folded. A follower that
//! reconnects keeps its state and verifies nothing again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

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
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::derived_rows::DerivedRows;
use crate::first_fold::FirstFoldEngine;
use crate::stored_bodies::{CachedBody, StoredBodies};
use crate::verification::{verify_stream, verify_streams};

/// Returns milliseconds since the Unix epoch. Used only to decide whether a stored cursor is too old.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The accepted position of each stream; the partition's own state is beside it.
const STREAMS: Table<StreamId, Json<AcceptedPosition>, Folded> =
    Table::new(TableId::AcceptedStreams);

/// A batch of this many bytes is committed. An engine accepts 8 MiB at once; one more event adds its
/// object (at most 1.5 MiB) to the state, and perhaps to a derived table.
const COMMIT_BYTES: usize = 1 << 20;

/// How often the ends of idle partitions are noted: far below half of any replay window that is set for more than a test.
const END_NOTES_INTERVAL: Duration = Duration::from_mins(10);

/// The time limit of a round of notes. No batch is folded meanwhile, and the next round comes soon enough.
const END_NOTES_WITHIN: Duration = Duration::from_secs(1);

/// The first key byte after the schema. Everything from here to [`FOLD_TABLES_END`] is folded, and
/// can be folded again.
const FOLDED_FROM: u8 = TableId::Meta.prefix() + 1;

/// A view that follows a log.
pub struct Follower<R> {
    reader: Box<dyn Reader>,
    acceptance: Acceptance,
    state: StreamState,
    rows: R,
    clock: WallClock,
    damaged: BTreeSet<StreamId>,
    /// The streams of an opened fold that are not verified yet.
    unverified: VecDeque<StreamId>,
    folded: bool,
    /// The engine under the state while the first fold goes on in empty tables.
    first_fold: Option<Arc<FirstFoldEngine>>,
    /// The body of the last event that referred to one.
    last_body: CachedBody,
}

/// The result of one batch of the log.
#[derive(Debug, Default)]
pub struct Step {
    /// The outcome of each record, in order.
    pub outcomes: Vec<Outcome>,
    /// The changes of the streams, in order.
    pub effects: Vec<Effect>,
    /// Whether the first fold ended with this batch.
    pub first_fold_ended: bool,
    /// The cursor of the batch's partition, and the end of the partition at that time.
    pub read: Option<(Cursor, Offset)>,
}

/// Why a view cannot follow its log.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The log has no metadata yet: its writer has not started.
    #[error("the log is empty: no controller has written to it yet")]
    EmptyLog,
    /// The log's metadata cannot be used.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The log cannot be read on. Opening again decides what of the stored fold is valid.
    #[error("the log cannot be read on")]
    Read(#[from] ReadError),
    /// The engine failed; open it again.
    #[error("the fold cannot be stored")]
    Engine(#[from] EngineError),
    /// Compaction dropped unread records: the reader was away for longer than the replay window, for
    /// example on a suspended machine. Fold again from the start.
    #[error("compaction dropped seq {expected} of stream {stream} before this reader read it")]
    CompactedAway {
        /// The stream.
        stream: StreamId,
        /// The next seq.
        expected: Seq,
    },
    /// This reader was away for longer than half the replay window, so compaction may have dropped
    /// unread records. Fold again from the start.
    #[error("this reader was away from partition {partition} for too long to continue")]
    Outdated {
        /// The partition.
        partition: Partition,
    },
    /// A later writer continued below what is folded: the log lost the rest. Fold again from the
    /// start.
    #[error("stream {stream} continues at seq {found}, this reader expected {expected}")]
    SeqRegressed {
        /// The stream.
        stream: StreamId,
        /// The next seq.
        expected: Seq,
        /// The seq found.
        found: Seq,
    },
    /// The stored fold has lost objects. Fold again from the start.
    #[error("the stored fold of stream {stream} has lost objects")]
    LostObjects {
        /// The stream.
        stream: StreamId,
    },
    /// The state's hash differs from the log's. Fold again from the start.
    #[error("the fold of stream {stream} differs from the log")]
    Diverged {
        /// The stream.
        stream: StreamId,
        /// The difference.
        source: Refusal,
    },
}

/// Why a follower did not become the writer of its log.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The log could not be read on.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The claim was lost, or failed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

impl FollowError {
    /// Whether the stored fold must be discarded before opening again.
    pub fn needs_rebuild(&self) -> bool {
        match self {
            Self::Diverged { .. }
            | Self::LostObjects { .. }
            | Self::CompactedAway { .. }
            | Self::Outdated { .. }
            | Self::SeqRegressed { .. } => true,
            Self::Read(error) => !matches!(error, ReadError::Unavailable { .. }),
            Self::EmptyLog | Self::Metadata(_) | Self::Engine(_) => false,
        }
    }

    /// Whether the log cannot be read for now. What is folded is still a prefix of it, and
    /// [`Follower::reconnect`] continues it.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Read(ReadError::Unavailable { .. })
                | Self::Metadata(MetadataError::Read(ReadError::Unavailable { .. }))
        )
    }
}

/// When an owner of a follower calls [`Follower::note_ends`]. Must be called inside a Tokio runtime.
pub fn end_notes_interval() -> Interval {
    let mut interval = interval(END_NOTES_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

impl<R: DerivedRows> Follower<R> {
    /// Opens the fold in `engine` and continues from its cursors. If they no longer mark a prefix of
    /// the log, or records are unread since more than half its replay window, it discards the stored
    /// fold and folds again from the start.
    ///
    /// The objects of the stored fold are not verified yet: see [`Follower::verify_next`].
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
        if let Some(mut acceptance) = restore(&*engine, log_metadata)? {
            let is_same = |state: &PartitionState| state.cursor.topic == description.topic;
            let window_ms = description.replay_window_ms;
            if acceptance.partitions().values().all(is_same)
                && outdated(log, &mut acceptance, clock(), window_ms).await?.is_none()
            {
                match log.read(acceptance.cursors()).await {
                    Ok(reader) => {
                        let streams = StreamReader::new(&*engine).streams()?;
                        let state = StreamState::open(engine, FoldBounds::default())?;
                        let mut follower = Self::new(reader, acceptance, state, rows, clock)?;
                        follower.unverified = streams.into_iter().map(|at| at.stream).collect();
                        return Ok(follower);
                    }
                    Err(error @ ReadError::Unavailable { .. }) => return Err(error.into()),
                    Err(error) => tracing::warn!(%error, "the stored fold is discarded"),
                }
            }
        }
        Self::rebuild(log, engine, rows, clock).await
    }

    /// Discards the stored fold and folds again from the start of the log.
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
        let first_fold = Arc::new(FirstFoldEngine::new(engine, FOLDED_FROM..FOLD_TABLES_END));
        let state = StreamState::open(first_fold.clone(), FoldBounds::default())?;
        let mut follower = Self::new(reader, acceptance, state, rows, clock)?;
        follower.first_fold = Some(first_fold);
        Ok(follower)
    }

    fn new(
        reader: Box<dyn Reader>,
        acceptance: Acceptance,
        state: StreamState,
        rows: R,
        clock: WallClock,
    ) -> Result<Self, FollowError> {
        let folded = acceptance.is_folded();
        let (damaged, unverified) = (BTreeSet::new(), VecDeque::new());
        let last_body = CachedBody::default();
        let mut follower = Self {
            reader,
            acceptance,
            state,
            rows,
            clock,
            damaged,
            unverified,
            folded,
            first_fold: None,
            last_body,
        };
        if folded {
            follower.damaged = follower.incomplete()?;
        }
        Ok(follower)
    }

    /// What is accepted so far: the log's metadata, claims, positions, repairs due.
    pub fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// The folded streams.
    pub fn state(&self) -> &StreamState {
        &self.state
    }

    /// The folded streams, for reads that include the open batch.
    pub fn state_mut(&mut self) -> &mut StreamState {
        &mut self.state
    }

    /// Streams whose first fold has another hash than the log, or ended before a hole that
    /// compaction may have made. They must not be shown. They heal when a writer appends their
    /// current state again.
    pub fn damaged(&self) -> &BTreeSet<StreamId> {
        &self.damaged
    }

    /// Whether the first fold has reached the end that the log had at its start. Before that, nothing
    /// of the state may be shown.
    pub fn is_folded(&self) -> bool {
        self.folded
    }

    /// Continues after the log was unavailable, with a new reader. The fold is the one that this
    /// follower made, so nothing of it is read again.
    ///
    /// # Errors
    /// See [`FollowError`]. While the log is unavailable ([`FollowError::is_unavailable`]) the
    /// caller tries again; after another error the follower cannot be used.
    pub async fn reconnect(&mut self, log: &dyn Log) -> Result<(), FollowError> {
        let reader = log.read(self.acceptance.cursors()).await?;
        let window_ms = log.describe().await?.replay_window_ms;
        let now_ms = (self.clock)();
        if let Some(partition) = outdated(log, &mut self.acceptance, now_ms, window_ms).await? {
            return Err(FollowError::Outdated { partition });
        }
        self.reader = reader;
        Ok(())
    }

    /// Notes which partitions have nothing unread. A partition that had no record for half the replay window would
    /// otherwise count as [outdated](FollowError::Outdated) once it has one during a pause of the log, however short.
    /// An owner calls this at each tick of an [`end_notes_interval`]. A log that is unavailable is left for the next call.
    ///
    /// # Errors
    /// [`FollowError::Engine`]. The follower cannot be used afterwards.
    pub async fn note_ends(&mut self, log: &dyn Log) -> Result<(), FollowError> {
        let now_ms = (self.clock)();
        let interval_ms = i64::try_from(END_NOTES_INTERVAL.as_millis()).unwrap_or(i64::MAX);
        let is_old = |state: &&PartitionState| {
            // A time in the future is from a clock that was set back since.
            let age_ms = |at: i64| now_ms.saturating_sub(at);
            let noted = state.caught_up_ms.filter(|at| (0..interval_ms).contains(&age_ms(*at)));
            state.mode == Mode::Follow && noted.is_none()
        };
        let idle = self.acceptance.partitions().values().filter(is_old);
        let idle: Vec<Cursor> = idle.map(|state| state.cursor).collect();
        if idle.is_empty() {
            return Ok(());
        }
        let acceptance = &mut self.acceptance;
        let noting = async {
            for Cursor { partition, next, .. } in idle {
                match log.bounds(partition).await {
                    Ok(bounds) if next >= bounds.high => acceptance.note_end(partition, now_ms),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%partition, %error, "the end of an idle partition is not known");
                    }
                }
            }
        };
        if timeout(END_NOTES_WITHIN, noting).await.is_err() {
            tracing::debug!("the ends of idle partitions are not known in time");
        }
        self.commit(&mut Step::default())
    }

    /// Waits for the next batch of the log, folds it and commits it with its cursor. The commit is
    /// buffered: after power loss, state and cursor fall back together. Cancel safe while it waits.
    ///
    /// # Errors
    /// See [`FollowError`]. Unless the log is unavailable, the follower cannot be used afterwards.
    pub async fn next(&mut self) -> Result<Step, FollowError> {
        let batch = self.reader.next().await?;
        self.fold(&batch)
    }

    /// Verifies the objects of one more stream of the stored fold against its state hash; `false`:
    /// every stream is verified. It reads the whole stream. An owner that must not wait for all of
    /// them at its start calls this between batches.
    ///
    /// # Errors
    /// [`FollowError::LostObjects`], and [`FollowError::Engine`]. The follower cannot be used
    /// afterwards.
    pub fn verify_next(&mut self) -> Result<bool, FollowError> {
        let Some(stream) = self.unverified.pop_front() else { return Ok(false) };
        verify_stream(&**self.state.engine(), &stream)?;
        Ok(true)
    }

    /// Whether every stream of the stored fold is verified.
    pub fn is_verified(&self) -> bool {
        self.unverified.is_empty()
    }

    /// Verifies what [`Follower::verify_next`] has not verified yet, on every processor.
    ///
    /// # Errors
    /// As [`Follower::verify_next`].
    pub fn verify(&mut self) -> Result<(), FollowError> {
        let streams = Vec::from(std::mem::take(&mut self.unverified));
        verify_streams(&**self.state.engine(), &streams)
    }

    /// Claims the log while it follows it. When this returns, everything that former writers wrote to
    /// the partitions that are not suspended is folded. Where the fold differs from what they recorded, the new writer continues from the
    /// fold, so the stream heals.
    ///
    /// # Errors
    /// See [`TakeOverError`].
    pub async fn take_over(
        &mut self,
        log: &Arc<dyn Log>,
        claimant: &Claimant,
    ) -> Result<Writer, TakeOverError> {
        // A writer computes the hash of a stream from the objects that it has.
        self.verify()?;
        let mut claiming = ClaimAttempt::begin(&**log, &self.acceptance, claimant).await?;
        loop {
            tokio::select! {
                biased;
                () = claiming.changed() => {}
                step = self.next() => drop(step?),
            }
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

    /// Folds one batch of the log. Commits it in as many batches of the engine as it takes.
    fn fold(&mut self, batch: &Batch) -> Result<Step, FollowError> {
        let read = Some((batch.cursor, batch.high));
        let mut step = Step { read, ..Step::default() };
        let Some((last, rest)) = batch.records.split_last() else {
            self.accept(batch, &mut step)?;
            self.commit(&mut step)?;
            return Ok(step);
        };
        for recorded in rest {
            let (next, leader_epoch) = (recorded.offset.next(), recorded.leader_epoch);
            let cursor = Cursor { next, leader_epoch, ..batch.cursor };
            self.accept(&only(recorded, cursor, batch), &mut step)?;
            if self.state.batch_bytes() >= COMMIT_BYTES {
                self.commit(&mut step)?;
            }
        }
        self.accept(&only(last, batch.cursor, batch), &mut step)?;
        self.commit(&mut step)?;
        Ok(step)
    }

    /// Accepts the records of `batch`, and folds them into the open batch.
    fn accept(&mut self, batch: &Batch, step: &mut Step) -> Result<(), FollowError> {
        let partition = self.acceptance.partitions().get(&batch.cursor.partition);
        let is_folding = partition.is_some_and(|state| matches!(state.mode, Mode::Fold { .. }));
        let log_id = self.acceptance.metadata().log_id;
        let now_ms = (self.clock)();
        let mut bodies = StoredBodies { state: &mut self.state, last: &mut self.last_body };
        let outcomes = self.acceptance.accept_batch_with(batch, now_ms, &mut bodies)?;
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
            match outcome {
                Outcome::Body(body) => self.rows.body_added(body, &mut self.state)?,
                Outcome::BodyRetired(body) => self.rows.body_retired(body, &mut self.state)?,
                _ => {}
            }
            let (Outcome::Accepted(envelope) | Outcome::BodyCompacted(envelope)) = outcome else {
                continue;
            };
            // A damaged stream differs from the log until the writer appends what it lacks.
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

    /// Whether records of the log are missing after the last one of `stream` that was read.
    fn misses_behind(&self, stream: &StreamId) -> bool {
        let partition = stream.partition(self.acceptance.metadata().partitions);
        let partition = self.acceptance.partitions().get(&partition);
        let position = self.acceptance.stream(stream);
        partition.zip(position).is_some_and(|(partition, at)| partition.misses_behind(at))
    }

    /// Streams that are incomplete: the fold has another hash than the log, or ends before a hole
    /// that compaction may have made.
    fn incomplete(&self) -> Result<BTreeSet<StreamId>, EngineError> {
        let streams = self.acceptance.streams();
        let stopped = streams.filter(|(_, position)| position.stopped.is_some());
        let stopped = stopped.filter(|(stream, _)| self.misses_behind(stream));
        let stopped = stopped.map(|(stream, _)| stream.clone());
        Ok(self.state.differing()?.into_iter().chain(stopped).collect())
    }

    /// Commits the open batch with its cursors.
    fn commit(&mut self, step: &mut Step) -> Result<(), FollowError> {
        let changes = self.acceptance.take_changes();
        let may_heal = changes.streams.iter().any(|(stream, _)| self.damaged.contains(stream));
        for (stream, position) in changes.streams {
            self.state.batch().put(&STREAMS, &stream, &Json(position));
        }
        for (_, state) in changes.partitions {
            // Bytes that cannot be read back cause a new fold, see `restore`.
            let bytes = serde_json::to_vec(&state).map(Bytes::from).unwrap_or_default();
            self.state.read_up_to(state.cursor, bytes);
        }
        self.rows.before_commit(&mut self.state);
        let moved = self.state.commit(Durability::Buffered)?;
        self.rows.after_commit(&moved);
        let first_fold_ended = !self.folded && self.acceptance.is_folded();
        if first_fold_ended {
            self.folded = true;
            step.first_fold_ended = true;
            if let Some(first_fold) = self.first_fold.take() {
                first_fold.end();
            }
        }
        if first_fold_ended || may_heal {
            self.update_damaged()?;
        }
        Ok(())
    }

    fn update_damaged(&mut self) -> Result<(), EngineError> {
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

    /// The last folded seq of a stream, for log messages.
    fn folded_to(&self, stream: &StreamId) -> u64 {
        let position = StreamReader::new(&**self.state.engine()).position(stream);
        position.ok().flatten().map_or(0, |(checkpoint, _)| checkpoint.seq.0)
    }
}

/// One record of `batch`, with the cursor after it.
fn only(recorded: &StoredRecord, cursor: Cursor, batch: &Batch) -> Batch {
    Batch { records: vec![recorded.clone()], cursor, high: batch.high }
}

/// The first partition in which compaction may have dropped records that this reader has not read.
/// It may have dropped none where nothing is unread, however long the partition had no records.
///
/// # Errors
/// As [`Log::bounds`].
async fn outdated(
    log: &dyn Log,
    acceptance: &mut Acceptance,
    now_ms: i64,
    replay_window_ms: u64,
) -> Result<Option<Partition>, ReadError> {
    let is_outdated = |state: &PartitionState| {
        (!is_recent(state, now_ms, replay_window_ms)).then_some(state.cursor)
    };
    let cursors: Vec<Cursor> = acceptance.partitions().values().filter_map(is_outdated).collect();
    for Cursor { partition, next, .. } in cursors {
        let is_folding = acceptance.partitions()[&partition].mode != Mode::Follow;
        if is_folding || next < log.bounds(partition).await?.high {
            return Ok(Some(partition));
        }
        acceptance.note_end(partition, now_ms);
    }
    Ok(None)
}

/// Whether compaction can have dropped nothing that a reader in this state has not read. An
/// interrupted fold may continue only within the time that a whole fold may take.
fn is_recent(state: &PartitionState, now_ms: i64, replay_window_ms: u64) -> bool {
    match state.mode {
        Mode::Follow => state.inside_window(now_ms, replay_window_ms),
        Mode::Fold { intact_from_ms, .. } => {
            let age_ms = now_ms.checked_sub(intact_from_ms).and_then(|age| u64::try_from(age).ok());
            age_ms.is_some_and(|age_ms| age_ms <= replay_window_ms)
        }
    }
}

/// Discards everything that was folded into `engine`, cursors included. Its schema stays, and the
/// tables that outlive the fold.
///
/// # Errors
/// As [`Engine::write`].
pub fn discard_fold(engine: &dyn Engine) -> Result<(), EngineError> {
    let mut wipe = WriteBatch::default();
    wipe.delete_range(vec![FOLDED_FROM], vec![FOLD_TABLES_END]);
    engine.write(wipe, Durability::Buffered)
}

/// Restores what an earlier run accepted, if it is complete and of this log.
fn restore(
    engine: &dyn Engine,
    log_metadata: LogMetadata,
) -> Result<Option<Acceptance>, EngineError> {
    let mut partitions = Vec::new();
    for row in ACCEPTANCE.rows(engine) {
        let (partition, bytes) = row?;
        // A format that this build does not know causes a new fold.
        let Ok(state) = serde_json::from_slice::<PartitionState>(&bytes) else { return Ok(None) };
        // So does a state under the key of another partition.
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
