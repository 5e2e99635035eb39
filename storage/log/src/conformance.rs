//! One suite for every log: what the in-memory twin, the embedded log and Kafka all have to do.
//!
//! A harness makes logs and says what it can do to them ([`Capability`]). A case that needs what
//! a harness cannot do is skipped, and says so on stderr.

mod records;
mod traps;
mod writers;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_event::{Cursor, Offset, Partition};

use crate::log::{Append, Batch, Log, ReadError, Reader, Record, StoredRecord};
use crate::memory::AppendFault;

/// How long a case waits for what has to come before it fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a log under test is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many partitions.
    pub partitions: u32,
    /// The largest record, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// The replay window, in milliseconds.
    pub replay_window_ms: u64,
    /// For how long a tombstone stays once compaction has met it, in milliseconds.
    pub delete_retention_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            partitions: 3,
            record_bytes_max: 64 << 10,
            replay_window_ms: 10_000,
            delete_retention_ms: 20_000,
        }
    }
}

/// What a harness can do to its logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// [`Subject::set_clock_forward`] and [`Subject::set_clock_back`].
    Clock,
    /// [`Subject::reopen`].
    Reopen,
    /// [`Subject::compact`], which needs a clock too.
    Compaction,
    /// [`Subject::expire`].
    Retention,
    /// [`Subject::truncate`].
    Truncation,
    /// [`Subject::recreate`].
    Recreation,
    /// [`Subject::skip_offsets`].
    SparseOffsets,
    /// [`Subject::fail_next_append`] and [`Subject::deliver_late`].
    Faults,
    /// [`Subject::set_available`].
    Outage,
}

/// Makes logs to be tested.
#[async_trait]
pub trait Harness: Send + Sync {
    /// What its logs can be put through.
    fn capabilities(&self) -> &[Capability];

    /// A new, empty log.
    async fn create(&self, settings: Settings) -> Box<dyn Subject>;
}

/// A log under test. Methods without the capability that names them are not called.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The log; after [`Subject::reopen`] and [`Subject::recreate`] the new handle.
    fn log(&self) -> Arc<dyn Log>;

    /// Moves the log's clock.
    fn set_clock_forward(&self, _by_ms: u64) {}

    /// Moves the log's clock back, as an operator or NTP would.
    fn set_clock_back(&self, _by_ms: u64) {}

    /// Closes the log and opens it again from what it stored.
    async fn reopen(&self) {}

    /// Runs compaction over everything that may be compacted now.
    async fn compact(&self) {}

    /// Deletes what lies below `up_to`.
    async fn expire(&self, _partition: Partition, _up_to: Offset) {}

    /// Cuts the partition off at `high`, as an unclean election would.
    async fn truncate(&self, _partition: Partition, _high: Offset) {}

    /// Deletes the log and makes it again under the same name.
    async fn recreate(&self) {}

    /// Uses up offsets without records.
    async fn skip_offsets(&self, _partition: Partition, _count: u64) {}

    /// The outcome of the next append.
    fn fail_next_append(&self, _fault: AppendFault) {}

    /// Writes what [`AppendFault::UnknownWrittenLater`] held back.
    fn deliver_late(&self) {}

    /// Makes the log reachable or not.
    fn set_available(&self, _available: bool) {}
}

type Outcome<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One thing that every log does.
struct Case {
    name: &'static str,
    needs: &'static [Capability],
    run: for<'a> fn(&'a dyn Subject) -> Outcome<'a>,
}

/// Puts the harness's logs through every case, each on a log of its own.
///
/// # Panics
/// When a log does not do what a case says; the case is named on stderr before it runs.
pub async fn check(harness: &dyn Harness) {
    for case in records::CASES.iter().chain(traps::CASES).chain(writers::CASES) {
        let has = harness.capabilities();
        let lacks: Vec<_> = case.needs.iter().filter(|need| !has.contains(need)).collect();
        if !lacks.is_empty() {
            eprintln!("log conformance: SKIPPED, the harness lacks {lacks:?}: {}", case.name);
            continue;
        }
        eprintln!("log conformance: {}", case.name);
        let subject = harness.create(Settings::default()).await;
        let run = tokio::time::timeout(DEADLINE, (case.run)(subject.as_ref())).await;
        assert!(run.is_ok(), "{}: not done within {DEADLINE:?}", case.name);
    }
}

/// A record with a header and a trace context, so that both are seen to come back.
fn record(key: &str, value: Option<&str>) -> Record {
    Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
        header: Bytes::from_static(&[1, 2, 0, 255]),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
    }
}

fn append(partition: u32, key: &str, value: Option<&str>) -> Append {
    Append { partition: Partition(partition), record: record(key, value) }
}

/// Appends records to partition 0, each its own call.
async fn append_each(log: &dyn Log, pairs: &[(&str, Option<&str>)]) {
    for (key, value) in pairs {
        log.append(vec![append(0, key, *value)]).await.expect("the log takes it");
    }
}

/// Reads partitions from `cursors` to where each ends now; the cursors move.
async fn read_on(log: &dyn Log, cursors: &mut [Cursor]) -> Result<Vec<StoredRecord>, ReadError> {
    let mut seen = Vec::new();
    let mut behind = Vec::new();
    for cursor in cursors.iter() {
        let high = log.bounds(cursor.partition).await?.high;
        behind.push(high);
    }
    let mut reader = log.read(cursors.to_vec()).await?;
    while cursors.iter().zip(&behind).any(|(cursor, high)| cursor.next < *high) {
        let batch = next(reader.as_mut()).await?;
        for cursor in cursors.iter_mut().filter(|held| held.partition == batch.cursor.partition) {
            assert!(batch.cursor.next > cursor.next, "a batch moves its cursor: {batch:?}");
            *cursor = batch.cursor;
        }
        seen.extend(batch.records);
    }
    Ok(seen)
}

/// Reads a partition from its start.
async fn read_all(log: &dyn Log, partition: u32) -> Vec<StoredRecord> {
    let start = log.start(Partition(partition)).await.expect("there is such a partition");
    read_on(log, &mut [start]).await.expect("the log can be read")
}

async fn next(reader: &mut dyn Reader) -> Result<Batch, ReadError> {
    let batch = tokio::time::timeout(DEADLINE, reader.next()).await;
    batch.expect("a batch comes in time")
}

fn keys(records: &[StoredRecord]) -> Vec<String> {
    let key = |recorded: &StoredRecord| String::from_utf8_lossy(&recorded.record.key).into_owned();
    records.iter().map(key).collect()
}
