//! The keys of the log's rows in the engine, and the stored form of a record.
//!
//! | key | value |
//! |---|---|
//! | `LogPartitions` topic | the topic's id and partition count, JSON |
//! | `LogPartitions` topic partition `0` | next offset, last append time |
//! | `LogPartitions` topic partition `1` | the first offset that compaction has not examined |
//! | `LogRecords` topic partition offset | a record |
//! | `LogKeys` topic partition `0` record-key | offset of the key's last record that compaction examined |
//! | `LogKeys` topic partition `1` time offset | a tombstone, and the time from which it may be dropped |
//!
//! Numbers are big-endian, so the order of keys is the order of what they name.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use headwater_event::{LeaderEpoch, Offset, Partition, TopicId};
use headwater_log::{DOWNSTREAM_TOPIC, Record, StoredRecord, UPSTREAM_TOPIC};
use headwater_store::{Range, TableId};
use serde::{Deserialize, Serialize};

/// Which of the logs that share an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LogTopic {
    /// `headwater.downstream.v1`.
    Downstream = 1,
    /// `headwater.upstream.v1`.
    Upstream = 2,
}

impl LogTopic {
    /// The name of the topic.
    pub fn name(self) -> &'static str {
        match self {
            Self::Downstream => DOWNSTREAM_TOPIC,
            Self::Upstream => UPSTREAM_TOPIC,
        }
    }
}

/// The row of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopicRow {
    pub(crate) topic: TopicId,
    pub(crate) partitions: u32,
}

/// The row of a partition's end, written with every append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndRow {
    pub(crate) next: Offset,
    pub(crate) time_ms: i64,
}

/// The format of a stored record, its first byte.
const RECORD_FORMAT: u8 = 1;
/// Bytes before a record's own: format, append time, flags, lengths of key, header and trace.
const PREFIX_BYTES: usize = 1 + 8 + 1 + 4 + 4 + 4;
const TIME_AT: usize = 1;

const HAS_VALUE: u8 = 1;
const HAS_TRACEPARENT: u8 = 2;

const END: u8 = 0;
const CLEANED: u8 = 1;
const LATEST: u8 = 0;
const TOMBSTONE: u8 = 1;

fn key(table: TableId, topic: LogTopic, partition: Partition, rest: &[&[u8]]) -> Bytes {
    let length = 6 + rest.iter().map(|part| part.len()).sum::<usize>();
    let mut key = BytesMut::with_capacity(length);
    key.put_u8(table.prefix());
    key.put_u8(topic as u8);
    key.put_u32(partition.0);
    rest.iter().for_each(|part| key.put_slice(part));
    key.freeze()
}

pub(crate) fn topic_key(topic: LogTopic) -> Bytes {
    Bytes::copy_from_slice(&[TableId::LogPartitions.prefix(), topic as u8])
}

pub(crate) fn end_key(topic: LogTopic, partition: Partition) -> Bytes {
    key(TableId::LogPartitions, topic, partition, &[&[END]])
}

pub(crate) fn cleaned_key(topic: LogTopic, partition: Partition) -> Bytes {
    key(TableId::LogPartitions, topic, partition, &[&[CLEANED]])
}

pub(crate) fn record_key(topic: LogTopic, partition: Partition, offset: Offset) -> Bytes {
    key(TableId::LogRecords, topic, partition, &[&offset.0.to_be_bytes()])
}

pub(crate) fn latest_key(topic: LogTopic, partition: Partition, record_key: &[u8]) -> Bytes {
    key(TableId::LogKeys, topic, partition, &[&[LATEST], record_key])
}

pub(crate) fn tombstone_key(
    topic: LogTopic,
    partition: Partition,
    horizon_ms: i64,
    offset: Offset,
) -> Bytes {
    let horizon = time_bytes(horizon_ms);
    key(TableId::LogKeys, topic, partition, &[&[TOMBSTONE], &horizon, &offset.0.to_be_bytes()])
}

/// The tombstones past their retention at `now_ms`.
pub(crate) fn tombstones_until(topic: LogTopic, partition: Partition, now_ms: i64) -> Range {
    let from = key(TableId::LogKeys, topic, partition, &[&[TOMBSTONE]]);
    let behind = time_bytes(now_ms.saturating_add(1));
    Range { from, to: Some(key(TableId::LogKeys, topic, partition, &[&[TOMBSTONE], &behind])) }
}

/// The records of a partition between two offsets, the second exclusive.
pub(crate) fn records(topic: LogTopic, partition: Partition, from: Offset, to: Offset) -> Range {
    let to = record_key(topic, partition, to);
    Range { from: record_key(topic, partition, from), to: Some(to) }
}

/// The offset at the end of a key of a record or of a tombstone.
pub(crate) fn offset_of(key: &[u8]) -> Option<Offset> {
    key.last_chunk().map(|bytes| Offset(u64::from_be_bytes(*bytes)))
}

/// Encodes a time so that the order of bytes is the order of times, negative ones first.
fn time_bytes(time_ms: i64) -> [u8; 8] {
    (time_ms ^ i64::MIN).to_be_bytes()
}

pub(crate) fn encode_offset(offset: Offset) -> Bytes {
    Bytes::copy_from_slice(&offset.0.to_be_bytes())
}

pub(crate) fn decode_offset(value: &[u8]) -> Option<Offset> {
    value.try_into().ok().map(|bytes| Offset(u64::from_be_bytes(bytes)))
}

impl EndRow {
    /// The end of a partition without records.
    pub(crate) const EMPTY: Self = Self { next: Offset(0), time_ms: i64::MIN };

    pub(crate) fn encode(self) -> Bytes {
        let mut value = BytesMut::with_capacity(16);
        value.put_u64(self.next.0);
        value.put_i64(self.time_ms);
        value.freeze()
    }

    pub(crate) fn decode(mut value: &[u8]) -> Option<Self> {
        let next = Offset(value.try_get_u64().ok()?);
        let time_ms = value.try_get_i64().ok()?;
        // As Kafka's, offsets have 63 bits, so there is always a next one.
        (value.is_empty() && i64::try_from(next.0).is_ok()).then_some(Self { next, time_ms })
    }
}

/// Encodes a record without its append time, before its position in the log is known.
pub(crate) fn encode_record(record: &Record) -> Result<BytesMut, std::num::TryFromIntError> {
    let traceparent = record.traceparent.as_deref().unwrap_or_default();
    let mut flags = 0;
    flags |= if record.value.is_some() { HAS_VALUE } else { 0 };
    flags |= if record.traceparent.is_some() { HAS_TRACEPARENT } else { 0 };
    let mut stored = BytesMut::with_capacity(PREFIX_BYTES + record.bytes() + traceparent.len());
    stored.put_u8(RECORD_FORMAT);
    stored.put_i64(0);
    stored.put_u8(flags);
    stored.put_u32(record.key.len().try_into()?);
    stored.put_u32(record.header.len().try_into()?);
    stored.put_u32(traceparent.len().try_into()?);
    stored.put_slice(&record.key);
    stored.put_slice(&record.header);
    stored.put_slice(traceparent.as_bytes());
    stored.put_slice(record.value.as_deref().unwrap_or_default());
    Ok(stored)
}

/// Sets the append time of an encoded record.
pub(crate) fn stamp(mut stored: BytesMut, time_ms: i64) -> Bytes {
    if let Some(time) = stored.get_mut(TIME_AT..TIME_AT + 8) {
        time.copy_from_slice(&time_ms.to_be_bytes());
    }
    stored.freeze()
}

/// Decodes a stored record. Its parts share the stored bytes.
pub(crate) fn decode_record(
    partition: Partition,
    offset: Offset,
    mut stored: Bytes,
) -> Result<StoredRecord, String> {
    if stored.len() < PREFIX_BYTES {
        return Err(format!("the record has only {} bytes", stored.len()));
    }
    let format = stored.get_u8();
    if format != RECORD_FORMAT {
        return Err(format!("the record has format {format}, this build reads {RECORD_FORMAT}"));
    }
    let time_ms = stored.get_i64();
    let flags = stored.get_u8();
    let lengths = [stored.get_u32(), stored.get_u32(), stored.get_u32()];
    let [key, header, traceparent] = lengths.map(|length| length as usize);
    if key.saturating_add(header).saturating_add(traceparent) > stored.len() {
        return Err("the record is shorter than its declared lengths".to_owned());
    }
    let key = stored.split_to(key);
    let header = stored.split_to(header);
    let traceparent = stored.split_to(traceparent);
    let traceparent = match flags & HAS_TRACEPARENT {
        0 => None,
        _ => Some(String::from_utf8(traceparent.into()).map_err(|error| error.to_string())?),
    };
    let value = (flags & HAS_VALUE != 0).then_some(stored);
    let record = Record { key, value, header, traceparent };
    Ok(StoredRecord { partition, offset, leader_epoch: LeaderEpoch(0), time_ms, record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_storage() {
        for (value, traceparent) in
            [(None, None), (Some(""), Some("")), (Some("{}"), Some("00-1-2-03"))]
        {
            let record = Record {
                key: Bytes::from_static(b"cluster d/service/a"),
                value: value.map(|text| Bytes::from_static(text.as_bytes())),
                header: Bytes::from_static(&[1, 2, 3]),
                traceparent: traceparent.map(str::to_owned),
            };
            let stored = stamp(encode_record(&record).expect("small"), -5);
            let read = decode_record(Partition(1), Offset(2), stored).expect("as stored");
            assert_eq!((read.record, read.time_ms), (record, -5));
        }
    }

    #[test]
    fn damaged_records_are_refused() {
        let record = Record {
            key: Bytes::from_static(b"key"),
            value: None,
            header: Bytes::new(),
            traceparent: None,
        };
        let stored = stamp(encode_record(&record).expect("small"), 1);
        for length in 0..stored.len() {
            let cut = decode_record(Partition(0), Offset(0), stored.slice(..length));
            assert!(cut.is_err(), "{length} bytes");
        }
    }

    #[test]
    fn tombstones_lie_in_the_order_of_their_times() {
        let at = |time_ms| tombstone_key(LogTopic::Upstream, Partition(0), time_ms, Offset(9));
        assert!(at(-1) < at(0) && at(0) < at(1) && at(1) < at(i64::MAX));
        let over = tombstones_until(LogTopic::Upstream, Partition(0), 5);
        assert!(over.contains(&at(5)) && !over.contains(&at(6)));
    }
}
