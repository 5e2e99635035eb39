//! The cloud's fold of all nodes' pod statuses, stored: `get pods` adds them to the pods.
//!
//! Memory holds what decides which report is accepted ([`NodeStatuses`]: ids and digests, about 300
//! bytes a pod). Only the table holds the statuses.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::report::{Incarnation, SnapshotClosed};
use headwater_event::{NodeName, ReportBody, ReportId, ResourceKey, StateHash};
use headwater_store::{Batch, EngineError, Folded, Proto, Read, Table, TableId};

use super::node_statuses::{Closing, NodeStatuses, ReportOutcome};
use super::snapshot::StatusDigest;

/// Per node: a row for each pod, under the pod's key, and one for the last closing.
const ROWS: Table<(NodeName, String), Proto<Row>, Folded> = Table::new(TableId::StatusPictures);

/// The key of the closing's row. No resource key begins with `!`.
const CLOSING: &str = "!snapshot";

/// The pod statuses that all nodes report.
#[derive(Debug, Default)]
pub struct PodStatusFold {
    nodes: BTreeMap<NodeName, NodeStatuses>,
}

/// The status of a pod as its node reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedStatus {
    /// The last accepted report.
    pub id: ReportId,
    /// UID of the pod: the status is not of another pod of the same name.
    pub uid: String,
    /// The status, JSON.
    pub status: Bytes,
}

impl PodStatusFold {
    /// Opens what was folded so far into the engine that `from` reads.
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

    /// Folds one report of `node`; the changed rows go into `batch`.
    pub fn fold(
        &mut self,
        node: &NodeName,
        id: ReportId,
        body: &ReportBody,
        batch: &mut Batch<Folded>,
    ) -> ReportOutcome {
        let statuses = self.node_mut(node);
        let outcome = statuses.fold(id, body);
        let delete = |batch: &mut Batch<Folded>, pod: &ResourceKey| {
            batch.delete(&ROWS, &(node.clone(), pod.to_string()));
        };
        match &outcome {
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
        outcome
    }

    /// How many pods of all nodes have a status.
    pub fn pods(&self) -> usize {
        self.nodes.values().map(|statuses| statuses.snapshot().len()).sum()
    }

    /// The nodes that have reported.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// The statuses of `node`.
    pub fn node(&self, node: &NodeName) -> Option<&NodeStatuses> {
        self.nodes.get(node)
    }

    /// Nodes to request a full snapshot from, once the fold has reached the end of the log: their
    /// reports do not add up to the snapshot that they closed.
    pub fn differing(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.iter().filter(|(_, statuses)| statuses.differs()).map(|(node, _)| node)
    }

    /// Forgets a node that is gone, with all its reports.
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

    /// The last accepted report of `pod`, as its node sent it: a status, or a removal that is still
    /// remembered.
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

    /// The first `limit` statuses of `node` after `after`, as committed. Fewer: there are no more.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn statuses(
        from: &dyn Read,
        node: &NodeName,
        after: Option<&ResourceKey>,
        limit: usize,
    ) -> Result<Vec<(ResourceKey, ReportedStatus)>, EngineError> {
        // The successor of a text is the text with a zero byte.
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

/// A stored row; field numbers are never reused. A row without status and closing is a removed
/// pod's.
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
