//! The heartbeats of a writer, which another task appends while the writer works.

use std::sync::Arc;

use headwater_event::record::Heartbeat;
use headwater_event::{Partition, RecordKey, WriterEpoch};

use super::{WriterError, sign};
use crate::log::{Append, AppendError, Log};

/// Appends the heartbeats of one writer. A heartbeat has no position in a stream, so it needs no
/// order with the writer's events.
pub struct Heartbeats {
    pub(super) log: Arc<dyn Log>,
    pub(super) epoch: WriterEpoch,
}

impl Heartbeats {
    /// Appends a heartbeat. When this returns `Ok`, every standby can read it.
    ///
    /// # Errors
    /// As [`super::Writer::finished`]. The owner ends the writer: its appends go to the same log.
    pub async fn append(&self) -> Result<(), WriterError> {
        let result = self.log.append(vec![heartbeat(self.epoch, false)]).await;
        result.map(drop).map_err(|error| failure(self.epoch, error))
    }
}

/// The record of a heartbeat; the last one `is_release`.
pub(super) fn heartbeat(epoch: WriterEpoch, is_release: bool) -> Append {
    let mut append = sign(&RecordKey::Heartbeat(epoch), Partition(0));
    if is_release {
        let released = serde_json::to_vec(&Heartbeat { released: true });
        append.record.value = released.ok().map(Into::into);
    }
    append
}

/// What a failed append means for the writer of `epoch`.
pub(super) fn failure(epoch: WriterEpoch, error: AppendError) -> WriterError {
    match error {
        AppendError::Rejected { reason } => WriterError::Rejected { reason },
        AppendError::Unknown { .. } | AppendError::Fatal { .. } => {
            WriterError::Dead { epoch, reason: error.to_string() }
        }
    }
}
