//! The history of each stream, as far as sessions need it: which key each seq last changed, and
//! the last events as they came.

use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{
    Applied, Change, EntryKey, Envelope, Event, Removed, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_follow::DerivedRows;
use headwater_object::patch::patched_bytes;
use headwater_session::TailEvent;
use headwater_session::message::{CHANGE_OVERHEAD_BYTES, PushedChange};
use headwater_store::{Batch, DecodeError, EngineError, Folded, Json, Proto, Read, Table, TableId};
use headwater_view::{Continuity, PositionChanges, StreamState};
use serde::{Deserialize, Serialize};

use super::newest::{Newest, Told};
use super::patches::{Patch, Patches};

/// Events of a stream that are kept as they came, once the log is read to its end: what an edge
/// that is a little behind gets.
/// Twice what a session sends as a tail before it prefers a delta.
const RAW_EVENTS_MAX: u64 = 2048;

/// Removals of a stream that are remembered, so that a delta can tell them; an edge that is
/// further behind takes a snapshot. About 150 bytes each.
const REMOVALS_MAX: u64 = 16_384;

/// Removals forgotten at once when there are too many.
const REMOVALS_FORGOTTEN: usize = 4096;

/// Per stream and seq: the change that a key last had. One row a key.
pub(crate) const CHANGES: Table<(StreamId, Seq), Json<ChangeRow>, Folded> =
    Table::new(TableId::HubChanges);

/// Per stream and key: the seq of its row in [`CHANGES`].
const KEYS: Table<(StreamId, String), Seq, Folded> = Table::new(TableId::HubKeys);

/// Per stream and seq: the event, for the last [`RAW_EVENTS_MAX`] at most.
pub(crate) const EVENTS: Table<(StreamId, Seq), Proto<EventRow>, Folded> =
    Table::new(TableId::HubEvents);

/// Per stream: what is known of its history.
pub(crate) const STREAMS: Table<StreamId, Json<StreamHistory>, Folded> =
    Table::new(TableId::HubStreams);

/// The last change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeRow {
    pub(crate) key: EntryKey,
    /// The UID of what left; `None` when the key was applied, and its entry has the object.
    pub(crate) removed: Option<String>,
    /// When it was appended; rows of older builds do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
}

/// What is known of a stream's history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamHistory {
    /// The last event folded.
    pub(crate) seq: Seq,
    /// Every event behind this seq is in [`EVENTS`].
    pub(crate) raw_from: Seq,
    /// Every key changed behind this seq is in [`CHANGES`].
    pub(crate) delta_from: Seq,
    /// Rows of [`CHANGES`] that are removals.
    pub(crate) removals: u64,
    /// The first seq of each epoch met, in order.
    pub(crate) epochs: Vec<(WriterEpoch, Seq)>,
}

/// An event as it is kept, to be told in a tail. Number 2 was the first seq of its epoch.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EventRow {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    #[prost(int64, tag = "3")]
    time_ms: i64,
    #[prost(bytes = "bytes", tag = "4")]
    hash: Bytes,
    #[prost(string, optional, tag = "5")]
    traceparent: Option<String>,
    /// Empty for a head.
    #[prost(string, tag = "6")]
    key: String,
    /// Empty where the entry of `key` itself is patched: it stays.
    #[prost(string, tag = "7")]
    uid: String,
    #[prost(string, tag = "8")]
    resource_version: String,
    /// Unset for a head and a removal; with `base`, the patch.
    #[prost(bytes = "bytes", optional, tag = "9")]
    object: Option<Bytes>,
    /// The entry against whose object, as it was before the event, `object` is a patch; empty for
    /// the entry of `key`.
    #[prost(string, optional, tag = "10")]
    base: Option<String>,
}

/// Derives the history rows.
#[derive(Debug, Default)]
pub(crate) struct History {
    limits: Limits,
    patches: Patches,
    newest: Arc<Newest>,
}

/// How much of the past is kept of each stream.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// See [`RAW_EVENTS_MAX`].
    raw_events_max: u64,
    /// See [`REMOVALS_MAX`].
    removals_max: u64,
    /// See [`REMOVALS_FORGOTTEN`].
    forgotten: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            raw_events_max: RAW_EVENTS_MAX,
            removals_max: REMOVALS_MAX,
            forgotten: REMOVALS_FORGOTTEN,
        }
    }
}

impl History {
    /// Tells `newest` too what it derives.
    pub(super) fn telling(newest: Arc<Newest>) -> Self {
        Self { newest, ..Self::default() }
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
        let stream = &envelope.stream;
        let mut history = match self.newest.history(stream) {
            Some(history) => StreamHistory::clone(&history),
            None => {
                let history = batch.get(&*engine, &STREAMS, stream)?;
                history.map(|Json(history)| history).unwrap_or_default()
            }
        };
        let before = std::mem::replace(&mut history.seq, envelope.seq);
        if history.epochs.last().is_none_or(|(epoch, _)| *epoch < envelope.epoch) {
            history.epochs.push((envelope.epoch, envelope.epoch_first_seq));
        }
        if let Some(key) = envelope.event.key() {
            note_change(batch, &*engine, envelope, key, &mut history)?;
        }
        let told = match continuity {
            Continuity::Dense => {
                let event = tail_event(envelope, patch);
                let row = EventRow::of(&event);
                let bytes = row.change_bytes();
                batch.put(&EVENTS, &(stream.clone(), envelope.seq), &Proto(row));
                if envelope.seq.0.saturating_sub(history.raw_from.0) > self.limits.raw_events_max {
                    history.raw_from = history.raw_from.next();
                    batch.delete(&EVENTS, &(stream.clone(), history.raw_from));
                }
                Some(Told { event, bytes })
            }
            // Nobody is served meanwhile, and who stood here before gets a delta: a log that is
            // read for the first time need not be written down twice.
            Continuity::Sparse => {
                // No more than there can be, whatever a damaged row says of where they begin.
                let first = before.0.saturating_sub(self.limits.raw_events_max);
                for seq in first.max(history.raw_from.0)..before.0 {
                    batch.delete(&EVENTS, &(stream.clone(), Seq(seq).next()));
                }
                history.raw_from = envelope.seq;
                if envelope.seq != before.next() {
                    // What lies in the gap was compacted away, and what lies above a step back
                    // never happened: no delta can tell of it.
                    history.delta_from = Seq(envelope.seq.0.saturating_sub(1));
                }
                None
            }
        };
        if history.removals > self.limits.removals_max {
            forget_removals(batch, &*engine, stream, &mut history, self.limits.forgotten)?;
        }
        let history = Json(history);
        batch.put(&STREAMS, stream, &history);
        let Json(history) = history;
        match told {
            Some(told) => self.newest.accepted(stream, told, history),
            None => self.newest.forget(stream),
        }
        Ok(())
    }

    fn after_commit(&mut self, moved: &PositionChanges) {
        self.newest.committed(moved);
    }

    fn reset(&mut self) {
        self.patches = Patches::default();
        self.newest.clear();
    }
}

fn note_change(
    batch: &mut Batch<Folded>,
    engine: &dyn headwater_store::Engine,
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

/// Forgets the oldest removals: a replica older than them takes a snapshot. Those in the open
/// batch are young and stay.
fn forget_removals(
    batch: &mut Batch<Folded>,
    engine: &(impl Read + ?Sized),
    stream: &StreamId,
    history: &mut StreamHistory,
    count: usize,
) -> Result<(), EngineError> {
    let mut forgotten = 0;
    for row in CHANGES.rows_of(engine, stream) {
        let (at, Json(change)) = row?;
        if change.removed.is_none() {
            continue;
        }
        // The open batch may have taken it away already.
        if batch.get(engine, &CHANGES, &at)?.is_none() {
            continue;
        }
        batch.delete(&CHANGES, &at);
        batch.delete(&KEYS, &(stream.clone(), change.key.as_str().to_owned()));
        history.delta_from = history.delta_from.max(at.1);
        history.removals = history.removals.saturating_sub(1);
        forgotten += 1;
        if forgotten == count {
            break;
        }
    }
    Ok(())
}

/// The event as a tail tells it; `patch` is the object that it brings.
fn tail_event(envelope: &Envelope, patch: Option<Patch>) -> TailEvent {
    let mut base = None;
    let change = envelope.event.change().map(|mut change| {
        if let (Change::Applied(applied), Some(patch)) = (&mut change, patch) {
            // The UID of what is patched stays, and need not be said.
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

impl EventRow {
    fn of(event: &TailEvent) -> Self {
        let mut row = Self {
            epoch: event.epoch.0,
            time_ms: event.time_ms,
            hash: Bytes::copy_from_slice(&event.hash.to_bytes()),
            ..Self::default()
        };
        let Some(pushed) = &event.change else { return row };
        row.traceparent.clone_from(&pushed.traceparent);
        row.key = pushed.change.key().as_str().to_owned();
        match &pushed.change {
            Change::Applied(Applied { key, uid, resource_version, object }) => {
                row.uid.clone_from(uid);
                row.resource_version.clone_from(resource_version);
                row.object = Some(object.clone());
                let base = pushed.base.as_ref();
                let other =
                    |base: &EntryKey| if base == key { "" } else { base.as_str() }.to_owned();
                row.base = base.map(other);
            }
            Change::Removed(removed) => row.uid.clone_from(&removed.uid),
        }
        row
    }

    /// What the change counts as, with its object whole.
    pub(crate) fn change_bytes(&self) -> u64 {
        let object = self.object.as_ref().map_or(0, |object| match &self.base {
            Some(_) => patched_bytes(object).unwrap_or(object.len()),
            None => object.len(),
        });
        let texts = self.key.len() + self.uid.len() + self.resource_version.len();
        (texts + object) as u64 + CHANGE_OVERHEAD_BYTES
    }

    /// The event that the row of `seq` keeps.
    pub(crate) fn tail_event(self, seq: Seq) -> Result<TailEvent, DecodeError> {
        let malformed =
            |reason: &dyn std::fmt::Display| DecodeError::malformed("event row", reason);
        let hash: [u8; 32] =
            self.hash.as_ref().try_into().map_err(|_| malformed(&"its hash has not 32 bytes"))?;
        let (epoch, hash) = (WriterEpoch(self.epoch), StateHash::from_bytes(&hash));
        let time_ms = self.time_ms;
        if self.key.is_empty() {
            return Ok(TailEvent { seq, epoch, hash, time_ms, change: None });
        }
        let key: EntryKey = self.key.parse().map_err(|error| malformed(&error))?;
        let base = match self.base.as_deref() {
            None => None,
            Some("") => Some(key.clone()),
            Some(base) => Some(base.parse().map_err(|error| malformed(&error))?),
        };
        // Rows of older builds have it even where it stays.
        let uid = if base.as_ref() == Some(&key) { String::new() } else { self.uid };
        let resource_version = self.resource_version;
        let change = match self.object {
            Some(object) => Change::Applied(Applied { key, uid, resource_version, object }),
            None => Change::Removed(Removed { key, uid }),
        };
        let (traceparent, appended_ms) = (self.traceparent, Some(time_ms));
        let change = PushedChange { change, base, traceparent, appended_ms };
        Ok(TailEvent { seq, epoch, hash, time_ms, change: Some(change) })
    }
}

#[cfg(test)]
mod tests;
