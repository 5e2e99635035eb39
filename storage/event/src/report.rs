//! The reports of edges, and their order.
//!
//! [`ReportId`] = (incarnation, boot, seq) orders the reports of a node; time never does. A report
//! replaces the previous one of its key only if its id is greater.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::hash::StateHash;
use crate::key::ResourceKey;
use crate::name::NodeName;

/// The most bytes of an Event: Kubernetes allows 1 KiB of message, and the names of the object have up
/// to 600 bytes.
pub const EVENT_BYTES_MAX: usize = 8 << 10;

/// The issue number of a node's identity. A re-imaged node gets the next one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// One start of an edge: a counter on its disk and a random nonce.
///
/// Equal counters with different nonces mean two machines with one disk image: clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Boot {
    /// The number of the start, counted from 1. The edge increments and syncs it before it reports.
    pub number: u64,
    /// A random number, drawn at each start.
    pub nonce: u64,
}

/// The identity that an edge claims. It proves nothing: the certificate proves the node's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The node.
    pub node: NodeName,
    /// The issue number of its identity.
    pub incarnation: Incarnation,
    /// The start of its edge.
    pub boot: Boot,
}

impl Identity {
    /// The rank of this start among all starts of the node, without the nonce.
    pub fn rank(&self) -> (Incarnation, u64) {
        (self.incarnation, self.boot.number)
    }

    /// Whether this start supersedes `other`: it is later, or has the same number on another
    /// machine. A superseded edge raises its boot number before it reports.
    pub fn outranks(&self, other: &Self) -> bool {
        self.rank() > other.rank()
            || (self.rank() == other.rank() && self.boot.nonce != other.boot.nonce)
    }
}

/// A start of an edge, without its nonce. A later start is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EdgeStart {
    /// The issue number of the node's identity.
    pub incarnation: Incarnation,
    /// The boot number.
    pub boot: u64,
}

/// The position of a report among all reports of its node. The fields are compared in order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ReportId {
    /// The issue number of the node's identity.
    pub incarnation: Incarnation,
    /// The boot number.
    pub boot: u64,
    /// The number of the report in its boot, counted from 1. An edge never issues a number twice
    /// with different content.
    pub seq: u64,
}

impl fmt::Display for ReportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.incarnation.0, self.boot, self.seq)
    }
}

/// A report of a node: its own data, on the way upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The report's position among all reports of the node.
    pub id: ReportId,
    /// The content.
    pub body: ReportBody,
    /// The W3C trace context of the change that caused the report, if there is one.
    pub traceparent: Option<String>,
}

/// The content of a report. The outbox and the log keep the latest report of each
/// [`ReportBody::key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportBody {
    /// The complete status of a pod.
    PodStatus {
        /// The pod, as `<namespace>/pod/<name>`.
        pod: ResourceKey,
        /// The pod's UID. Another pod of the same name has another UID.
        uid: String,
        /// The status as JSON (`PodStatus` of the Kubernetes API).
        status: Bytes,
    },
    /// The pod is no longer part of the snapshot. The cloud discards its status.
    PodStatusRemoved {
        /// The pod.
        pod: ResourceKey,
        /// The pod's UID.
        uid: String,
    },
    /// The reports up to this one form a pod status snapshot.
    SnapshotClosed(SnapshotClosed),
    /// The node registers or reports its own status.
    Node {
        /// The complete Node object as JSON, with its status.
        object: Bytes,
    },
    /// All containers of a pod under deletion have stopped: the cloud may delete the pod with
    /// grace period 0.
    PodTerminated {
        /// The pod.
        pod: ResourceKey,
        /// The pod's UID.
        uid: String,
    },
    /// A message from a function or an application on the node to the cloud.
    Message {
        /// The message's key. The latest message of each key is kept.
        key: ResourceKey,
        /// The content as JSON.
        content: Bytes,
    },
    /// An Event of Kubernetes: what the node did with an object, or why it could not. An Event that
    /// happens again replaces the report, with a higher count.
    Event {
        /// The Event, as `<namespace>/event/<name>`.
        key: ResourceKey,
        /// The Event as JSON (`Event` of the Kubernetes API).
        object: Bytes,
    },
}

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// See [`ReportBody::PodStatus`].
    PodStatus,
    /// See [`ReportBody::PodStatusRemoved`].
    PodStatusRemoved,
    /// See [`ReportBody::SnapshotClosed`].
    SnapshotClosed,
    /// See [`ReportBody::Node`].
    Node,
    /// See [`ReportBody::PodTerminated`].
    PodTerminated,
    /// See [`ReportBody::Message`].
    Message,
    /// See [`ReportBody::Event`].
    Event,
}

/// The end of a pod status snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotClosed {
    /// The hash of the complete snapshot (pod key -> status); see `headwater-view`.
    pub hash: StateHash,
    /// The number of pods in the snapshot.
    pub pods: u64,
    /// Whether the edge sent every status. If so, a key that this boot did not report no longer
    /// exists.
    pub full: bool,
    /// The id of the first report of a full snapshot. Keys with a lower id are not part of it.
    pub first: ReportId,
}

impl ReportKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::PodStatus,
        Self::PodStatusRemoved,
        Self::SnapshotClosed,
        Self::Node,
        Self::PodTerminated,
        Self::Message,
        Self::Event,
    ];

    /// Its name in metrics and spans.
    pub fn name(self) -> &'static str {
        match self {
            Self::PodStatus => "pod_status",
            Self::PodStatusRemoved => "pod_status_removed",
            Self::SnapshotClosed => "snapshot_closed",
            Self::Node => "node",
            Self::PodTerminated => "pod_terminated",
            Self::Message => "message",
            Self::Event => "event",
        }
    }
}

impl ReportBody {
    /// The kind of the report.
    pub fn kind(&self) -> ReportKind {
        match self {
            Self::PodStatus { .. } => ReportKind::PodStatus,
            Self::PodStatusRemoved { .. } => ReportKind::PodStatusRemoved,
            Self::SnapshotClosed(_) => ReportKind::SnapshotClosed,
            Self::Node { .. } => ReportKind::Node,
            Self::PodTerminated { .. } => ReportKind::PodTerminated,
            Self::Message { .. } => ReportKind::Message,
            Self::Event { .. } => ReportKind::Event,
        }
    }

    /// The key under which the outbox and the log keep the latest report.
    pub fn key(&self, node: &NodeName) -> Result<crate::record::ReportKey, crate::key::KeyError> {
        use crate::record::ReportKey;
        Ok(match self {
            Self::PodStatus { pod, .. } | Self::PodStatusRemoved { pod, .. } => {
                ReportKey::Resource(pod.with_kind("podstatus"))
            }
            Self::SnapshotClosed(_) => ReportKey::Snapshot,
            Self::Node { .. } => {
                ReportKey::Resource(ResourceKey::new(None, "node", node.as_str())?)
            }
            Self::PodTerminated { pod, .. } => ReportKey::Resource(pod.with_kind("podtermination")),
            Self::Message { key, .. } => ReportKey::Resource(key.clone()),
            Self::Event { key, .. } => ReportKey::Resource(key.with_kind("event")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_place_among_all_kinds() {
        for (place, kind) in ReportKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{}", kind.name());
        }
    }

    #[test]
    fn reports_are_ordered_by_incarnation_boot_and_seq() {
        let id =
            |incarnation, boot, seq| ReportId { incarnation: Incarnation(incarnation), boot, seq };
        let mut ids = [id(2, 1, 1), id(1, 9, 9), id(1, 2, 100), id(1, 2, 9)];
        ids.sort();
        assert_eq!(ids, [id(1, 2, 9), id(1, 2, 100), id(1, 9, 9), id(2, 1, 1)]);
        assert_eq!(id(1, 2, 9).to_string(), "1.2.9");
    }

    #[test]
    fn the_end_of_a_snapshot_survives_json() {
        let closed = SnapshotClosed {
            hash: StateHash::EMPTY,
            pods: 3,
            full: true,
            first: ReportId::default(),
        };
        let json = serde_json::to_string(&closed).expect("serializable");
        assert_eq!(serde_json::from_str::<SnapshotClosed>(&json).expect("round trip"), closed);
    }
}
