//! Positions: in a stream (seq), in a log (offset), and how far a view has come (checkpoint).

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Dense position of an event in its stream, from 1. [`Seq::ZERO`] is "before the first".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event.
    pub const ZERO: Self = Self(0);

    /// The position after this one. Nothing counts so far; a peer may say that it did.
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

/// One life of a log. A re-created topic gets the next number and a new UUID.
///
/// An edge follows only to a higher number, and only by its complete state. Equal numbers with
/// different UUIDs are two logs that must not be mixed: [`LogId::follows`] says no to both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogId {
    /// Counts the lives of the log, from 1.
    pub number: u64,
    /// Tells apart two logs that claim the same number.
    pub uuid: Uuid,
}

impl LogId {
    /// Whether a replica of `previous` may be replaced by a complete state of this log.
    pub fn follows(&self, previous: &Self) -> bool {
        self.number > previous.number
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, &self.uuid.simple().to_string()[..8])
    }
}

/// Fencing number of the one writer of a log, from 1; zero is "no writer yet".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WriterEpoch(pub u64);

impl WriterEpoch {
    /// The epoch that a new claim takes after this one.
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

/// How far a view has applied one stream. Committed in the same write batch as the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The life of the log that the state was folded from.
    pub log_id: LogId,
    /// The writer epoch of the last event applied.
    pub epoch: WriterEpoch,
    /// The last event applied.
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

/// Where a record lies in its partition. Offsets grow and have gaps (compaction, markers).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The offset after this one: the first that a reader has not seen.
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

/// Kafka's leader epoch of a record (KIP-320): tells a truncated and regrown log from its past.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LeaderEpoch(pub u32);

/// Kafka's id of one topic (KIP-516): a re-created topic has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(pub Uuid);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a reader of the log stores with its state, one per partition. Never shown to edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// The topic that was read.
    pub topic: TopicId,
    /// The partition that was read.
    pub partition: Partition,
    /// The next offset to read: every record below it is in the state.
    pub next: Offset,
    /// The leader epoch of the last record read.
    pub leader_epoch: LeaderEpoch,
}
