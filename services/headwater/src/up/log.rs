//! The two logs of `up`: embedded, or on Kafka.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_embedded::{EmbeddedError, EmbeddedLog, EmbeddedSettings, LogMetrics, LogTopic};
use headwater_hub::WallClock;
use headwater_log::{Log, MetadataError, ReadError, read_metadata};
use headwater_operator::Logs;
use headwater_rocks::{DatabaseMemory, RocksEngine, Role};
use headwater_store::{Engine, EngineError, schema};
use tokio::task::JoinHandle;

use crate::data_dir::DataDir;
use crate::metrics::Metrics;
use crate::part::log;
use crate::settings::up::Settings;

/// The interval of the compaction of the embedded log, in the background.
const COMPACT_INTERVAL: Duration = Duration::from_secs(60);

/// The name of this process in Kafka.
const CLIENT: &str = "up";

/// The logs while `up` runs.
pub(super) struct UpLog {
    pub(super) logs: Logs,
    embedded: Option<EmbeddedLogs>,
}

/// The logs in the data directory, and the tasks that compact them.
struct EmbeddedLogs {
    logs: [Arc<EmbeddedLog>; 2],
    compacting: [JoinHandle<()>; 2],
}

/// The reason why the logs cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The log's database cannot be opened.
    #[error("the log's database {} cannot be opened", path.display())]
    Engine {
        /// Its directory.
        path: PathBuf,
        /// The cause.
        source: EngineError,
    },
    /// The log's database is damaged. Everything else can be rebuilt from the log, but nothing
    /// rebuilds the log.
    #[error(
        "the log's database {} is damaged; nothing was changed. Restore a copy that was made while \
         nothing ran; or move it aside: a new log then begins from the manifests, and running pods \
         are not affected", path.display()
    )]
    Damaged {
        /// Its directory.
        path: PathBuf,
        /// The cause.
        source: EngineError,
    },
    /// The embedded log cannot be opened.
    #[error("the embedded log cannot be opened")]
    Embedded(#[from] EmbeddedError),
    /// The log on Kafka cannot be opened.
    #[error(transparent)]
    Kafka(#[from] log::LogError),
    /// A metric is registered twice.
    #[error("the metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

impl UpLog {
    /// Opens both logs: on Kafka if there are brokers, else embedded.
    ///
    /// # Errors
    /// See [`LogError`].
    pub(super) async fn open(
        settings: &Settings,
        data: &DataDir,
        memory: &DatabaseMemory,
        seen: &Metrics,
        clock: &WallClock,
    ) -> Result<Self, LogError> {
        if settings.kafka.brokers.is_some() {
            let logs = log::open_for_one(&settings.kafka, CLIENT, &seen.registry).await?;
            return Ok(Self { logs, embedded: None });
        }
        let path = data.cloud("log");
        let engine = open_database(&path, memory)?;
        seen.stores.opened("log", None, &engine);
        let log_metrics = LogMetrics::new(&seen.registry)?;
        let window = u64::try_from(settings.replay_window.as_millis()).unwrap_or(u64::MAX);
        let open = |topic| {
            let settings = EmbeddedSettings {
                replay_window_ms: window,
                delete_retention_ms: window.saturating_mul(2),
                ..EmbeddedSettings::new(topic)
            };
            let engine: Arc<dyn Engine> = engine.clone();
            EmbeddedLog::open_with_metrics(engine, settings, clock.clone(), &log_metrics)
                .map(Arc::new)
        };
        let downstream = open(LogTopic::Downstream)?;
        refuse_damaged(&*downstream, &path).await?;
        let upstream = open(LogTopic::Upstream)?;
        let logs = [downstream.clone(), upstream.clone()];
        let compacting = logs.each_ref().map(|log| tokio::spawn(compact(log.clone())));
        let embedded = Some(EmbeddedLogs { logs, compacting });
        Ok(Self { logs: Logs { downstream, upstream }, embedded })
    }

    /// Whether the logs are in the data directory.
    pub(super) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Closes the logs. Their users have stopped before.
    pub(super) async fn close(self) {
        let Some(EmbeddedLogs { logs, compacting }) = self.embedded else { return };
        compacting.iter().for_each(JoinHandle::abort);
        for log in logs {
            log.close().await;
        }
    }
}

fn open_database(path: &Path, memory: &DatabaseMemory) -> Result<Arc<RocksEngine>, LogError> {
    // A log is too long to read every row at the start.
    RocksEngine::open(path, Role::Log, memory, schema::LOG).map(Arc::new).map_err(|source| {
        let path = path.to_owned();
        match source {
            // No part can rebuild a log, so it is never moved aside automatically.
            EngineError::Corrupt { .. } => LogError::Damaged { path, source },
            source => LogError::Engine { path, source },
        }
    })
}

/// Refuses a log whose metadata is damaged. No part can read it, and this error has the remedy.
async fn refuse_damaged(log: &dyn Log, path: &Path) -> Result<(), LogError> {
    match read_metadata(log).await {
        Err(MetadataError::Read(ReadError::Corrupt { reason, .. })) => Err(LogError::Damaged {
            path: path.to_owned(),
            source: EngineError::Corrupt { reason },
        }),
        // The part that reads the log reports other errors.
        _ => Ok(()),
    }
}

async fn compact(log: Arc<EmbeddedLog>) {
    let mut interval = tokio::time::interval(COMPACT_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        loop {
            match log.compact(EmbeddedSettings::COMPACTION_RECORDS_MAX).await {
                Ok(compacted) if compacted.more_due => tokio::task::yield_now().await,
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "the log was not compacted");
                    break;
                }
            }
        }
    }
}
