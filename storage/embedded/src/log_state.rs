//! The state that the appender and the readers share: the end of each partition, and its newest
//! records.
//!
//! Memory holds the newest records up to a bound of bytes, so a reader at the end never waits for
//! the engine. The oldest record of all partitions is dropped first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_event::{Cursor, Offset, Partition, TopicId};
use headwater_log::{Description, ReadError, StoredRecord};
use tokio::sync::watch;

use crate::layout::LogTopic;
use crate::metrics::Counts;
use crate::settings::EmbeddedSettings;

/// How many bytes of records the tails of all partitions hold together: seconds of a busy log, so
/// a reader may fall behind a little and still not use the disk.
const TAIL_BYTES_MAX: usize = 8 << 20;

/// The approximate memory of a record in a tail besides its own bytes.
const TAIL_RECORD_OVERHEAD_BYTES: usize = 200;

/// The state of an open log.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) settings: EmbeddedSettings,
    pub(crate) topic: TopicId,
    pub(crate) counts: Counts,
    tails: Mutex<Tails>,
    /// Notifies readers after every append, and when the log closes.
    pub(crate) changes: watch::Sender<()>,
}

#[derive(Debug)]
struct Tails {
    partitions: Vec<PartitionTail>,
    /// The partitions of the records in the tails, oldest first.
    order: VecDeque<Partition>,
    bytes: usize,
    closed: Option<String>,
}

#[derive(Debug)]
struct PartitionTail {
    /// The first offset not yet written.
    high: Offset,
    /// The newest records, without a gap up to `high`.
    records: VecDeque<StoredRecord>,
}

impl LogState {
    pub(crate) fn new(
        settings: EmbeddedSettings,
        topic: TopicId,
        counts: Counts,
        highs: Vec<Offset>,
    ) -> Self {
        for (partition, high) in (0..).map(Partition).zip(&highs) {
            counts.ends_at(partition, *high);
        }
        counts.tail(0);
        let tail = |high| PartitionTail { high, records: VecDeque::new() };
        let tails = Tails {
            partitions: highs.into_iter().map(tail).collect(),
            order: VecDeque::new(),
            bytes: 0,
            closed: None,
        };
        Self { settings, topic, counts, tails: Mutex::new(tails), changes: watch::Sender::new(()) }
    }

    pub(crate) fn log_topic(&self) -> LogTopic {
        self.settings.topic
    }

    pub(crate) fn describe(&self) -> Description {
        Description {
            topic: self.topic,
            partitions: self.settings.partitions,
            record_bytes_max: self.settings.record_bytes_max,
            replay_window_ms: self.settings.replay_window_ms,
            position_partitions: 0,
            position_topic: self.topic,
        }
    }

    /// The first offset not yet written.
    pub(crate) fn high(&self, partition: Partition) -> Result<Offset, ReadError> {
        self.tails().partition(partition).map(|tail| tail.high)
    }

    /// Checks that `cursor` marks a prefix of this log.
    pub(crate) fn check(&self, cursor: &Cursor) -> Result<(), ReadError> {
        if cursor.topic != self.topic {
            return Err(ReadError::Recreated { was: cursor.topic, is: self.topic });
        }
        let diverged = self.high(cursor.partition)?;
        if cursor.next > diverged {
            return Err(ReadError::Truncated { partition: cursor.partition, diverged });
        }
        Ok(())
    }

    /// Makes durable records readable.
    pub(crate) fn publish(&self, records: impl IntoIterator<Item = StoredRecord>) {
        let mut tails = self.tails();
        for recorded in records {
            tails.push(recorded);
        }
        self.counts.tail(tails.bytes);
        drop(tails);
        self.changes.send_replace(());
    }

    /// The records from `next` on, up to the given bounds; `None`: the tail begins later.
    pub(crate) fn tail_records(
        &self,
        partition: Partition,
        next: Offset,
        records_max: usize,
        bytes_max: usize,
    ) -> Option<Vec<StoredRecord>> {
        let tails = self.tails();
        let tail = &tails.partition(partition).ok()?.records;
        let first = tail.front()?.offset;
        let skip = usize::try_from(next.0.checked_sub(first.0)?).ok()?;
        let mut bytes = 0;
        let within = |recorded: &&StoredRecord| {
            let fits = bytes < bytes_max;
            bytes += recorded.record.bytes();
            fits
        };
        Some(tail.iter().skip(skip).take(records_max).take_while(within).cloned().collect())
    }

    /// Drops the records of a tail below `cleaned`: compaction may have dropped some of them.
    pub(crate) fn forget(&self, partition: Partition, cleaned: Offset) {
        let mut tails = self.tails();
        let Ok(tail) = tails.partition(partition) else { return };
        let mut left = tail.records.iter().take_while(|recorded| recorded.offset < cleaned).count();
        for _ in 0..left {
            tails.drop_oldest(partition);
        }
        tails.order.retain(|place| {
            let leaves = *place == partition && left > 0;
            left -= usize::from(leaves);
            !leaves
        });
        self.counts.tail(tails.bytes);
    }

    /// Closes the log: no append follows.
    pub(crate) fn close(&self, reason: String) {
        self.tails().closed.get_or_insert(reason);
        self.changes.send_replace(());
    }

    pub(crate) fn closed(&self) -> Option<String> {
        self.tails().closed.clone()
    }

    fn tails(&self) -> MutexGuard<'_, Tails> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tails {
    fn partition(&self, partition: Partition) -> Result<&PartitionTail, ReadError> {
        let index = partition.0 as usize;
        self.partitions.get(index).ok_or(ReadError::NoPartition { partition })
    }

    fn push(&mut self, recorded: StoredRecord) {
        let partition = recorded.partition;
        let bytes = cost(&recorded);
        let Some(tail) = self.partitions.get_mut(partition.0 as usize) else { return };
        tail.high = recorded.offset.next();
        tail.records.push_back(recorded);
        self.order.push_back(partition);
        self.bytes += bytes;
        while self.bytes > TAIL_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.drop_oldest(oldest);
        }
    }

    fn drop_oldest(&mut self, partition: Partition) {
        let tail = self.partitions.get_mut(partition.0 as usize);
        if let Some(dropped) = tail.and_then(|tail| tail.records.pop_front()) {
            self.bytes -= cost(&dropped);
        }
    }
}

fn cost(recorded: &StoredRecord) -> usize {
    recorded.record.bytes() + TAIL_RECORD_OVERHEAD_BYTES
}
