//! The registry of record keys in both topics, and the values of reserved records.
//!
//! Keys are text that ordinary Kafka tools show:
//!
//! | downstream key | value | record |
//! |---|---|---|
//! | `!log <uuid>` | [`LogMetadata`] | first record of partition 0: the log's id and partition count |
//! | `!writer <epoch> <uuid>` | [`Claim`] | a writer's claim, in every partition, never superseded |
//! | `!heartbeat <epoch>` | [`Heartbeat`] | the writer is alive, or has stopped in order |
//! | `!reconciled <epoch>` | empty object | the writer has appended all differences of its sources |
//! | `!body <epoch> <number>` | an object, or null when retired | an object that events refer to, see [`crate::body`] |
//! | `<stream> !head` | empty object | [`crate::Event::Head`] |
//! | `<stream> <entry key>` | the object, or null for a removal | an event of the stream |
//!
//! Of several metadata records, and of several claims of one epoch, the first in partition 0 is
//! valid. Each has the UUID of its writer in its key: compaction keeps the last record of a key, so
//! it never drops the first one in favour of a later one.
//!
//! | upstream key | value | record |
//! |---|---|---|
//! | `!log <uuid>` | [`LogMetadata`] | in partition 0, first except behind reports of a version that wrote none |
//! | `node/<name> !snapshot` | [`SnapshotClosed`](crate::report::SnapshotClosed) | end of a pod status snapshot |
//! | `node/<name> !position` | [`NodeProgress`](crate::NodeProgress) | the node's positions, as a hub reports them |
//! | `node/<name> !registration` | [`EdgeStart`](crate::EdgeStart) | the Node was in a cluster, as the controller that writes notes it |
//! | `node/<name> <resource key>` | status, Node, message or Event; null for a removal | a report |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::body::BodyId;
use crate::key::{EntryKey, KeyError, ResourceKey};
use crate::name::NodeName;
use crate::position::{LogId, WriterEpoch};
use crate::stream::{StreamId, StreamIdError};

/// The key of a downstream record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordKey {
    /// The log's metadata, with the UUID of the log id.
    Log(Uuid),
    /// A writer's claim of an epoch, with the UUID of the attempt.
    Claim(WriterEpoch, Uuid),
    /// A writer's heartbeat.
    Heartbeat(WriterEpoch),
    /// The mark of a writer that has appended all differences of its sources.
    Reconciled(WriterEpoch),
    /// An object that events of the partition refer to.
    Body(BodyId),
    /// The head of a stream.
    Head(StreamId),
    /// An entry of a stream.
    Entry(StreamId, EntryKey),
}

/// The part of an upstream record's key after the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportKey {
    /// `!snapshot`: the end of a pod status snapshot.
    Snapshot,
    /// `!position`: the node's positions, as a hub reports them.
    Position,
    /// `!registration`: the start of the edge during which a cluster had the Node. Readers of a version that
    /// does not know the key skip the record. No report of a node has this key.
    Registration,
    /// A report under a resource key.
    Resource(ResourceKey),
}

/// The metadata of a log: the value of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogMetadata {
    /// The id of this life of the log.
    pub log_id: LogId,
    /// The number of partitions over which the streams are spread. It never changes in this life
    /// of the log.
    pub partitions: u32,
}

/// The value of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The claimed epoch.
    pub epoch: WriterEpoch,
    /// The UUID of the attempt. Each attempt of a process draws a new one.
    pub writer: Uuid,
    /// The address at which hubs reach the active controller, if it listens.
    pub address: Option<String>,
}

/// Where the writer of an epoch listens for hubs. A writer that starts again has its address and another epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterAddress {
    /// The epoch that it claimed.
    pub epoch: WriterEpoch,
    /// HOST:PORT.
    pub address: String,
}

impl Claim {
    /// Where the writer listens, if it does.
    pub fn writer_address(&self) -> Option<WriterAddress> {
        let address = self.address.clone()?;
        Some(WriterAddress { epoch: self.epoch, address })
    }
}

/// The value of a writer's heartbeat: an empty object while the writer keeps the log. Older readers
/// ignore both fields and see an ordinary heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The writer has stopped in order and appends no more. A standby need not wait until the
    /// writer's heartbeats have been absent for long enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// The writer has lost its sources. It goes on writing, and a standby whose sources follow may
    /// claim at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
}

/// Why a record key cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordKeyError {
    /// The key is not UTF-8.
    #[error("the record key is not UTF-8")]
    NotText,
    /// The key has no known form.
    #[error("{text:?} is not a record key of Headwater")]
    Unknown {
        /// The key as text.
        text: String,
    },
    /// The stream part is malformed.
    #[error("the record key {text:?} has no valid stream")]
    Stream {
        /// The key as text.
        text: String,
        /// The defect.
        source: StreamIdError,
    },
    /// The part after the stream is malformed.
    #[error("the record key {text:?} has no valid entry key")]
    Entry {
        /// The key as text.
        text: String,
        /// The defect.
        source: KeyError,
    },
}

const LOG: &str = "!log";
const WRITER: &str = "!writer";
const HEARTBEAT: &str = "!heartbeat";
const RECONCILED: &str = "!reconciled";
const BODY: &str = "!body";
const HEAD: &str = "!head";
const SNAPSHOT: &str = "!snapshot";
const POSITION: &str = "!position";
const REGISTRATION: &str = "!registration";

impl RecordKey {
    /// Decodes a key.
    ///
    /// # Errors
    /// The bytes are not a downstream record key; see [`RecordKeyError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordKeyError> {
        let text = std::str::from_utf8(bytes).map_err(|_| RecordKeyError::NotText)?;
        let unknown = || RecordKeyError::Unknown { text: text.to_owned() };
        let (first, second) = text.split_once(' ').ok_or_else(unknown)?;
        if first.starts_with('!') {
            return reserved(first, second).ok_or_else(unknown);
        }
        let stream: StreamId = first
            .parse()
            .map_err(|source| RecordKeyError::Stream { text: text.to_owned(), source })?;
        if second == HEAD {
            return Ok(Self::Head(stream));
        }
        let entry = second
            .parse()
            .map_err(|source| RecordKeyError::Entry { text: text.to_owned(), source })?;
        Ok(Self::Entry(stream, entry))
    }
}

/// Decodes the key of a reserved record: `first`, a space, and `second`.
fn reserved(first: &str, second: &str) -> Option<RecordKey> {
    let epoch = |text: &str| text.parse().ok().map(WriterEpoch);
    match first {
        LOG => second.parse().ok().map(RecordKey::Log),
        WRITER => {
            let (number, writer) = second.split_once(' ')?;
            Some(RecordKey::Claim(epoch(number)?, writer.parse().ok()?))
        }
        HEARTBEAT => epoch(second).map(RecordKey::Heartbeat),
        RECONCILED => epoch(second).map(RecordKey::Reconciled),
        BODY => {
            let (of, number) = second.split_once(' ')?;
            Some(RecordKey::Body(BodyId { epoch: epoch(of)?, number: number.parse().ok()? }))
        }
        _ => None,
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(uuid) => write!(f, "{LOG} {uuid}"),
            Self::Claim(epoch, writer) => write!(f, "{WRITER} {epoch} {writer}"),
            Self::Heartbeat(epoch) => write!(f, "{HEARTBEAT} {epoch}"),
            Self::Reconciled(epoch) => write!(f, "{RECONCILED} {epoch}"),
            Self::Body(id) => write!(f, "{BODY} {id}"),
            Self::Head(stream) => write!(f, "{stream} {HEAD}"),
            Self::Entry(stream, entry) => write!(f, "{stream} {entry}"),
        }
    }
}

impl ReportKey {
    /// The complete key of the upstream record of `node`.
    pub fn record_key(&self, node: &NodeName) -> String {
        format!("node/{node} {self}")
    }

    /// Decodes the key of an upstream record.
    ///
    /// # Errors
    /// The bytes are not an upstream record key; see [`RecordKeyError`].
    pub fn decode(bytes: &[u8]) -> Result<(NodeName, Self), RecordKeyError> {
        let text = std::str::from_utf8(bytes).map_err(|_| RecordKeyError::NotText)?;
        let unknown = || RecordKeyError::Unknown { text: text.to_owned() };
        let (first, second) = text.split_once(' ').ok_or_else(unknown)?;
        let stream = first
            .parse()
            .map_err(|source| RecordKeyError::Stream { text: text.to_owned(), source })?;
        let StreamId::Node(node) = stream else { return Err(unknown()) };
        let key = second
            .parse()
            .map_err(|source| RecordKeyError::Entry { text: text.to_owned(), source })?;
        Ok((node, key))
    }
}

impl FromStr for ReportKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text {
            SNAPSHOT => Ok(Self::Snapshot),
            POSITION => Ok(Self::Position),
            REGISTRATION => Ok(Self::Registration),
            _ => text.parse().map(Self::Resource),
        }
    }
}

impl fmt::Display for ReportKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => SNAPSHOT,
            Self::Position => POSITION,
            Self::Registration => REGISTRATION,
            Self::Resource(key) => key.as_str(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_survive_text() {
        for text in [
            "!log 67e55044-10b1-426f-9247-bb680e5fe0c8",
            "!writer 3 67e55044-10b1-426f-9247-bb680e5fe0c8",
            "!heartbeat 3",
            "!reconciled 3",
            "!body 3 7",
            "cluster !head",
            "node/gw-1 !streams",
            "node/gw-1 !snapshot-request",
            "node/gw-1 default/pod/web",
            "cluster default/service/web",
        ] {
            assert_eq!(RecordKey::decode(text.as_bytes()).expect(text).to_string(), text);
        }
        for bad in [
            "",
            "!log",
            "!log ",
            "!writer 3",
            "!writer x y",
            "!other 1",
            "!body 3",
            "!body 3 x",
            "pool default/pod/a",
            "cluster a/b",
        ] {
            assert!(RecordKey::decode(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(RecordKey::decode(&[0xff]), Err(RecordKeyError::NotText));
    }

    #[test]
    fn upstream_keys_contain_their_node() {
        let node: NodeName = "gw-1".parse().expect("ok");
        for key in [
            ReportKey::Snapshot,
            ReportKey::Position,
            ReportKey::Registration,
            "d/podstatus/web".parse().expect("ok"),
        ] {
            let text = key.record_key(&node);
            assert_eq!(ReportKey::decode(text.as_bytes()), Ok((node.clone(), key)));
        }
        assert!(ReportKey::decode(b"cluster d/podstatus/web").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = RecordKey::decode(&bytes);
            let _ = ReportKey::decode(&bytes);
        }
    }

    #[test]
    fn every_heartbeat_except_the_last_is_an_empty_object() {
        for (released, json) in [(false, "{}"), (true, r#"{"released":true}"#)] {
            let heartbeat = Heartbeat { released, ..Heartbeat::default() };
            assert_eq!(serde_json::to_string(&heartbeat).expect("serializable"), json);
            assert_eq!(serde_json::from_str::<Heartbeat>(json).expect("readable"), heartbeat);
        }
        assert!(!serde_json::from_str::<Heartbeat>(r#"{"later":1}"#).expect("readable").released);
    }
}
