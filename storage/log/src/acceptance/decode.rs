//! From a record's bytes to what they say.

use bytes::Bytes;
use headwater_event::record::{Claim, Heartbeat, LogBirth};
use headwater_event::{
    Applied, EntryKey, Envelope, Event, EventHeader, Removed, StreamId, WriterEpoch,
};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::MalformedReason;
use crate::contract::{Record, Recorded};
use crate::value::decode_value;

/// The event of a record whose header was read.
pub(super) fn envelope(
    recorded: &Recorded,
    stream: StreamId,
    key: Option<EntryKey>,
    header: EventHeader,
) -> Result<Envelope, MalformedReason> {
    let EventHeader { seq, epoch, epoch_first_seq, uid, resource_version, hash } = header;
    let event = match (key, &recorded.record.value) {
        (None, _) => Event::Head,
        (Some(key), None) => Event::Removed(Removed { key, uid }),
        (Some(key), Some(value)) => {
            let object = decode_value(value)?;
            Event::Applied(Applied { key, uid, resource_version, object })
        }
    };
    let traceparent = recorded.record.traceparent.clone();
    let time_ms = recorded.time_ms;
    Ok(Envelope { stream, seq, epoch, epoch_first_seq, time_ms, hash, traceparent, event })
}

/// The birth that a record with this UUID in its key tells of.
pub(super) fn decode_birth(record: &Record, uuid: Uuid) -> Result<LogBirth, MalformedReason> {
    let birth: LogBirth = reserved(record.value.as_ref())?;
    same(birth.log_id.uuid == uuid)?;
    Ok(birth)
}

/// The claim that a record with this epoch and UUID in its key makes.
pub(super) fn decode_claim(
    record: &Record,
    epoch: WriterEpoch,
    writer: Uuid,
) -> Result<Claim, MalformedReason> {
    let claim: Claim = reserved(record.value.as_ref())?;
    same(claim.epoch == epoch && claim.writer == writer)?;
    Ok(claim)
}

/// What a writer's sign of life says. That there is one says enough: one that cannot be read is
/// a sign of life.
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
