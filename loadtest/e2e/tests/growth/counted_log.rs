//! A log in memory that counts what is appended to it and read from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use headwater_event::{Cursor, Partition};
use headwater_log::{
    Append, AppendError, Bounds, Description, Log, MemoryLog, MemorySettings, ReadError, Reader,
    RecordPosition,
};

/// See the module. Clones are one log.
#[derive(Clone, Debug)]
pub(crate) struct CountedLog {
    log: MemoryLog,
    appended: Arc<AppendCounts>,
}

#[derive(Debug, Default)]
struct AppendCounts {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl CountedLog {
    /// An empty log.
    pub(crate) fn new() -> Self {
        Self { log: MemoryLog::new(MemorySettings::default()), appended: Arc::default() }
    }

    /// Records appended so far.
    pub(crate) fn records(&self) -> u64 {
        self.appended.records.load(Ordering::Relaxed)
    }

    /// The bytes of these.
    pub(crate) fn bytes(&self) -> u64 {
        self.appended.bytes.load(Ordering::Relaxed)
    }

    /// Records read so far.
    pub(crate) fn read(&self) -> u64 {
        self.log.records_read()
    }

    /// The time of its clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.log.now_ms()
    }
}

#[async_trait]
impl Log for CountedLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        self.log.describe().await
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        let bytes: usize = records.iter().map(|append| append.record.bytes()).sum();
        self.appended.records.fetch_add(records.len() as u64, Ordering::Relaxed);
        self.appended.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.log.append(records).await
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.log.bounds(partition).await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.log.start(partition).await
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        self.log.read(cursors).await
    }
}
