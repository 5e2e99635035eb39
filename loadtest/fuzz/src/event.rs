//! Names, keys, headers and JSON values of log records.

use arbitrary::{Result, Unstructured};
use headwater_event::record::{Claim, LogMetadata};
use headwater_event::report::SnapshotClosed;
use headwater_event::upstream::{ReportRecord, decode_report, encode_report};
use headwater_event::{
    Assignment, EntryKey, EventHeader, NodeName, NodeProgress, RecordKey, ReportKey, ResourceKey,
    StreamId,
};

/// The header of a downstream record.
pub fn header(bytes: &[u8]) {
    let Ok(header) = EventHeader::decode(bytes) else { return };
    let again = EventHeader::decode(&header.encode());
    assert_eq!(again, Ok(header), "a header that was read is written as another");
}

/// An upstream record: key, value and header.
pub fn report(bytes: &[u8]) {
    let _ = report_of(&mut Unstructured::new(bytes));
}

fn report_of(input: &mut Unstructured<'_>) -> Result<()> {
    let key = part(input)?.to_vec().into();
    let header = part(input)?.to_vec().into();
    let value = input.arbitrary::<bool>()?.then(|| input.take_rest_of().to_vec().into());
    let record = ReportRecord { key, value, header };
    let Ok(Some((node, report))) = decode_report(&record, None) else { return Ok(()) };
    let Ok(written) = encode_report(&node, &report) else { return Ok(()) };
    let read = decode_report(&written, None).expect("what was written is read");
    assert_eq!(read, Some((node, report)), "a report that was read is written as another");
    Ok(())
}

/// Some bytes, as many as their first says.
fn part<'a>(input: &mut Unstructured<'a>) -> Result<&'a [u8]> {
    let length = usize::from(input.arbitrary::<u8>()?).min(input.len());
    input.bytes(length)
}

/// What is left of an input.
trait TakeRest<'a> {
    fn take_rest_of(&mut self) -> &'a [u8];
}

impl<'a> TakeRest<'a> for Unstructured<'a> {
    fn take_rest_of(&mut self) -> &'a [u8] {
        let length = self.len();
        self.bytes(length).unwrap_or_default()
    }
}

/// Texts: record keys of both logs, and their parts.
pub fn key(bytes: &[u8]) {
    if let Ok(key) = RecordKey::decode(bytes) {
        let again = RecordKey::decode(key.to_string().as_bytes());
        assert_eq!(again.as_ref(), Ok(&key));
    }
    if let Ok((node, key)) = ReportKey::decode(bytes) {
        let again = ReportKey::decode(key.record_key(&node).as_bytes());
        assert_eq!(again, Ok((node, key)));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(stream) = text.parse::<StreamId>() {
        assert_eq!(stream.to_string(), text);
        let _ = stream.partition(16);
    }
    if let Ok(name) = text.parse::<NodeName>() {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(key) = text.parse::<EntryKey>() {
        assert_eq!(key.as_str(), text);
    }
    if let Ok(key) = text.parse::<ResourceKey>() {
        assert_eq!(key.as_str(), text);
        let again = ResourceKey::new(key.namespace(), key.kind(), key.name());
        assert_eq!(again.as_ref(), Ok(&key));
        let status = key.with_kind("podstatus");
        assert_eq!((status.kind(), status.name()), ("podstatus", key.name()));
    }
}

/// JSON values of records: assignments, progress, log metadata, claims, closings.
pub fn json(bytes: &[u8]) {
    let node: NodeName = "a".parse().expect("a node name");
    if let Ok(assignment) = Assignment::decode(&node, bytes) {
        let again = Assignment::decode(&node, &assignment.encode()).expect("what was written");
        assert_eq!(again, assignment);
        assert!(assignment.streams().iter().all(|stream| stream.readable_by(&node)));
    }
    reads_again::<NodeProgress>(bytes);
    reads_again::<LogMetadata>(bytes);
    reads_again::<Claim>(bytes);
    reads_again::<SnapshotClosed>(bytes);
}

fn reads_again<T>(bytes: &[u8])
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
    let written = serde_json::to_vec(&value).expect("it holds nothing that has no JSON");
    assert_eq!(serde_json::from_slice::<T>(&written).expect("what was written"), value);
}
