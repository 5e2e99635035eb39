//! The cloud's fold of all nodes' pod statuses, stored: what `get pods` adds to the pods.
//!
//! In memory is what decides which report counts ([`NodeStatuses`]: ids and digests, about 300
//! bytes a pod); the statuses themselves are in the table only.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::report::{Incarnation, SnapshotClosed};
use headwater_event::{NodeName, ReportBody, ReportId, ResourceKey, StateHash};
use headwater_store::{Batch, EngineError, Folded, Proto, Read, Table, TableId};

use crate::node_statuses::{Closing, NodeStatuses, ReportOutcome};
use crate::pod_status_snapshot::StatusDigest;

/// Per node: one row a pod, under the pod's key, and one for the last closing.
const ROWS: Table<(NodeName, String), Proto<Row>, Folded> = Table::new(TableId::StatusPictures);

/// Where the closing lies. No resource key begins so.
const CLOSING: &str = "!snapshot";

/// What all nodes say about their pods.
#[derive(Debug, Default)]
pub struct PodStatusFold {
    nodes: BTreeMap<NodeName, NodeStatuses>,
}

/// The status of a pod as its node reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedStatus {
    /// The report that counts.
    pub id: ReportId,
    /// UID of the pod. The status is of no other pod of the same name.
    pub uid: String,
    /// The status, JSON.
    pub status: Bytes,
}

impl PodStatusFold {
    /// What was folded into the engine behind `from` so far.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn open(from: &dyn Read) -> Result<Self, EngineError> {
        let mut fold = Self::default();
        for row in ROWS.rows(from) {
            let ((node, key), Proto(row)) = row?;
            let node = fold.node_mut(&node);
            match row.closing.as_ref() {
                Some(closing) => {
                    let closed = SnapshotClosed {
                        hash: state_hash(&closing.hash)?,
                        pods: closing.pods,
                        full: closing.first.is_some(),
                        first: closing.first.as_ref().map_or(ReportId::default(), Id::get),
                    };
                    let floor = closing.floor.unwrap_or_default().get();
                    node.restore_closing(Closing { id: row.id(), closed }, floor);
                }
                None => {
                    let digest = row.status.as_ref().map(|s| StatusDigest::of(&row.uid, s));
                    node.restore(pod_key(&key)?, row.id(), digest);
                }
            }
        }
        Ok(fold)
    }

    /// Folds one report of `node`, and what it changes into `batch`.
    pub fn fold(
        &mut self,
        node: &NodeName,
        id: ReportId,
        body: &ReportBody,
        batch: &mut Batch<Folded>,
    ) -> ReportOutcome {
        let statuses = self.node_mut(node);
        let told = statuses.fold(id, body);
        let delete = |batch: &mut Batch<Folded>, pod: &ResourceKey| {
            batch.delete(&ROWS, &(node.clone(), pod.to_string()));
        };
        match &told {
            ReportOutcome::NoChange | ReportOutcome::Stale => {}
            ReportOutcome::StatusChanged(pod)
            | ReportOutcome::StatusUnchanged(pod)
            | ReportOutcome::Removed(pod) => {
                let row = match body {
                    ReportBody::PodStatus { uid, status, .. } => {
                        Row { uid: uid.clone(), status: Some(status.clone()), ..Row::of(id) }
                    }
                    ReportBody::PodStatusRemoved { uid, .. } => {
                        Row { uid: uid.clone(), ..Row::of(id) }
                    }
                    _ => Row::of(id),
                };
                batch.put(&ROWS, &(node.clone(), pod.to_string()), &Proto(row));
            }
            ReportOutcome::Closed { dropped, forgotten, .. } => {
                dropped.iter().chain(forgotten).for_each(|pod| delete(batch, pod));
                if let Some(Closing { id, closed }) = statuses.closing() {
                    let closing = ClosingRow {
                        hash: closed.hash.to_bytes().to_vec(),
                        pods: closed.pods,
                        first: closed.full.then(|| Id::of(closed.first)),
                        floor: Some(Id::of(statuses.floor())),
                    };
                    let row = Row { closing: Some(closing), ..Row::of(*id) };
                    batch.put(&ROWS, &(node.clone(), CLOSING.to_owned()), &Proto(row));
                }
            }
        }
        told
    }

    /// How many pods have a status, of all nodes.
    pub fn pods(&self) -> usize {
        self.nodes.values().map(|statuses| statuses.snapshot().len()).sum()
    }

    /// What is known of `node`.
    pub fn node(&self, node: &NodeName) -> Option<&NodeStatuses> {
        self.nodes.get(node)
    }

    /// Nodes to ask for a full snapshot once the fold has come to the end of the log: what they
    /// said does not add up to what they closed.
    pub fn differing(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.iter().filter(|(_, statuses)| statuses.differs()).map(|(node, _)| node)
    }

    /// Forgets a node that is gone, with all it said.
    pub fn forget(&mut self, node: &NodeName, batch: &mut Batch<Folded>) {
        self.nodes.remove(node);
        batch.delete_of(&ROWS, node);
    }

    /// The status of one pod, as committed.
    ///
    /// # Errors
    /// As [`Read::get`].
    pub fn status(
        from: &dyn Read,
        node: &NodeName,
        pod: &ResourceKey,
    ) -> Result<Option<ReportedStatus>, EngineError> {
        let row = ROWS.get(from, &(node.clone(), pod.to_string()))?;
        Ok(row.and_then(|Proto(row)| row.reported()))
    }

    /// The report that counts for `pod`, as its node said it: a status, or its removal where that
    /// is still remembered.
    ///
    /// # Errors
    /// As [`Read::get`].
    pub fn newest(
        from: &dyn Read,
        node: &NodeName,
        pod: &ResourceKey,
    ) -> Result<Option<(ReportId, ReportBody)>, EngineError> {
        let row = ROWS.get(from, &(node.clone(), pod.to_string()))?;
        Ok(row.map(|Proto(row)| {
            let (id, pod, uid) = (row.id(), pod.clone(), row.uid);
            let body = match row.status {
                Some(status) => ReportBody::PodStatus { pod, uid, status },
                None => ReportBody::PodStatusRemoved { pod, uid },
            };
            (id, body)
        }))
    }

    /// The first `limit` statuses of `node` behind `after`, as committed; fewer mean there are
    /// no more.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn statuses(
        from: &dyn Read,
        node: &NodeName,
        after: Option<&ResourceKey>,
        limit: usize,
    ) -> Result<Vec<(ResourceKey, ReportedStatus)>, EngineError> {
        // The successor of a text is itself with a zero byte.
        let first = after.map_or(String::new(), |pod| format!("{pod}\0"));
        let mut statuses = Vec::new();
        for row in ROWS.rows_of_from(from, node, &(node.clone(), first)) {
            let ((_, key), Proto(row)) = row?;
            if statuses.len() == limit {
                break;
            }
            if let Some(reported) = row.reported() {
                statuses.push((pod_key(&key)?, reported));
            }
        }
        Ok(statuses)
    }

    fn node_mut(&mut self, node: &NodeName) -> &mut NodeStatuses {
        self.nodes.entry(node.clone()).or_insert_with(|| NodeStatuses::new(node))
    }
}

/// A stored row; field numbers are never reused. Without status and closing: a removed pod.
#[derive(Clone, PartialEq, prost::Message)]
struct Row {
    #[prost(message, optional, tag = "1")]
    id: Option<Id>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(bytes = "bytes", optional, tag = "3")]
    status: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    closing: Option<ClosingRow>,
}

/// A report id; field numbers are never reused.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Id {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint64, tag = "2")]
    boot: u64,
    #[prost(uint64, tag = "3")]
    seq: u64,
}

/// The last closing; field numbers are never reused.
#[derive(Clone, PartialEq, prost::Message)]
struct ClosingRow {
    #[prost(bytes = "vec", tag = "1")]
    hash: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pods: u64,
    #[prost(message, optional, tag = "3")]
    first: Option<Id>,
    #[prost(message, optional, tag = "4")]
    floor: Option<Id>,
}

impl Row {
    fn of(id: ReportId) -> Self {
        Self { id: Some(Id::of(id)), ..Self::default() }
    }

    fn id(&self) -> ReportId {
        self.id.unwrap_or_default().get()
    }

    fn reported(self) -> Option<ReportedStatus> {
        let id = self.id();
        self.status.map(|status| ReportedStatus { id, uid: self.uid, status })
    }
}

impl Id {
    fn of(id: ReportId) -> Self {
        Self { incarnation: id.incarnation.0, boot: id.boot, seq: id.seq }
    }

    fn get(&self) -> ReportId {
        ReportId { incarnation: Incarnation(self.incarnation), boot: self.boot, seq: self.seq }
    }
}

fn state_hash(bytes: &[u8]) -> Result<StateHash, EngineError> {
    let bytes = <&[u8; 32]>::try_from(bytes).map_err(|error| EngineError::Corrupt {
        reason: format!("the hash of a pod status snapshot: {error}"),
    })?;
    Ok(StateHash::from_bytes(bytes))
}

fn pod_key(text: &str) -> Result<ResourceKey, EngineError> {
    text.parse().map_err(|error| EngineError::Corrupt { reason: format!("a pod status: {error}") })
}

#[cfg(test)]
mod tests;
