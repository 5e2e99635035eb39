//! The appender: one thread that writes all queued appends in one synced write.
//!
//! While a write is in progress, appends queue up, and the next write takes them all: the higher
//! the load, the more appends share a sync.

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use headwater_event::{LeaderEpoch, Partition};
use headwater_log::{AppendError, Record, RecordPosition, StoredRecord};
use headwater_store::{Durability, Engine, EngineError, WriteBatch};
use tokio::sync::{mpsc, oneshot};

use crate::layout::{EndRow, end_key, record_key, stamp};
use crate::log_state::LogState;
use crate::settings::Clock;

/// The most appends that one write takes.
const GROUP_APPENDS_MAX: usize = 1024;

/// A write of this many bytes takes no further append: some milliseconds of a disk.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// One call of `append`.
pub(crate) struct AppendRequest {
    pub(crate) records: Vec<PreparedRecord>,
    pub(crate) done: oneshot::Sender<Result<Vec<RecordPosition>, AppendError>>,
}

/// The caller of an append, and the offsets of its records.
type Response = (oneshot::Sender<Result<Vec<RecordPosition>, AppendError>>, Vec<RecordPosition>);

/// A record that the caller checked and encoded.
pub(crate) struct PreparedRecord {
    pub(crate) partition: Partition,
    pub(crate) record: Record,
    pub(crate) stored: BytesMut,
}

/// Owns the end of every partition; runs on a thread of its own.
pub(crate) struct Appender {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) state: Arc<LogState>,
    pub(crate) clock: Clock,
    /// The end of each partition, by its number.
    pub(crate) ends: Vec<EndRow>,
}

impl Appender {
    /// Serves appends until all senders are gone, or a write fails.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<AppendRequest>) {
        let mut group = Vec::new();
        while let Some(first) = queue.blocking_recv() {
            let mut bytes = size(&first);
            group.push(first);
            while bytes < GROUP_BYTES_MAX && group.len() < GROUP_APPENDS_MAX {
                let Ok(more) = queue.try_recv() else { break };
                bytes += size(&more);
                group.push(more);
            }
            if let Err(error) = self.write(std::mem::take(&mut group)) {
                let reason = error.to_string();
                self.state.close(reason.clone());
                queue.close();
                while let Some(late) = queue.blocking_recv() {
                    let _ = late.done.send(Err(AppendError::Fatal { reason: reason.clone() }));
                }
                return;
            }
        }
        self.state.close("the log was closed".to_owned());
    }

    /// Writes a group and answers its callers. An error is final: the outcome of the write is
    /// unknown.
    fn write(&mut self, group: Vec<AppendRequest>) -> Result<(), EngineError> {
        let topic = self.state.log_topic();
        let mut ends = self.ends.clone();
        let mut touched = vec![false; ends.len()];
        let now_ms = (self.clock)();
        let mut batch = WriteBatch::default();
        let mut published = Vec::new();
        let mut responses = Vec::with_capacity(group.len());
        for request in group {
            let mut appended = Vec::with_capacity(request.records.len());
            for PreparedRecord { partition, record, stored } in request.records {
                let index = partition.0 as usize;
                let Some(end) = ends.get_mut(index) else { continue };
                let offset = end.next;
                let time_ms = end.time_ms.max(now_ms);
                *end = EndRow { next: offset.next(), time_ms };
                touched[index] = true;
                batch.put(record_key(topic, partition, offset), stamp(stored, time_ms));
                let leader_epoch = LeaderEpoch(0);
                published.push(StoredRecord { partition, offset, leader_epoch, time_ms, record });
                appended.push(RecordPosition { partition, offset });
            }
            responses.push((request.done, appended));
        }
        for (index, end) in ends.iter().enumerate().filter(|(index, _)| touched[*index]) {
            let partition = Partition(u32::try_from(index).unwrap_or(u32::MAX));
            batch.put(end_key(topic, partition), end.encode());
        }
        let began = Instant::now();
        match self.engine.write(batch, Durability::Synced) {
            Ok(()) => {
                let seconds = began.elapsed().as_secs_f64();
                self.state.counts.synced(seconds, responses.len(), &published);
                self.ends = ends;
                self.state.publish(published);
                for (done, appended) in responses {
                    let _ = done.send(Ok(appended));
                }
                Ok(())
            }
            Err(EngineError::Refused { reason }) => {
                self.fail(responses, |reason| AppendError::Rejected { reason }, &reason);
                Ok(())
            }
            Err(error) => {
                self.fail(responses, |reason| AppendError::Fatal { reason }, &error.to_string());
                Err(error)
            }
        }
    }

    /// Answers the callers of appends that failed.
    fn fail(&self, responses: Vec<Response>, error: impl Fn(String) -> AppendError, reason: &str) {
        for (done, _) in responses {
            let error = error(reason.to_owned());
            self.state.counts.failed(&error, 1);
            let _ = done.send(Err(error));
        }
    }
}

fn size(request: &AppendRequest) -> usize {
    request.records.iter().map(|prepared| prepared.stored.len()).sum()
}
