//! The settings of an embedded log.

use std::sync::Arc;

use crate::layout::LogTopic;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Returns the time in milliseconds since the Unix epoch. It may jump; append times never go back.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The settings of an embedded log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedSettings {
    /// Which of the logs that share the engine.
    pub topic: LogTopic,
    /// How many partitions a new log gets. An existing log keeps its count.
    pub partitions: u32,
    /// The largest record, in bytes, inclusive.
    pub record_bytes_max: usize,
    /// How long a superseded record stays, in milliseconds.
    pub replay_window_ms: u64,
    /// How long a tombstone stays after compaction has examined it, in milliseconds.
    pub delete_retention_ms: u64,
}

impl EmbeddedSettings {
    /// One process folds every partition, so a few are enough to keep Kafka's shape.
    pub const PARTITIONS: u32 = 4;
    /// As `max.message.bytes` of the topics.
    pub const RECORD_BYTES_MAX: usize = 2 << 20;
    /// As `min.compaction.lag.ms` of the topics.
    pub const REPLAY_WINDOW_MS: u64 = 7 * DAY_MS;
    /// As `delete.retention.ms` of the topics.
    pub const DELETE_RETENTION_MS: u64 = 14 * DAY_MS;

    /// A default bound of one run of [`EmbeddedLog::compact`](crate::EmbeddedLog::compact): some
    /// tens of milliseconds of work on the disk that appends use too.
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
