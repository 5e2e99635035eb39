//! The traits [`Log`] and [`Reader`], with the guarantees that Kafka can keep.
//!
//! ```text
//!            low                          high
//!             |  o   o o     o   o  o  o   |
//!   deleted   |  readable, sparse offsets  |  not yet written
//! ```
//!
//! Offsets increase and have gaps: compaction drops a record that a later record of its key
//! supersedes, so offsets do not prove completeness. A reader receives the records of one partition
//! in the order of their offsets. Compaction works per partition, so a key stays in one partition.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_event::{Cursor, LeaderEpoch, NodeName, Offset, Partition, StreamId, TopicId};

/// The topic of the events that the controller appends and the hubs fold.
pub const DOWNSTREAM_TOPIC: &str = "headwater.downstream.v1";

/// The topic of the reports of edges. Earlier versions appended positions to it, too.
pub const UPSTREAM_TOPIC: &str = "headwater.upstream.v1";

/// The topic of the positions of edges.
pub const POSITIONS_TOPIC: &str = "headwater.positions.v1";

/// The number of the first partition of positions, in a log that keeps them apart. It is above the
/// number of partitions of any topic, and does not change when a topic gets more of them.
pub const POSITIONS_FROM: u32 = 1 << 16;

/// A record to append. A record without a value is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key: text, see `headwater_event::record`.
    pub key: Bytes,
    /// The value, or `None` for a removal.
    pub value: Option<Bytes>,
    /// The binary header; empty for reserved records.
    pub header: Bytes,
    /// W3C trace context, in a header of its own.
    pub traceparent: Option<String>,
}

impl Record {
    /// The bytes that a log's limit counts: key, value and header.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len) + self.header.len()
    }
}

/// A record and the partition to which it is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The partition.
    pub partition: Partition,
    /// The record.
    pub record: Record,
}

/// The position of an appended record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    /// The partition.
    pub partition: Partition,
    /// The record's offset.
    pub offset: Offset,
}

/// A record in the log, with its position and append time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The partition.
    pub partition: Partition,
    /// The record's offset.
    pub offset: Offset,
    /// The leader epoch at the append.
    pub leader_epoch: LeaderEpoch,
    /// The time of the append by the log's clock, in milliseconds since the Unix epoch. It never
    /// decreases within a partition.
    pub time_ms: i64,
    /// The record.
    pub record: Record,
}

/// Records in offset order, and the cursor after them.
///
/// The cursor may skip offsets without a record (compaction), so it is not always the last record's
/// offset plus one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Records of one partition, in offset order. Never empty unless the cursor moved.
    pub records: Vec<StoredRecord>,
    /// The cursor that the reader stores with the state after all records.
    pub cursor: Cursor,
    /// The partition's high watermark at the time of the read: the first offset not yet written.
    pub high: Offset,
}

/// The readable offsets of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that may still be read. A cursor below it has missed records.
    pub low: Offset,
    /// The first offset not yet written.
    pub high: Offset,
}

/// The properties of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The topic's id. Another id under the same name means another log.
    pub topic: TopicId,
    /// The number of partitions.
    pub partitions: u32,
    /// The largest record (key + value + header) that the log accepts, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// The replay window: for how long a superseded record stays readable, in milliseconds.
    pub replay_window_ms: u64,
    /// The number of partitions that keep positions apart from other records. They are numbered from
    /// [`POSITIONS_FROM`]. Zero: positions are in the same partitions as everything else.
    pub position_partitions: u32,
    /// The id of the topic that keeps positions; [`Description::topic`] where they are not apart.
    pub position_topic: TopicId,
}

impl Description {
    /// Every partition of the log.
    pub fn all_partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        let positions = POSITIONS_FROM..POSITIONS_FROM.saturating_add(self.position_partitions);
        (0..self.partitions).chain(positions).map(Partition)
    }

    /// The partition of the positions of `node`.
    pub fn position_partition(&self, node: &NodeName) -> Partition {
        let stream = StreamId::node(node);
        if self.position_partitions == 0 {
            return stream.partition(self.partitions);
        }
        Partition(POSITIONS_FROM.saturating_add(stream.partition(self.position_partitions).0))
    }
}

/// Why an append failed, by what the caller knows then.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Not written: the log has none of the records, and will never accept one of them. The log
    /// continues to accept other appends.
    #[error("the log refused the append: {reason}")]
    Rejected {
        /// The defect of the append.
        reason: String,
    },
    /// Not written: the log has no such partition. The records are not at fault: the topic was
    /// created again with fewer partitions.
    #[error("the log has no partition {partition}: the topic was created again")]
    NoPartition {
        /// Which partition.
        partition: Partition,
    },
    /// Unknown: each record may be written, now or later. The caller stops writing, reads back, and
    /// continues under a new writer epoch.
    #[error("the outcome of the append is unknown: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },
    /// This handle can never append again (a damaged disk, a fatal producer). Whether the records
    /// of the call are written is unknown.
    #[error("the log can no longer be written: {reason}")]
    Fatal {
        /// What happened.
        reason: String,
    },
}

/// Why a read failed. After any error the caller discards the reader.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The cursor is below the first offset that retention kept: the reader has missed records.
    #[error("partition {partition}: offset {wanted} is gone, the log starts at {low}")]
    Expired {
        /// Which partition.
        partition: Partition,
        /// The offset asked for.
        wanted: Offset,
        /// The first offset in the partition.
        low: Offset,
    },
    /// The log is shorter than the cursor, or its tail was replaced. Records from `diverged` on are
    /// void.
    #[error(
        "partition {partition}: the log was truncated, records from offset {diverged} on are void"
    )]
    Truncated {
        /// Which partition.
        partition: Partition,
        /// The first offset whose record is void.
        diverged: Offset,
    },
    /// The topic was deleted and created again. Cursors of the old topic are invalid.
    #[error("the topic was re-created: was {was}, is {is}")]
    Recreated {
        /// The topic of the cursor.
        was: TopicId,
        /// The topic that is there now.
        is: TopicId,
    },
    /// There is no such partition.
    #[error("there is no partition {partition}")]
    NoPartition {
        /// The partition asked for.
        partition: Partition,
    },
    /// The log is not reachable. A new reader may succeed later.
    #[error("the log cannot be read just now: {reason}")]
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// A record's bytes are damaged.
    #[error("partition {partition}: the record at offset {offset} is damaged: {reason}")]
    Corrupt {
        /// Which partition.
        partition: Partition,
        /// The record's offset.
        offset: Offset,
        /// The defect.
        reason: String,
    },
}

/// A log of one direction: a topic with a fixed number of partitions.
#[async_trait]
pub trait Log: Send + Sync {
    /// Returns the present properties of the log.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`]: the log is not reachable.
    async fn describe(&self) -> Result<Description, ReadError>;

    /// Appends `records`, in order within each partition. When this returns `Ok`, every record is
    /// durable and readable. The result has one position per record, in the order of `records`. The
    /// call is not atomic: after an error other than `Rejected` and `NoPartition`, the log may have
    /// any subset that keeps the order within each partition.
    ///
    /// Overlapping calls on one handle append in the order of their first poll, within each
    /// partition. After a call of unknown outcome the log may have records of the calls behind it.
    ///
    /// # Errors
    /// See [`AppendError`]: not written, or unknown.
    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError>;

    /// Returns the readable offsets of `partition`.
    ///
    /// # Errors
    /// [`ReadError::NoPartition`] or [`ReadError::Unavailable`].
    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError>;

    /// Returns a cursor at the first readable offset of `partition`.
    ///
    /// # Errors
    /// [`ReadError::NoPartition`] or [`ReadError::Unavailable`].
    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError>;

    /// Opens a reader that starts at `cursors`, one for each partition to read. The reader includes
    /// the record at a cursor's `next`.
    ///
    /// # Errors
    /// [`ReadError::Expired`], [`ReadError::Truncated`] or [`ReadError::Recreated`]: a cursor is no
    /// longer the end of a prefix of this log.
    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError>;

    /// Returns how the log answers; `None` for a log that is on this machine.
    fn contact(&self) -> Option<LogContact> {
        None
    }
}

/// How a log on other machines answers what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogContact {
    /// The other end, with its address, in words.
    pub with: String,
    /// The age of the oldest request or append without an answer.
    pub waits: Option<Duration>,
    /// The time since the last answer to anything, or the last record.
    pub answered: Option<Duration>,
}

impl LogContact {
    /// The contact of two logs with the same other end.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            waits: self.waits.max(other.waits),
            answered: self.answered.into_iter().chain(other.answered).min(),
            ..self
        }
    }

    /// For how long nothing was answered although something is asked.
    pub fn silence(&self) -> Option<Duration> {
        let waits = self.waits?;
        Some(self.answered.map_or(waits, |answered| waits.min(answered)))
    }
}

/// Reads a set of partitions from their cursors, without end.
#[async_trait]
pub trait Reader: Send {
    /// Returns the next batch of any of the partitions, of bounded size; waits until there is one.
    /// Cancel safe: each batch is returned once, and a dropped future loses none.
    ///
    /// # Errors
    /// See [`ReadError`]. Earlier batches stay valid, except after `Truncated`.
    async fn next(&mut self) -> Result<Batch, ReadError>;
}
