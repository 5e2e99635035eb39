//! The log's in-memory twin: it gives the guarantees that Kafka gives, and has Kafka's traps.
//!
//! Offsets are sparse. Compaction drops superseded records and later tombstones. A test can truncate
//! and regrow the tail under a higher leader epoch, re-create the topic, and let an append fail with
//! its records written, not written, or written later. The clock moves only when a test moves it.
//! Each handle is a separate client: the faults of one handle do not affect another.

mod faults;
mod reader;
mod topic;

use std::fmt;
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

pub use self::faults::AppendFault;

/// What a [`MemoryLog`] is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// How many partitions it has.
    pub partitions: u32,
    /// The largest record, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// For how long a superseded record stays, in milliseconds (`min.compaction.lag.ms`).
    pub replay_window_ms: u64,
    /// For how long a tombstone stays once compaction has met it (`delete.retention.ms`).
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
}

/// The log behind all handles.
struct SharedState {
    state: Mutex<State>,
    /// Draws the ids of topics.
    new_uuid: Box<dyn Fn() -> Uuid + Send + Sync>,
    /// Rung at every change that a waiting reader or append may care about.
    bell: Notify,
}

#[derive(Debug)]
struct State {
    settings: MemorySettings,
    topic: Topic,
    clock_ms: i64,
    available: bool,
}

impl MemoryLog {
    /// A new, empty log. Its topics have random ids.
    pub fn new(settings: MemorySettings) -> Self {
        Self::with_uuids(settings, Uuid::new_v4)
    }

    /// A new, empty log. `new_uuid` draws the ids of its topics: a simulation draws them from its
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
        };
        let (state, new_uuid) = (Mutex::new(state), Box::new(new_uuid));
        let shared = SharedState { state, new_uuid, bell: Notify::new() };
        Self { shared: Arc::new(shared), faults: Arc::default() }
    }

    /// Another client of the same log, without this one's faults.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self { shared: self.shared.clone(), faults: Arc::default() }
    }

    /// The log's clock, milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> i64 {
        self.state().clock_ms
    }

    /// Moves the log's clock, backward too: append times do not follow it there.
    pub fn set_clock(&self, now_ms: i64) {
        self.state().clock_ms = now_ms;
    }

    /// Moves the log's clock forward.
    pub fn advance_clock(&self, by_ms: u64) {
        let mut state = self.state();
        state.clock_ms = state.clock_ms.saturating_add_unsigned(by_ms);
    }

    /// Runs compaction now, as the broker would: of the records older than the replay window
    /// only the last of each key stays, and tombstones met before go once their time is over.
    pub fn compact(&self) {
        let mut state = self.state();
        let (settings, now_ms) = (state.settings, state.clock_ms);
        state.topic.compact(now_ms, settings.replay_window_ms, settings.delete_retention_ms);
        drop(state);
        self.ring();
    }

    /// Deletes every record of `partition` below `up_to`, as retention would.
    pub fn expire(&self, partition: Partition, up_to: Offset) {
        self.state().topic.expire(partition, up_to);
        self.ring();
    }

    /// Cuts `partition` off at `high`, as an unclean election would; what is appended next is
    /// written under a higher leader epoch.
    pub fn truncate(&self, partition: Partition, high: Offset) {
        self.state().topic.truncate(partition, high);
        self.ring();
    }

    /// Moves the high watermark by `count` without records, as transaction markers would.
    pub fn skip_offsets(&self, partition: Partition, count: u64) {
        self.state().topic.skip(partition, count);
        self.ring();
    }

    /// Deletes the topic and makes it again, empty, under the same name and another id.
    pub fn recreate(&self, partitions: u32) {
        let id = TopicId((self.shared.new_uuid)());
        let mut state = self.state();
        state.settings.partitions = partitions;
        state.topic = Topic::new(id, partitions);
        drop(state);
        self.ring();
    }

    /// Makes the log reachable or not, for every handle. An append meanwhile is `Unknown` and
    /// not written; a read is `Unavailable`.
    pub fn set_available(&self, available: bool) {
        self.state().available = available;
        self.ring();
    }

    /// Freezes this handle, as a stopped process would be: calls wait until it is thawed, and
    /// only then reach the log.
    pub fn set_frozen(&self, frozen: bool) {
        self.faults().frozen = frozen;
        self.ring();
    }

    /// The outcome of this handle's next append that has none yet, in the order injected.
    pub fn inject_fault(&self, fault: AppendFault) {
        self.faults().next.push_back(fault);
    }

    /// Writes now what [`AppendFault::UnknownWrittenLater`] held back on this handle. Gives the
    /// number of records written.
    pub fn deliver_late(&self) -> usize {
        let held = std::mem::take(&mut self.faults().held);
        let count = held.len();
        let mut state = self.state();
        let now_ms = state.clock_ms;
        for append in held {
            state.topic.push(append, now_ms);
        }
        drop(state);
        self.ring();
        count
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // In the order in which they began to wait, so that one run is like the other.
        self.shared.bell.notify_waiters();
    }

    /// Waits while this handle is frozen.
    async fn thawed(&self) {
        loop {
            // A notification after this line wakes the wait below, even if it comes first.
            let bell = self.shared.bell.notified();
            if !self.faults().frozen {
                return;
            }
            bell.await;
        }
    }

    /// The topic, unless the log cannot be reached.
    async fn reach<T>(
        &self,
        read: impl FnOnce(&State) -> Result<T, ReadError> + Send,
    ) -> Result<T, ReadError> {
        self.thawed().await;
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
    /// Says why the log would take none of `appends`.
    fn refuse(&self, appends: &[Append]) -> Option<String> {
        let bytes_max = self.settings.record_bytes_max;
        appends.iter().find_map(|append| {
            let bytes = append.record.bytes();
            if bytes > bytes_max {
                return Some(format!("a record of {bytes} bytes, at most {bytes_max} are taken"));
            }
            let missing = append.partition.0 >= self.settings.partitions;
            missing.then(|| format!("there is no partition {}", append.partition))
        })
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        self.reach(|state| {
            Ok(Description {
                topic: state.topic.id,
                partitions: state.settings.partitions,
                record_bytes_max: state.settings.record_bytes_max,
                replay_window_ms: state.settings.replay_window_ms,
            })
        })
        .await
    }

    async fn append(&self, appends: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        self.thawed().await;
        let mut faults = self.faults();
        let mut state = self.state();
        faults.check_fatal()?;
        if let Some(reason) = state.refuse(&appends) {
            return Err(AppendError::Rejected { reason });
        }
        if !state.available {
            return Err(AppendError::Unknown { reason: "the log cannot be reached".to_owned() });
        }
        let (appends, outcome) = faults.meet(appends);
        let now_ms = state.clock_ms;
        let appended = appends.into_iter().map(|append| state.topic.push(append, now_ms)).collect();
        drop((state, faults));
        self.ring();
        outcome.map(|()| appended)
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.reach(|state| {
            let held = state.topic.partition(partition)?;
            Ok(Bounds { low: held.low, high: held.high })
        })
        .await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.reach(|state| state.topic.start(partition)).await
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        self.reach(|state| cursors.iter().try_for_each(|cursor| state.topic.check(cursor))).await?;
        Ok(Box::new(MemoryReader::new(self.clone(), cursors)))
    }
}

fn unavailable() -> ReadError {
    ReadError::Unavailable { reason: "the log cannot be reached".to_owned() }
}
