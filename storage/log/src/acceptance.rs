//! The rules by which a reader of the log accepts a record as an event of a stream.
//!
//! The rules are pure: records go in, outcomes come out. The state is a plain value. A view stores
//! it in the same batch as its fold, so both are at the same cursor.
//!
//! A record is valid only if its epoch is the highest epoch claimed before it in its partition. Of
//! the valid records, each stream accepts the next seq. All other records are not events:
//!
//! ```text
//!            accepted n                            epoch above, seq n+1
//!  following n ───────► following n+1    stopped ───────────────────────► following n+1
//!            seq > n+1                            anything else
//!  following n ───────► stopped at n     stopped ───────────────────────► stopped
//! ```
//!
//! During a fold from the start of a partition, seqs may be missing where compaction may have
//! dropped records: where offsets are missing too, before records that are old enough. A fold
//! becomes visible only after [`Acceptance::is_folded`], and only if the hash of the state equals
//! [`AcceptedPosition::hash`]. This proves that compaction made the gaps.

mod decode;
mod outcome;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use headwater_event::record::{Claim, Heartbeat, LogMetadata};
use headwater_event::{
    BodyAddress, BodyId, Cursor, EntryKey, EventHeader, Offset, Partition, RecordKey, StreamId,
    WriterEpoch,
};

pub use self::outcome::{
    FencedRecord, Hole, IgnoreReason, MalformedReason, MalformedRecord, Outcome,
};
pub use self::state::{AcceptedPosition, Mode, PartitionState, RepairKey};

use self::decode::{decode_claim, decode_heartbeat, decode_metadata, envelope};
use crate::bodies::{Bodies, Body, MemoryBodies};
use crate::log::{Batch, StoredRecord};
use crate::value::{ValueError, decode_reference};

/// The range of offsets that a fold of one partition covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldRange {
    /// The first offset that may be read.
    pub start: Cursor,
    /// The first offset that was not yet written when the fold began.
    pub high: Offset,
}

/// The state of a reader: what it has accepted so far, in the partitions that it reads.
#[derive(Clone, Debug)]
pub struct Acceptance {
    metadata: LogMetadata,
    partitions: BTreeMap<Partition, PartitionState>,
    /// Sorted, so that every iteration has the same order.
    streams: BTreeMap<StreamId, AcceptedPosition>,
    changed: ChangedState,
    /// Empty if the reader stores its bodies.
    bodies: MemoryBodies,
    /// The stream of the last record of one, and its partition, which takes a hash: the events of a stream often
    /// follow each other.
    last_stream: Option<(StreamId, Partition)>,
}

/// The parts that changed since the last [`Acceptance::take_changes`].
#[derive(Clone, Debug, Default)]
struct ChangedState {
    partitions: BTreeSet<Partition>,
    streams: BTreeSet<StreamId>,
}

/// The changed parts of an [`Acceptance`]. A view stores them with the state of the same cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptanceChanges {
    /// The changed partitions.
    pub partitions: Vec<(Partition, PartitionState)>,
    /// The changed streams.
    pub streams: Vec<(StreamId, AcceptedPosition)>,
}

impl Acceptance {
    /// Begins a fold from the start of each partition to its present high watermark.
    ///
    /// Events appended at or after `intact_from_ms` are inside the log's replay window: compaction
    /// has dropped none of them, nor the event before each. A seq that is missing there is a hole
    /// even in a fold. `now_ms` is the reader's clock.
    pub fn fold(
        metadata: LogMetadata,
        ranges: Vec<FoldRange>,
        intact_from_ms: i64,
        now_ms: i64,
    ) -> Self {
        let state = |range| PartitionState::fold(range, intact_from_ms, now_ms);
        let partitions = ranges
            .into_iter()
            .map(|range| (range.start.partition, state(range)))
            .collect::<BTreeMap<_, _>>();
        let changed = ChangedState {
            partitions: partitions.keys().copied().collect(),
            streams: BTreeSet::new(),
        };
        Self {
            metadata,
            partitions,
            streams: BTreeMap::new(),
            changed,
            bodies: MemoryBodies::default(),
            last_stream: None,
        }
    }

    /// Restores the stored state of a reader. Such a reader stores its bodies too, and accepts
    /// batches by [`Acceptance::accept_batch_with`].
    pub fn restore(
        metadata: LogMetadata,
        partitions: impl IntoIterator<Item = (Partition, PartitionState)>,
        streams: impl IntoIterator<Item = (StreamId, AcceptedPosition)>,
    ) -> Self {
        Self {
            metadata,
            partitions: partitions.into_iter().collect(),
            streams: streams.into_iter().collect(),
            changed: ChangedState::default(),
            bodies: MemoryBodies::default(),
            last_stream: None,
        }
    }

    /// Returns the parts that changed since the last call. A view writes them with its state.
    pub fn take_changes(&mut self) -> AcceptanceChanges {
        let changed = std::mem::take(&mut self.changed);
        let partitions = changed.partitions.into_iter();
        let streams = changed.streams.into_iter();
        AcceptanceChanges {
            partitions: partitions
                .filter_map(|key| self.partitions.get(&key).map(|state| (key, state.clone())))
                .collect(),
            streams: streams
                .filter_map(|key| {
                    let position = self.streams.get(&key)?.clone();
                    Some((key, position))
                })
                .collect(),
        }
    }

    /// The metadata of the log.
    pub fn metadata(&self) -> &LogMetadata {
        &self.metadata
    }

    /// The position of the reader in each partition.
    pub fn cursors(&self) -> Vec<Cursor> {
        self.partitions.values().map(|state| state.cursor).collect()
    }

    /// The partitions that the reader reads, with their state.
    pub fn partitions(&self) -> &BTreeMap<Partition, PartitionState> {
        &self.partitions
    }

    /// The position in `stream`; `None` before its first event.
    pub fn stream(&self, stream: &StreamId) -> Option<&AcceptedPosition> {
        self.streams.get(stream)
    }

    /// Every stream with an accepted or rejected record, in order.
    pub fn streams(&self) -> impl Iterator<Item = (&StreamId, &AcceptedPosition)> {
        self.streams.iter()
    }

    /// The newest claim: that of the present writer. Partition 0 decides.
    pub fn writer(&self) -> Option<&Claim> {
        self.partitions.get(&Partition(0))?.claim.as_ref()
    }

    /// Whether the newest writer has stopped in order. If so, a standby may claim at once.
    pub fn is_released(&self) -> bool {
        self.newest_writer_is(|state| state.released)
    }

    /// Whether the newest writer has lost its sources. If so, a standby whose sources follow may
    /// claim at once.
    pub fn is_yielded(&self) -> bool {
        self.newest_writer_is(|state| state.yielded)
    }

    /// Whether `epoch` of partition 0 is the epoch of the newest claim.
    fn newest_writer_is(&self, epoch: impl FnOnce(&PartitionState) -> WriterEpoch) -> bool {
        let state = self.partitions.get(&Partition(0)).filter(|state| state.claim.is_some());
        state.is_some_and(|state| epoch(state) == state.claimed())
    }

    /// Whether the reader has read every partition to the high watermark at the start of its fold.
    pub fn is_folded(&self) -> bool {
        self.partitions.values().all(|state| state.mode == Mode::Follow)
    }

    /// Whether the newest writer has reconciled in every partition that the reader reads. Only then
    /// an absent entry is a removed entry.
    pub fn is_reconciled(&self) -> bool {
        let Some(writer) = self.partitions.values().map(PartitionState::claimed).max() else {
            return false;
        };
        writer > WriterEpoch::default()
            && self.partitions.values().all(|state| state.reconciled == writer)
    }

    /// The keys whose last record is invalid. The current writer appends the valid value of each
    /// again, because compaction keeps the last record of a key. The call iterates over every
    /// stream; call it only after an outcome that needs a repair.
    pub fn repairs(&self) -> impl Iterator<Item = (&StreamId, &RepairKey)> {
        self.streams.iter().flat_map(|(stream, position)| {
            position.repairs.iter().map(move |repair| (stream, repair))
        })
    }

    /// Notes that `partition` ended at the reader's cursor at `now_ms`, the reader's clock: nothing
    /// was unread then. See [`PartitionState::inside_window`].
    pub fn note_end(&mut self, partition: Partition, now_ms: i64) {
        if let Some(state) = self.partitions.get_mut(&partition) {
            state.caught_up_ms = Some(now_ms);
            self.changed.partitions.insert(partition);
        }
    }

    /// Accepts or rejects each record of a batch and moves the cursor to its end, and keeps the
    /// bodies in memory. `now_ms` is the reader's clock; see [`PartitionState::inside_window`].
    pub fn accept_batch(&mut self, batch: &Batch, now_ms: i64) -> Vec<Outcome> {
        let mut bodies = std::mem::take(&mut self.bodies);
        let outcomes = self.accept_batch_with(batch, now_ms, &mut bodies);
        self.bodies = bodies;
        outcomes.unwrap_or_else(|never: Infallible| match never {})
    }

    /// The bodies in memory.
    pub fn bodies(&self) -> &MemoryBodies {
        &self.bodies
    }

    /// As [`Acceptance::accept_batch`], for a reader that stores its bodies with its state.
    ///
    /// # Errors
    /// When a body cannot be read from `bodies`; the reader then goes back to its stored state.
    pub fn accept_batch_with<B: Bodies>(
        &mut self,
        batch: &Batch,
        now_ms: i64,
        bodies: &mut B,
    ) -> Result<Vec<Outcome>, B::Error> {
        let records = batch.records.iter();
        let outcomes =
            records.map(|record| self.accept(record, bodies)).collect::<Result<_, _>>()?;
        if let Some(state) = self.partitions.get_mut(&batch.cursor.partition) {
            state.pass(batch.cursor, batch.high, now_ms);
            self.changed.partitions.insert(batch.cursor.partition);
        }
        Ok(outcomes)
    }

    /// Judges one record.
    fn accept<B: Bodies>(
        &mut self,
        recorded: &StoredRecord,
        bodies: &mut B,
    ) -> Result<Outcome, B::Error> {
        let Some(state) = self.partitions.get_mut(&recorded.partition) else {
            return Ok(Outcome::Ignored(IgnoreReason::NotRead));
        };
        if !state.meet(recorded) {
            return Ok(Outcome::Ignored(IgnoreReason::ReadBefore));
        }
        Ok(match RecordKey::decode(&recorded.record.key) {
            Err(error) => malformed(recorded, None, error.into()),
            Ok(RecordKey::Log(uuid)) => match decode_metadata(&recorded.record, uuid) {
                Ok(metadata) if metadata == self.metadata => Outcome::Metadata(metadata),
                Ok(_) => Outcome::Ignored(IgnoreReason::DuplicateMetadata),
                Err(reason) => malformed(recorded, None, reason),
            },
            Ok(RecordKey::Claim(epoch, writer)) => {
                match decode_claim(&recorded.record, epoch, writer) {
                    Ok(claim) => state.claim(recorded.partition, claim),
                    Err(reason) => malformed(recorded, None, reason),
                }
            }
            Ok(RecordKey::Heartbeat(epoch)) => match state.claimed() == epoch {
                true => {
                    let Heartbeat { released, yields } = decode_heartbeat(&recorded.record);
                    state.released = if released { epoch } else { WriterEpoch::default() };
                    state.yielded = if yields { epoch } else { WriterEpoch::default() };
                    Outcome::Heartbeat { epoch, time_ms: recorded.time_ms, released }
                }
                false => Outcome::Ignored(IgnoreReason::FormerWriter),
            },
            Ok(RecordKey::Reconciled(epoch)) => match state.claimed() == epoch {
                true => {
                    state.reconciled = epoch;
                    Outcome::Reconciled { partition: recorded.partition, epoch }
                }
                false => Outcome::Ignored(IgnoreReason::FormerWriter),
            },
            Ok(RecordKey::Body(id)) => accept_body(recorded, id, bodies),
            Ok(RecordKey::Head(stream)) => self.accept_event(recorded, stream, None, bodies)?,
            Ok(RecordKey::Entry(stream, key)) => {
                self.accept_event(recorded, stream, Some(key), bodies)?
            }
        })
    }

    /// The partition of `stream`.
    fn partition_of(&mut self, stream: &StreamId) -> Partition {
        if let Some((last, partition)) = &self.last_stream
            && last == stream
        {
            return *partition;
        }
        let partition = stream.partition(self.metadata.partitions);
        self.last_stream = Some((stream.clone(), partition));
        partition
    }

    /// Judges a record of a stream; `key` is `None` for its head.
    fn accept_event<B: Bodies>(
        &mut self,
        recorded: &StoredRecord,
        stream: StreamId,
        key: Option<EntryKey>,
        bodies: &mut B,
    ) -> Result<Outcome, B::Error> {
        let expected = self.partition_of(&stream);
        if recorded.partition != expected {
            let reason = MalformedReason::Partition { expected };
            return Ok(malformed(recorded, Some(stream), reason));
        }
        let Some(state) = self.partitions.get(&recorded.partition) else {
            return Ok(Outcome::Ignored(IgnoreReason::NotRead));
        };
        let position = self.streams.entry(stream.clone()).or_default();
        self.changed.streams.insert(stream.clone());
        let repair = key.clone().map_or(RepairKey::Head, RepairKey::Entry);
        let header = match EventHeader::decode(&recorded.record.header) {
            Ok(header) => header,
            Err(error) => {
                position.stop(state.claimed(), repair);
                return Ok(malformed(recorded, Some(stream), error.into()));
            }
        };
        if header.epoch != state.claimed() {
            position.repairs.insert(repair);
            let (seq, epoch, claimed) = (header.seq, header.epoch, state.claimed());
            return Ok(Outcome::Fenced(FencedRecord { stream, key, seq, epoch, claimed }));
        }
        let gap_allowed = state.gap_allowed(position, &header, recorded.time_ms);
        match judge(position, &header, gap_allowed) {
            Verdict::Accept => {}
            Verdict::Duplicate => {
                position.repairs.insert(repair);
                return Ok(Outcome::Ignored(IgnoreReason::Duplicate));
            }
            Verdict::BehindHole => {
                position.repairs.insert(repair);
                return Ok(Outcome::Ignored(IgnoreReason::BehindHole));
            }
            Verdict::Hole => {
                let expected = position.seq.next();
                position.stop(header.epoch, repair);
                let (found, epoch) = (header.seq, header.epoch);
                return Ok(Outcome::Hole(Hole { stream, expected, found, epoch }));
            }
        }
        let body = match referenced(recorded, header.epoch) {
            Ok(None) => Ok(None),
            Ok(Some(at)) => match bodies.get(at)? {
                Some(body) => Ok(Some((at, body))),
                None if state.may_lack_body(recorded.time_ms) => {
                    let head = envelope(recorded, stream.clone(), None, header, None);
                    return Ok(match head {
                        Ok(head) => {
                            position.advance(&head, recorded.offset, &repair);
                            Outcome::BodyCompacted(head)
                        }
                        Err(reason) => malformed(recorded, Some(stream), reason),
                    });
                }
                None => Err(MalformedReason::NoBody { id: at.id }),
            },
            Err(error) => Err(error.into()),
        };
        let envelope = body.and_then(|body| envelope(recorded, stream.clone(), key, header, body));
        Ok(match envelope {
            Ok(envelope) => {
                position.advance(&envelope, recorded.offset, &repair);
                Outcome::Accepted(envelope)
            }
            Err(reason) => {
                position.stop(state.claimed(), repair);
                malformed(recorded, Some(stream), reason)
            }
        })
    }
}

/// Adds or removes a body. Bodies of any writer are kept: events refer to those of their own epoch
/// alone, and a former writer retires only what nothing refers to any more.
fn accept_body<B: Bodies>(recorded: &StoredRecord, id: BodyId, bodies: &mut B) -> Outcome {
    let at = BodyAddress { partition: recorded.partition, id };
    match Body::decode(&recorded.record) {
        Ok(Some(body)) => {
            bodies.put(at, body);
            Outcome::Body(at)
        }
        Ok(None) => {
            bodies.remove(at);
            Outcome::BodyRetired(at)
        }
        Err(reason) => malformed(recorded, None, reason),
    }
}

/// The body to which a record of `epoch` refers; `None`: it refers to none.
fn referenced(
    recorded: &StoredRecord,
    epoch: WriterEpoch,
) -> Result<Option<BodyAddress>, ValueError> {
    let Some(value) = &recorded.record.value else { return Ok(None) };
    let number = decode_reference(value)?;
    Ok(number
        .map(|number| BodyAddress { partition: recorded.partition, id: BodyId { epoch, number } }))
}

/// The verdict on a record of the highest claimed epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    /// Its seq was accepted before.
    Duplicate,
    /// The stream is stopped at a hole that this epoch can no longer fill.
    BehindHole,
    /// At least one event before it is missing, or its writer started from another state.
    Hole,
}

fn judge(position: &AcceptedPosition, header: &EventHeader, gap_allowed: bool) -> Verdict {
    if header.epoch <= position.epoch && header.seq <= position.seq {
        return Verdict::Duplicate;
    }
    if position.stopped.is_some_and(|stopped| header.epoch <= stopped) {
        return Verdict::BehindHole;
    }
    if header.seq == position.seq.next() || gap_allowed {
        return Verdict::Accept;
    }
    Verdict::Hole
}

fn malformed(
    recorded: &StoredRecord,
    stream: Option<StreamId>,
    reason: MalformedReason,
) -> Outcome {
    let (partition, offset) = (recorded.partition, recorded.offset);
    Outcome::Malformed(MalformedRecord { partition, offset, stream, reason })
}

#[cfg(test)]
mod tests;
