//! What became of a record.

use headwater_event::header::HeaderError;
use headwater_event::record::{Claim, LogBirth, RecordKeyError};
use headwater_event::{EntryKey, Envelope, Offset, Partition, Seq, StreamId, WriterEpoch};

use crate::value::ValueError;

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is the next event of its stream.
    Accepted(Envelope),
    /// Its epoch is not the one that counts in its partition.
    Fenced(Fenced),
    /// Events before it are missing: its stream stops here, until a higher epoch carries the
    /// seq that is expected.
    Hole(Hole),
    /// A writer claimed a higher epoch in this partition: records of lower ones count no more.
    Claimed {
        /// Where.
        partition: Partition,
        /// The claim.
        claim: Claim,
    },
    /// The writer had appended all differences of its sources to this partition by here.
    Reconciled {
        /// Where.
        partition: Partition,
        /// The writer's epoch, the highest claimed.
        epoch: WriterEpoch,
    },
    /// The writer lives, or says that it has stopped.
    Heartbeat {
        /// Its epoch.
        epoch: WriterEpoch,
        /// When the log appended the sign.
        time_ms: i64,
        /// Whether it is the last one: the writer has stopped in order.
        released: bool,
    },
    /// The birth of the log.
    Born(LogBirth),
    /// It cannot be read.
    Malformed(Malformed),
    /// It says nothing.
    Ignored(Ignored),
}

/// A record that does not count, because of its writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The stream.
    pub stream: StreamId,
    /// The entry touched; `None` for the head. The current writer appends the truth again.
    pub key: Option<EntryKey>,
    /// The seq that it claims.
    pub seq: Seq,
    /// The epoch of its writer.
    pub epoch: WriterEpoch,
    /// The highest epoch claimed before it in its partition.
    pub claimed: WriterEpoch,
}

/// A gap in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The stream, which stands before `expected` from now on.
    pub stream: StreamId,
    /// The seq that had to come.
    pub expected: Seq,
    /// The seq that came.
    pub found: Seq,
    /// The epoch of the record that came.
    pub epoch: WriterEpoch,
}

/// Why a record says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// It lies below the cursor.
    ReadBefore,
    /// Its partition is not among those read.
    NotRead,
    /// Its seq was accepted before.
    Duplicate,
    /// Its stream stopped at a hole; the record's epoch cannot fill it any more.
    BehindHole,
    /// A heartbeat or `Reconciled` of a writer whose epoch is not the highest claimed.
    FormerWriter,
    /// A claim of an epoch that is not above the highest claimed: it lost.
    LostClaim,
    /// A birth that is not the first: it lost.
    LostBirth,
}

/// A record that cannot be read. Its stream, where it names one, stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("partition {partition}, offset {offset}: the record cannot be read")]
pub struct Malformed {
    /// Where it lies.
    pub partition: Partition,
    /// Its offset.
    pub offset: Offset,
    /// The stream, where its key names one.
    pub stream: Option<StreamId>,
    /// What is wrong with it.
    #[source]
    pub reason: MalformedReason,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedReason {
    /// Its key.
    #[error(transparent)]
    Key(#[from] RecordKeyError),
    /// Its header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Its value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The value of a reserved record.
    #[error("the value of the reserved record is wrong: {reason}")]
    Reserved {
        /// What is wrong.
        reason: String,
    },
    /// It lies in another partition than its stream belongs to.
    #[error("its stream belongs to partition {expected}")]
    Partition {
        /// Where the stream belongs.
        expected: Partition,
    },
}
