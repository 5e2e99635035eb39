//! The thread that writes: everything that is queued goes in one synced write.
//!
//! While one write is on its way to the disk, appends queue up, and the next write takes them
//! all: the more there is to do, the more appends share a sync.

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use headwater_event::{LeaderEpoch, Offset, Partition};
use headwater_log::{AppendError, Record, RecordPosition, StoredRecord};
use headwater_store::{Durability, Engine, EngineError, WriteBatch};
use tokio::sync::{mpsc, oneshot};

use crate::layout::{EndRow, end_key, record_key, stamp};
use crate::log::Clock;
use crate::shared::Shared;

/// The most appends that one write takes.
const GROUP_APPENDS_MAX: usize = 1024;

/// A write takes no further append once it holds this many bytes: some milliseconds of a disk.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// One call of `append` on its way to the thread.
pub(crate) struct Request {
    pub(crate) records: Vec<Prepared>,
    pub(crate) done: oneshot::Sender<Result<Vec<RecordPosition>, AppendError>>,
}

/// Who waits for an append, and where its records come to lie.
type Answer = (oneshot::Sender<Result<Vec<RecordPosition>, AppendError>>, Vec<RecordPosition>);

/// A record that was checked and encoded by the caller.
pub(crate) struct Prepared {
    pub(crate) partition: Partition,
    pub(crate) record: Record,
    pub(crate) stored: BytesMut,
}

pub(crate) struct Appender {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    /// Where each partition ends, by its number.
    pub(crate) ends: Vec<EndRow>,
}

impl Appender {
    /// Serves appends until nobody can send any more, or a write fails.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Request>) {
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
                self.shared.close(reason.clone());
                queue.close();
                while let Some(late) = queue.blocking_recv() {
                    let _ = late.done.send(Err(AppendError::Fatal { reason: reason.clone() }));
                }
                return;
            }
        }
        self.shared.close("it was closed".to_owned());
    }

    /// Writes a group and answers it. An error is final: what it wrote is unknown.
    fn write(&mut self, group: Vec<Request>) -> Result<(), EngineError> {
        let topic = self.shared.log_topic();
        let mut ends = self.ends.clone();
        let mut touched = vec![false; ends.len()];
        let now_ms = (self.clock)();
        let mut batch = WriteBatch::default();
        let mut published = Vec::new();
        let mut answers = Vec::with_capacity(group.len());
        for request in group {
            let mut appended = Vec::with_capacity(request.records.len());
            for Prepared { partition, record, stored } in request.records {
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
            answers.push((request.done, appended));
        }
        for (index, end) in ends.iter().enumerate().filter(|(index, _)| touched[*index]) {
            let partition = Partition(u32::try_from(index).unwrap_or(u32::MAX));
            batch.put(end_key(topic, partition), end.encode());
        }
        let began = Instant::now();
        match self.engine.write(batch, Durability::Synced) {
            Ok(()) => {
                let seconds = began.elapsed().as_secs_f64();
                self.shared.counts.synced(seconds, answers.len(), &published);
                self.ends = ends;
                self.shared.publish(published);
                for (done, appended) in answers {
                    let _ = done.send(Ok(appended));
                }
                Ok(())
            }
            Err(EngineError::Refused { reason }) => {
                self.fail(answers, |reason| AppendError::Rejected { reason }, &reason);
                Ok(())
            }
            Err(error) => {
                self.fail(answers, |reason| AppendError::Fatal { reason }, &error.to_string());
                Err(error)
            }
        }
    }

    /// Answers appends that were not made.
    fn fail(&self, answers: Vec<Answer>, error: impl Fn(String) -> AppendError, reason: &str) {
        for (done, _) in answers {
            let error = error(reason.to_owned());
            self.shared.counts.failed(&error, 1);
            let _ = done.send(Err(error));
        }
    }
}

/// The end of a partition that was never written.
pub(crate) const EMPTY: EndRow = EndRow { next: Offset(0), time_ms: i64::MIN };

fn size(request: &Request) -> usize {
    request.records.iter().map(|prepared| prepared.stored.len()).sum()
}
