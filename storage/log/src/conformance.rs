//! The contract of [`Log`] as one suite, for the in-memory twin, the embedded log and Kafka.
//!
//! A harness creates logs and lists its capabilities ([`Capability`]). The suite skips a case that
//! needs a missing capability, and prints this on stderr.

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

/// A case fails if it takes longer than this. It ends a case that hangs; a busy machine does not reach it.
const DEADLINE: Duration = Duration::from_secs(60);

/// The settings of a log under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of partitions.
    pub partitions: u32,
    /// The largest record, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// The replay window, in milliseconds.
    pub replay_window_ms: u64,
    /// The time for which a tombstone stays after its first compaction, in milliseconds.
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

/// An operation that a harness can perform on its logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// [`Subject::set_clock_forward`] and [`Subject::set_clock_back`].
    Clock,
    /// [`Subject::reopen`].
    Reopen,
    /// [`Subject::compact`]; it needs a clock too.
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

/// Creates logs under test.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Returns the operations that its logs support.
    fn capabilities(&self) -> &[Capability];

    /// Creates an empty log.
    async fn create(&self, settings: Settings) -> Box<dyn Subject>;
}

/// A log under test. The suite calls a method only if the harness has its capability.
#[async_trait]
pub trait Subject: Send + Sync {
    /// Returns the log; after [`Subject::reopen`] and [`Subject::recreate`] a new handle.
    fn log(&self) -> Arc<dyn Log>;

    /// Moves the log's clock forward.
    fn set_clock_forward(&self, _by_ms: u64) {}

    /// Moves the log's clock back, as an operator or NTP does.
    fn set_clock_back(&self, _by_ms: u64) {}

    /// Closes the log and opens it again from what it stored.
    async fn reopen(&self) {}

    /// Compacts all records that compaction may take now.
    async fn compact(&self) {}

    /// Deletes the records below `up_to`.
    async fn expire(&self, _partition: Partition, _up_to: Offset) {}

    /// Truncates the partition to `high`, as an unclean election does.
    async fn truncate(&self, _partition: Partition, _high: Offset) {}

    /// Deletes the log and creates it again with the same name.
    async fn recreate(&self) {}

    /// Moves the high watermark without records.
    async fn skip_offsets(&self, _partition: Partition, _count: u64) {}

    /// Chooses the outcome of the next append.
    fn fail_next_append(&self, _fault: AppendFault) {}

    /// Writes the records that [`AppendFault::UnknownWrittenLater`] withheld.
    fn deliver_late(&self) {}

    /// Makes the log reachable or unreachable.
    fn set_available(&self, _available: bool) {}
}

type Outcome<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One clause of the contract.
struct Case {
    name: &'static str,
    needs: &'static [Capability],
    run: for<'a> fn(&'a dyn Subject) -> Outcome<'a>,
}

/// Runs every case, each on a new log of the harness.
///
/// # Panics
/// When a log breaks the contract. The name of each case is printed on stderr before it runs.
pub async fn check(harness: &dyn Harness) {
    for case in records::CASES.iter().chain(traps::CASES).chain(writers::CASES) {
        let available = harness.capabilities();
        let missing: Vec<_> = case.needs.iter().filter(|need| !available.contains(need)).collect();
        if !missing.is_empty() {
            eprintln!("log conformance: SKIPPED, the harness lacks {missing:?}: {}", case.name);
            continue;
        }
        eprintln!("log conformance: {}", case.name);
        let subject = harness.create(Settings::default()).await;
        let run = tokio::time::timeout(DEADLINE, (case.run)(subject.as_ref())).await;
        assert!(run.is_ok(), "{}: not done within {DEADLINE:?}", case.name);
    }
}

/// A record with a header and a trace context, so that a case notices if one is lost.
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

/// Appends records to partition 0, each in its own call.
async fn append_each(log: &dyn Log, pairs: &[(&str, Option<&str>)]) {
    for (key, value) in pairs {
        log.append(vec![append(0, key, *value)]).await.expect("the log appends it");
    }
}

/// Reads partitions from `cursors` to their present ends, and moves the cursors there.
async fn read_to_end(
    log: &dyn Log,
    cursors: &mut [Cursor],
) -> Result<Vec<StoredRecord>, ReadError> {
    let mut records = Vec::new();
    let mut ends = Vec::new();
    for cursor in cursors.iter() {
        let high = log.bounds(cursor.partition).await?.high;
        ends.push(high);
    }
    let mut reader = log.read(cursors.to_vec()).await?;
    while cursors.iter().zip(&ends).any(|(cursor, high)| cursor.next < *high) {
        let batch = next(reader.as_mut()).await?;
        for cursor in cursors.iter_mut().filter(|it| it.partition == batch.cursor.partition) {
            assert!(batch.cursor.next > cursor.next, "a batch moves its cursor: {batch:?}");
            *cursor = batch.cursor;
        }
        records.extend(batch.records);
    }
    Ok(records)
}

/// Reads a partition from its start.
async fn read_all(log: &dyn Log, partition: u32) -> Vec<StoredRecord> {
    let start = log.start(Partition(partition)).await.expect("the partition exists");
    read_to_end(log, &mut [start]).await.expect("the log can be read")
}

async fn next(reader: &mut dyn Reader) -> Result<Batch, ReadError> {
    let batch = tokio::time::timeout(DEADLINE, reader.next()).await;
    batch.expect("a batch comes in time")
}

fn keys(records: &[StoredRecord]) -> Vec<String> {
    let key = |recorded: &StoredRecord| String::from_utf8_lossy(&recorded.record.key).into_owned();
    records.iter().map(key).collect()
}
