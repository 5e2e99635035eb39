//! The birth of a log: the record that fixes its id and its partition count.
//!
//! It is the first record of partition 0, unless a writer of a former life of the topic, which has
//! not noticed yet, was quicker: what it wrote has no claim in this life and is passed over.

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{LogId, Partition, RecordKey};
use uuid::Uuid;

use crate::log::{Append, AppendError, Log, ReadError, Record};

/// What a log to be born is to be.
#[derive(Debug, PartialEq, Eq)]
pub struct MetadataProposal {
    /// The id of the last life of this log that anyone here knew: the new one gets the next
    /// number, so that edges follow.
    pub previous: Option<LogId>,
    /// Drawn at random for every attempt: two births under one UUID would share a key in the
    /// log, and compaction would drop the first, which is the one that counts.
    pub uuid: Uuid,
}

/// Why a log has no usable birth.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// What lies where the birth should is none of our records: the topic is not one of ours.
    #[error("the log begins with {key:?}, not with its metadata: is this Headwater's topic?")]
    NotALog {
        /// The key of the record that is there.
        key: String,
    },
    /// The birth record cannot be read.
    #[error("the log's metadata record cannot be read: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// The birth names more partitions than the log has: streams would have no place.
    #[error("the log was born with {born} partitions and now has {found}")]
    Partitions {
        /// The count that the birth fixed.
        born: u32,
        /// The count that the log says it has.
        found: u32,
    },
    /// The log is an earlier or another life than one already known.
    #[error("the log is {found}, but {known} was known before: it is not its successor")]
    Regressed {
        /// The id known before.
        known: LogId,
        /// The id that is there.
        found: LogId,
    },
    /// The log cannot be read.
    #[error("the log's metadata cannot be read")]
    Read(#[from] ReadError),
    /// The birth cannot be appended. Trying again is safe, with a fresh UUID: of two births the
    /// first counts.
    #[error("the log's metadata cannot be appended")]
    Append(#[from] AppendError),
}

/// The birth of `log`, or `None` while it has none.
///
/// # Errors
/// See [`MetadataError`].
pub async fn read_metadata(log: &dyn Log) -> Result<Option<LogMetadata>, MetadataError> {
    let Some(metadata) = find_metadata(log).await? else { return Ok(None) };
    let found = log.describe().await?.partitions;
    if metadata.partitions == 0 || metadata.partitions > found {
        return Err(MetadataError::Partitions { born: metadata.partitions, found });
    }
    Ok(Some(metadata))
}

/// The birth of `log`; one without is born now, over all its partitions.
///
/// When two do this at once, both get the birth that lies first.
///
/// # Errors
/// See [`MetadataError`]; [`MetadataError::Regressed`] when the log is not the one known before nor
/// its successor.
pub async fn read_or_create_metadata(
    log: &dyn Log,
    wish: MetadataProposal,
) -> Result<LogMetadata, MetadataError> {
    let metadata = match read_metadata(log).await? {
        Some(metadata) => metadata,
        None => {
            let number = wish.previous.map_or(1, |previous| previous.number.saturating_add(1));
            let partitions = log.describe().await?.partitions;
            let log_id = LogId { number, uuid: wish.uuid };
            let append = append(&LogMetadata { log_id, partitions })?;
            log.append(vec![append]).await?;
            let Some(metadata) = read_metadata(log).await? else {
                let reason = "it was appended and is not there".to_owned();
                return Err(MetadataError::Malformed { reason });
            };
            metadata
        }
    };
    match wish.previous {
        Some(known) if metadata.log_id != known && !metadata.log_id.follows(&known) => {
            Err(MetadataError::Regressed { known, found: metadata.log_id })
        }
        _ => Ok(metadata),
    }
}

fn append(metadata: &LogMetadata) -> Result<Append, MetadataError> {
    let value = serde_json::to_vec(metadata)
        .map_err(|error| MetadataError::Malformed { reason: error.to_string() })?;
    Ok(Append {
        partition: Partition(0),
        record: Record {
            key: RecordKey::Log(metadata.log_id.uuid).to_string().into(),
            value: Some(Bytes::from(value)),
            header: Bytes::new(),
            traceparent: None,
        },
    })
}

/// The first birth in partition 0.
async fn find_metadata(log: &dyn Log) -> Result<Option<LogMetadata>, MetadataError> {
    let partition = Partition(0);
    let bounds = log.bounds(partition).await?;
    if bounds.low >= bounds.high {
        return Ok(None);
    }
    let mut reader = log.read(vec![log.start(partition).await?]).await?;
    loop {
        let batch = reader.next().await?;
        for recorded in &batch.records {
            if let Some(metadata) = decode(&recorded.record)? {
                return Ok(Some(metadata));
            }
        }
        if batch.cursor.next >= bounds.high {
            return Ok(None);
        }
    }
}

/// The birth that a record is; `None` where it is another of our records.
fn decode(record: &Record) -> Result<Option<LogMetadata>, MetadataError> {
    let uuid = match RecordKey::decode(&record.key) {
        Ok(RecordKey::Log(uuid)) => uuid,
        Ok(_) => return Ok(None),
        Err(_) => {
            let key = String::from_utf8_lossy(&record.key).into_owned();
            return Err(MetadataError::NotALog { key });
        }
    };
    let malformed = |reason: &str| MetadataError::Malformed { reason: reason.to_owned() };
    let value = record.value.as_deref().ok_or_else(|| malformed("it has no value"))?;
    let metadata: LogMetadata = serde_json::from_slice(value)
        .map_err(|error| MetadataError::Malformed { reason: error.to_string() })?;
    if metadata.log_id.uuid != uuid {
        return Err(malformed("its key and its value name different logs"));
    }
    Ok(Some(metadata))
}

#[cfg(test)]
mod tests {
    use crate::memory::{MemoryLog, MemorySettings};

    use super::*;

    fn record(key: &str) -> Append {
        let record = Record {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Some(Bytes::from_static(b"{}")),
            header: Bytes::new(),
            traceparent: None,
        };
        Append { partition: Partition(0), record }
    }

    fn wish(previous: Option<LogId>) -> MetadataProposal {
        MetadataProposal { previous, uuid: Uuid::new_v4() }
    }

    #[tokio::test]
    async fn what_a_former_writer_wrote_before_the_birth_is_passed_over() {
        let log = MemoryLog::new(MemorySettings::default());
        let first = read_or_create_metadata(&log, wish(None)).await.expect("born");
        log.recreate(2);
        let late = ["node/a d/configmap/c", "cluster !head", "!heartbeat 1", "!reconciled 1"];
        log.append(late.map(record).to_vec()).await.expect("taken");
        assert_eq!(read_metadata(&log).await.expect("readable"), None);
        let metadata = read_or_create_metadata(&log, wish(Some(first.log_id))).await.expect("born");
        assert!(metadata.log_id.follows(&first.log_id));
        log.append(vec![record("!heartbeat 1")]).await.expect("taken");
        assert_eq!(read_metadata(&log).await.expect("readable"), Some(metadata));
    }

    #[tokio::test]
    async fn of_two_metadata_records_the_first_counts_and_a_foreign_topic_is_refused() {
        let log = MemoryLog::new(MemorySettings::default());
        let metadata = read_or_create_metadata(&log, wish(None)).await.expect("born");
        let again =
            LogMetadata { log_id: LogId { uuid: Uuid::new_v4(), ..metadata.log_id }, ..metadata };
        log.append(vec![append(&again).expect("encodes")]).await.expect("taken");
        assert_eq!(read_metadata(&log).await.expect("readable"), Some(metadata));

        let foreign = MemoryLog::new(MemorySettings::default());
        foreign.append(vec![record("orders-17")]).await.expect("taken");
        let refused = read_or_create_metadata(&foreign, wish(None)).await;
        assert!(matches!(refused, Err(MetadataError::NotALog { key }) if key == "orders-17"));
    }
}
