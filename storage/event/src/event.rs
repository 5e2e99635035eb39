//! The events of a stream, and the envelope that gives an event its position.
//!
//! An event is a fact in the past tense and never changes. Each event of a stream has the next
//! [`Seq`], [`Event::Head`] included, so a reader notices a missing event.

use bytes::Bytes;

use crate::body::SharedObject;
use crate::hash::StateHash;
use crate::key::EntryKey;
use crate::position::{Seq, WriterEpoch};
use crate::stream::StreamId;

/// One fact in the history of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An entry was created or changed (`PodApplied`, `ConfigMapApplied`, `StreamsAssigned`).
    Applied(Applied),
    /// An entry was removed (`PodRemoved`).
    Removed(Removed),
    /// The state is unchanged. The event marks the end of the stream: a fold that misses a removal
    /// because compaction dropped the tombstone still learns the position. The writer appends it
    /// after a removal, before compaction can drop the tombstone.
    Head,
}

/// The complete new value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Which entry.
    pub key: EntryKey,
    /// The Kubernetes UID of the object; empty for reserved entries.
    pub uid: String,
    /// The Kubernetes resource version: opaque, compared for equality only. May be empty.
    pub resource_version: String,
    /// The object's JSON, byte for byte as the writer received it.
    pub object: Bytes,
}

/// The removal of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Which entry.
    pub key: EntryKey,
    /// The UID of the removed object. A later object of the same name has another UID.
    pub uid: String,
}

impl Event {
    /// The entry that the event changes; `None` for `Head`.
    pub fn key(&self) -> Option<&EntryKey> {
        match self {
            Self::Applied(applied) => Some(&applied.key),
            Self::Removed(removed) => Some(&removed.key),
            Self::Head => None,
        }
    }

    /// The UID of the object; empty for `Head`.
    pub fn uid(&self) -> &str {
        match self {
            Self::Applied(applied) => &applied.uid,
            Self::Removed(removed) => &removed.uid,
            Self::Head => "",
        }
    }

    /// The resource version of the object; empty for a removal and for `Head`.
    pub fn resource_version(&self) -> &str {
        match self {
            Self::Applied(applied) => &applied.resource_version,
            Self::Removed(_) | Self::Head => "",
        }
    }

    /// The name of the event for people: `PodApplied`, `ConfigMapRemoved`, `Head`.
    pub fn kind(&self) -> String {
        let (key, verb) = match self {
            Self::Head => return "Head".to_owned(),
            Self::Applied(applied) => (&applied.key, "Applied"),
            Self::Removed(removed) => (&removed.key, "Removed"),
        };
        match key {
            EntryKey::Streams => "StreamsAssigned".to_owned(),
            EntryKey::SnapshotRequest => "SnapshotRequested".to_owned(),
            EntryKey::Resource(key) => format!("{}{verb}", kind_name(key.kind())),
        }
    }

    /// The change that this event makes to the stream's state; `None` for `Head`.
    pub fn change(&self) -> Option<Change> {
        match self {
            Self::Applied(applied) => Some(Change::Applied(applied.clone())),
            Self::Removed(removed) => Some(Change::Removed(removed.clone())),
            Self::Head => None,
        }
    }
}

/// A change of one entry of a stream's state: an event without a position.
///
/// A writer appends changes; a delta and a snapshot consist of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entry has this value now.
    Applied(Applied),
    /// The entry no longer exists.
    Removed(Removed),
}

impl Change {
    /// The entry that changes.
    pub fn key(&self) -> &EntryKey {
        match self {
            Self::Applied(applied) => &applied.key,
            Self::Removed(removed) => &removed.key,
        }
    }
}

impl From<Change> for Event {
    fn from(change: Change) -> Self {
        match change {
            Change::Applied(applied) => Self::Applied(applied),
            Change::Removed(removed) => Self::Removed(removed),
        }
    }
}

/// An event with its position in its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The stream.
    pub stream: StreamId,
    /// The event's position in the stream, without gaps.
    pub seq: Seq,
    /// The epoch of the writer that appended the event.
    pub epoch: WriterEpoch,
    /// The first seq of that epoch in this stream. A replica whose checkpoint has a lower epoch
    /// and a seq at or beyond this one has diverged.
    pub epoch_first_seq: Seq,
    /// The time at which the log appended the event, in milliseconds since the Unix epoch. For
    /// people and `--at`; it orders nothing.
    pub time_ms: i64,
    /// The stream's state hash after the event.
    pub hash: StateHash,
    /// The W3C trace context of the change, if the source supplied one.
    pub traceparent: Option<String>,
    /// The event.
    pub event: Event,
    /// The body that the event's record refers to, if its record does not carry the object. A part
    /// that does not store the partition's bodies ignores it: the event has the object.
    pub shared: Option<SharedObject>,
}

/// The CamelCase that Kubernetes uses for a lower-case type, for event names.
fn kind_name(kind: &str) -> String {
    const NAMES: [(&str, &str); 11] = [
        ("configmap", "ConfigMap"),
        ("csidriver", "CSIDriver"),
        ("endpointslice", "EndpointSlice"),
        ("persistentvolume", "PersistentVolume"),
        ("persistentvolumeclaim", "PersistentVolumeClaim"),
        ("podstatus", "PodStatus"),
        ("runtimeclass", "RuntimeClass"),
        ("serviceaccount", "ServiceAccount"),
        ("serviceaccounttoken", "ServiceAccountToken"),
        ("volumeattachment", "VolumeAttachment"),
        ("certificatesigningrequest", "CertificateSigningRequest"),
    ];
    if let Some((_, name)) = NAMES.iter().find(|(lower, _)| *lower == kind) {
        return (*name).to_owned();
    }
    let mut letters = kind.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(key: &str) -> Event {
        Event::Applied(Applied {
            key: key.parse().expect("well-formed"),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            object: Bytes::from_static(b"{}"),
        })
    }

    #[test]
    fn events_are_named_as_facts() {
        assert_eq!(applied("ns/pod/a").kind(), "PodApplied");
        assert_eq!(applied("ns/configmap/a").kind(), "ConfigMapApplied");
        assert_eq!(applied("!streams").kind(), "StreamsAssigned");
        let removed = Removed { key: "ns/pod/a".parse().expect("ok"), uid: String::new() };
        assert_eq!(Event::Removed(removed).kind(), "PodRemoved");
        assert_eq!(Event::Head.kind(), "Head");
    }
}
