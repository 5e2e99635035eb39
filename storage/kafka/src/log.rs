//! The log on one topic.
//!
//! It has a client for requests, which the logs of one cluster may share, at most one that appends, and
//! the list of open readers. Appends take turns to give their records to the client, so the topic has them
//! in the order of the calls. A client is discarded at an unknown outcome; the caller then reads back before
//! it appends again. If only a partition is away, the client stays: appends to the others go on.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use async_trait::async_trait;
use headwater_event::{Cursor, Partition};
use headwater_log::{
    Append, AppendError, Bounds, Description, Log, LogContact, ReadError, Reader, RecordPosition,
};

use crate::appender::{KafkaAppender, SentAppend};
use crate::cluster::{ClusterClient, blocking};
use crate::metrics::{Counts, KafkaMetrics};
use crate::reader::{KafkaReader, NO_EPOCH, OpenReaders, ReaderDependencies};
use crate::settings::{KafkaSettings, SettingsError};

/// A log on Kafka.
pub struct KafkaLog {
    settings: Arc<KafkaSettings>,
    cluster: Arc<ClusterClient>,
    /// None before the first append, and after an unknown outcome.
    appender: Mutex<Option<Arc<KafkaAppender>>>,
    /// Locked, first come first served, while the records of one call go to the client.
    turns: tokio::sync::Mutex<()>,
    /// None: nothing is counted.
    counts: Option<Arc<Counts>>,
    /// The open readers; the oldest one's position is shown.
    readers: Arc<OpenReaders>,
    /// The last description of the topic: bounds what is sent to it.
    description: Mutex<Option<Description>>,
}

impl KafkaLog {
    /// A log on the topic of `settings`. Sends nothing to Kafka yet.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn new(settings: KafkaSettings) -> Result<Self, SettingsError> {
        Self::with(settings, None, None)
    }

    /// As [`KafkaLog::new`], with `metrics` as its counters.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn with_metrics(
        settings: KafkaSettings,
        metrics: &KafkaMetrics,
    ) -> Result<Self, SettingsError> {
        let counts = Arc::new(metrics.of(&settings.topic));
        Self::with(settings, Some(counts), None)
    }

    /// As [`KafkaLog::with_metrics`], for another topic of the same cluster: both logs share the client for requests.
    /// The brokers and the security of the settings are those of this log.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn beside(
        &self,
        settings: KafkaSettings,
        metrics: &KafkaMetrics,
    ) -> Result<Self, SettingsError> {
        let counts = Arc::new(metrics.of(&settings.topic));
        Self::with(settings, Some(counts), Some(&self.cluster))
    }

    fn with(
        settings: KafkaSettings,
        counts: Option<Arc<Counts>>,
        beside: Option<&ClusterClient>,
    ) -> Result<Self, SettingsError> {
        // The other clients' settings are checked now, not at their first use.
        settings.producer_config()?;
        settings.consumer_config()?;
        let settings = Arc::new(settings);
        let cluster = match beside {
            Some(other) => other.beside(settings.clone()),
            None => ClusterClient::new(settings.clone())?,
        };
        let cluster = Arc::new(cluster);
        Ok(Self {
            settings,
            cluster,
            appender: Mutex::default(),
            turns: tokio::sync::Mutex::default(),
            counts,
            readers: Arc::default(),
            description: Mutex::default(),
        })
    }

    fn appender(&self) -> Result<Arc<KafkaAppender>, AppendError> {
        let mut current = self.appender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(appender) = &*current {
            return Ok(appender.clone());
        }
        let appender = KafkaAppender::new(self.settings.clone(), self.counts.clone());
        let appender =
            Arc::new(appender.map_err(|error| AppendError::Fatal { reason: error.to_string() })?);
        *current = Some(appender.clone());
        Ok(appender)
    }

    /// Discards a client after an unknown outcome: its unsent records are purged, and the next
    /// append starts another client.
    async fn discard(&self, used: Arc<KafkaAppender>) {
        {
            let mut current = self.appender.lock().unwrap_or_else(PoisonError::into_inner);
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &used)) {
                *current = None;
            }
        }
        // It waits for all threads of the client.
        let purged = tokio::task::spawn_blocking(move || {
            used.purge();
            drop(used);
        });
        // A task of this pool ends, or the process does.
        let _ = purged.await;
    }

    /// The last description of the topic; requests the first one.
    async fn last_description(&self) -> Result<Description, ReadError> {
        let known = self.description.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(known) => Ok(known),
            None => self.describe().await,
        }
    }

    async fn bounds_of(&self, partition: Partition) -> Result<Bounds, ReadError> {
        if partition.0 >= self.last_description().await?.partitions {
            return Err(ReadError::NoPartition { partition });
        }
        let cluster = self.cluster.clone();
        blocking(move || cluster.bounds(partition)).await
    }
}

#[async_trait]
impl Log for KafkaLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        let description = self.cluster.describe().await?;
        let mut last = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(description.clone());
        Ok(description)
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let start = Instant::now();
        let pending = self.cluster.clock().begin_append(start);
        let result = self.append_all(&records).await;
        drop(pending);
        if result.is_ok() {
            self.cluster.clock().heard(Instant::now());
        }
        if let Some(counts) = &self.counts {
            counts.appended(&records, &result, start.elapsed());
        }
        result
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.bounds_of(partition).await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        let low = self.bounds_of(partition).await?.low;
        let cluster = self.cluster.clone();
        let topic = blocking(move || cluster.topic_id()).await?;
        Ok(Cursor { topic, partition, next: low, leader_epoch: NO_EPOCH })
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        let opened = self.open(cursors).await;
        if let (Some(counts), Err(error)) = (&self.counts, &opened) {
            counts.read_failed(error);
        }
        Ok(Box::new(opened?))
    }

    fn contact(&self) -> Option<LogContact> {
        let (clock, now) = (self.cluster.clock(), Instant::now());
        let with = format!("Kafka at {}", self.settings.brokers);
        Some(LogContact { with, waits: clock.waits(now), answered: clock.answered_ago(now) })
    }
}

impl KafkaLog {
    async fn append_all(&self, records: &[Append]) -> Result<Vec<RecordPosition>, AppendError> {
        let (sent, used) = self.send(records).await?;
        // This call does not keep the client open, so another call can discard it.
        let outcome = sent.outcome().await;
        let appender = used.upgrade();
        let failure = match outcome {
            Ok(positions) => {
                if let Some(appender) = appender {
                    appender.note_written();
                    close(appender);
                }
                return Ok(positions);
            }
            Err(failure) => failure,
        };
        let Some(appender) = appender else { return Err(failure.unknown()) };
        let error = appender.explain(&failure);
        match error {
            AppendError::Unknown { .. } if !appender.is_partition_away(&failure) => {
                self.discard(appender).await;
            }
            _ => close(appender),
        }
        Err(error)
    }

    /// Gives the records to the client, behind those of all earlier calls.
    async fn send(
        &self,
        records: &[Append],
    ) -> Result<(SentAppend, Weak<KafkaAppender>), AppendError> {
        let _turn = self.turns.lock().await;
        let description = self.last_description().await;
        // Nothing was sent, but whether later appends succeed is unknown too.
        let description =
            description.map_err(|error| AppendError::Unknown { reason: error.to_string() })?;
        if let Some(refusal) = refusal(&description, records) {
            return Err(refusal);
        }
        let appender = self.appender()?;
        let sent = appender.send(records).await;
        let used = Arc::downgrade(&appender);
        close(appender);
        Ok((sent, used))
    }

    async fn open(&self, cursors: Vec<Cursor>) -> Result<KafkaReader, ReadError> {
        let cluster = self.cluster.clone();
        let (is, partitions) =
            blocking(move || Ok((cluster.topic_id()?, cluster.partitions()?))).await?;
        for Cursor { topic: was, partition, .. } in &cursors {
            if *was != is {
                return Err(ReadError::Recreated { was: *was, is });
            }
            if partition.0 >= partitions {
                return Err(ReadError::NoPartition { partition: *partition });
            }
        }
        let bounded = self.bounded(cursors).await?;
        let dependencies = ReaderDependencies {
            settings: self.settings.clone(),
            cluster: self.cluster.clone(),
            counts: self.counts.clone(),
        };
        KafkaReader::open(dependencies, &self.readers, is, &bounded)
    }

    /// The cursors, each with the bounds of its partition, which it is within.
    async fn bounded(&self, cursors: Vec<Cursor>) -> Result<Vec<(Cursor, Bounds)>, ReadError> {
        let cluster = self.cluster.clone();
        let partitions: Vec<Partition> = cursors.iter().map(|cursor| cursor.partition).collect();
        let bounds = blocking(move || cluster.bounds_of_all(&partitions)).await?;
        let bounded = cursors.into_iter().map(|cursor| {
            let Cursor { partition, next: wanted, .. } = cursor;
            let bounds = *bounds.get(&partition).ok_or(ReadError::NoPartition { partition })?;
            if wanted < bounds.low {
                return Err(ReadError::Expired { partition, wanted, low: bounds.low });
            }
            if wanted > bounds.high {
                return Err(ReadError::Truncated { partition, diverged: bounds.high });
            }
            Ok((cursor, bounds))
        });
        bounded.collect()
    }
}

/// Gives up one use of a client. The last use closes the client, which blocks for a moment.
fn close(used: Arc<KafkaAppender>) {
    if let Some(last) = Arc::into_inner(used) {
        tokio::task::spawn_blocking(move || drop(last));
    }
}

/// Returns why the topic would accept none of `records`.
fn refusal(description: &Description, records: &[Append]) -> Option<AppendError> {
    let bytes_max = description.record_bytes_max;
    records.iter().find_map(|append| {
        let (partition, bytes) = (append.partition, append.record.bytes());
        if partition.0 >= description.partitions {
            return Some(AppendError::NoPartition { partition });
        }
        (bytes > bytes_max).then(|| AppendError::Rejected {
            reason: format!("the record has {bytes} bytes, the topic accepts {bytes_max}"),
        })
    })
}
