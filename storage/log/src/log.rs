//! The contract of a log, as Kafka can keep it.
//!
//! ```text
//!            low                          high
//!             |  o   o o     o   o  o  o   |
//!   deleted   |  readable, sparse offsets  |  not yet written
//! ```
//!
//! Offsets grow and have gaps: compaction drops a record that a later one of the same key
//! supersedes, so an offset proves no completeness. Records of one partition are read in the
//! order of their offsets. Keys are compacted per partition, so a key stays in one partition.

use async_trait::async_trait;
use bytes::Bytes;
use headwater_event::{Cursor, LeaderEpoch, Offset, Partition, TopicId};

/// The topic of the events that the controller appends and the hubs fold.
pub const DOWNSTREAM_TOPIC: &str = "headwater.downstream.v1";

/// The topic of what edges report and of where they stand.
pub const UPSTREAM_TOPIC: &str = "headwater.upstream.v1";

/// A record as it is appended. A `None` value is a tombstone: the key is gone.
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

/// A record on its way to an explicit partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Where it goes.
    pub partition: Partition,
    /// What goes there.
    pub record: Record,
}

/// Where an appended record came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    /// The partition asked for.
    pub partition: Partition,
    /// The record's offset.
    pub offset: Offset,
}

/// A record as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The partition it lies in.
    pub partition: Partition,
    /// Its offset there.
    pub offset: Offset,
    /// The leader epoch it was written under.
    pub leader_epoch: LeaderEpoch,
    /// When the log appended it, milliseconds since the Unix epoch. Never decreases within a
    /// partition; the log's clock, not the writer's.
    pub time_ms: i64,
    /// The record.
    pub record: Record,
}

/// What a reader got: records in offset order, and the cursor that stands after them.
///
/// The cursor may move past offsets that hold no record (compaction), so it is not always the
/// last record's offset plus one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Records of one partition, in offset order. Never empty unless the cursor moved.
    pub records: Vec<StoredRecord>,
    /// What to store with the state once every record is in it.
    pub cursor: Cursor,
    /// The partition's high watermark when the batch was read: the first offset not yet written.
    pub high: Offset,
}

/// What can be read of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that may still be read. A cursor below it has missed records.
    pub low: Offset,
    /// The first offset not yet written.
    pub high: Offset,
}

/// What a log says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The topic's id: another id under the same name is another log.
    pub topic: TopicId,
    /// How many partitions there are.
    pub partitions: u32,
    /// The largest record (key + value + header) that an append takes, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// For how long a superseded record stays readable, in milliseconds: the replay window.
    pub replay_window_ms: u64,
}

/// Why an append failed, by what the caller then knows.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Certainly not written: no record of the call is in the log, and one of them never will be,
    /// for what it is. The log goes on.
    #[error("the log refused the append: {reason}")]
    Rejected {
        /// What was wrong with it.
        reason: String,
    },
    /// Any of the records may have been written, or may be yet. The caller stops writing, reads
    /// back, and goes on under a new writer epoch.
    #[error("the outcome of the append is unknown: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },
    /// This handle will never append again (a damaged disk, a fatal producer). Whether the
    /// records of the call were written is unknown.
    #[error("the log can no longer be written: {reason}")]
    Fatal {
        /// What happened.
        reason: String,
    },
}

/// Why a read failed. After any of them the reader is of no further use.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The cursor lies below what retention left: records between were missed.
    #[error("partition {partition}: offset {wanted} is gone, the log starts at {low}")]
    Expired {
        /// Which partition.
        partition: Partition,
        /// The offset asked for.
        wanted: Offset,
        /// The first offset that is left.
        low: Offset,
    },
    /// The log is shorter than the cursor, or its tail was replaced: what was read from
    /// `diverged` on never happened.
    #[error(
        "partition {partition}: the log was truncated, records from offset {diverged} on are void"
    )]
    Truncated {
        /// Which partition.
        partition: Partition,
        /// The first offset whose record is void.
        diverged: Offset,
    },
    /// The topic was deleted and made again: no cursor of the old one means anything here.
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
    /// The log cannot be reached just now; opening a new reader later may succeed.
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
        /// Where it lies.
        offset: Offset,
        /// What is wrong with it.
        reason: String,
    },
}

/// A log of one direction: a topic with a fixed number of partitions.
#[async_trait]
pub trait Log: Send + Sync {
    /// What the log says of itself now.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] when it cannot be reached.
    async fn describe(&self) -> Result<Description, ReadError>;

    /// Appends `records`, in order within each partition. When this returns `Ok`, every record
    /// is durable and readable; the result has one place per record, in the order given.
    /// Not atomic: after an error other than `Rejected`, any subset that keeps the order within
    /// each partition may be in the log.
    ///
    /// # Errors
    /// See [`AppendError`]: certainly not written, or unknown.
    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError>;

    /// What can be read of `partition` now.
    ///
    /// # Errors
    /// [`ReadError::NoPartition`] or [`ReadError::Unavailable`].
    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError>;

    /// A cursor at the first offset that may be read of `partition`.
    ///
    /// # Errors
    /// [`ReadError::NoPartition`] or [`ReadError::Unavailable`].
    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError>;

    /// Opens a reader that goes on from `cursors`, one per partition to be read. A cursor's
    /// record at `next` is included.
    ///
    /// # Errors
    /// [`ReadError::Expired`], [`ReadError::Truncated`] or [`ReadError::Recreated`] when a cursor
    /// no longer stands for a prefix of this log.
    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError>;
}

/// Reads a set of partitions from their cursors on, for ever.
#[async_trait]
pub trait Reader: Send {
    /// The next batch of any of the partitions; waits until there is one. Of bounded size.
    /// Cancel safe: a batch is given out once, and none is lost when the future is dropped.
    ///
    /// # Errors
    /// See [`ReadError`]. Batches given out before stay valid except after `Truncated`.
    async fn next(&mut self) -> Result<Batch, ReadError>;
}
