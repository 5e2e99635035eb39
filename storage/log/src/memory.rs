//! The log's in-memory twin. It has the guarantees of Kafka, and the pitfalls too.
//!
//! Offsets are sparse. Compaction drops superseded records and later tombstones. A test can truncate
//! and regrow the tail under a higher leader epoch, re-create the topic, and let an append fail with
//! its records written, not written, or written later. The clock moves only when a test moves it.
//! Each handle is a separate client: the faults of one handle do not affect another.

mod faults;
mod reader;
mod topic;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use headwater_event::{Cursor, Offset, Partition, TopicId};
use tokio::sync::Notify;
use uuid::Uuid;

use self::faults::Faults;
use self::reader::MemoryReader;
use self::topic::Topic;
use crate::log::{
    Append, AppendError, Bounds, Description, Log, ReadError, Reader, RecordPosition,
};

pub use self::faults::{AppendFault, PartitionFault};

/// The settings of a [`MemoryLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// The number of partitions.
    pub partitions: u32,
    /// The largest record, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// The time for which a superseded record stays, in milliseconds (`min.compaction.lag.ms`).
    pub replay_window_ms: u64,
    /// The time for which a tombstone stays after its first compaction, in milliseconds
    /// (`delete.retention.ms`).
    pub delete_retention_ms: u64,
    /// The initial time of the clock, in milliseconds since the Unix epoch.
    pub start_ms: i64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        const DAY_MS: u64 = 24 * 60 * 60 * 1000;
        Self {
            partitions: 1,
            record_bytes_max: 2 << 20,
            replay_window_ms: 7 * DAY_MS,
            delete_retention_ms: 14 * DAY_MS,
            start_ms: 1_700_000_000_000,
        }
    }
}

/// A handle on a log in memory. Clones are one handle; [`MemoryLog::handle`] makes another.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    shared: Arc<SharedState>,
    faults: Arc<Mutex<Faults>>,
    records_read: Arc<AtomicU64>,
    partitions_opened: Arc<AtomicU64>,
}

/// The state that all handles share.
struct SharedState {
    state: Mutex<State>,
    /// Draws the ids of topics.
    new_uuid: Box<dyn Fn() -> Uuid + Send + Sync>,
    /// Notifies waiting readers and appends of every change.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    settings: MemorySettings,
    topic: Topic,
    clock_ms: i64,
    available: bool,
    partition_faults: BTreeMap<Partition, PartitionFault>,
}

impl MemoryLog {
    /// Creates an empty log. Its topics have random ids.
    pub fn new(settings: MemorySettings) -> Self {
        Self::with_uuids(settings, Uuid::new_v4)
    }

    /// Creates an empty log. `new_uuid` draws the ids of its topics: a simulation draws them from its
    /// seed.
    pub fn with_uuids(
        settings: MemorySettings,
        new_uuid: impl Fn() -> Uuid + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            settings,
            topic: Topic::new(TopicId(new_uuid()), settings.partitions),
            clock_ms: settings.start_ms,
            available: true,
            partition_faults: BTreeMap::new(),
        };
        let (state, new_uuid) = (Mutex::new(state), Box::new(new_uuid));
        let shared = SharedState { state, new_uuid, changed: Notify::new() };
        Self::of(Arc::new(shared))
    }

    /// Returns another client of the same log, without the faults of this one.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self::of(self.shared.clone())
    }

    fn of(shared: Arc<SharedState>) -> Self {
        Self {
            shared,
            faults: Arc::default(),
            records_read: Arc::default(),
            partitions_opened: Arc::default(),
        }
    }

    /// Returns the number of records that the readers of this handle have returned.
    pub fn records_read(&self) -> u64 {
        self.records_read.load(Ordering::Relaxed)
    }

    /// Returns the number of partitions that the readers of this handle have opened. One that is opened again
    /// counts again.
    pub fn partitions_opened(&self) -> u64 {
        self.partitions_opened.load(Ordering::Relaxed)
    }

    /// Returns the time of the log's clock, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> i64 {
        self.state().clock_ms
    }

    /// Sets the log's clock. It may go backward; append times never do.
    pub fn set_clock(&self, now_ms: i64) {
        self.state().clock_ms = now_ms;
    }

    /// Moves the log's clock forward.
    pub fn advance_clock(&self, by_ms: u64) {
        let mut state = self.state();
        state.clock_ms = state.clock_ms.saturating_add_unsigned(by_ms);
    }

    /// Runs compaction now, as a broker does. Of the records older than the replay window, only the
    /// last of each key stays. A tombstone goes once its retention, counted from its first
    /// compaction, is over.
    pub fn compact(&self) {
        let mut state = self.state();
        let (settings, now_ms) = (state.settings, state.clock_ms);
        state.topic.compact(now_ms, settings.replay_window_ms, settings.delete_retention_ms);
        drop(state);
        self.notify();
    }

    /// Deletes every record of `partition` below `up_to`, as retention does.
    pub fn expire(&self, partition: Partition, up_to: Offset) {
        self.state().topic.expire(partition, up_to);
        self.notify();
    }

    /// Truncates `partition` to `high`, as an unclean election does. Later appends have a higher
    /// leader epoch.
    pub fn truncate(&self, partition: Partition, high: Offset) {
        self.state().topic.truncate(partition, high);
        self.notify();
    }

    /// Moves the high watermark by `count` without records, as transaction markers do.
    pub fn skip_offsets(&self, partition: Partition, count: u64) {
        self.state().topic.skip(partition, count);
        self.notify();
    }

    /// Deletes the topic and creates it again, empty, with the same name and another id.
    pub fn recreate(&self, partitions: u32) {
        let id = TopicId((self.shared.new_uuid)());
        let mut state = self.state();
        state.settings.partitions = partitions;
        state.topic = Topic::new(id, partitions);
        drop(state);
        self.notify();
    }

    /// Adds partitions to the topic, so that it has `partitions`.
    pub fn add_partitions(&self, partitions: u32) {
        let mut state = self.state();
        state.settings.partitions = state.settings.partitions.max(partitions);
        state.topic.grow(partitions);
        drop(state);
        self.notify();
    }

    /// Makes the log reachable or unreachable for every handle. While it is unreachable, an append
    /// is `Unknown` and not written, and a read is `Unavailable`.
    pub fn set_available(&self, available: bool) {
        self.state().available = available;
        self.notify();
    }

    /// Begins or ends a fault of one partition, for every handle. Appends to other partitions go on;
    /// of a call that concerns both, those records are written that have a healthy partition.
    pub fn set_partition_fault(&self, partition: Partition, fault: Option<PartitionFault>) {
        let mut state = self.state();
        match fault {
            Some(fault) => state.partition_faults.insert(partition, fault),
            None => state.partition_faults.remove(&partition),
        };
        drop(state);
        self.notify();
    }

    /// Freezes or thaws this handle, like a stopped process. Calls on a frozen handle wait until it
    /// is thawed, and only then reach the log.
    pub fn set_frozen(&self, frozen: bool) {
        self.faults().frozen = frozen;
        self.notify();
    }

    /// Queues the outcome of an append of this handle. The appends take the queued outcomes in
    /// order.
    pub fn inject_fault(&self, fault: AppendFault) {
        self.faults().next.push_back(fault);
    }

    /// Writes the records that [`AppendFault::UnknownWrittenLater`] withheld on this handle.
    /// Returns their number.
    pub fn deliver_late(&self) -> usize {
        let withheld = std::mem::take(&mut self.faults().withheld);
        let count = withheld.len();
        let mut state = self.state();
        let now_ms = state.clock_ms;
        for append in withheld {
            state.topic.push(append, now_ms);
        }
        drop(state);
        self.notify();
        count
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        // Wakes the waiters in the order in which they began to wait, so that runs are alike.
        self.shared.changed.notify_waiters();
    }

    /// Waits until this handle is not frozen.
    async fn wait_until_thawed(&self) {
        loop {
            // A notification after this line wakes the wait below, even if it comes first.
            let changed = self.shared.changed.notified();
            if !self.faults().frozen {
                return;
            }
            changed.await;
        }
    }

    /// Waits until no partition of `appends` hangs.
    async fn wait_until_taken(&self, appends: &[Append]) {
        loop {
            let changed = self.shared.changed.notified();
            let hangs = |append: &Append| {
                self.state().partition_faults.get(&append.partition) == Some(&PartitionFault::Hangs)
            };
            if !appends.iter().any(hangs) {
                return;
            }
            changed.await;
        }
    }

    /// Applies `read` to the state, unless `partition` has no leader.
    async fn with_partition<T>(
        &self,
        partition: Partition,
        read: impl FnOnce(&State) -> Result<T, ReadError> + Send,
    ) -> Result<T, ReadError> {
        self.with_state(|state| {
            state.check_leader(partition)?;
            read(state)
        })
        .await
    }

    /// Applies `read` to the state, unless the log is unreachable.
    async fn with_state<T>(
        &self,
        read: impl FnOnce(&State) -> Result<T, ReadError> + Send,
    ) -> Result<T, ReadError> {
        self.wait_until_thawed().await;
        let state = self.state();
        if !state.available {
            return Err(unavailable());
        }
        read(&state)
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("state", &self.state).finish_non_exhaustive()
    }
}

impl State {
    fn check_leader(&self, partition: Partition) -> Result<(), ReadError> {
        match self.partition_faults.get(&partition) {
            Some(PartitionFault::NoLeader) => Err(ReadError::Unavailable {
                reason: format!("partition {partition} has no leader"),
            }),
            _ => Ok(()),
        }
    }

    /// Why the log takes none of `appends`, if there is a reason.
    fn refusal(&self, appends: &[Append]) -> Option<AppendError> {
        let bytes_max = self.settings.record_bytes_max;
        appends.iter().find_map(|append| {
            let (partition, bytes) = (append.partition, append.record.bytes());
            if partition.0 >= self.settings.partitions {
                return Some(AppendError::NoPartition { partition });
            }
            (bytes > bytes_max).then(|| AppendError::Rejected {
                reason: format!("a record has {bytes} bytes; the maximum is {bytes_max}"),
            })
        })
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        self.with_state(|state| {
            Ok(Description {
                topic: state.topic.id,
                partitions: state.settings.partitions,
                record_bytes_max: state.settings.record_bytes_max,
                replay_window_ms: state.settings.replay_window_ms,
                position_partitions: 0,
                position_topic: state.topic.id,
            })
        })
        .await
    }

    async fn append(&self, appends: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        self.wait_until_thawed().await;
        self.wait_until_taken(&appends).await;
        let mut faults = self.faults();
        let mut state = self.state();
        faults.check_fatal()?;
        if let Some(refusal) = state.refusal(&appends) {
            return Err(refusal);
        }
        if !state.available {
            return Err(AppendError::Unknown { reason: "the log cannot be reached".to_owned() });
        }
        let (mut appends, mut outcome) = faults.apply_next(appends);
        let count = appends.len();
        appends.retain(|append| !state.partition_faults.contains_key(&append.partition));
        if appends.len() < count && outcome.is_ok() {
            let reason = "a partition has no leader".to_owned();
            outcome = Err(AppendError::Unknown { reason });
        }
        let now_ms = state.clock_ms;
        let appended = appends.into_iter().map(|append| state.topic.push(append, now_ms)).collect();
        drop((state, faults));
        self.notify();
        outcome.map(|()| appended)
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.with_partition(partition, |state| {
            let records = state.topic.partition(partition)?;
            Ok(Bounds { low: records.low, high: records.high })
        })
        .await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.with_partition(partition, |state| state.topic.start(partition)).await
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        self.with_state(|state| {
            cursors.iter().try_for_each(|cursor| {
                state.check_leader(cursor.partition)?;
                state.topic.check(cursor)
            })
        })
        .await?;
        self.partitions_opened.fetch_add(cursors.len() as u64, Ordering::Relaxed);
        Ok(Box::new(MemoryReader::new(self.clone(), cursors)))
    }
}

fn unavailable() -> ReadError {
    ReadError::Unavailable { reason: "the log cannot be reached".to_owned() }
}
