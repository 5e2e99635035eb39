//! The encoding of reports as upstream records.
//!
//! The key contains the node and the subject of the report. The value is a status, a Node or a
//! message, which kcat shows, or null for a removed status. The header contains the report's
//! position; `proto/headwater/log/v1/record.proto` describes its bytes after the version byte.
//!
//! No later report of a node takes the place of the termination of a pod. Once the pod is gone, the
//! controller removes the termination: the same record without a value
//! ([`encode_termination_removed`]). So it removes an Event that it needs no longer
//! ([`encode_event_removed`]).
//!
//! The controller that writes also notes which Nodes were in a cluster ([`encode_registration`]).

use bytes::Bytes;
use prost::Message;

use crate::header::HeaderError;
use crate::key::{KeyError, ResourceKey};
use crate::name::NodeName;
use crate::record::{RecordKeyError, ReportKey};
use crate::report::{EdgeStart, Incarnation, Report, ReportBody, ReportId};

/// The header version that this build writes. A reader refuses an unknown version.
pub const REPORT_HEADER_VERSION: u8 = 1;

/// The record of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRecord {
    /// The record's key.
    pub key: Bytes,
    /// The record's value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// The record's header.
    pub header: Bytes,
}

/// Why a record is not a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportRecordError {
    /// The key cannot be decoded.
    #[error(transparent)]
    Key(#[from] RecordKeyError),
    /// The header cannot be decoded.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Key, header and value do not match.
    #[error("the report {key} is malformed: {reason}")]
    Malformed {
        /// The record's key.
        key: String,
        /// The defect.
        reason: String,
    },
}

/// The protobuf message of the header. Field numbers are never reused.
#[derive(Clone, PartialEq, Message)]
struct HeaderMessage {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint64, tag = "2")]
    boot: u64,
    #[prost(uint64, tag = "3")]
    seq: u64,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(enumeration = "Kind", tag = "5")]
    kind: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Unspecified = 0,
    PodStatus = 1,
    PodStatusRemoved = 2,
    SnapshotClosed = 3,
    Node = 4,
    PodTerminated = 5,
    Message = 6,
    Event = 7,
}

/// Encodes a report of `node`.
///
/// # Errors
/// The node's name does not fit into a key.
pub fn encode_report(node: &NodeName, report: &Report) -> Result<ReportRecord, KeyError> {
    let key = report.body.key(node)?.record_key(node);
    let (kind, uid, value) = match &report.body {
        ReportBody::PodStatus { uid, status, .. } => {
            (Kind::PodStatus, uid.as_str(), Some(status.clone()))
        }
        ReportBody::PodStatusRemoved { uid, .. } => (Kind::PodStatusRemoved, uid.as_str(), None),
        ReportBody::SnapshotClosed(closed) => {
            let json = serde_json::to_vec(closed).unwrap_or_default();
            (Kind::SnapshotClosed, "", Some(json.into()))
        }
        ReportBody::Node { object } => (Kind::Node, "", Some(object.clone())),
        ReportBody::PodTerminated { uid, .. } => {
            (Kind::PodTerminated, uid.as_str(), Some(Bytes::from_static(b"{}")))
        }
        ReportBody::Message { content, .. } => (Kind::Message, "", Some(content.clone())),
        ReportBody::Event { object, .. } => (Kind::Event, "", Some(object.clone())),
    };
    let message = HeaderMessage {
        incarnation: report.id.incarnation.0,
        boot: report.id.boot,
        seq: report.id.seq,
        uid: uid.to_owned(),
        kind: kind.into(),
    };
    let mut header = Vec::with_capacity(1 + message.encoded_len());
    header.push(REPORT_HEADER_VERSION);
    message.encode_raw(&mut header);
    Ok(ReportRecord { key: key.into(), value, header: header.into() })
}

/// The termination of a pod that was removed from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationRemoved {
    /// The node that reported it.
    pub node: NodeName,
    /// The pod.
    pub pod: ResourceKey,
    /// The id of its report.
    pub id: ReportId,
}

/// Encodes the removal of the termination that `node` reported of `pod` as `id`.
///
/// A reader of a version that knows no removals takes the record for the termination itself.
///
/// # Errors
/// As [`encode_report`].
pub fn encode_termination_removed(
    node: &NodeName,
    pod: ResourceKey,
    uid: String,
    id: ReportId,
) -> Result<ReportRecord, KeyError> {
    let body = ReportBody::PodTerminated { pod, uid };
    let record = encode_report(node, &Report { id, body, traceparent: None })?;
    Ok(ReportRecord { value: None, ..record })
}

/// Decodes the removal of a termination. Returns `None` for every other record.
pub fn decode_termination_removed(record: &ReportRecord) -> Option<TerminationRemoved> {
    let (node, report) = decode(record, None).ok()??;
    match report.body {
        ReportBody::PodTerminated { pod, .. } if record.value.is_none() => {
            Some(TerminationRemoved { node, pod, id: report.id })
        }
        _ => None,
    }
}

/// An Event that was removed from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRemoved {
    /// The node that reported it.
    pub node: NodeName,
    /// The Event, as `<namespace>/event/<name>`.
    pub key: ResourceKey,
    /// The id of its report.
    pub id: ReportId,
}

/// Encodes the removal of the Event that `node` reported as `id`.
///
/// # Errors
/// As [`encode_report`].
pub fn encode_event_removed(
    node: &NodeName,
    key: ResourceKey,
    id: ReportId,
) -> Result<ReportRecord, KeyError> {
    let body = ReportBody::Event { key, object: Bytes::new() };
    let record = encode_report(node, &Report { id, body, traceparent: None })?;
    Ok(ReportRecord { value: None, ..record })
}

/// Decodes the removal of an Event. Returns `None` for every other record.
pub fn decode_event_removed(record: &ReportRecord) -> Option<EventRemoved> {
    let (node, report) = decode(record, None).ok()??;
    match report.body {
        ReportBody::Event { key, .. } if record.value.is_none() => {
            Some(EventRemoved { node, key, id: report.id })
        }
        _ => None,
    }
}

/// Encodes that a cluster had the Node of `node` while its edge ran since `start`.
pub fn encode_registration(node: &NodeName, start: EdgeStart) -> ReportRecord {
    let value = serde_json::to_vec(&start).unwrap_or_default();
    ReportRecord {
        key: ReportKey::Registration.record_key(node).into(),
        value: Some(value.into()),
        header: Bytes::new(),
    }
}

/// Decodes the value of a registration.
///
/// # Errors
/// The value is no start of an edge.
pub fn decode_registration(value: &[u8]) -> Result<EdgeStart, serde_json::Error> {
    serde_json::from_slice(value)
}

/// Decodes a report. Returns `None` for a hub's record of a node's positions, for a registration, and for the
/// removal of a termination or an Event.
///
/// # Errors
/// The record is not a report; see [`ReportRecordError`]. The reader skips it.
pub fn decode_report(
    record: &ReportRecord,
    traceparent: Option<String>,
) -> Result<Option<(NodeName, Report)>, ReportRecordError> {
    let decoded = decode(record, traceparent)?;
    let is_removal = |body: &ReportBody| {
        let is_removable =
            matches!(body, ReportBody::PodTerminated { .. } | ReportBody::Event { .. });
        record.value.is_none() && is_removable
    };
    Ok(decoded.filter(|(_, report)| !is_removal(&report.body)))
}

/// As [`decode_report`], with the removal of a termination or an Event as what is removed.
fn decode(
    record: &ReportRecord,
    traceparent: Option<String>,
) -> Result<Option<(NodeName, Report)>, ReportRecordError> {
    let (node, key) = ReportKey::decode(&record.key)?;
    if matches!(key, ReportKey::Position | ReportKey::Registration) {
        return Ok(None);
    }
    let malformed = |reason: &str| ReportRecordError::Malformed {
        key: String::from_utf8_lossy(&record.key).into_owned(),
        reason: reason.to_owned(),
    };
    let message = decode_header(&record.header)?;
    let value = || record.value.clone().ok_or_else(|| malformed("it has no value"));
    let resource = || match &key {
        ReportKey::Resource(key) => Ok(key.clone()),
        ReportKey::Snapshot | ReportKey::Position | ReportKey::Registration => {
            Err(malformed("its key has no resource"))
        }
    };
    let pod = || resource().map(|key| key.with_kind("pod"));
    let uid = message.uid.clone();
    let body = match message.kind() {
        Kind::PodStatus => ReportBody::PodStatus { pod: pod()?, uid, status: value()? },
        Kind::PodStatusRemoved => ReportBody::PodStatusRemoved { pod: pod()?, uid },
        Kind::SnapshotClosed => ReportBody::SnapshotClosed(
            serde_json::from_slice(&value()?)
                .map_err(|error| malformed(&format!("its value: {error}")))?,
        ),
        Kind::Node => ReportBody::Node { object: value()? },
        Kind::PodTerminated => ReportBody::PodTerminated { pod: pod()?, uid },
        Kind::Message => ReportBody::Message { key: resource()?, content: value()? },
        Kind::Event => {
            ReportBody::Event { key: resource()?, object: record.value.clone().unwrap_or_default() }
        }
        Kind::Unspecified => return Err(malformed("its header has no kind")),
    };
    if body.key(&node).ok().as_ref() != Some(&key) {
        return Err(malformed("its key does not match its kind"));
    }
    let id = ReportId {
        incarnation: Incarnation(message.incarnation),
        boot: message.boot,
        seq: message.seq,
    };
    Ok(Some((node, Report { id, body, traceparent })))
}

fn decode_header(bytes: &[u8]) -> Result<HeaderMessage, HeaderError> {
    let (version, rest) = bytes.split_first().ok_or(HeaderError::Missing)?;
    if *version != REPORT_HEADER_VERSION {
        return Err(HeaderError::Version { found: *version });
    }
    HeaderMessage::decode(rest)
        .map_err(|error| HeaderError::Malformed { reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::StateHash;
    use crate::report::SnapshotClosed;

    fn node() -> NodeName {
        "gw-1".parse().expect("a node name")
    }

    fn bodies() -> Vec<ReportBody> {
        let pod: ResourceKey = "shop/pod/web".parse().expect("a key");
        let uid = "u-1".to_owned();
        let json = Bytes::from_static(b"{\"phase\":\"Running\"}");
        vec![
            ReportBody::PodStatus { pod: pod.clone(), uid: uid.clone(), status: json.clone() },
            ReportBody::PodStatusRemoved { pod: pod.clone(), uid: uid.clone() },
            ReportBody::SnapshotClosed(SnapshotClosed {
                hash: StateHash::EMPTY,
                pods: 2,
                full: true,
                first: ReportId { seq: 4, ..ReportId::default() },
            }),
            ReportBody::Node { object: json.clone() },
            ReportBody::PodTerminated { pod, uid },
            ReportBody::Message {
                key: "shop/alarm/door".parse().expect("a key"),
                content: json.clone(),
            },
            ReportBody::Event { key: "shop/event/web.1f".parse().expect("a key"), object: json },
        ]
    }

    #[test]
    fn every_report_survives_its_record() {
        for (n, body) in bodies().into_iter().enumerate() {
            let id = ReportId { incarnation: Incarnation(1), boot: 2, seq: n as u64 };
            let report = Report { id, body, traceparent: None };
            let record = encode_report(&node(), &report).expect("a record");
            let back = decode_report(&record, None).expect("readable");
            assert_eq!(back, Some((node(), report)));
        }
    }

    #[test]
    fn a_removed_status_is_a_tombstone_and_a_position_record_is_not_a_report() {
        let removed =
            Report { id: ReportId::default(), body: bodies().remove(1), traceparent: None };
        assert_eq!(encode_report(&node(), &removed).expect("a record").value, None);
        let position = ReportRecord {
            key: ReportKey::Position.record_key(&node()).into(),
            value: Some(Bytes::from_static(b"{}")),
            header: Bytes::new(),
        };
        assert!(decode_report(&position, None).expect("readable").is_none());
    }

    #[test]
    fn a_removed_termination_is_a_tombstone_under_its_key_and_no_report() {
        let id = ReportId { incarnation: Incarnation(1), boot: 2, seq: 3 };
        let report = Report { id, body: bodies().remove(4), traceparent: None };
        let ReportBody::PodTerminated { pod, uid } = report.body.clone() else {
            panic!("{report:?}")
        };
        let record = encode_report(&node(), &report).expect("a record");
        let removed = encode_termination_removed(&node(), pod.clone(), uid, id).expect("a record");
        assert_eq!((&removed.key, &removed.value), (&record.key, &None));
        assert!(decode_report(&removed, None).expect("readable").is_none());
        let expected = TerminationRemoved { node: node(), pod, id };
        assert_eq!(decode_termination_removed(&removed), Some(expected));
        assert_eq!(decode_termination_removed(&record), None);
        let status = Report { id, body: bodies().remove(1), traceparent: None };
        let status = encode_report(&node(), &status).expect("a record");
        assert_eq!(decode_termination_removed(&status), None, "a removed status");
    }

    #[test]
    fn a_removed_event_is_a_tombstone_under_its_key_and_no_report() {
        let id = ReportId { incarnation: Incarnation(1), boot: 2, seq: 3 };
        let report = Report { id, body: bodies().remove(6), traceparent: None };
        let record = encode_report(&node(), &report).expect("a record");
        let key: ResourceKey = "shop/event/web.1f".parse().expect("a key");
        let removed = encode_event_removed(&node(), key.clone(), id).expect("a record");
        assert_eq!((&removed.key, &removed.value), (&record.key, &None));
        assert!(decode_report(&removed, None).expect("readable").is_none());
        assert_eq!(decode_event_removed(&removed), Some(EventRemoved { node: node(), key, id }));
        assert_eq!(decode_event_removed(&record), None);
        assert_eq!(decode_termination_removed(&removed), None);
    }

    #[test]
    fn a_registration_survives_its_record_and_is_no_report() {
        let start = EdgeStart { incarnation: Incarnation(1), boot: 2 };
        let record = encode_registration(&node(), start);
        assert_eq!(&record.key[..], b"node/gw-1 !registration");
        let value = record.value.clone().expect("a value");
        assert_eq!(decode_registration(&value).expect("readable"), start);
        assert!(decode_report(&record, None).expect("readable").is_none());
        assert!(decode_registration(b"{}").is_err());
    }

    #[test]
    fn a_kind_under_the_key_of_another_kind_is_refused() {
        let mut record = encode_report(
            &node(),
            &Report { id: ReportId::default(), body: bodies().remove(3), traceparent: None },
        )
        .expect("a record");
        record.key = Bytes::from_static(b"node/gw-1 null/node/other");
        assert!(matches!(decode_report(&record, None), Err(ReportRecordError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(key: Vec<u8>, value: Option<Vec<u8>>, header: Vec<u8>) {
            let value = value.map(Bytes::from);
            let record = ReportRecord { key: key.into(), value, header: header.into() };
            let _ = decode_report(&record, None);
            let _ = decode_termination_removed(&record);
            let _ = decode_event_removed(&record);
        }
    }
}
