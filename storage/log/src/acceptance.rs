//! By which rules a reader of the log takes a record for an event of a stream.
//!
//! Pure: records go in, outcomes come out, and the state is a plain value that a view stores in
//! the same batch as what it folded, so that both are at the same cursor.
//!
//! A record counts only if its epoch is the highest claimed before it in its partition. Of the
//! records that count, each stream takes the next seq; what else lies there is not an event:
//!
//! ```text
//!            accepted n                            epoch above, seq n+1
//!  following n ───────► following n+1    stopped ───────────────────────► following n+1
//!            seq > n+1                            anything else
//!  following n ───────► stopped at n     stopped ───────────────────────► stopped
//! ```
//!
//! While a partition is folded from its start, seqs may be missing where compaction may have
//! dropped records: where offsets are missing too, before records old enough for it. Nothing of a fold may be shown before [`Acceptance::is_folded`], and then
//! only if the state's own hash equals [`StreamPosition::hash`]: that is what proves that the
//! gaps were compaction's.

mod decode;
mod outcome;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::record::{Claim, Heartbeat, LogBirth};
use headwater_event::{
    Cursor, EntryKey, EventHeader, Offset, Partition, RecordKey, StreamId, WriterEpoch,
};

pub use self::outcome::{Fenced, Hole, Ignored, Malformed, MalformedReason, Outcome};
pub use self::state::{Mode, PartitionState, RepairKey, StreamPosition};

use self::decode::{decode_birth, decode_claim, decode_heartbeat, envelope};
use crate::contract::{Batch, Recorded};

/// Where the fold of one partition begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldRange {
    /// The first offset that may be read.
    pub start: Cursor,
    /// The first offset not yet written when the fold was begun.
    pub high: Offset,
}

/// What a reader of some partitions of a log has accepted so far.
#[derive(Clone, Debug)]
pub struct Acceptance {
    birth: LogBirth,
    partitions: BTreeMap<Partition, PartitionState>,
    /// In order, so that whoever goes through them does so alike every time.
    streams: BTreeMap<StreamId, StreamPosition>,
    changed: Changed,
}

/// What changed since it was last asked for.
#[derive(Clone, Debug, Default)]
struct Changed {
    partitions: BTreeSet<Partition>,
    streams: BTreeSet<StreamId>,
}

/// The parts of an [`Acceptance`] that changed, to be stored with the state of the same cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptanceChanges {
    /// One value per partition that moved.
    pub partitions: Vec<(Partition, PartitionState)>,
    /// One value per stream that moved.
    pub streams: Vec<(StreamId, StreamPosition)>,
}

impl Acceptance {
    /// Begins a fold from the start of each partition to the high watermark seen now.
    ///
    /// Events appended at or after `intact_from_ms` are younger than the log's replay window:
    /// compaction has dropped none of them, nor the one before each. A seq missing there is a
    /// hole even in a fold. `now_ms` is the reader's clock.
    pub fn fold(birth: LogBirth, ranges: Vec<FoldRange>, intact_from_ms: i64, now_ms: i64) -> Self {
        let state = |range| PartitionState::fold(range, intact_from_ms, now_ms);
        let partitions = ranges
            .into_iter()
            .map(|range| (range.start.partition, state(range)))
            .collect::<BTreeMap<_, _>>();
        let changed =
            Changed { partitions: partitions.keys().copied().collect(), streams: BTreeSet::new() };
        Self { birth, partitions, streams: BTreeMap::new(), changed }
    }

    /// Goes on from what was stored.
    pub fn restore(
        birth: LogBirth,
        partitions: impl IntoIterator<Item = (Partition, PartitionState)>,
        streams: impl IntoIterator<Item = (StreamId, StreamPosition)>,
    ) -> Self {
        Self {
            birth,
            partitions: partitions.into_iter().collect(),
            streams: streams.into_iter().collect(),
            changed: Changed::default(),
        }
    }

    /// What changed since the last call: what a view writes beside its state.
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

    /// The birth of the log that is read.
    pub fn birth(&self) -> &LogBirth {
        &self.birth
    }

    /// Where to read on, one cursor per partition.
    pub fn cursors(&self) -> Vec<Cursor> {
        self.partitions.values().map(|state| state.cursor).collect()
    }

    /// The partitions that are read, with what is known of each.
    pub fn partitions(&self) -> &BTreeMap<Partition, PartitionState> {
        &self.partitions
    }

    /// How far `stream` went; `None` before its first event.
    pub fn stream(&self, stream: &StreamId) -> Option<&StreamPosition> {
        self.streams.get(stream)
    }

    /// Every stream met, in no order.
    pub fn streams(&self) -> impl Iterator<Item = (&StreamId, &StreamPosition)> {
        self.streams.iter()
    }

    /// The newest claim: who writes this log. Partition 0 arbitrates.
    pub fn writer(&self) -> Option<&Claim> {
        self.partitions.get(&Partition(0))?.claim.as_ref()
    }

    /// Whether the newest writer has said that it stopped in order: whoever wants to write need
    /// not wait for its silence.
    pub fn is_released(&self) -> bool {
        let said =
            |state: &PartitionState| state.claim.is_some() && state.released == state.claimed();
        self.partitions.get(&Partition(0)).is_some_and(said)
    }

    /// Whether every partition has been read to the high watermark at which its fold began.
    pub fn is_folded(&self) -> bool {
        self.partitions.values().all(|state| state.mode == Mode::Follow)
    }

    /// Whether the newest writer has reconciled in every partition that is read: only then does
    /// absence mean that something was removed.
    pub fn is_reconciled(&self) -> bool {
        let Some(writer) = self.partitions.values().map(PartitionState::claimed).max() else {
            return false;
        };
        writer > WriterEpoch::default()
            && self.partitions.values().all(|state| state.reconciled == writer)
    }

    /// The keys that records which do not count have touched and no event has touched since: the
    /// current writer appends the truth again for each, lest compaction keep the wrong record.
    /// Walks every stream: to be asked when an outcome says that there is one.
    pub fn repairs(&self) -> impl Iterator<Item = (&StreamId, &RepairKey)> {
        self.streams.iter().flat_map(|(stream, position)| {
            position.repairs.iter().map(move |repair| (stream, repair))
        })
    }

    /// Takes a batch in: an outcome per record, and the cursor moves. `now_ms` is the reader's
    /// clock, see [`PartitionState::inside_window`].
    pub fn accept_batch(&mut self, batch: &Batch, now_ms: i64) -> Vec<Outcome> {
        let outcomes = batch.records.iter().map(|record| self.accept(record)).collect();
        if let Some(state) = self.partitions.get_mut(&batch.cursor.partition) {
            state.pass(batch.cursor, batch.high, now_ms);
            self.changed.partitions.insert(batch.cursor.partition);
        }
        outcomes
    }

    /// Judges one record.
    fn accept(&mut self, recorded: &Recorded) -> Outcome {
        let Some(state) = self.partitions.get_mut(&recorded.partition) else {
            return Outcome::Ignored(Ignored::NotRead);
        };
        if !state.meet(recorded) {
            return Outcome::Ignored(Ignored::ReadBefore);
        }
        match RecordKey::decode(&recorded.record.key) {
            Err(error) => malformed(recorded, None, error.into()),
            Ok(RecordKey::Log(uuid)) => match decode_birth(&recorded.record, uuid) {
                Ok(birth) if birth == self.birth => Outcome::Born(birth),
                Ok(_) => Outcome::Ignored(Ignored::LostBirth),
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
                    let Heartbeat { released } = decode_heartbeat(&recorded.record);
                    state.released = if released { epoch } else { WriterEpoch::default() };
                    Outcome::Heartbeat { epoch, time_ms: recorded.time_ms, released }
                }
                false => Outcome::Ignored(Ignored::FormerWriter),
            },
            Ok(RecordKey::Reconciled(epoch)) => match state.claimed() == epoch {
                true => {
                    state.reconciled = epoch;
                    Outcome::Reconciled { partition: recorded.partition, epoch }
                }
                false => Outcome::Ignored(Ignored::FormerWriter),
            },
            Ok(RecordKey::Head(stream)) => self.accept_event(recorded, stream, None),
            Ok(RecordKey::Entry(stream, key)) => self.accept_event(recorded, stream, Some(key)),
        }
    }

    /// Judges a record of a stream; `key` is `None` for its head.
    fn accept_event(
        &mut self,
        recorded: &Recorded,
        stream: StreamId,
        key: Option<EntryKey>,
    ) -> Outcome {
        let expected = stream.partition(self.birth.partitions);
        if recorded.partition != expected {
            let reason = MalformedReason::Partition { expected };
            return malformed(recorded, Some(stream), reason);
        }
        let Some(state) = self.partitions.get(&recorded.partition) else {
            return Outcome::Ignored(Ignored::NotRead);
        };
        let position = self.streams.entry(stream.clone()).or_default();
        self.changed.streams.insert(stream.clone());
        let repair = key.clone().map_or(RepairKey::Head, RepairKey::Entry);
        let header = match EventHeader::decode(&recorded.record.header) {
            Ok(header) => header,
            Err(error) => {
                position.stop(state.claimed(), repair);
                return malformed(recorded, Some(stream), error.into());
            }
        };
        if header.epoch != state.claimed() {
            position.repairs.insert(repair);
            let (seq, epoch, claimed) = (header.seq, header.epoch, state.claimed());
            return Outcome::Fenced(Fenced { stream, key, seq, epoch, claimed });
        }
        let gap_allowed = state.gap_allowed(position, header.seq, recorded.time_ms);
        match judge(position, &header, gap_allowed) {
            Verdict::Accept => {}
            Verdict::Duplicate => {
                position.repairs.insert(repair);
                return Outcome::Ignored(Ignored::Duplicate);
            }
            Verdict::BehindHole => {
                position.repairs.insert(repair);
                return Outcome::Ignored(Ignored::BehindHole);
            }
            Verdict::Hole => {
                let expected = position.seq.next();
                position.stop(header.epoch, repair);
                let (found, epoch) = (header.seq, header.epoch);
                return Outcome::Hole(Hole { stream, expected, found, epoch });
            }
        }
        match envelope(recorded, stream.clone(), key, header) {
            Ok(envelope) => {
                position.advance(&envelope, recorded.offset, &repair);
                Outcome::Accepted(envelope)
            }
            Err(reason) => {
                position.stop(state.claimed(), repair);
                malformed(recorded, Some(stream), reason)
            }
        }
    }
}

/// What becomes of a record that its epoch lets count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    /// Its seq was accepted before.
    Duplicate,
    /// The stream stands before a hole that this epoch cannot fill any more.
    BehindHole,
    /// At least one event before it is missing, or its writer started from another state.
    Hole,
}

fn judge(position: &StreamPosition, header: &EventHeader, gap_allowed: bool) -> Verdict {
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

fn malformed(recorded: &Recorded, stream: Option<StreamId>, reason: MalformedReason) -> Outcome {
    let (partition, offset) = (recorded.partition, recorded.offset);
    Outcome::Malformed(Malformed { partition, offset, stream, reason })
}

#[cfg(test)]
mod tests;
