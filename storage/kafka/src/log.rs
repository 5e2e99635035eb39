//! The log on one topic.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use headwater_event::{Cursor, Partition};
use headwater_log::{
    Append, AppendError, Bounds, Description, Log, ReadError, Reader, RecordPosition,
};

use crate::asking::{Asking, blocking};
use crate::metrics::{Counts, KafkaMetrics};
use crate::positions::Readers;
use crate::producing::Producing;
use crate::reading::{Around, KafkaReader, NO_EPOCH};
use crate::settings::{KafkaSettings, SettingsError};

/// A log on Kafka.
pub struct KafkaLog {
    settings: Arc<KafkaSettings>,
    asking: Arc<Asking>,
    /// None until something is appended, and after an outcome that is not known.
    producing: Mutex<Option<Arc<Producing>>>,
    /// None where nobody counts.
    counts: Option<Arc<Counts>>,
    /// Whose positions are shown.
    readers: Arc<Readers>,
    /// What the topic was like when it was asked last: bounds what is sent to it.
    described: Mutex<Option<Description>>,
}

impl KafkaLog {
    /// A log on the topic of `settings`. Nothing is asked of Kafka yet.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn new(settings: KafkaSettings) -> Result<Self, SettingsError> {
        Self::with(settings, None)
    }

    /// The same, which counts in `metrics`.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn with_metrics(
        settings: KafkaSettings,
        metrics: &KafkaMetrics,
    ) -> Result<Self, SettingsError> {
        let counts = Arc::new(metrics.of(&settings.topic));
        Self::with(settings, Some(counts))
    }

    fn with(settings: KafkaSettings, counts: Option<Arc<Counts>>) -> Result<Self, SettingsError> {
        // What only the other clients are told is looked at now, not at their first use.
        settings.producer_config()?;
        settings.consumer_config()?;
        let settings = Arc::new(settings);
        let asking = Arc::new(Asking::new(settings.clone())?);
        Ok(Self {
            settings,
            asking,
            producing: Mutex::default(),
            counts,
            readers: Arc::default(),
            described: Mutex::default(),
        })
    }

    fn producing(&self) -> Result<Arc<Producing>, AppendError> {
        let mut held = self.producing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producing) = &*held {
            return Ok(producing.clone());
        }
        let made = Producing::new(self.settings.clone(), self.counts.clone());
        let made =
            Arc::new(made.map_err(|error| AppendError::Fatal { reason: error.to_string() })?);
        *held = Some(made.clone());
        Ok(made)
    }

    /// Gives up a client whose outcome is unknown: what it has not sent is purged, and the next
    /// append begins with another.
    fn retire(&self, used: Arc<Producing>) {
        let mut held = self.producing.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, &used)) {
            *held = None;
        }
        drop(held);
        // To close a client takes a moment, which nobody need wait for.
        tokio::task::spawn_blocking(move || drop(used));
    }

    async fn described(&self) -> Result<Description, ReadError> {
        let known = self.described.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(known) => Ok(known),
            None => self.describe().await,
        }
    }

    async fn bounds_of(&self, partition: Partition) -> Result<Bounds, ReadError> {
        if partition.0 >= self.described().await?.partitions {
            return Err(ReadError::NoPartition { partition });
        }
        let asking = self.asking.clone();
        blocking(move || asking.bounds(partition)).await
    }
}

#[async_trait]
impl Log for KafkaLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        let description = self.asking.describe().await?;
        let mut known = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(description.clone());
        Ok(description)
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        let result = self.append_all(&records).await;
        if let Some(counts) = &self.counts {
            counts.appended(&records, &result, begun.elapsed());
        }
        result
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.bounds_of(partition).await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        let low = self.bounds_of(partition).await?.low;
        let asking = self.asking.clone();
        let topic = blocking(move || asking.topic_id()).await?;
        Ok(Cursor { topic, partition, next: low, leader_epoch: NO_EPOCH })
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        let opened = self.open(cursors).await;
        if let (Some(counts), Err(error)) = (&self.counts, &opened) {
            counts.read_failed(error);
        }
        Ok(Box::new(opened?))
    }
}

impl KafkaLog {
    async fn append_all(&self, records: &[Append]) -> Result<Vec<RecordPosition>, AppendError> {
        let description = self.described().await;
        // Nothing was sent, but whether the log goes on is not known either.
        let description =
            description.map_err(|error| AppendError::Unknown { reason: error.to_string() })?;
        if let Some(reason) = refuse(&description, records) {
            return Err(AppendError::Rejected { reason });
        }
        let producing = self.producing()?;
        let result = producing.append(records).await;
        if matches!(result, Err(AppendError::Unknown { .. })) {
            self.retire(producing);
        }
        result
    }

    async fn open(&self, cursors: Vec<Cursor>) -> Result<KafkaReader, ReadError> {
        let asking = self.asking.clone();
        let (is, partitions) =
            blocking(move || Ok((asking.topic_id()?, asking.partitions()?))).await?;
        let mut bounded = Vec::new();
        for cursor in cursors {
            let Cursor { topic: was, partition, next: wanted, .. } = cursor;
            if was != is {
                return Err(ReadError::Recreated { was, is });
            }
            if partition.0 >= partitions {
                return Err(ReadError::NoPartition { partition });
            }
            let asking = self.asking.clone();
            let bounds = blocking(move || asking.bounds(partition)).await?;
            if wanted < bounds.low {
                return Err(ReadError::Expired { partition, wanted, low: bounds.low });
            }
            if wanted > bounds.high {
                return Err(ReadError::Truncated { partition, diverged: bounds.high });
            }
            bounded.push((cursor, bounds));
        }
        let around = Around {
            settings: self.settings.clone(),
            asking: self.asking.clone(),
            counts: self.counts.clone(),
        };
        KafkaReader::open(around, &self.readers, is, &bounded)
    }
}

/// Says why the topic would take none of `records`.
fn refuse(description: &Description, records: &[Append]) -> Option<String> {
    let bytes_max = description.record_bytes_max;
    records.iter().find_map(|append| {
        let bytes = append.record.bytes();
        if bytes > bytes_max {
            return Some(format!("a record of {bytes} bytes, at most {bytes_max} are taken"));
        }
        let is_missing = append.partition.0 >= description.partitions;
        is_missing.then(|| format!("there is no partition {}", append.partition))
    })
}
