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
    /// Appends a heartbeat. When this returns `Ok`, every standby can read it. `yields`: a standby
    /// whose sources follow may claim at once.
    ///
    /// # Errors
    /// As [`super::Writer::finished`]. The owner ends the writer: its appends go to the same log.
    pub async fn append(&self, yields: bool) -> Result<(), WriterError> {
        let value = Heartbeat { yields, ..Heartbeat::default() };
        let result = self.log.append(vec![heartbeat(self.epoch, value)]).await;
        result.map(drop).map_err(|error| failure(self.epoch, error))
    }
}

/// The record of a heartbeat.
pub(super) fn heartbeat(epoch: WriterEpoch, value: Heartbeat) -> Append {
    let mut append = sign(&RecordKey::Heartbeat(epoch), Partition(0));
    if let Ok(value) = serde_json::to_vec(&value) {
        append.record.value = Some(value.into());
    }
    append
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
