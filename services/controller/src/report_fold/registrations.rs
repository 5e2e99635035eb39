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

use super::{Fold, ReportFold};
use crate::metrics::RecordKind;
use crate::picture::tables::{LOGGED_REGISTRATIONS, NODE_REGISTRATIONS, NODES};

/// Records in one append: a small fraction of what a log takes at once.
const REGISTRATIONS_AT_ONCE: usize = 256;

/// The wait between two appends, and before a failed one is tried again. A deletion of a Node that just came is rare.
pub(super) const REGISTRATIONS_INTERVAL: Duration = Duration::from_secs(1);

/// The registrations that the log lacks, one a node, by the partition of the node's reports.
#[derive(Debug, Default)]
pub(super) struct DueRegistrations {
    due: BTreeMap<Partition, BTreeMap<NodeName, EdgeStart>>,
    /// Partitions of reports in the log. Registrations of nodes whose reports are not known are spread over them.
    partitions: u32,
    /// The partition of the latest append: the next one has its turn, so that one without a leader delays no other.
    latest: Option<Partition>,
}

/// Registrations of nodes whose reports have one partition.
#[derive(Debug)]
pub(super) struct RegistrationAppend {
    partition: Partition,
    registrations: Vec<(NodeName, EdgeStart)>,
}

impl DueRegistrations {
    /// Those that an earlier run left, for a log with so many partitions.
    pub(super) fn open(from: &dyn Read, partitions: u32) -> Result<Self, EngineError> {
        let mut due = Self { partitions, ..Self::default() };
        for row in NODE_REGISTRATIONS.rows(from) {
            let (node, Json(start)) = row?;
            due.add(from, node, start)?;
        }
        Ok(due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Adds a registration, unless the log has it.
    fn add(
        &mut self,
        from: &dyn Read,
        node: NodeName,
        start: EdgeStart,
    ) -> Result<(), EngineError> {
        if is_logged(from, &node, start)? {
            return Ok(());
        }
        let reported = NODES.get(from, &node)?.and_then(|Json(report)| report.partition);
        let partition =
            reported.unwrap_or_else(|| StreamId::node(&node).partition(self.partitions));
        self.due.entry(partition).or_default().insert(node, start);
        Ok(())
    }

    /// The next registrations that the log lacks, at most `max` and those of one partition. Those that the log has by now are
    /// forgotten.
    fn next_due(
        &mut self,
        from: &dyn Read,
        max: usize,
    ) -> Result<Option<RegistrationAppend>, EngineError> {
        loop {
            let is_later = |partition: &&Partition| self.latest.is_none_or(|it| **partition > it);
            let partition = self.due.keys().find(is_later).or_else(|| self.due.keys().next());
            let Some(&partition) = partition else { return Ok(None) };
            self.latest = Some(partition);
            let due = self.due.get_mut(&partition).into_iter().flatten().take(max);
            let (mut registrations, mut logged) = (Vec::new(), Vec::new());
            for (node, start) in due {
                let list =
                    if is_logged(from, node, *start)? { &mut logged } else { &mut registrations };
                list.push((node.clone(), *start));
            }
            self.forget(partition, &logged);
            if !registrations.is_empty() {
                return Ok(Some(RegistrationAppend { partition, registrations }));
            }
        }
    }

    /// The log has what was appended.
    pub(super) fn note_appended(&mut self, append: &RegistrationAppend) {
        self.forget(append.partition, &append.registrations);
    }

    fn forget(&mut self, partition: Partition, registrations: &[(NodeName, EdgeStart)]) {
        let Some(due) = self.due.get_mut(&partition) else { return };
        for (node, start) in registrations {
            // A later start may have come meanwhile.
            if due.get(node).is_some_and(|due| due <= start) {
                due.remove(node);
            }
        }
        if due.is_empty() {
            self.due.remove(&partition);
        }
    }
}

/// Whether the log has this registration, or that of a later start.
fn is_logged(from: &dyn Read, node: &NodeName, start: EdgeStart) -> Result<bool, EngineError> {
    Ok(LOGGED_REGISTRATIONS.get(from, node)?.is_some_and(|Json(logged)| logged >= start))
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

    /// The next registrations that the log lacks.
    pub(super) fn next_registrations(
        &self,
        registrations: &mut DueRegistrations,
    ) -> Result<Option<RegistrationAppend>, EngineError> {
        for (node, start) in self.registrations.take() {
            registrations.add(&*self.engine, node, start)?;
        }
        registrations.next_due(&*self.engine, REGISTRATIONS_AT_ONCE)
    }

    /// Appends them, and returns them once the log has them. The fold goes on meanwhile: the partition may have no leader.
    pub(super) async fn append_registrations(
        &self,
        append: RegistrationAppend,
    ) -> Option<RegistrationAppend> {
        let RegistrationAppend { partition, registrations } = &append;
        let record = |(node, start): &(NodeName, EdgeStart)| {
            let record = encode_registration(node, *start);
            let record = Record {
                key: record.key,
                value: record.value,
                header: record.header,
                traceparent: None,
            };
            Append { partition: *partition, record }
        };
        match self.log.append(registrations.iter().map(record).collect()).await {
            Ok(_) => Some(append),
            Err(error) => {
                tracing::warn!(%partition, %error, "registrations of Nodes cannot be appended to the log; trying again");
                None
            }
        }
    }

    /// Notes that the fold has caught up, but for the partitions that are away. Nodes and pods that waited for that
    /// are looked at again.
    pub(super) fn note_caught_up(
        &self,
        fold: &Fold,
        away: &[Partition],
    ) -> Result<(), EngineError> {
        let of_reports = away.iter().copied().filter(|partition| !is_of_positions(*partition));
        let is_new = self.registrations.set_unread(of_reports.collect());
        let is_empty = fold.statuses.pods() == 0
            && fold.events.is_empty()
            && NODES.rows(&*self.engine).next().transpose()?.is_none();
        if is_new && !is_empty {
            self.changes.publish_everything();
        }
        Ok(())
    }
}
