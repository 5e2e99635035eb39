//! The events of a stream, and the envelope they travel in.
//!
//! An event is a past-tense fact and is never edited. Every event of a stream has the next
//! [`Seq`], `Head` included, so that a reader notices a missing one.

use bytes::Bytes;

use crate::hash::StateHash;
use crate::key::EntryKey;
use crate::position::{Seq, WriterEpoch};
use crate::stream::StreamId;

/// What happened to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An entry came or changed (`PodApplied`, `ConfigMapApplied`, `StreamsAssigned`).
    Applied(Applied),
    /// An entry left (`PodRemoved`).
    Removed(Removed),
    /// Nothing changed: marks how far the stream went, so that a fold that met a compacted
    /// tombstone still knows its position. Written after a removal, before the tombstone can go.
    Head,
}

/// An entry that came or changed, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Which entry.
    pub key: EntryKey,
    /// The Kubernetes UID of the object; empty for reserved entries.
    pub uid: String,
    /// Kubernetes' resource version: opaque, compared for equality only. May be empty.
    pub resource_version: String,
    /// The object's JSON, byte for byte as the writer had it.
    pub object: Bytes,
}

/// An entry that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Which entry.
    pub key: EntryKey,
    /// The UID of the object that left: another object of the same name is not meant.
    pub uid: String,
}

impl Event {
    /// The entry that the event changed; `None` for `Head`.
    pub fn key(&self) -> Option<&EntryKey> {
        match self {
            Self::Applied(applied) => Some(&applied.key),
            Self::Removed(removed) => Some(&removed.key),
            Self::Head => None,
        }
    }

    /// The UID of the object concerned, empty where there is none.
    pub fn uid(&self) -> &str {
        match self {
            Self::Applied(applied) => &applied.uid,
            Self::Removed(removed) => &removed.uid,
            Self::Head => "",
        }
    }

    /// The resource version of the object concerned, empty where there is none.
    pub fn resource_version(&self) -> &str {
        match self {
            Self::Applied(applied) => &applied.resource_version,
            Self::Removed(_) | Self::Head => "",
        }
    }

    /// The name of the fact, as people read it: `PodApplied`, `ConfigMapRemoved`, `Head`.
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

/// A change to one entry of a stream's state: an event without its position.
///
/// What a writer is asked to append, and what a delta or snapshot carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entry is now this.
    Applied(Applied),
    /// The entry is gone.
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

/// An event with its place in its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The stream.
    pub stream: StreamId,
    /// The dense position in it.
    pub seq: Seq,
    /// The epoch of the writer that appended it.
    pub epoch: WriterEpoch,
    /// The first seq of that epoch in this stream: a replica whose checkpoint has a lower epoch
    /// and a seq at or beyond this one has diverged.
    pub epoch_first_seq: Seq,
    /// When the log appended it, in milliseconds since the Unix epoch. For people and `--at`;
    /// nothing is ordered by it.
    pub time_ms: i64,
    /// The stream's state hash after the event.
    pub hash: StateHash,
    /// W3C trace context of the change, where the source had one.
    pub traceparent: Option<String>,
    /// What happened.
    pub event: Event,
}

/// Kubernetes' CamelCase of a lower-case type, for event names.
fn kind_name(kind: &str) -> String {
    const NAMES: [(&str, &str); 9] = [
        ("configmap", "ConfigMap"),
        ("endpointslice", "EndpointSlice"),
        ("persistentvolume", "PersistentVolume"),
        ("persistentvolumeclaim", "PersistentVolumeClaim"),
        ("podstatus", "PodStatus"),
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
