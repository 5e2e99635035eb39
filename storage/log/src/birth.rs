//! The birth of a log: its first record, which fixes its id and its partition count.

use bytes::Bytes;
use headwater_event::record::{LogBirth, RecordKeyError};
use headwater_event::{LogId, Partition, RecordKey};
use uuid::Uuid;

use crate::contract::{Append, AppendError, Log, ReadError, Record, Recorded};

/// What a log to be born is to be.
#[derive(Debug, PartialEq, Eq)]
pub struct BirthWish {
    /// The id of the last life of this log that anyone here knew: the new one gets the next
    /// number, so that edges follow.
    pub previous: Option<LogId>,
    /// Drawn at random for every attempt: two births under one UUID would share a key in the
    /// log, and compaction would drop the first, which is the one that counts.
    pub uuid: Uuid,
}

/// Why a log has no usable birth.
#[derive(Debug, thiserror::Error)]
pub enum BirthError {
    /// The first record of partition 0 is not a birth: the topic is not one of ours.
    #[error("the log's first record is {key:?}, not its birth: is this Headwater's topic?")]
    NotALog {
        /// The key of the record that is there.
        key: String,
    },
    /// The birth record cannot be read.
    #[error("the log's birth record cannot be read: {reason}")]
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
    #[error("the log's birth cannot be read")]
    Read(#[from] ReadError),
    /// The birth cannot be appended. Trying again is safe, with a fresh UUID: of two births the
    /// first counts.
    #[error("the log's birth cannot be appended")]
    Append(#[from] AppendError),
}

/// The birth of `log`, or `None` while it is empty.
///
/// # Errors
/// See [`BirthError`].
pub async fn read_birth(log: &dyn Log) -> Result<Option<LogBirth>, BirthError> {
    let Some(first) = first_record(log).await? else { return Ok(None) };
    let birth = decode(&first.record)?;
    let found = log.describe().await?.partitions;
    if birth.partitions == 0 || birth.partitions > found {
        return Err(BirthError::Partitions { born: birth.partitions, found });
    }
    Ok(Some(birth))
}

/// The birth of `log`; an empty log is born now, over all its partitions.
///
/// When two do this at once, both get the birth that lies first.
///
/// # Errors
/// See [`BirthError`]; [`BirthError::Regressed`] when the log is not the one known before nor
/// its successor.
pub async fn read_or_create_birth(log: &dyn Log, wish: BirthWish) -> Result<LogBirth, BirthError> {
    let birth = match read_birth(log).await? {
        Some(birth) => birth,
        None => {
            let number = wish.previous.map_or(1, |previous| previous.number.saturating_add(1));
            let partitions = log.describe().await?.partitions;
            let log_id = LogId { number, uuid: wish.uuid };
            let append = append(&LogBirth { log_id, partitions })?;
            log.append(vec![append]).await?;
            let Some(birth) = read_birth(log).await? else {
                let reason = "it was appended and is not there".to_owned();
                return Err(BirthError::Malformed { reason });
            };
            birth
        }
    };
    match wish.previous {
        Some(known) if birth.log_id != known && !birth.log_id.follows(&known) => {
            Err(BirthError::Regressed { known, found: birth.log_id })
        }
        _ => Ok(birth),
    }
}

fn append(birth: &LogBirth) -> Result<Append, BirthError> {
    let value = serde_json::to_vec(birth)
        .map_err(|error| BirthError::Malformed { reason: error.to_string() })?;
    Ok(Append {
        partition: Partition(0),
        record: Record {
            key: RecordKey::Log(birth.log_id.uuid).to_string().into(),
            value: Some(Bytes::from(value)),
            header: Bytes::new(),
            traceparent: None,
        },
    })
}

fn decode(record: &Record) -> Result<LogBirth, BirthError> {
    let not_a_log =
        || BirthError::NotALog { key: String::from_utf8_lossy(&record.key).into_owned() };
    let key: Result<RecordKey, RecordKeyError> = RecordKey::decode(&record.key);
    let Ok(RecordKey::Log(uuid)) = key else { return Err(not_a_log()) };
    let malformed = |reason: &str| BirthError::Malformed { reason: reason.to_owned() };
    let value = record.value.as_deref().ok_or_else(|| malformed("it has no value"))?;
    let birth: LogBirth = serde_json::from_slice(value)
        .map_err(|error| BirthError::Malformed { reason: error.to_string() })?;
    if birth.log_id.uuid != uuid {
        return Err(malformed("its key and its value name different logs"));
    }
    Ok(birth)
}

/// The first record of partition 0, if it has any.
async fn first_record(log: &dyn Log) -> Result<Option<Recorded>, ReadError> {
    let partition = Partition(0);
    let bounds = log.bounds(partition).await?;
    if bounds.low >= bounds.high {
        return Ok(None);
    }
    let mut reader = log.read(vec![log.start(partition).await?]).await?;
    loop {
        let batch = reader.next().await?;
        if let Some(first) = batch.records.into_iter().next() {
            return Ok(Some(first));
        }
        if batch.cursor.next >= bounds.high {
            return Ok(None);
        }
    }
}
