//! The handle of an embedded log.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use headwater_event::{Cursor, LeaderEpoch, Offset, Partition, TopicId};
use headwater_log::{
    Append, AppendError, Bounds, Description, Log, ReadError, Reader, RecordPosition,
};
use headwater_owner::OwnerThread;
use headwater_store::{Durability, Engine, EngineError, WriteBatch};
use prometheus::Registry;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::appender::{Appender, EMPTY, Prepared, Request};
use crate::compaction::{CompactionRun, compact};
use crate::layout::{EndRow, LogTopic, TopicRow, encode_record, end_key, topic_key};
use crate::metrics::LogMetrics;
use crate::reader::EmbeddedReader;
use crate::shared::Shared;

/// How many appends may wait for the writing thread; further callers wait to queue.
const QUEUE_APPENDS_MAX: usize = 1024;

/// The most partitions of a log: one process folds them all, and each costs memory.
const PARTITIONS_MAX: u32 = 4096;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Gives the time in milliseconds since the Unix epoch. It may jump; append times do not.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What an embedded log is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedSettings {
    /// Which of the logs that share the engine.
    pub topic: LogTopic,
    /// How many partitions a new log gets. One that exists keeps its count.
    pub partitions: u32,
    /// The largest record, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// For how long a superseded record stays, in milliseconds.
    pub replay_window_ms: u64,
    /// For how long a tombstone stays once compaction has met it, in milliseconds.
    pub delete_retention_ms: u64,
}

impl EmbeddedSettings {
    /// One process folds every partition, so a few are enough to keep Kafka's shape honest.
    pub const PARTITIONS: u32 = 4;
    /// As `max.message.bytes` of the topics.
    pub const RECORD_BYTES_MAX: usize = 2 << 20;
    /// As `min.compaction.lag.ms` of the topics.
    pub const REPLAY_WINDOW_MS: u64 = 7 * DAY_MS;
    /// As `delete.retention.ms` of the topics.
    pub const DELETE_RETENTION_MS: u64 = 14 * DAY_MS;

    /// A default bound for one run of [`EmbeddedLog::compact`]: some tens of milliseconds of work
    /// on the disk that appends need too.
    pub const COMPACTION_RECORDS_MAX: usize = 4096;

    /// The defaults, for one of the logs.
    pub fn new(topic: LogTopic) -> Self {
        Self {
            topic,
            partitions: Self::PARTITIONS,
            record_bytes_max: Self::RECORD_BYTES_MAX,
            replay_window_ms: Self::REPLAY_WINDOW_MS,
            delete_retention_ms: Self::DELETE_RETENTION_MS,
        }
    }
}

/// Why an embedded log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The engine failed.
    #[error("the embedded log's database failed")]
    Engine(#[from] EngineError),
    /// What is stored of the log itself cannot be read.
    #[error("the embedded log's {what} cannot be read: move its database aside")]
    Damaged {
        /// What cannot be read.
        what: &'static str,
    },
    /// A log has at least one partition, and no more than an engine can bear.
    #[error("a log has 1 to {PARTITIONS_MAX} partitions")]
    NoPartitions,
    /// The writing thread cannot be started.
    #[error("the embedded log's thread cannot be started")]
    Thread(#[from] std::io::Error),
    /// What it counts has no place.
    #[error("the embedded log's metrics cannot be made")]
    Metrics(#[from] prometheus::Error),
}

/// A log on an engine. One handle per topic and engine at a time; share it by `Arc`.
pub struct EmbeddedLog {
    engine: Arc<dyn Engine>,
    shared: Arc<Shared>,
    clock: Clock,
    /// `None` once closed.
    queue: Mutex<Option<mpsc::Sender<Request>>>,
    appender: Mutex<Option<OwnerThread<()>>>,
    /// Held by a run of compaction: one at a time.
    compacting: Arc<Mutex<()>>,
}

impl EmbeddedLog {
    /// Opens the log, or makes it when the engine holds none. Blocks on the engine.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn open(
        engine: Arc<dyn Engine>,
        settings: EmbeddedSettings,
        clock: Clock,
    ) -> Result<Self, EmbeddedError> {
        Self::open_with_metrics(engine, settings, clock, &LogMetrics::new(&Registry::new())?)
    }

    /// As [`EmbeddedLog::open`]; what it does is counted in `metrics`.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn open_with_metrics(
        engine: Arc<dyn Engine>,
        mut settings: EmbeddedSettings,
        clock: Clock,
        metrics: &LogMetrics,
    ) -> Result<Self, EmbeddedError> {
        if !(1..=PARTITIONS_MAX).contains(&settings.partitions) {
            return Err(EmbeddedError::NoPartitions);
        }
        let row = read_or_create_topic(engine.as_ref(), &settings)?;
        settings.partitions = row.partitions;
        let mut ends = Vec::new();
        for partition in (0..row.partitions).map(Partition) {
            ends.push(match engine.get(&end_key(settings.topic, partition))? {
                None => EMPTY,
                Some(value) => {
                    let what = "partition";
                    EndRow::decode(&value).ok_or(EmbeddedError::Damaged { what })?
                }
            });
        }
        let highs = ends.iter().map(|end| end.next).collect();
        let counts = metrics.of(settings.topic, row.partitions);
        let shared = Arc::new(Shared::new(settings, row.topic, counts, highs));
        let (queue, requests) = mpsc::channel(QUEUE_APPENDS_MAX);
        let appender =
            Appender { engine: engine.clone(), shared: shared.clone(), clock: clock.clone(), ends };
        let thread = OwnerThread::start("log-appender", None, move || appender.run(requests))?;
        Ok(Self {
            engine,
            shared,
            clock,
            queue: Mutex::new(Some(queue)),
            appender: Mutex::new(Some(thread)),
            compacting: Arc::default(),
        })
    }

    /// Runs compaction over about `records_max` records at most; to be called now and then, and
    /// again soon while [`CompactionRun::more_due`] says so.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub async fn compact(&self, records_max: usize) -> Result<CompactionRun, EngineError> {
        let (engine, shared) = (self.engine.clone(), self.shared.clone());
        let (compacting, now_ms) = (self.compacting.clone(), (self.clock)());
        let run = move || {
            let _one_at_a_time = compacting.lock().unwrap_or_else(PoisonError::into_inner);
            let run = compact(engine.as_ref(), &shared, now_ms, records_max);
            shared.counts.compacted(&run);
            run
        };
        let result = tokio::task::spawn_blocking(run).await;
        result.unwrap_or_else(|error| Err(EngineError::Read { reason: error.to_string() }))
    }

    /// Takes no further append, writes what is queued, and lets go of the engine but for the
    /// readers still open. When this returns, the thread is gone.
    pub async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.appender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread has been reported where it happened.
            let _ = thread.await;
        }
    }

    /// Says why the log would take none of `records`, or encodes them.
    fn prepare(&self, records: Vec<Append>) -> Result<Vec<Prepared>, AppendError> {
        let settings = &self.shared.settings;
        let rejected = |reason: String| AppendError::Rejected { reason };
        let prepare = |Append { partition, record }: Append| {
            let (bytes, bytes_max) = (record.bytes(), settings.record_bytes_max);
            if bytes > bytes_max {
                let reason = format!("a record of {bytes} bytes, at most {bytes_max} are taken");
                return Err(rejected(reason));
            }
            if partition.0 >= settings.partitions {
                return Err(rejected(format!("there is no partition {partition}")));
            }
            let stored = encode_record(&record).map_err(|error| rejected(error.to_string()))?;
            Ok(Prepared { partition, record, stored })
        };
        records.into_iter().map(prepare).collect()
    }

    fn closed(&self) -> AppendError {
        let reason = self.shared.closed().unwrap_or_else(|| "it was closed".to_owned());
        AppendError::Fatal { reason }
    }
}

impl Drop for EmbeddedLog {
    /// Waits for the writing thread: it holds the engine, and an engine that is closed while the
    /// process ends finds its library half gone.
    fn drop(&mut self) {
        drop(self.queue.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.appender.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        Ok(self.shared.describe())
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        let prepared = self.prepare(records);
        let records = prepared.inspect_err(|error| self.shared.counts.failed(error, 1))?;
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queue = queue.ok_or_else(|| self.closed())?;
        let (done, outcome) = oneshot::channel();
        queue.send(Request { records, done }).await.map_err(|_| self.closed())?;
        let unknown = || AppendError::Unknown { reason: "the log's thread is gone".to_owned() };
        outcome.await.unwrap_or_else(|_| Err(unknown()))
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        let high = self.shared.high(partition)?;
        Ok(Bounds { low: Offset(0), high })
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.shared.high(partition)?;
        let (topic, leader_epoch) = (self.shared.topic, LeaderEpoch(0));
        Ok(Cursor { topic, partition, next: Offset(0), leader_epoch })
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        cursors.iter().try_for_each(|cursor| self.shared.check(cursor))?;
        Ok(Box::new(EmbeddedReader::new(self.engine.clone(), self.shared.clone(), cursors)))
    }
}

impl fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLog")
            .field("settings", &self.shared.settings)
            .field("topic", &self.shared.topic)
            .finish_non_exhaustive()
    }
}

fn read_or_create_topic(
    engine: &dyn Engine,
    settings: &EmbeddedSettings,
) -> Result<TopicRow, EmbeddedError> {
    let what = "topic";
    let key = topic_key(settings.topic);
    let row: TopicRow = match engine.get(&key)? {
        Some(value) => {
            serde_json::from_slice(&value).map_err(|_| EmbeddedError::Damaged { what })?
        }
        None => {
            let topic = TopicId(Uuid::new_v4());
            let row = TopicRow { topic, partitions: settings.partitions };
            let value = serde_json::to_vec(&row).map_err(|_| EmbeddedError::Damaged { what })?;
            let mut batch = WriteBatch::default();
            batch.put(key, value);
            engine.write(batch, Durability::Synced)?;
            row
        }
    };
    match row.partitions {
        1..=PARTITIONS_MAX => Ok(row),
        _ => Err(EmbeddedError::Damaged { what }),
    }
}
