//! Why events were not appended.

use headwater_event::{Partition, StreamId, WriterEpoch};

use crate::log::AppendError;

/// Why events were not appended.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// One event is too large. None of the call was appended, and the writer lives; leave it out.
    #[error("{stream}: {key} has {bytes} bytes in the log, at most {bytes_max} are taken")]
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// The entry.
        key: String,
        /// The size of its record, or of its object.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// An append to one partition failed. This writer may append no more to it: the outcome of its
    /// appends in flight is unknown. The writer continues in the other partitions.
    #[error("partition {partition} takes no more appends of this epoch: {reason}")]
    Suspended {
        /// The partition.
        partition: Partition,
        /// Why its append failed.
        reason: String,
    },
    /// The log refused a call, and this writer may append to no other partition: certainly nothing of
    /// the call was appended. Events behind it may be. Claim again.
    #[error("the log refused the append: {reason}")]
    Rejected {
        /// What was wrong with it.
        reason: String,
    },
    /// This writer may append no more: appends to every partition failed, or another writer claimed.
    /// The outcome of appends in flight is unknown. Read the log to its end and claim again.
    #[error("the writer of epoch {epoch} is dead: {reason}")]
    Dead {
        /// Its epoch.
        epoch: WriterEpoch,
        /// What ended it.
        reason: String,
    },
}

/// What a failed append means for the writer of `epoch`.
pub(super) fn failure(epoch: WriterEpoch, error: AppendError) -> WriterError {
    match error {
        AppendError::Rejected { reason } => WriterError::Rejected { reason },
        AppendError::NoPartition { .. }
        | AppendError::Unknown { .. }
        | AppendError::Fatal { .. } => WriterError::Dead { epoch, reason: error.to_string() },
    }
}
