//! The history of each stream, as far as sessions read it: the seq at which each key last changed,
//! and the newest events.

use std::sync::Arc;

use headwater_event::{BodyAddress, Change, EntryKey, Envelope, Event, Seq, StreamId};
use headwater_follow::DerivedRows;
use headwater_session::TailEvent;
use headwater_session::message::PushedChange;
use headwater_store::{Batch, Engine, EngineError, Folded, Json, Proto, Read};
use headwater_view::{Continuity, PositionChanges, StreamState};

use super::heads::{SizedEvent, StreamHeads};
use super::history_rows::{CHANGES, ChangeRow, EVENTS, EventRow, KEYS, STREAMS, StreamHistory};
use super::patches::{Patch, Patches};

/// Events of a stream that are kept, once the log is read to its end: the tail for an edge that is
/// a little behind. Twice the events that a session sends as a tail before it prefers a delta.
const RAW_EVENTS_MAX: u64 = 2048;

/// Removals of a stream that are kept for deltas, about 150 bytes each. An edge that is further
/// behind takes a snapshot.
const REMOVALS_MAX: u64 = 16_384;

/// Removals that are discarded at once above [`REMOVALS_MAX`].
const REMOVALS_DISCARDED: usize = 4096;

/// Writer epochs of a stream whose first seqs are kept, about 20 bytes each in a row that a batch
/// of events writes. Controllers claim the log a few times a week; an edge that missed more claims with
/// changes in its stream is compared with the fold.
const EPOCHS_MAX: usize = 32;

/// Derives the rows of the history while a follower folds the log.
#[derive(Debug, Default)]
pub(super) struct History {
    limits: Limits,
    patches: Patches,
    heads: Arc<StreamHeads>,
    /// The stream of the last event: in a first fold, and in a burst, the events of a stream follow each other.
    last: Option<LastStream>,
}

/// The stream of the last event. Its row is written when another stream follows, and before a commit, instead of once
/// an event.
#[derive(Debug)]
struct LastStream {
    stream: StreamId,
    /// Its history, the open batch included. Its head, if it has one, shares it.
    history: Arc<StreamHistory>,
    /// Whether the open batch, or the store, has the row.
    is_written: bool,
}

/// How much of the past is kept of each stream.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// See [`RAW_EVENTS_MAX`].
    raw_events_max: u64,
    /// See [`REMOVALS_MAX`].
    removals_max: u64,
    /// See [`REMOVALS_DISCARDED`].
    discarded: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            raw_events_max: RAW_EVENTS_MAX,
            removals_max: REMOVALS_MAX,
            discarded: REMOVALS_DISCARDED,
        }
    }
}

impl History {
    /// A history that keeps `heads` up to date too.
    pub(super) fn with_heads(heads: Arc<StreamHeads>) -> Self {
        Self { heads, ..Self::default() }
    }

    /// The history of `stream`, including the open batch.
    fn of(
        &mut self,
        stream: &StreamId,
        batch: &Batch<Folded>,
        engine: &dyn Engine,
    ) -> Result<StreamHistory, EngineError> {
        if let Some(last) = self.last.take_if(|last| last.stream == *stream) {
            return Ok(Arc::unwrap_or_clone(last.history));
        }
        if let Some(history) = self.heads.history(stream) {
            return Ok(StreamHistory::clone(&history));
        }
        let history = batch.get(engine, &STREAMS, stream)?;
        Ok(history.map(|Json(history)| history).unwrap_or_default())
    }

    /// Writes the row of the last stream into the open batch, unless it is written.
    fn write_last(&mut self, batch: &mut Batch<Folded>) {
        if let Some(last) = &mut self.last
            && !last.is_written
        {
            batch.put(&STREAMS, &last.stream, &Json(StreamHistory::clone(&last.history)));
            last.is_written = true;
        }
    }

    /// Keeps an event that continues the ones before it; the oldest one goes above the bound.
    fn keep_event(
        &self,
        (event, body): (TailEvent, Option<BodyAddress>),
        stream: &StreamId,
        batch: &mut Batch<Folded>,
        history: &mut StreamHistory,
    ) -> SizedEvent {
        let row = EventRow::of(&event, body.as_ref());
        let bytes = row.change_bytes();
        batch.put(&EVENTS, &(stream.clone(), event.seq), &Proto(row));
        if event.seq.0.saturating_sub(history.raw_from.0) > self.limits.raw_events_max {
            history.raw_from = history.raw_from.next();
            batch.delete(&EVENTS, &(stream.clone(), history.raw_from));
        }
        SizedEvent { event, bytes }
    }

    /// Discards the events up to `before`, as events may be missing between them and `seq`.
    ///
    /// No session is served meanwhile, and edges at older positions receive a delta: the first
    /// read of a log need not write the log down twice.
    fn discard_events(
        &self,
        before: Seq,
        seq: Seq,
        stream: &StreamId,
        batch: &mut Batch<Folded>,
        history: &mut StreamHistory,
    ) {
        // At most as many rows as there can be, also when a damaged row has a wrong `raw_from`.
        let first = before.0.saturating_sub(self.limits.raw_events_max);
        for kept in first.max(history.raw_from.0)..before.0 {
            batch.delete(&EVENTS, &(stream.clone(), Seq(kept).next()));
        }
        history.raw_from = seq;
        if seq != before.next() {
            // Compaction dropped the events of the gap, and a step back undoes the events above:
            // a delta from before cannot include either.
            history.delta_from = Seq(seq.0.saturating_sub(1));
        }
    }
}

impl DerivedRows for History {
    fn derive(
        &mut self,
        envelope: &Envelope,
        continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        let patch = self.patches.patch(envelope, continuity, state)?;
        let engine = state.engine().clone();
        let batch = state.batch();
        let (stream, seq) = (&envelope.stream, envelope.seq);
        if self.last.as_ref().is_some_and(|last| last.stream != *stream) {
            self.write_last(batch);
        }
        let mut history = self.of(stream, batch, &*engine)?;
        let before = std::mem::replace(&mut history.seq, seq);
        history.begin_epoch(envelope.epoch, envelope.epoch_first_seq, EPOCHS_MAX);
        if let Some(key) = envelope.event.key() {
            record_change(batch, &*engine, envelope, key, &mut history)?;
        }
        let kept = match continuity {
            Continuity::Dense => {
                let event = tail_event(envelope, patch);
                let body = envelope.shared.map(|shared| shared.body);
                Some(self.keep_event((event, body), stream, batch, &mut history))
            }
            Continuity::Sparse => {
                self.discard_events(before, seq, stream, batch, &mut history);
                None
            }
        };
        if history.removals > self.limits.removals_max {
            discard_removals(batch, &*engine, stream, &mut history, self.limits.discarded)?;
        }
        let history = Arc::new(history);
        match kept {
            Some(event) => self.heads.accepted(stream, event, history.clone()),
            None => self.heads.discard(stream),
        }
        self.last = Some(LastStream { stream: stream.clone(), history, is_written: false });
        Ok(())
    }

    fn before_commit(&mut self, state: &mut StreamState) {
        self.write_last(state.batch());
    }

    fn after_commit(&mut self, moved: &PositionChanges) {
        self.heads.committed(moved);
    }

    fn reset(&mut self) {
        self.patches = Patches::default();
        self.last = None;
        self.heads.clear();
    }
}

/// Moves the row of `key` to the seq of the event.
fn record_change(
    batch: &mut Batch<Folded>,
    engine: &dyn Engine,
    envelope: &Envelope,
    key: &EntryKey,
    history: &mut StreamHistory,
) -> Result<(), EngineError> {
    let stream = &envelope.stream;
    let by_key = (stream.clone(), key.as_str().to_owned());
    if let Some(before) = batch.get(engine, &KEYS, &by_key)? {
        let row = (stream.clone(), before);
        if let Some(Json(change)) = batch.get(engine, &CHANGES, &row)?
            && change.removed.is_some()
        {
            history.removals = history.removals.saturating_sub(1);
        }
        batch.delete(&CHANGES, &row);
    }
    let removed = match &envelope.event {
        Event::Removed(removed) => Some(removed.uid.clone()),
        Event::Applied(_) | Event::Head => None,
    };
    history.removals = history.removals.saturating_add(u64::from(removed.is_some()));
    let traceparent = envelope.traceparent.clone();
    let time_ms = Some(envelope.time_ms);
    let change = ChangeRow { key: key.clone(), removed, time_ms, traceparent };
    batch.put(&CHANGES, &(stream.clone(), envelope.seq), &Json(change));
    batch.put(&KEYS, &by_key, &envelope.seq);
    Ok(())
}

/// Discards the oldest removals, `count` at most: a replica at an older position takes a snapshot.
/// Removals of the open batch are young and stay.
fn discard_removals(
    batch: &mut Batch<Folded>,
    engine: &(impl Read + ?Sized),
    stream: &StreamId,
    history: &mut StreamHistory,
    count: usize,
) -> Result<(), EngineError> {
    let mut discarded = 0;
    for row in CHANGES.rows_of(engine, stream) {
        let (at, Json(change)) = row?;
        if change.removed.is_none() {
            continue;
        }
        // The open batch may have deleted it already.
        if batch.get(engine, &CHANGES, &at)?.is_none() {
            continue;
        }
        batch.delete(&CHANGES, &at);
        batch.delete(&KEYS, &(stream.clone(), change.key.as_str().to_owned()));
        history.delta_from = history.delta_from.max(at.1);
        history.removals = history.removals.saturating_sub(1);
        discarded += 1;
        if discarded == count {
            break;
        }
    }
    Ok(())
}

/// The event as a tail carries it, with the object as `patch` if there is one.
fn tail_event(envelope: &Envelope, patch: Option<Patch>) -> TailEvent {
    let mut base = None;
    let change = envelope.event.change().map(|mut change| {
        if let (Change::Applied(applied), Some(patch)) = (&mut change, patch) {
            // A patch of the entry itself keeps its UID, which the event then leaves out.
            if patch.base.is_none() {
                applied.uid.clear();
            }
            base = Some(patch.base.unwrap_or_else(|| applied.key.clone()));
            applied.object = patch.bytes;
        }
        let (traceparent, appended_ms) = (envelope.traceparent.clone(), Some(envelope.time_ms));
        PushedChange { change, base, traceparent, appended_ms }
    });
    let Envelope { seq, epoch, hash, time_ms, .. } = *envelope;
    TailEvent { seq, epoch, hash, time_ms, change }
}

#[cfg(test)]
mod tests;
