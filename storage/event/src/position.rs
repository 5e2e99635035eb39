//! Positions: of an event in its stream (seq), of a record in its partition (offset), and of a
//! stored state (checkpoint for a stream, cursor for a partition).

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The position of an event in its stream, counted from 1 without a gap. [`Seq::ZERO`] is the
/// position before the first event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position before the first event.
    pub const ZERO: Self = Self(0);

    /// The next position. Saturates: no stream reaches the maximum, but a peer may claim it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of one life of a log. A re-created topic gets the next number and a new UUID.
///
/// An edge moves only to a log with a higher number, and only by the complete state. Two log ids
/// with the same number and different UUIDs are two logs that must not be mixed:
/// [`LogId::follows`] is false for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogId {
    /// The number of this life of the log, counted from 1.
    pub number: u64,
    /// Distinguishes two logs with the same number.
    pub uuid: Uuid,
}

impl LogId {
    /// Whether a complete state of this log may replace a replica of `previous`.
    pub fn follows(&self, previous: &Self) -> bool {
        self.number > previous.number
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, &self.uuid.simple().to_string()[..8])
    }
}

/// The fencing number of the one writer of a log, counted from 1. Zero means that the log has had
/// no writer yet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WriterEpoch(pub u64);

impl WriterEpoch {
    /// The next epoch: that of a claim after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for WriterEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of a stored state in its stream. A view commits it in the same write batch as the
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The life of the log that the state was folded from.
    pub log_id: LogId,
    /// The writer epoch of the last applied event.
    pub epoch: WriterEpoch,
    /// The seq of the last applied event.
    pub seq: Seq,
}

/// A partition of a topic.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Partition(pub u32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of a record in its partition. Offsets increase and have gaps (compaction,
/// transaction markers).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The next offset: where a reader of this record continues.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Kafka's leader epoch of a record (KIP-320). It distinguishes a truncated and regrown partition
/// from its earlier content.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LeaderEpoch(pub u32);

/// Kafka's id of a topic (KIP-516). A re-created topic has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(pub Uuid);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of a reader in one partition. The reader stores it with its state. Edges never
/// receive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: Partition,
    /// The next offset to read. The state contains every record below it.
    pub next: Offset,
    /// The leader epoch of the last record that was read.
    pub leader_epoch: LeaderEpoch,
}
