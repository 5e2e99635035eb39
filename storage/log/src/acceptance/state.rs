//! What a reader keeps of each partition and of each stream: plain values, stored as they are.

use std::collections::BTreeSet;

use headwater_event::record::Claim;
use headwater_event::{
    Cursor, EntryKey, Envelope, Event, Offset, Partition, Seq, StateHash, WriterEpoch,
};
use serde::{Deserialize, Serialize};

use super::{FoldRange, Ignored, Outcome};
use crate::contract::Recorded;

/// How a partition is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// From the start to the high watermark seen at the beginning; compaction leaves gaps.
    Fold {
        /// The fold ends before this offset.
        until: Offset,
        /// Records appended from here on cannot have been compacted away.
        intact_from_ms: i64,
    },
    /// Inside the replay window: every record is seen.
    Follow,
}

/// What a reader keeps of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// Where to read on.
    pub cursor: Cursor,
    /// How it is read.
    pub mode: Mode,
    /// The claim of the highest epoch so far.
    pub claim: Option<Claim>,
    /// The highest epoch that has reconciled here while it was the highest claimed.
    pub reconciled: WriterEpoch,
    /// The highest epoch whose writer has said, as its last word, that it stopped in order.
    #[serde(default)]
    pub released: WriterEpoch,
    /// The offset behind the last record met.
    pub met: Offset,
    /// The first record behind the last gap in the offsets of a fold.
    pub last_gap: Option<Offset>,
    /// When this reader last stood at the end of the partition, or began to fold it, by its own
    /// clock: what it has not read and no fold covers was appended later.
    pub caught_up_ms: Option<i64>,
}

/// How far a stream went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    /// The last event accepted.
    pub seq: Seq,
    /// The epoch of its writer.
    pub epoch: WriterEpoch,
    /// The first seq of that epoch in the stream.
    pub epoch_first_seq: Seq,
    /// The stream's state hash after it, as the writer recorded it.
    pub hash: StateHash,
    /// When the log appended it.
    pub time_ms: i64,
    /// Where it lies in its partition.
    pub offset: Offset,
    /// Whether it was a removal: then a head record is due before its tombstone can go.
    pub head_due: bool,
    /// The stream stands before a hole; only an epoch above this one can resume it.
    pub stopped: Option<WriterEpoch>,
    /// Keys that records which do not count have touched, and no event since.
    pub repairs: BTreeSet<RepairKey>,
}

/// A key whose last record in the log may not be the truth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RepairKey {
    /// The stream's head.
    Head,
    /// An entry.
    Entry(EntryKey),
}

impl RepairKey {
    /// What an event touches.
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
            met: range.start.next,
            last_gap: None,
            caught_up_ms: Some(now_ms),
        }
    }

    /// The highest epoch claimed.
    pub fn claimed(&self) -> WriterEpoch {
        self.claim.as_ref().map_or(WriterEpoch::default(), |claim| claim.epoch)
    }

    /// Whether every record after the cursor is still there at `now_ms`, given how long the log
    /// keeps superseded ones: what was not read yet was appended after this reader last stood at
    /// the end. Half the window is left for clocks that differ and for reading on. A reader that
    /// is outside drops its state and folds from the start; so does one whose fold was
    /// interrupted for so long, as tombstones may have gone meanwhile.
    pub fn inside_window(&self, now_ms: i64, replay_window_ms: u64) -> bool {
        let away = self.caught_up_ms.and_then(|then| u64::try_from(now_ms.checked_sub(then)?).ok());
        away.is_some_and(|away_ms| away_ms <= replay_window_ms / 2)
    }

    /// Moves over `recorded`; `false` if it lies below the cursor.
    pub(super) fn meet(&mut self, recorded: &Recorded) -> bool {
        if recorded.offset < self.cursor.next {
            return false;
        }
        self.cursor.next = recorded.offset.next();
        self.cursor.leader_epoch = recorded.leader_epoch;
        // Before the first claim nothing counts, so nothing that did is missing.
        if recorded.offset > self.met && self.claim.is_some() {
            self.last_gap = Some(recorded.offset);
        }
        self.met = recorded.offset.next();
        if matches!(self.mode, Mode::Fold { until, .. } if recorded.offset >= until) {
            self.mode = Mode::Follow;
        }
        true
    }

    /// Moves to the end of a batch.
    pub(super) fn pass(&mut self, cursor: Cursor, high: Offset, now_ms: i64) {
        self.cursor = cursor;
        if matches!(self.mode, Mode::Fold { until, .. } if cursor.next >= until) {
            self.mode = Mode::Follow;
        }
        if cursor.next >= high {
            self.caught_up_ms = Some(now_ms);
        }
    }

    /// Whether a fold may take an event that is not the next one behind `position`.
    ///
    /// Compaction leaves gaps in the offsets, an append that was lost never had one: so events
    /// may be missing only where offsets are. And compaction drops a record only for a later one
    /// that is past the replay window itself: so the event before a younger one is there. Where
    /// offsets are missing, a fold may have taken an event that had come behind a hole; the next
    /// writer then began at a lower seq.
    ///
    /// Times that are ahead of the reader's clock by more than clocks may differ prove that the
    /// two do not go together: then the clock decides nothing, and the state's hash alone tells.
    pub(super) fn gap_allowed(&self, position: &StreamPosition, seq: Seq, time_ms: i64) -> bool {
        match (self.mode, self.last_gap) {
            (Mode::Fold { intact_from_ms, .. }, Some(gap)) => {
                let began_ms = self.caught_up_ms.unwrap_or(i64::MAX);
                let tolerance_ms = began_ms.saturating_sub(intact_from_ms);
                let is_of_another_clock = time_ms > began_ms.saturating_add(tolerance_ms);
                let may_be_compacted = time_ms < intact_from_ms || is_of_another_clock;
                seq <= position.seq || (gap > position.offset && may_be_compacted)
            }
            _ => false,
        }
    }

    /// Whether records are missing behind the last event of `position` that was read. An append
    /// that was lost leaves no such gap: its hole is the writer's to mend.
    pub fn misses_behind(&self, position: &StreamPosition) -> bool {
        self.last_gap.is_some_and(|gap| position.seq == Seq::ZERO || gap > position.offset)
    }

    pub(super) fn claim(&mut self, partition: Partition, claim: Claim) -> Outcome {
        if claim.epoch <= self.claimed() {
            return Outcome::Ignored(Ignored::LostClaim);
        }
        self.claim = Some(claim.clone());
        Outcome::Claimed { partition, claim }
    }
}

impl StreamPosition {
    /// Takes the next event.
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

    /// Stops before the next event, which records of `epoch` and below cannot carry any more.
    pub(super) fn stop(&mut self, epoch: WriterEpoch, touched: RepairKey) {
        self.stopped = self.stopped.max(Some(epoch));
        self.repairs.insert(touched);
    }
}
