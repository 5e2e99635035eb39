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

use crate::appender::{AppendRequest, Appender, PreparedRecord};
use crate::compaction::compact;
use crate::compaction_run::CompactionRun;
use crate::layout::{EndRow, TopicRow, encode_record, end_key, topic_key};
use crate::log_state::LogState;
use crate::metrics::LogMetrics;
use crate::reader::EmbeddedReader;
use crate::settings::{Clock, EmbeddedSettings};

/// How many appends may wait for the appender; further callers wait to queue.
const QUEUE_APPENDS_MAX: usize = 1024;

/// The most partitions of a log: one process folds them all, and each costs memory.
const PARTITIONS_MAX: u32 = 4096;

/// Why an embedded log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The engine failed.
    #[error("the embedded log's database failed")]
    Engine(#[from] EngineError),
    /// A stored row of the log itself cannot be read.
    #[error("the embedded log's {what} cannot be read: move its database aside")]
    Damaged {
        /// What cannot be read.
        what: &'static str,
    },
    /// The number of partitions is out of bounds.
    #[error("a log has 1 to {PARTITIONS_MAX} partitions")]
    NoPartitions,
    /// The appender's thread cannot be started.
    #[error("the embedded log's thread cannot be started")]
    Thread(#[from] std::io::Error),
    /// The registry refused the metrics.
    #[error("the embedded log's metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// A log on an engine. One handle per topic and engine at a time; share it by `Arc`.
pub struct EmbeddedLog {
    engine: Arc<dyn Engine>,
    state: Arc<LogState>,
    clock: Clock,
    /// `None` once closed.
    queue: Mutex<Option<mpsc::Sender<AppendRequest>>>,
    appender: Mutex<Option<OwnerThread<()>>>,
    /// Locked by a run of compaction: one at a time.
    compaction: Arc<Mutex<()>>,
}

impl EmbeddedLog {
    /// Opens the log; creates it if the engine has none. Blocks on the engine.
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

    /// As [`EmbeddedLog::open`], with `metrics` as its counters.
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
                None => EndRow::EMPTY,
                Some(value) => {
                    let what = "partition";
                    EndRow::decode(&value).ok_or(EmbeddedError::Damaged { what })?
                }
            });
        }
        let highs = ends.iter().map(|end| end.next).collect();
        let counts = metrics.of(settings.topic, row.partitions);
        let state = Arc::new(LogState::new(settings, row.topic, counts, highs));
        let (queue, requests) = mpsc::channel(QUEUE_APPENDS_MAX);
        let appender =
            Appender { engine: engine.clone(), state: state.clone(), clock: clock.clone(), ends };
        let thread = OwnerThread::start("log-appender", None, move || appender.run(requests))?;
        Ok(Self {
            engine,
            state,
            clock,
            queue: Mutex::new(Some(queue)),
            appender: Mutex::new(Some(thread)),
            compaction: Arc::default(),
        })
    }

    /// Runs compaction over about `records_max` records at most. The caller repeats it at times,
    /// and soon while [`CompactionRun::more_due`].
    ///
    /// # Errors
    /// See [`EngineError`].
    pub async fn compact(&self, records_max: usize) -> Result<CompactionRun, EngineError> {
        let (engine, state) = (self.engine.clone(), self.state.clone());
        let (compaction, now_ms) = (self.compaction.clone(), (self.clock)());
        let run = move || {
            let _one_at_a_time = compaction.lock().unwrap_or_else(PoisonError::into_inner);
            let run = compact(engine.as_ref(), &state, now_ms, records_max);
            state.counts.compacted(&run);
            run
        };
        let result = tokio::task::spawn_blocking(run).await;
        result.unwrap_or_else(|error| Err(EngineError::Read { reason: error.to_string() }))
    }

    /// Refuses further appends, writes the queued ones, and waits until the appender has released
    /// the engine. Open readers keep it.
    pub async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.appender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was reported where it happened.
            let _ = thread.await;
        }
    }

    /// Checks and encodes `records`.
    fn prepare(&self, records: Vec<Append>) -> Result<Vec<PreparedRecord>, AppendError> {
        let settings = &self.state.settings;
        let rejected = |reason: String| AppendError::Rejected { reason };
        let prepare = |Append { partition, record }: Append| {
            let (bytes, bytes_max) = (record.bytes(), settings.record_bytes_max);
            if bytes > bytes_max {
                let reason = format!("the record has {bytes} bytes, the log accepts {bytes_max}");
                return Err(rejected(reason));
            }
            if partition.0 >= settings.partitions {
                return Err(AppendError::NoPartition { partition });
            }
            let stored = encode_record(&record).map_err(|error| rejected(error.to_string()))?;
            Ok(PreparedRecord { partition, record, stored })
        };
        records.into_iter().map(prepare).collect()
    }

    fn closed(&self) -> AppendError {
        let reason = self.state.closed().unwrap_or_else(|| "the log was closed".to_owned());
        AppendError::Fatal { reason }
    }
}

impl Drop for EmbeddedLog {
    /// Waits for the appender, which holds the engine: an engine that is closed while the process
    /// exits may find its library unloaded.
    fn drop(&mut self) {
        drop(self.queue.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.appender.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        Ok(self.state.describe())
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        let prepared = self.prepare(records);
        let records = prepared.inspect_err(|error| self.state.counts.failed(error, 1))?;
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queue = queue.ok_or_else(|| self.closed())?;
        let (done, outcome) = oneshot::channel();
        queue.send(AppendRequest { records, done }).await.map_err(|_| self.closed())?;
        let unknown = || AppendError::Unknown { reason: "the log's thread has ended".to_owned() };
        outcome.await.unwrap_or_else(|_| Err(unknown()))
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        let high = self.state.high(partition)?;
        Ok(Bounds { low: Offset(0), high })
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.state.high(partition)?;
        let (topic, leader_epoch) = (self.state.topic, LeaderEpoch(0));
        Ok(Cursor { topic, partition, next: Offset(0), leader_epoch })
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        cursors.iter().try_for_each(|cursor| self.state.check(cursor))?;
        Ok(Box::new(EmbeddedReader::new(self.engine.clone(), self.state.clone(), cursors)))
    }
}

impl fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLog")
            .field("settings", &self.state.settings)
            .field("topic", &self.state.topic)
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
