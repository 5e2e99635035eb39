//! The state of a reader for each partition and each stream: plain values that a view stores.

use std::collections::BTreeSet;

use headwater_event::record::Claim;
use headwater_event::{
    Cursor, EntryKey, Envelope, Event, EventHeader, Offset, Partition, Seq, StateHash, WriterEpoch,
};
use serde::{Deserialize, Serialize};

use super::{FoldRange, IgnoreReason, Outcome};
use crate::log::StoredRecord;

/// How the reader reads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// From the start to the high watermark at the beginning. Compaction leaves gaps.
    Fold {
        /// The fold ends before this offset.
        until: Offset,
        /// Compaction cannot have dropped records appended at or after this time.
        intact_from_ms: i64,
    },
    /// Inside the replay window. The reader receives every record.
    Follow,
}

/// The state of a reader in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// The position of the reader.
    pub cursor: Cursor,
    /// How the reader reads the partition.
    pub mode: Mode,
    /// The claim of the highest epoch so far.
    pub claim: Option<Claim>,
    /// The highest epoch that has reconciled here while it was the highest claimed.
    pub reconciled: WriterEpoch,
    /// The highest epoch whose writer has stopped in order, with no later heartbeat.
    #[serde(default)]
    pub released: WriterEpoch,
    /// The highest epoch whose writer yields the log, with no later heartbeat that does not.
    #[serde(default)]
    pub yielded: WriterEpoch,
    /// The offset after the last record.
    pub met: Offset,
    /// The first record after the last gap in the offsets of a fold.
    pub last_gap: Option<Offset>,
    /// The time at which this reader was last at the end of the partition, or began to fold it, by
    /// its own clock. The log appended all unread records outside the fold later.
    pub caught_up_ms: Option<i64>,
}

/// The position of a reader in one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedPosition {
    /// The seq of the last accepted event.
    pub seq: Seq,
    /// The epoch of its writer.
    pub epoch: WriterEpoch,
    /// The first seq of that epoch in the stream.
    pub epoch_first_seq: Seq,
    /// The stream's state hash after the event, as the writer recorded it.
    pub hash: StateHash,
    /// The time at which the log appended the event.
    pub time_ms: i64,
    /// The event's offset in its partition.
    pub offset: Offset,
    /// Whether the event was a removal. If so, the writer appends a head before compaction can drop
    /// the tombstone.
    pub head_due: bool,
    /// If present, the stream is stopped at a hole. Only a higher epoch can resume it.
    pub stopped: Option<WriterEpoch>,
    /// The keys whose last record is invalid.
    pub repairs: BTreeSet<RepairKey>,
}

/// A key whose last record in the log may be invalid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RepairKey {
    /// The stream's head.
    Head,
    /// An entry.
    Entry(EntryKey),
}

impl RepairKey {
    /// The key of an event.
    pub fn of(event: &Event) -> Self {
        event.key().map_or(Self::Head, |key| Self::Entry(key.clone()))
    }
}

impl PartitionState {
    pub(super) fn fold(range: FoldRange, intact_from_ms: i64, now_ms: i64) -> Self {
        let mode = match range.start.next < range.high {
            true => Mode::Fold { until: range.high, intact_from_ms },
            false => Mode::Follow,
        };
        Self {
            cursor: range.start,
            mode,
            claim: None,
            reconciled: WriterEpoch::default(),
            released: WriterEpoch::default(),
            yielded: WriterEpoch::default(),
            met: range.start.next,
            last_gap: None,
            caught_up_ms: Some(now_ms),
        }
    }

    /// The highest epoch claimed.
    pub fn claimed(&self) -> WriterEpoch {
        self.claim.as_ref().map_or(WriterEpoch::default(), |claim| claim.epoch)
    }

    /// Whether the log still has every record after the cursor at `now_ms`, given its replay window.
    /// The log appended the unread records after this reader was last at the end. Half the window is
    /// reserved for clock differences and for reading. A reader outside the window discards its
    /// state and folds from the start, and so does a reader whose fold was interrupted for as long:
    /// compaction may have dropped tombstones meanwhile.
    pub fn inside_window(&self, now_ms: i64, replay_window_ms: u64) -> bool {
        let away = self.caught_up_ms.and_then(|then| u64::try_from(now_ms.checked_sub(then)?).ok());
        away.is_some_and(|away_ms| away_ms <= replay_window_ms / 2)
    }

    /// Moves the cursor past `recorded`; `false` if the record is below the cursor.
    pub(super) fn meet(&mut self, recorded: &StoredRecord) -> bool {
        if recorded.offset < self.cursor.next {
            return false;
        }
        self.cursor.next = recorded.offset.next();
        self.cursor.leader_epoch = recorded.leader_epoch;
        // Before the first claim no record is valid, so no valid record is missing.
        if recorded.offset > self.met && self.claim.is_some() {
            self.last_gap = Some(recorded.offset);
        }
        self.met = recorded.offset.next();
        if matches!(self.mode, Mode::Fold { until, .. } if recorded.offset >= until) {
            self.mode = Mode::Follow;
        }
        true
    }

    /// Moves the cursor to the end of a batch.
    pub(super) fn pass(&mut self, cursor: Cursor, high: Offset, now_ms: i64) {
        self.cursor = cursor;
        if matches!(self.mode, Mode::Fold { until, .. } if cursor.next >= until) {
            self.mode = Mode::Follow;
        }
        if cursor.next >= high {
            self.caught_up_ms = Some(now_ms);
        }
    }

    /// Whether a fold may accept an event that is not the next one after `position`.
    ///
    /// Compaction leaves gaps in the offsets; a lost append never had an offset. So events may be
    /// missing only where offsets are missing. Compaction drops a record only for a later record
    /// that is itself older than the replay window. So the event before a younger one is present.
    /// Where offsets are missing, a fold may have accepted an event after a hole; the next writer
    /// then began at a lower seq.
    ///
    /// A tombstone is the exception: compaction drops it for its age alone. A living writer appends a
    /// head behind it in time. If that writer fails first, the next one continues the stream when the
    /// tombstone is gone. The first event of an epoch proves that its writer had read the events
    /// before it, so none of them was lost.
    ///
    /// If an append time is ahead of the reader's clock by more than the tolerance, the two clocks
    /// are unrelated. The times then decide nothing, and only the state hash proves the fold.
    pub(super) fn gap_allowed(
        &self,
        position: &AcceptedPosition,
        header: &EventHeader,
        time_ms: i64,
    ) -> bool {
        match (self.mode, self.last_gap) {
            (Mode::Fold { intact_from_ms, .. }, Some(gap)) => {
                let begins_epoch =
                    header.epoch > position.epoch && header.seq == header.epoch_first_seq;
                let may_be_compacted =
                    self.is_outside_window(time_ms, intact_from_ms) || begins_epoch;
                header.seq <= position.seq || (gap > position.offset && may_be_compacted)
            }
            _ => false,
        }
    }

    /// Whether compaction may have dropped the body to which an event appended at `time_ms` refers.
    /// Compaction drops a body for its tombstone, which is younger than the event that superseded
    /// this one. So the body is missing only where an offset before the event is, and the event is
    /// older than the replay window.
    pub(super) fn may_lack_body(&self, time_ms: i64) -> bool {
        match (self.mode, self.last_gap) {
            (Mode::Fold { intact_from_ms, .. }, Some(_)) => {
                self.is_outside_window(time_ms, intact_from_ms)
            }
            _ => false,
        }
    }

    /// Whether compaction may have run over a record appended at `time_ms`, by this reader's clock.
    fn is_outside_window(&self, time_ms: i64, intact_from_ms: i64) -> bool {
        let began_ms = self.caught_up_ms.unwrap_or(i64::MAX);
        let tolerance_ms = began_ms.saturating_sub(intact_from_ms);
        let is_of_another_clock = time_ms > began_ms.saturating_add(tolerance_ms);
        time_ms < intact_from_ms || is_of_another_clock
    }

    /// Whether records are missing after the last event of `position`. A lost append leaves no such
    /// gap: the writer repairs its hole.
    pub fn misses_behind(&self, position: &AcceptedPosition) -> bool {
        self.last_gap.is_some_and(|gap| position.seq == Seq::ZERO || gap > position.offset)
    }

    pub(super) fn claim(&mut self, partition: Partition, claim: Claim) -> Outcome {
        if claim.epoch <= self.claimed() {
            return Outcome::Ignored(IgnoreReason::LostClaim);
        }
        self.claim = Some(claim.clone());
        Outcome::Claimed { partition, claim }
    }
}

impl AcceptedPosition {
    /// Advances to the next event.
    pub(super) fn advance(&mut self, envelope: &Envelope, offset: Offset, touched: &RepairKey) {
        self.offset = offset;
        self.seq = envelope.seq;
        self.epoch = envelope.epoch;
        self.epoch_first_seq = envelope.epoch_first_seq;
        self.hash = envelope.hash;
        self.time_ms = envelope.time_ms;
        self.head_due = matches!(envelope.event, Event::Removed(_));
        self.stopped = None;
        self.repairs.remove(touched);
    }

    /// Stops before the next event. Records of `epoch` and below can no longer supply it.
    pub(super) fn stop(&mut self, epoch: WriterEpoch, touched: RepairKey) {
        self.stopped = self.stopped.max(Some(epoch));
        self.repairs.insert(touched);
    }
}
