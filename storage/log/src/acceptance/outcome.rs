//! The outcome of a record: accepted as an event, or the reason why not.

use headwater_event::header::HeaderError;
use headwater_event::record::{Claim, LogMetadata, RecordKeyError};
use headwater_event::{
    BodyAddress, BodyId, EntryKey, Envelope, Offset, Partition, Seq, StreamId, WriterEpoch,
};

use crate::value::ValueError;

/// The outcome of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The record is the next event of its stream.
    Accepted(Envelope),
    /// The record is the next event of its stream, and compaction has dropped the body to which it
    /// refers, because a later event of its key supersedes it. The envelope's event is
    /// [`headwater_event::Event::Head`]: it moves the stream on and writes nothing. If no later
    /// event comes, the state hash differs.
    BodyCompacted(Envelope),
    /// The partition has another body.
    Body(BodyAddress),
    /// A body is retired: no latest event refers to it.
    BodyRetired(BodyAddress),
    /// The record's epoch is not the highest claimed epoch of its partition.
    Fenced(FencedRecord),
    /// Events before the record are missing. Its stream stops until a higher epoch continues with
    /// the expected seq.
    Hole(Hole),
    /// A writer claimed a higher epoch in this partition. Records of lower epochs are invalid from
    /// here on.
    Claimed {
        /// The partition.
        partition: Partition,
        /// The claim.
        claim: Claim,
    },
    /// The writer has appended all differences of its sources to this partition.
    Reconciled {
        /// The partition.
        partition: Partition,
        /// The writer's epoch, the highest claimed.
        epoch: WriterEpoch,
    },
    /// The writer is alive, or has stopped in order.
    Heartbeat {
        /// The writer's epoch.
        epoch: WriterEpoch,
        /// The time at which the log appended the heartbeat.
        time_ms: i64,
        /// Whether this is the last heartbeat: the writer has stopped in order.
        released: bool,
    },
    /// The metadata of the log.
    Metadata(LogMetadata),
    /// The record cannot be decoded.
    Malformed(MalformedRecord),
    /// The record has no effect.
    Ignored(IgnoreReason),
}

/// A record of a writer whose epoch is not the highest claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedRecord {
    /// The stream.
    pub stream: StreamId,
    /// The entry of the record; `None` for the head. The current writer appends its valid value
    /// again.
    pub key: Option<EntryKey>,
    /// The seq in the record.
    pub seq: Seq,
    /// The epoch of the record's writer.
    pub epoch: WriterEpoch,
    /// The highest epoch claimed before the record in its partition.
    pub claimed: WriterEpoch,
}

/// A gap in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The stream, which is stopped before `expected`.
    pub stream: StreamId,
    /// The next seq of the stream.
    pub expected: Seq,
    /// The seq of the record.
    pub found: Seq,
    /// The epoch of the record.
    pub epoch: WriterEpoch,
}

/// Why a record has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The record's offset is below the cursor.
    ReadBefore,
    /// The reader does not read the record's partition.
    NotRead,
    /// The record's seq was accepted before.
    Duplicate,
    /// The record's stream is stopped at a hole that its epoch can no longer fill.
    BehindHole,
    /// A heartbeat or `Reconciled` of a writer whose epoch is not the highest claimed.
    FormerWriter,
    /// A claim of an epoch that is not above the highest claimed epoch.
    LostClaim,
    /// A metadata record that is not the first.
    DuplicateMetadata,
}

/// A record that cannot be decoded. Its stream stops, if its key contains one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("partition {partition}, offset {offset}: the record cannot be read")]
pub struct MalformedRecord {
    /// The partition.
    pub partition: Partition,
    /// The record's offset.
    pub offset: Offset,
    /// The stream in the record's key, if there is one.
    pub stream: Option<StreamId>,
    /// The defect.
    #[source]
    pub reason: MalformedReason,
}

/// The defect of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedReason {
    /// The key is malformed.
    #[error(transparent)]
    Key(#[from] RecordKeyError),
    /// The header is malformed.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The value is malformed.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The value of a reserved record is malformed.
    #[error("the value of the reserved record is wrong: {reason}")]
    Reserved {
        /// The defect.
        reason: String,
    },
    /// The object of a body does not have the hash in the body's header.
    #[error("the body's object does not have the hash that its header names")]
    BodyHash,
    /// The body to which the record refers is not in the log: its append failed.
    #[error("the log lacks the body {id} to which the record refers")]
    NoBody {
        /// The body.
        id: BodyId,
    },
    /// The record is not in the partition of its stream.
    #[error("its stream belongs to partition {expected}")]
    Partition {
        /// The partition of the stream.
        expected: Partition,
    },
}
