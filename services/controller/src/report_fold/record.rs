//! Folds the records of the upstream log into the picture's tables.

use headwater_event::upstream::{
    ReportRecord, decode_event_removed, decode_report, decode_termination_removed,
};
use headwater_event::{
    Cursor, NodeName, NodeProgress, Partition, RecordKey, Report, ReportBody, ReportKey, ReportKind,
};
use headwater_log::{Batch as LogBatch, StoredRecord, is_of_positions};
use headwater_store::{Batch, Durability, EngineError, Folded, Json};
use headwater_view::{NodeStatuses, PodStatusFold, ReportOutcome};
use tracing::Span;

use super::stale_keys::{Stale, StaleKeys, uid};
use super::terminations::{LoggedTermination, TerminationOrder};
use super::{Fold, ReportFold};
use crate::metrics::RecordKind;
use crate::picture::changes::ChangeGroup;
use crate::picture::node_event;
use crate::picture::tables::{
    EventReport, LoggedProgress, NODE_PROGRESS, NODES, NodeReport, TERMINATIONS,
};
use crate::spans;

/// Bytes of folded rows in one commit: an engine takes 8 MiB at once, and one more report adds at
/// most an object of the largest size.
const COMMIT_BYTES: usize = 1 << 20;

impl ReportFold {
    /// Folds a batch of records and commits it with its cursor. Returns the nodes whose reports do
    /// not match what was folded.
    pub(super) fn fold_batch(
        &self,
        fold: &mut Fold,
        records: &LogBatch,
    ) -> Result<Vec<NodeName>, EngineError> {
        let mut batch = Batch::new();
        let mut differing = Vec::new();
        // Each span ends when the picture has its report.
        let mut spans = Vec::new();
        let mut changed = self.changes.begin();
        for recorded in &records.records {
            let kind = match ReportKey::decode(&recorded.record.key) {
                Ok((node, ReportKey::Position)) => {
                    let may_be_old =
                        fold.keeps_positions_apart && !is_of_positions(recorded.partition);
                    let is_other = may_be_old || fold.earlier_positions.contains(&node);
                    let progress = self.fold_progress(&mut batch, &node, recorded, is_other)?;
                    if progress.is_some() {
                        self.presence.note_position(&node);
                        if may_be_old {
                            fold.earlier_positions.insert(node.clone());
                        } else {
                            fold.earlier_positions.remove(&node);
                        }
                    }
                    changed.node(&node);
                    let consumes = progress.as_ref().and_then(|progress| progress.consumes_cluster);
                    if let Some(consumes_cluster) = consumes.filter(|_| fold.has_caught_up) {
                        self.consumption.note(node.clone(), consumes_cluster);
                    }
                    let has_lost = |it| fold.is_whole && is_lost(&node, &it, &fold.statuses);
                    if progress.is_some_and(has_lost) {
                        differing.push(node);
                    }
                    RecordKind::Position
                }
                Ok((node, ReportKey::Registration)) => {
                    self.fold_registration(&mut batch, &node, recorded)?
                }
                Ok(_) => {
                    let (differing, spans) = (&mut differing, &mut spans);
                    self.fold_report(fold, recorded, &mut batch, differing, spans, &mut changed)?
                }
                Err(_) if is_metadata(recorded) => RecordKind::Metadata,
                Err(error) => {
                    let (partition, offset) = (recorded.partition, recorded.offset);
                    tracing::warn!(%partition, %offset, %error, "a report record cannot be read and is not in the picture");
                    RecordKind::Unreadable
                }
            };
            fold.newest_ms = fold.newest_ms.max(recorded.time_ms);
            self.metrics.folded(kind);
            if batch.bytes() >= COMMIT_BYTES {
                let (next, leader_epoch) = (recorded.offset.next(), recorded.leader_epoch);
                let cursor = Cursor { next, leader_epoch, ..records.cursor };
                std::mem::take(&mut batch).commit(
                    &*self.engine,
                    &[cursor],
                    Durability::Buffered,
                )?;
                spans.clear();
                self.changes.publish(std::mem::replace(&mut changed, self.changes.begin()));
            }
        }
        batch.commit(&*self.engine, &[records.cursor], Durability::Buffered)?;
        self.changes.publish(changed);
        Ok(differing)
    }

    fn fold_report(
        &self,
        fold: &mut Fold,
        recorded: &StoredRecord,
        batch: &mut Batch<Folded>,
        differing: &mut Vec<NodeName>,
        spans: &mut Vec<Span>,
        changed: &mut ChangeGroup,
    ) -> Result<RecordKind, EngineError> {
        let record = ReportRecord {
            key: recorded.record.key.clone(),
            value: recorded.record.value.clone(),
            header: recorded.record.header.clone(),
        };
        let (node, report) = match decode_report(&record, None) {
            Ok(Some(decoded)) => decoded,
            Ok(None) => {
                self.fold_tombstone(fold, &record, batch, changed)?;
                return Ok(RecordKind::Void);
            }
            Err(error) => {
                let (partition, offset) = (recorded.partition, recorded.offset);
                tracing::warn!(%partition, %offset, %error, "a report record cannot be read and is not in the picture");
                return Ok(RecordKind::Unreadable);
            }
        };
        fold.reported_ms.insert(node.clone(), recorded.time_ms);
        let Fold { statuses, stale, terminations, events, .. } = fold;
        let kind = report.body.kind();
        spans.extend(spans::fold_report(recorded, report.id, kind.name()));
        let pods = |statuses: &PodStatusFold| {
            statuses.node(&node).map_or(0, |statuses| statuses.snapshot().len())
        };
        let before = pods(statuses);
        let unnamed = match &report.body {
            ReportBody::SnapshotClosed(closed) if closed.full => {
                statuses.node(&node).map(|statuses| statuses.reported_before(closed.first))
            }
            _ => None,
        };
        let folded = statuses.fold(&node, report.id, &report.body, batch);
        self.metrics.statuses_moved(before, pods(statuses));
        let mut is_stale = folded == ReportOutcome::Stale;
        if matches!(folded, ReportOutcome::Closed { .. }) {
            // A full snapshot did not name these pods. No record says that they are gone once a
            // later closing takes the place of this one.
            for (pod, id) in unnamed.into_iter().flatten() {
                let gone = ReportBody::PodStatusRemoved { pod, uid: String::new() };
                let report = Report { id, body: gone, traceparent: None };
                self.note_order(stale, node.clone(), &report, true, recorded.partition, batch);
            }
        }
        match &folded {
            ReportOutcome::StatusChanged(pod)
            | ReportOutcome::StatusUnchanged(pod)
            | ReportOutcome::Removed(pod) => changed.object(pod),
            ReportOutcome::Closed { dropped, .. } => {
                dropped.iter().for_each(|pod| changed.object(pod))
            }
            ReportOutcome::NoChange | ReportOutcome::Stale => {}
        }
        match folded {
            // The node no longer has the pod.
            ReportOutcome::Removed(pod) => batch.delete(&TERMINATIONS, &(node.clone(), pod)),
            ReportOutcome::Closed { dropped, agrees, .. } => {
                for pod in dropped {
                    batch.delete(&TERMINATIONS, &(node.clone(), pod));
                }
                if !agrees {
                    differing.push(node.clone());
                }
            }
            ReportOutcome::NoChange
            | ReportOutcome::Stale
            | ReportOutcome::StatusChanged(_)
            | ReportOutcome::StatusUnchanged(_) => {}
        }
        match &report.body {
            ReportBody::Node { object } => {
                let before = batch.get(&*self.engine, &NODES, &node)?;
                is_stale = before.as_ref().is_some_and(|Json(before)| before.id > report.id);
                if before.as_ref().is_none_or(|Json(before)| before.id < report.id) {
                    let object = String::from_utf8_lossy(object).into_owned();
                    let first_ms = before.map_or(recorded.time_ms, |Json(before)| before.first_ms);
                    let partition = Some(recorded.partition);
                    let node_report = NodeReport { id: report.id, object, first_ms, partition };
                    batch.put(&NODES, &node, &Json(node_report));
                    changed.node(&node);
                }
            }
            ReportBody::PodTerminated { pod, uid } => {
                let logged = LoggedTermination {
                    partition: recorded.partition,
                    id: report.id,
                    uid: uid.clone(),
                    is_covered: false,
                };
                let ended = (node.clone(), pod.clone());
                let counts = match terminations.note(ended.clone(), logged.clone(), batch) {
                    TerminationOrder::Newest => true,
                    TerminationOrder::Stale => {
                        self.metrics.ignored_stale();
                        false
                    }
                    // Only for a pod that the node has: it may name any number of others.
                    TerminationOrder::NoRoom => {
                        tracing::debug!(%node, %pod, "too many terminations; this one stays in the log");
                        self.is_published(&ended, &logged)?
                    }
                };
                if counts {
                    batch.put(&TERMINATIONS, &ended, uid);
                    changed.object(pod);
                }
            }
            ReportBody::Event { key, object } => match node_event::accept(&node, key, object) {
                Ok(object) => {
                    let report = EventReport {
                        node: node.clone(),
                        id: report.id,
                        partition: recorded.partition,
                        logged_ms: recorded.time_ms,
                        object,
                    };
                    if !events.note(key, report, batch, changed) {
                        self.metrics.ignored_stale();
                    }
                }
                Err(error) => {
                    tracing::debug!(%node, %key, %error, "an Event is not in the picture");
                    return Ok(RecordKind::Unreadable);
                }
            },
            ReportBody::PodStatus { .. }
            | ReportBody::PodStatusRemoved { .. }
            | ReportBody::SnapshotClosed(_)
            | ReportBody::Message { .. } => {}
        }
        if is_ordered(kind) {
            if is_stale {
                self.metrics.ignored_stale();
            }
            self.note_order(stale, node, &report, is_stale, recorded.partition, batch);
        }
        Ok(RecordKind::Report(kind))
    }

    /// Folds a position record and returns it; `None`: it does not count.
    ///
    /// Records of one hub are in order. The end of a connection at another hub may come after the
    /// node has connected again. `is_other`: one of this record and the present one is of an earlier
    /// version, which appended positions among the reports. It stays in the log for ever, and is read
    /// before or after those that are kept apart, so the later contact counts.
    fn fold_progress(
        &self,
        batch: &mut Batch<Folded>,
        node: &NodeName,
        recorded: &StoredRecord,
        is_other: bool,
    ) -> Result<Option<NodeProgress>, EngineError> {
        let Some(value) = &recorded.record.value else {
            if !is_other {
                batch.delete(&NODE_PROGRESS, node);
            }
            return Ok(None);
        };
        let mut progress = match serde_json::from_slice::<NodeProgress>(value) {
            Ok(progress) => progress,
            Err(error) => {
                let (partition, offset) = (recorded.partition, recorded.offset);
                tracing::warn!(%partition, %offset, %error, "a position record cannot be read");
                return Ok(None);
            }
        };
        if let Some(Json(LoggedProgress { progress: known, .. })) =
            batch.get(&*self.engine, &NODE_PROGRESS, node)?
        {
            let is_older = is_other && known.contact_ms > progress.contact_ms;
            if is_older || progress.is_superseded_by(&known) {
                return Ok(None);
            }
            // A node that has just connected has not reported yet.
            progress.consumes_cluster = progress.consumes_cluster.or(known.consumes_cluster);
        }
        let logged =
            LoggedProgress { progress: progress.clone(), logged_ms: Some(recorded.time_ms) };
        batch.put(&NODE_PROGRESS, node, &Json(logged));
        Ok(Some(progress))
    }

    /// Folds a record that removes a termination or an Event from the log.
    fn fold_tombstone(
        &self,
        fold: &mut Fold,
        record: &ReportRecord,
        batch: &mut Batch<Folded>,
        changed: &mut ChangeGroup,
    ) -> Result<(), EngineError> {
        if let Some(removed) = decode_event_removed(record) {
            fold.events.note_removed(&removed, batch, changed);
            return Ok(());
        }
        let Some(removed) = decode_termination_removed(record) else { return Ok(()) };
        let ended = (removed.node, removed.pod);
        let logged = fold.terminations.note_removed(ended.clone(), removed.id, batch);
        let Some(logged) = logged else { return Ok(()) };
        // A later pod of this name may have ended, too, without room to remember its termination.
        let shown = batch.get(&*self.engine, &TERMINATIONS, &ended)?;
        if shown.is_some_and(|uid| uid == logged.uid) {
            batch.delete(&TERMINATIONS, &ended);
        }
        Ok(())
    }

    /// Remembers whether the last record of a key is older than the report that counts.
    fn note_order(
        &self,
        keys: &mut StaleKeys,
        node: NodeName,
        report: &Report,
        is_stale: bool,
        partition: Partition,
        batch: &mut Batch<Folded>,
    ) {
        // The report was read under its key, so it has one.
        let Ok(key) = report.body.key(&node) else { return };
        let stale = Stale { partition, id: report.id, uid: uid(&report.body).to_owned() };
        if !keys.note((node.clone(), key), is_stale.then_some(stale), batch) {
            let id = report.id;
            tracing::warn!(%node, %id, "too many stale records; the newest report is not appended behind this one");
        }
    }
}

/// Whether the record is the metadata of the log.
fn is_metadata(recorded: &StoredRecord) -> bool {
    matches!(RecordKey::decode(&recorded.record.key), Ok(RecordKey::Log(_)))
}

/// Whether the picture keeps the id of the newest report of such a key.
fn is_ordered(kind: ReportKind) -> bool {
    use ReportKind::{Node, PodStatus, PodStatusRemoved, SnapshotClosed};
    matches!(kind, PodStatus | PodStatusRemoved | SnapshotClosed | Node)
}

/// Whether the log has lost the reports of this node: the node has closed a snapshot, and all its
/// reports were acknowledged, but no closing was read.
pub(super) fn is_lost(node: &NodeName, progress: &NodeProgress, statuses: &PodStatusFold) -> bool {
    let has_reported_all = progress.meta_sync_ms > 0 && progress.outbox_depth == 0;
    has_reported_all && statuses.node(node).and_then(NodeStatuses::closing).is_none()
}
