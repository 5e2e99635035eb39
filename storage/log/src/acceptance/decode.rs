//! Decodes the content of records.

use bytes::Bytes;
use headwater_event::record::{Claim, Heartbeat, LogMetadata};
use headwater_event::{
    Applied, BodyAddress, EntryKey, Envelope, Event, EventHeader, Removed, SharedObject, StreamId,
    WriterEpoch,
};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::MalformedReason;
use crate::bodies::Body;
use crate::log::{Record, StoredRecord};
use crate::value::decode_value;

/// Decodes the event of a record with this header. `body` is the body to which the record refers,
/// if it does.
pub(super) fn envelope(
    recorded: &StoredRecord,
    stream: StreamId,
    key: Option<EntryKey>,
    header: EventHeader,
    body: Option<(BodyAddress, Body)>,
) -> Result<Envelope, MalformedReason> {
    let EventHeader { seq, epoch, epoch_first_seq, uid, resource_version, hash } = header;
    let mut shared = None;
    let event = match (key, &recorded.record.value, body) {
        (None, _, _) => Event::Head,
        (Some(key), None, _) => Event::Removed(Removed { key, uid }),
        (Some(key), Some(_), Some((at, Body { header, object }))) => {
            shared = Some(SharedObject { body: at, object_hash: header.object_hash });
            let (uid, resource_version) = (header.uid, header.resource_version);
            Event::Applied(Applied { key, uid, resource_version, object })
        }
        (Some(key), Some(value), None) => {
            let object = decode_value(value)?;
            Event::Applied(Applied { key, uid, resource_version, object })
        }
    };
    let traceparent = recorded.record.traceparent.clone();
    let time_ms = recorded.time_ms;
    Ok(Envelope { stream, seq, epoch, epoch_first_seq, time_ms, hash, traceparent, event, shared })
}

/// Decodes the log's metadata from a record with this UUID in its key.
pub(super) fn decode_metadata(record: &Record, uuid: Uuid) -> Result<LogMetadata, MalformedReason> {
    let metadata: LogMetadata = reserved(record.value.as_ref())?;
    same(metadata.log_id.uuid == uuid)?;
    Ok(metadata)
}

/// Decodes the claim from a record with this epoch and UUID in its key.
pub(super) fn decode_claim(
    record: &Record,
    epoch: WriterEpoch,
    writer: Uuid,
) -> Result<Claim, MalformedReason> {
    let claim: Claim = reserved(record.value.as_ref())?;
    same(claim.epoch == epoch && claim.writer == writer)?;
    Ok(claim)
}

/// Decodes a heartbeat. A malformed value still is a heartbeat, because its presence suffices.
pub(super) fn decode_heartbeat(record: &Record) -> Heartbeat {
    reserved(record.value.as_ref()).unwrap_or_default()
}

fn reserved<T: DeserializeOwned>(value: Option<&Bytes>) -> Result<T, MalformedReason> {
    let malformed = |reason: String| MalformedReason::Reserved { reason };
    let value = value.ok_or_else(|| malformed("it has none".to_owned()))?;
    serde_json::from_slice(value).map_err(|error| malformed(error.to_string()))
}

fn same(agree: bool) -> Result<(), MalformedReason> {
    let reason = "it and the key differ";
    agree.then_some(()).ok_or_else(|| MalformedReason::Reserved { reason: reason.to_owned() })
}
