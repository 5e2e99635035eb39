//! Appends registrations of Nodes to the upstream log, and folds those of all controllers.
//!
//! The record `node/NAME !registration` says which start of the edge had a Node, see [`crate::picture::registrations`].
//! Only the controller that writes the downstream log appends. A record that another controller has appended
//! meanwhile costs nothing: the greatest start counts.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_event::upstream::{decode_registration, encode_registration};
use headwater_event::{EdgeStart, NodeName, Partition, StreamId};
use headwater_log::{Append, Record, StoredRecord, is_of_positions};
use headwater_store::{Batch, EngineError, Folded, Json, Read};
use tokio::time::Instant;

use super::ReportFold;
use crate::metrics::RecordKind;
use crate::picture::tables::{LOGGED_REGISTRATIONS, NODE_REGISTRATIONS, NODES};

/// Records in one append: a small fraction of what a log takes at once.
const REGISTRATIONS_AT_ONCE: usize = 256;

/// The wait between two appends, and before a failed one is tried again. A deletion of a Node that just came is rare.
pub(super) const REGISTRATIONS_INTERVAL: Duration = Duration::from_secs(1);

/// The registrations that the log lacks, one a node.
#[derive(Debug, Default)]
pub(super) struct DueRegistrations {
    due: BTreeMap<NodeName, EdgeStart>,
    /// Partitions of reports in the log. Registrations of nodes whose reports are not known are spread over them.
    partitions: u32,
}

impl DueRegistrations {
    /// Those that an earlier run left, for a log with so many partitions.
    pub(super) fn open(from: &dyn Read, partitions: u32) -> Result<Self, EngineError> {
        let mut due = BTreeMap::new();
        for row in NODE_REGISTRATIONS.rows(from) {
            let (node, Json(start)) = row?;
            due.insert(node, start);
        }
        Ok(Self { due, partitions })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// The next registrations that the log lacks, with the partition of the reports of each node. Those that the log
    /// has by now are forgotten.
    fn next_due(
        &mut self,
        from: &dyn Read,
        max: usize,
    ) -> Result<Vec<(NodeName, EdgeStart, Partition)>, EngineError> {
        let mut next = Vec::new();
        let mut logged = Vec::new();
        for (node, start) in &self.due {
            if next.len() == max {
                break;
            }
            let in_log = LOGGED_REGISTRATIONS.get(from, node)?.map(|Json(start)| start);
            if in_log >= Some(*start) {
                logged.push(node.clone());
                continue;
            }
            let reported = NODES.get(from, node)?.and_then(|Json(report)| report.partition);
            let spread = || StreamId::node(node).partition(self.partitions);
            next.push((node.clone(), *start, reported.unwrap_or_else(spread)));
        }
        for node in logged {
            self.due.remove(&node);
        }
        Ok(next)
    }
}

impl ReportFold {
    /// Folds a registration.
    pub(super) fn fold_registration(
        &self,
        batch: &mut Batch<Folded>,
        node: &NodeName,
        recorded: &StoredRecord,
    ) -> Result<RecordKind, EngineError> {
        let Some(value) = &recorded.record.value else { return Ok(RecordKind::Void) };
        let start = match decode_registration(value) {
            Ok(start) => start,
            Err(error) => {
                let (partition, offset) = (recorded.partition, recorded.offset);
                tracing::warn!(%partition, %offset, %error, "a registration cannot be read");
                return Ok(RecordKind::Unreadable);
            }
        };
        let known = batch.get(&*self.engine, &LOGGED_REGISTRATIONS, node)?;
        if known.is_none_or(|Json(known)| known < start) {
            batch.put(&LOGGED_REGISTRATIONS, node, &Json(start));
        }
        Ok(RecordKind::Registration)
    }

    /// Waits until there may be registrations to append, this controller is the writer, and until `from`.
    pub(super) async fn until_registration(&self, has_due: bool, from: Instant) {
        if !has_due {
            self.registrations.wait().await;
        }
        self.until_writer(from).await;
    }

    /// Appends registrations that the log lacks.
    pub(super) async fn log_registrations(
        &self,
        registrations: &mut DueRegistrations,
    ) -> Result<(), EngineError> {
        registrations.due.append(&mut self.registrations.take());
        let next = registrations.next_due(&*self.engine, REGISTRATIONS_AT_ONCE)?;
        if next.is_empty() {
            return Ok(());
        }
        let append = |(node, start, partition): &(NodeName, EdgeStart, Partition)| {
            let record = encode_registration(node, *start);
            let record = Record {
                key: record.key,
                value: record.value,
                header: record.header,
                traceparent: None,
            };
            Append { partition: *partition, record }
        };
        match self.log.append(next.iter().map(append).collect()).await {
            Ok(_) => {
                for (node, ..) in &next {
                    registrations.due.remove(node);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the registrations of Nodes cannot be appended to the log; trying again");
            }
        }
        Ok(())
    }

    /// Notes that the fold has caught up, but for the partitions that are away. A node that waited for that is
    /// looked at again.
    pub(super) fn note_caught_up(&self, away: &[Partition]) -> Result<(), EngineError> {
        let of_reports = away.iter().copied().filter(|partition| !is_of_positions(*partition));
        if !self.registrations.set_unread(of_reports.collect()) {
            return Ok(());
        }
        let nodes: Result<Vec<_>, _> = NODES.rows(&*self.engine).collect();
        let nodes = nodes?;
        if nodes.is_empty() {
            return Ok(());
        }
        let mut changed = self.changes.begin();
        nodes.iter().for_each(|(node, _)| changed.node(node));
        self.changes.publish(changed);
        Ok(())
    }
}
