//! The metadata of a log: the record that fixes its id and its partition count.
//!
//! It is the first record of partition 0. Downstream, only late appends of a writer of a former life
//! of the topic can precede it; no claim in this life covers them, so readers skip them. Upstream,
//! reports precede it in a topic of a version that wrote none. Partitions that are added to a topic
//! later stay unused: every process spreads the streams over the partitions of the metadata.

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{LogId, Partition, RecordKey, ReportKey};
use uuid::Uuid;

use crate::log::{Append, AppendError, Log, ReadError, Record};

/// The metadata that a caller proposes for a log without metadata.
#[derive(Debug, PartialEq, Eq)]
pub struct MetadataProposal {
    /// The last known id of this log. The new log gets the next number, so that edges follow it.
    pub previous: Option<LogId>,
    /// A random UUID, drawn for every attempt. Two metadata records with one UUID would share a key,
    /// and compaction would drop the first, which is the valid one.
    pub uuid: Uuid,
}

/// Which records of Headwater a log has beside its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Downstream,
    Upstream,
}

/// Why a log has no usable metadata.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The log begins with a foreign record: the topic does not belong to Headwater.
    #[error("the log begins with {key:?}, not with its metadata: is this Headwater's topic?")]
    NotALog {
        /// The key of the record that is there.
        key: String,
    },
    /// The metadata record cannot be decoded.
    #[error("the log's metadata cannot be read: {reason}")]
    Malformed {
        /// The defect.
        reason: String,
    },
    /// The metadata has more partitions than the log: some streams would have no partition.
    #[error("the log's metadata has {recorded} partitions, the log has {found}")]
    Partitions {
        /// The count in the metadata.
        recorded: u32,
        /// The count of the log.
        found: u32,
    },
    /// The log is an earlier or another life than the known one.
    #[error("the log is {found}, which is not the successor of the known log {known}")]
    Regressed {
        /// The known id.
        known: LogId,
        /// The id of the log.
        found: LogId,
    },
    /// The log cannot be read.
    #[error("the log's metadata cannot be read")]
    Read(#[from] ReadError),
    /// The metadata cannot be appended. A retry with a new UUID is safe: of two metadata records
    /// the first is valid.
    #[error("the log's metadata cannot be appended")]
    Append(#[from] AppendError),
}

/// Reads the metadata of `log`; `None` if it has none yet.
///
/// # Errors
/// See [`MetadataError`].
pub async fn read_metadata(log: &dyn Log) -> Result<Option<LogMetadata>, MetadataError> {
    read(log, Direction::Downstream).await
}

async fn read(log: &dyn Log, direction: Direction) -> Result<Option<LogMetadata>, MetadataError> {
    let Some(metadata) = find_metadata(log, direction).await? else { return Ok(None) };
    let found = log.describe().await?.partitions;
    if metadata.partitions == 0 || metadata.partitions > found {
        return Err(MetadataError::Partitions { recorded: metadata.partitions, found });
    }
    Ok(Some(metadata))
}

/// Reads the metadata of `log`, or appends it, over all partitions, if the log has none.
///
/// If two callers do this at the same time, both get the first metadata record.
///
/// # Errors
/// See [`MetadataError`]; [`MetadataError::Regressed`] if the log is neither the known one nor its
/// successor.
pub async fn read_or_create_metadata(
    log: &dyn Log,
    wish: MetadataProposal,
) -> Result<LogMetadata, MetadataError> {
    let metadata = read_or_append(log, Direction::Downstream, &wish).await?;
    match wish.previous {
        Some(known) if metadata.log_id != known && !metadata.log_id.follows(&known) => {
            Err(MetadataError::Regressed { known, found: metadata.log_id })
        }
        _ => Ok(metadata),
    }
}

/// As [`read_or_create_metadata`], of an upstream log. Each life has its own topic id, so its number
/// is always 1. `uuid` is random.
///
/// # Errors
/// See [`MetadataError`].
pub async fn read_or_create_upstream_metadata(
    log: &dyn Log,
    uuid: Uuid,
) -> Result<LogMetadata, MetadataError> {
    read_or_append(log, Direction::Upstream, &MetadataProposal { previous: None, uuid }).await
}

async fn read_or_append(
    log: &dyn Log,
    direction: Direction,
    wish: &MetadataProposal,
) -> Result<LogMetadata, MetadataError> {
    if let Some(metadata) = read(log, direction).await? {
        return Ok(metadata);
    }
    let number = wish.previous.map_or(1, |previous| previous.number.saturating_add(1));
    let partitions = log.describe().await?.partitions;
    let log_id = LogId { number, uuid: wish.uuid };
    let append = append(&LogMetadata { log_id, partitions })?;
    log.append(vec![append]).await?;
    read(log, direction).await?.ok_or_else(|| {
        let reason = "it is missing right after its append".to_owned();
        MetadataError::Malformed { reason }
    })
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

/// The first metadata record in partition 0.
async fn find_metadata(
    log: &dyn Log,
    direction: Direction,
) -> Result<Option<LogMetadata>, MetadataError> {
    let partition = Partition(0);
    let bounds = log.bounds(partition).await?;
    if bounds.low >= bounds.high {
        return Ok(None);
    }
    let mut reader = log.read(vec![log.start(partition).await?]).await?;
    loop {
        let batch = reader.next().await?;
        for recorded in &batch.records {
            if let Some(metadata) = decode(&recorded.record, direction)? {
                return Ok(Some(metadata));
            }
        }
        if batch.cursor.next >= bounds.high {
            return Ok(None);
        }
    }
}

/// Decodes a metadata record; `None` for another record of Headwater.
fn decode(record: &Record, direction: Direction) -> Result<Option<LogMetadata>, MetadataError> {
    let is_report = || ReportKey::decode(&record.key).is_ok();
    let uuid = match RecordKey::decode(&record.key) {
        Ok(RecordKey::Log(uuid)) => uuid,
        _ if direction == Direction::Upstream && is_report() => return Ok(None),
        Ok(_) if direction == Direction::Downstream => return Ok(None),
        _ => {
            let key = String::from_utf8_lossy(&record.key).into_owned();
            return Err(MetadataError::NotALog { key });
        }
    };
    let malformed = |reason: &str| MetadataError::Malformed { reason: reason.to_owned() };
    let value = record.value.as_deref().ok_or_else(|| malformed("it has no value"))?;
    let metadata: LogMetadata = serde_json::from_slice(value)
        .map_err(|error| MetadataError::Malformed { reason: error.to_string() })?;
    if metadata.log_id.uuid != uuid {
        return Err(malformed("its key and its value have different log ids"));
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
    async fn records_of_a_former_writer_before_the_metadata_are_skipped() {
        let log = MemoryLog::new(MemorySettings::default());
        let first = read_or_create_metadata(&log, wish(None)).await.expect("created");
        log.recreate(2);
        let late = ["node/a d/configmap/c", "cluster !head", "!heartbeat 1", "!reconciled 1"];
        log.append(late.map(record).to_vec()).await.expect("taken");
        assert_eq!(read_metadata(&log).await.expect("readable"), None);
        let metadata =
            read_or_create_metadata(&log, wish(Some(first.log_id))).await.expect("created");
        assert!(metadata.log_id.follows(&first.log_id));
        log.append(vec![record("!heartbeat 1")]).await.expect("taken");
        assert_eq!(read_metadata(&log).await.expect("readable"), Some(metadata));
    }

    #[tokio::test]
    async fn the_metadata_of_an_upstream_log_fix_the_partitions_of_its_life() {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
        let reports = ["node/a !position", "node/a !snapshot", "node/a d/podstatus/p"];
        log.append(reports.map(record).to_vec()).await.expect("taken");
        let metadata = read_or_create_upstream_metadata(&log, Uuid::new_v4()).await.expect("made");
        assert_eq!(metadata.partitions, 2, "a log of a version without metadata gets them");
        log.add_partitions(5);
        let again = read_or_create_upstream_metadata(&log, Uuid::new_v4()).await.expect("there");
        assert_eq!(again, metadata, "added partitions stay unused");
        log.recreate(3);
        let next = read_or_create_upstream_metadata(&log, Uuid::new_v4()).await.expect("made");
        assert_eq!(next.partitions, 3);

        let downstream = MemoryLog::new(MemorySettings::default());
        downstream.append(vec![record("!heartbeat 1")]).await.expect("taken");
        let refused = read_or_create_upstream_metadata(&downstream, Uuid::new_v4()).await;
        assert!(matches!(refused, Err(MetadataError::NotALog { key }) if key == "!heartbeat 1"));
    }

    #[tokio::test]
    async fn of_two_metadata_records_the_first_counts_and_a_foreign_topic_is_refused() {
        let log = MemoryLog::new(MemorySettings::default());
        let metadata = read_or_create_metadata(&log, wish(None)).await.expect("created");
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
