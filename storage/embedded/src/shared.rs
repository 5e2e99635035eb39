//! What the appender and the readers share: where each partition ends, and its newest records.
//!
//! The newest records are kept in memory up to a bound of bytes, the oldest of any partition
//! leaving first, so that who reads at the end never waits for the engine.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_event::{Cursor, Offset, Partition, TopicId};
use headwater_log::{Description, ReadError, StoredRecord};
use tokio::sync::watch;

use crate::layout::LogTopic;
use crate::log::EmbeddedSettings;
use crate::metrics::Counts;

/// How many bytes of records the tails of all partitions of a log may hold together: seconds of
/// a busy log, so that a reader may fall behind a little without touching the disk.
const TAIL_BYTES_MAX: usize = 8 << 20;

/// What a record in a tail takes besides its own bytes, roughly.
const TAIL_RECORD_OVERHEAD_BYTES: usize = 200;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: EmbeddedSettings,
    pub(crate) topic: TopicId,
    pub(crate) counts: Counts,
    state: Mutex<State>,
    /// Rung after every append, and when the log closes.
    pub(crate) bell: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    partitions: Vec<Held>,
    /// The partitions of the records in the tails, oldest first.
    order: VecDeque<Partition>,
    tail_bytes: usize,
    closed: Option<String>,
}

#[derive(Debug)]
struct Held {
    high: Offset,
    /// The last records, without a gap up to `high`.
    tail: VecDeque<StoredRecord>,
}

impl Shared {
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
        let held = |high| Held { high, tail: VecDeque::new() };
        let state = State {
            partitions: highs.into_iter().map(held).collect(),
            order: VecDeque::new(),
            tail_bytes: 0,
            closed: None,
        };
        Self { settings, topic, counts, state: Mutex::new(state), bell: watch::Sender::new(()) }
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
        }
    }

    /// The first offset not yet written.
    pub(crate) fn high(&self, partition: Partition) -> Result<Offset, ReadError> {
        self.state().held(partition).map(|held| held.high)
    }

    /// Whether `cursor` still stands for a prefix of this log.
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

    /// Makes records readable that are durable.
    pub(crate) fn publish(&self, records: impl IntoIterator<Item = StoredRecord>) {
        let mut state = self.state();
        for recorded in records {
            state.push(recorded);
        }
        self.counts.tail(state.tail_bytes);
        drop(state);
        self.bell.send_replace(());
    }

    /// The records from `next` on, if the tail reaches back that far, up to the given bounds.
    pub(crate) fn tail_records(
        &self,
        partition: Partition,
        next: Offset,
        records_max: usize,
        bytes_max: usize,
    ) -> Option<Vec<StoredRecord>> {
        let state = self.state();
        let tail = &state.held(partition).ok()?.tail;
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

    /// Forgets the records of a tail below `cleaned`: compaction may have dropped some.
    pub(crate) fn forget(&self, partition: Partition, cleaned: Offset) {
        let mut state = self.state();
        let Ok(held) = state.held(partition) else { return };
        let mut left = held.tail.iter().take_while(|recorded| recorded.offset < cleaned).count();
        for _ in 0..left {
            state.drop_oldest(partition);
        }
        state.order.retain(|place| {
            let leaves = *place == partition && left > 0;
            left -= usize::from(leaves);
            !leaves
        });
        self.counts.tail(state.tail_bytes);
    }

    /// No append will come any more.
    pub(crate) fn close(&self, reason: String) {
        self.state().closed.get_or_insert(reason);
        self.bell.send_replace(());
    }

    pub(crate) fn closed(&self) -> Option<String> {
        self.state().closed.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn held(&self, partition: Partition) -> Result<&Held, ReadError> {
        let index = partition.0 as usize;
        self.partitions.get(index).ok_or(ReadError::NoPartition { partition })
    }

    fn push(&mut self, recorded: StoredRecord) {
        let partition = recorded.partition;
        let bytes = cost(&recorded);
        let Some(held) = self.partitions.get_mut(partition.0 as usize) else { return };
        held.high = recorded.offset.next();
        held.tail.push_back(recorded);
        self.order.push_back(partition);
        self.tail_bytes += bytes;
        while self.tail_bytes > TAIL_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.drop_oldest(oldest);
        }
    }

    fn drop_oldest(&mut self, partition: Partition) {
        let held = self.partitions.get_mut(partition.0 as usize);
        if let Some(dropped) = held.and_then(|held| held.tail.pop_front()) {
            self.tail_bytes -= cost(&dropped);
        }
    }
}

fn cost(recorded: &StoredRecord) -> usize {
    recorded.record.bytes() + TAIL_RECORD_OVERHEAD_BYTES
}
