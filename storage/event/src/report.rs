//! What edges say upstream, and the order of what they say.
//!
//! Everything a node says is ordered by [`ReportId`] = (incarnation, boot, seq), never by time:
//! a report counts for its key only if its id is greater than the last one that counted.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::hash::StateHash;
use crate::key::ResourceKey;
use crate::name::NodeName;

/// Issue number of an enrolled node's identity; a re-imaged node gets the next one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// One start of an edge: a counter kept on its disk, and a random nonce.
///
/// Equal counters with different nonces are two machines with one disk image: clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Boot {
    /// Counts the starts, from 1; bumped and synced before the first report of a start.
    pub number: u64,
    /// Drawn at random at each start.
    pub nonce: u64,
}

/// Who an edge says it is. The node's name is proved by its certificate, not by this.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The node.
    pub node: NodeName,
    /// The issue of its identity.
    pub incarnation: Incarnation,
    /// This start of it.
    pub boot: Boot,
}

impl Identity {
    /// The order of this start among all starts of the node, the nonce left aside.
    pub fn rank(&self) -> (Incarnation, u64) {
        (self.incarnation, self.boot.number)
    }

    /// Whether this start puts `other` in its place: it is a later one, or another machine's
    /// with the same number. `other` must raise its boot number before it reports.
    pub fn outranks(&self, other: &Self) -> bool {
        self.rank() > other.rank()
            || (self.rank() == other.rank() && self.boot.nonce != other.boot.nonce)
    }
}

/// The place of a report in everything its node ever said. Compared field by field, in order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ReportId {
    /// The issue of the node's identity.
    pub incarnation: Incarnation,
    /// The boot number.
    pub boot: u64,
    /// Counts the reports of one boot, from 1. Never issued twice with other content.
    pub seq: u64,
}

impl fmt::Display for ReportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.incarnation.0, self.boot, self.seq)
    }
}

/// One thing that a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its place in what the node says.
    pub id: ReportId,
    /// What is said.
    pub body: ReportBody,
    /// W3C trace context of the change that caused it, where there is one.
    pub traceparent: Option<String>,
}

/// What a node says. The outbox and the log keep the latest per [`ReportBody::key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportBody {
    /// The whole status of a pod.
    PodStatus {
        /// The pod, as `<namespace>/pod/<name>`.
        pod: ResourceKey,
        /// The pod's UID: a status of another pod of the same name is not meant.
        uid: String,
        /// The status as JSON (`PodStatus` of the Kubernetes API).
        status: Bytes,
    },
    /// The pod left the snapshot: its status is to be forgotten.
    PodStatusRemoved {
        /// The pod.
        pod: ResourceKey,
        /// Its UID.
        uid: String,
    },
    /// The reports up to this one make up a pod status snapshot.
    SnapshotClosed(SnapshotClosed),
    /// The node as it registers and reports itself.
    Node {
        /// The whole Node object as JSON, its status included.
        object: Bytes,
    },
    /// Every container of a pod under deletion has stopped: the grace-0 delete may be done.
    PodTerminated {
        /// The pod.
        pod: ResourceKey,
        /// Its UID.
        uid: String,
    },
    /// What a function or an application on the node sends to the cloud.
    Message {
        /// The message's own key; the latest per key is kept.
        key: ResourceKey,
        /// The content, JSON.
        content: Bytes,
    },
}

/// The end of a pod status snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotClosed {
    /// The hash of the whole snapshot (pod key -> status), see `headwater-view`.
    pub hash: StateHash,
    /// How many pods it holds.
    pub pods: u64,
    /// Whether every status was sent: a key that this boot did not name before is then gone.
    pub full: bool,
    /// The first report of a full snapshot; keys with a lower id are not part of it.
    pub first: ReportId,
}

impl ReportBody {
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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_is_ordered_by_incarnation_boot_and_seq() {
        let id =
            |incarnation, boot, seq| ReportId { incarnation: Incarnation(incarnation), boot, seq };
        let mut ids = [id(2, 1, 1), id(1, 9, 9), id(1, 2, 100), id(1, 2, 9)];
        ids.sort();
        assert_eq!(ids, [id(1, 2, 9), id(1, 2, 100), id(1, 9, 9), id(2, 1, 1)]);
        assert_eq!(id(1, 2, 9).to_string(), "1.2.9");
    }

    #[test]
    fn the_closing_record_survives_json() {
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
