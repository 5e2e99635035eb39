//! Values of records, and by which rules a reader takes records for events.

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use headwater_event::record::{Claim, LogMetadata};
use headwater_event::{
    BodyHeader, Cursor, Event, EventHeader, LeaderEpoch, LogId, ObjectHash, Offset, Partition, Seq,
    StateHash, StreamId, TopicId, WriterEpoch,
};
use headwater_log::acceptance::Outcome;
use headwater_log::value::{ValueEncoder, decode_reference, decode_value, encode_reference};
use headwater_log::{Acceptance, Batch, FoldRange, MemoryBodies, Record, StoredRecord};
use uuid::Uuid;

/// Partitions of the log that is read.
const PARTITIONS: u32 = 2;

/// Records of one input: more find nothing that fewer would not.
const RECORDS_MAX: usize = 64;

/// An object in a record's value, or a reference to a body.
pub fn value(bytes: &[u8]) {
    if let Ok(Some(number)) = decode_reference(bytes) {
        assert_eq!(encode_reference(number), bytes, "a reference has two encodings");
    }
    let Ok(object) = decode_value(&Bytes::copy_from_slice(bytes)) else { return };
    let again = decode_value(&ValueEncoder::new().encode(&object));
    assert_eq!(again, Ok(object), "a value that was read is written as another");
}

/// Any records at all, folded and then followed.
pub fn acceptance(bytes: &[u8]) {
    let _ = accept(&mut Unstructured::new(bytes));
}

fn accept(input: &mut Unstructured<'_>) -> Result<()> {
    let uuid = Uuid::from_u128(1);
    let log_metadata = LogMetadata { log_id: LogId { number: 1, uuid }, partitions: PARTITIONS };
    let topic = TopicId(uuid);
    let high = Offset(u64::from(input.arbitrary::<u8>()?));
    let start = |partition| Cursor {
        topic,
        partition: Partition(partition),
        next: Offset(0),
        leader_epoch: LeaderEpoch(0),
    };
    let ranges = (0..PARTITIONS).map(|partition| FoldRange { start: start(partition), high });
    let mut acceptance = Acceptance::fold(log_metadata, ranges.collect(), input.arbitrary()?, 0);
    let mut bodies = MemoryBodies::default();
    let mut last: BTreeMap<StreamId, (WriterEpoch, Seq)> = BTreeMap::new();
    for _ in 0..RECORDS_MAX {
        if input.is_empty() {
            break;
        }
        let partition = Partition(u32::from(input.arbitrary::<u8>()?) % (PARTITIONS + 1));
        let offset = Offset(number(input)?);
        let recorded = StoredRecord {
            partition,
            offset,
            leader_epoch: LeaderEpoch(0),
            time_ms: input.arbitrary()?,
            record: record(input, &log_metadata)?,
        };
        let cursor = Cursor { next: offset.next(), ..start(partition.0) };
        let batch = Batch { records: vec![recorded], cursor, high };
        let now_ms = input.arbitrary()?;
        let outcomes = acceptance.accept_batch_with(&batch, now_ms, &mut bodies);
        for outcome in outcomes.unwrap_or_else(|never| match never {}) {
            if let Outcome::Accepted(event) = outcome {
                if let (Some(shared), Event::Applied(applied)) = (event.shared, &event.event) {
                    let hash = ObjectHash::of(&applied.object);
                    assert_eq!(shared.object_hash, hash, "a body has another object");
                }
                let at = (event.epoch, event.seq);
                let before = last.insert(event.stream, at);
                assert!(before.is_none_or(|before| at > before), "an event came twice");
            }
        }
        let _ = acceptance.repairs().count();
        let changes = acceptance.take_changes();
        if input.ratio(1, 8)? {
            // A reader that starts again goes on as if it had not stopped.
            let partitions = acceptance.partitions().clone();
            let streams: Vec<_> =
                acceptance.streams().map(|(stream, at)| (stream.clone(), at.clone())).collect();
            acceptance = Acceptance::restore(log_metadata, partitions, streams);
        }
        drop(changes);
    }
    Ok(())
}

/// Small numbers, which often fit, and the largest.
fn number(input: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match input.arbitrary::<u8>()? {
        255 => u64::MAX,
        254 => u64::MAX - 1,
        small => u64::from(small),
    })
}

fn record(input: &mut Unstructured<'_>, log_metadata: &LogMetadata) -> Result<Record> {
    let json = |value: serde_json::Value| Some(Bytes::from(value.to_string()));
    let epoch = number(input)? % 4;
    let uuid = log_metadata.log_id.uuid;
    let stream = *input.choose(&["cluster", "node/a", "node/b", "node/!"])?;
    let (key, value) = match input.arbitrary::<u8>()? % 11 {
        0 => (format!("!log {uuid}"), json(serde_json::json!(log_metadata))),
        1 => {
            let claim = Claim { epoch: WriterEpoch(epoch), writer: uuid, address: None };
            (format!("!writer {epoch} {uuid}"), json(serde_json::json!(claim)))
        }
        2 => (format!("!heartbeat {epoch}"), json(serde_json::json!({}))),
        3 => (format!("!reconciled {epoch}"), json(serde_json::json!({}))),
        4 => (format!("{stream} !head"), json(serde_json::json!({}))),
        5 => (format!("{stream} ns/pod/a"), None),
        6 => (format!("{stream} ns/pod/a"), json(serde_json::json!({}))),
        7 => (format!("{stream} ns/pod/a"), Some(encode_reference(number(input)?.max(1)))),
        8 => (format!("!body {epoch} {}", number(input)?), None),
        9 => {
            let object = Bytes::from_static(b"{}");
            let header = BodyHeader {
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                object_hash: ObjectHash::of(&object),
            };
            let key = format!("!body {epoch} {}", number(input)?).into();
            let header = header.encode().into();
            return Ok(Record { key, value: Some(object), header, traceparent: None });
        }
        _ => {
            let (key, value) = (some_bytes(input)?, some_bytes(input)?);
            let header = some_bytes(input)?;
            return Ok(Record { key, value: Some(value), header, traceparent: None });
        }
    };
    let header = if input.ratio(1, 16)? {
        some_bytes(input)?
    } else {
        let header = EventHeader {
            seq: Seq(number(input)?),
            epoch: WriterEpoch(epoch),
            epoch_first_seq: Seq(number(input)?),
            uid: String::new(),
            resource_version: String::new(),
            hash: StateHash::EMPTY,
        };
        header.encode().into()
    };
    Ok(Record { key: key.into(), value, header, traceparent: None })
}

fn some_bytes(input: &mut Unstructured<'_>) -> Result<Bytes> {
    input.arbitrary::<Vec<u8>>().map(Bytes::from)
}
