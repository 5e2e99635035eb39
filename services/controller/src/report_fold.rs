//! ReportFold: folds what the edges report into the cloud's picture.
//!
//! One task reads the upstream log and commits statuses, Nodes and standings with the cursor.
//! A report counts only if its id is greater than the last one that counted for its key. What
//! does not add up is asked for whole ([`Command::RequestSnapshot`]); a pod whose containers have all
//! stopped may go ([`Command::RemoveTerminated`]).
//!
//! | module | what it owns |
//! |---|---|
//! | [`stale_keys`] | keys whose last record is older than what counts |
//! | [`key_repair`] | appending what counts once more |

mod key_repair;
mod stale_keys;

use std::sync::Arc;
use std::time::Duration;

use headwater_event::upstream::{ReportRecord, decode_report};
use headwater_event::{
    Cursor, NodeName, NodeProgress, Partition, Report, ReportBody, ReportKey, ResourceKey,
};
use headwater_follow::discard_fold;
use headwater_log::{
    Batch as LogBatch, CatchUpTarget, Log, ReadError, StoredRecord, start_cursors,
};
use headwater_store::position::CURSORS;
use headwater_store::{Batch, Durability, Engine, EngineError, Folded, Json, Table, TableId};
use headwater_view::{NodeStatuses, PodStatusFold, ReportOutcome};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::Span;

use self::key_repair::AGAIN_AFTER;
use self::stale_keys::{Stale, StaleKeys, uid};
use crate::metrics::{RecordKind, ReportFoldMetrics};
use crate::picture::changes::{ChangeFeed, ChangeGroup};
use crate::picture::{NODES, NodeReport, STANDINGS};
use crate::publisher::{Command, Progress};
use crate::spans;

/// Waits before a lost log is read again: doubling from the first to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// Folded rows group before they are committed: an engine takes 8 MiB at once, and one more
/// report brings at most an object of the largest size.
const COMMIT_BYTES: usize = 1 << 20;

/// Pods under deletion whose containers have all stopped, and their UIDs, for as long as their
/// nodes have them.
const TERMINATIONS: Table<ResourceKey, String, Folded> = Table::new(TableId::Terminations);

/// Why the fold stopped; it begins again.
#[derive(Debug, thiserror::Error)]
enum FoldError {
    #[error("the upstream log cannot be read")]
    Read(#[from] ReadError),
    #[error("the cloud's picture cannot be stored")]
    Engine(#[from] EngineError),
    /// What fell back, or was away for long, may have missed removals that compaction took since.
    #[error("the stored picture does not add up with what its nodes say")]
    Differs,
}

/// What the fold holds in memory.
struct Fold {
    statuses: PodStatusFold,
    stale: StaleKeys,
}

/// The upstream side.
pub(crate) struct ReportFold {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) commands: mpsc::Sender<Command>,
    /// Told what they change of the picture.
    pub(crate) changes: ChangeFeed,
    /// Says whether it is this controller that writes.
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) metrics: ReportFoldMetrics,
}

impl ReportFold {
    /// Folds for as long as the controller runs.
    pub(crate) async fn run(self) {
        let mut wait = RETRY_FIRST;
        loop {
            let Err(error) = self.fold(&mut wait).await;
            match &error {
                FoldError::Read(_) | FoldError::Differs => self.metrics.cannot_read(),
                FoldError::Engine(_) => self.metrics.cannot_store(),
            }
            let refold = match &error {
                FoldError::Read(error) => !matches!(error, ReadError::Unavailable { .. }),
                FoldError::Differs => true,
                FoldError::Engine(_) => false,
            };
            tracing::warn!(%error, refold, "the upstream log is not folded just now");
            if refold && let Err(error) = self.begin_anew(matches!(error, FoldError::Read(_))).await
            {
                tracing::error!(%error, "the cloud's picture cannot be emptied");
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_LAST);
        }
    }

    /// Empties the picture. Where the log lost something, as at a topic that is made again, what
    /// nodes were told that it has may be among it: they are asked for all of it.
    async fn begin_anew(&self, has_lost: bool) -> Result<(), EngineError> {
        if has_lost {
            let known: Result<Vec<_>, _> = STANDINGS.rows(&*self.engine).collect();
            for (node, _) in known? {
                // The downstream side ends only with the controller.
                let _ = self.commands.send(Command::RequestSnapshot(node)).await;
            }
        }
        let emptied = discard_fold(&*self.engine);
        self.changes.publish_everything();
        emptied
    }

    async fn fold(&self, wait: &mut Duration) -> Result<std::convert::Infallible, FoldError> {
        let (cursors, is_resumed) = self.cursors().await?;
        let mut ends = CatchUpTarget::ahead_of(&*self.log, &cursors).await?;
        let mut fold = Fold {
            statuses: PodStatusFold::open(&*self.engine)?,
            stale: StaleKeys::open(&*self.engine)?,
        };
        self.metrics.statuses(fold.statuses.pods());
        let mut reader = self.log.read(cursors).await?;
        self.repeat_terminations().await?;
        if ends.is_reached() {
            self.add_up(&fold.statuses, is_resumed).await?;
        }
        let mut repairs_from = Instant::now();
        loop {
            // What seems old while catching up may be mended by what follows.
            let repairs = ends.is_reached() && fold.stale.is_due();
            let batch = tokio::select! {
                biased;
                () = self.writes(repairs_from), if repairs => {
                    if !self.repair(&mut fold.stale, &fold.statuses).await? {
                        repairs_from = Instant::now() + AGAIN_AFTER;
                    }
                    continue;
                }
                batch = reader.next() => batch?,
            };
            *wait = RETRY_FIRST;
            let commands = self.fold_batch(&mut fold, &batch)?;
            self.metrics.read_to(&batch.cursor, batch.high);
            // While catching up, a closing that does not agree may be mended by what follows.
            let caught_up = ends.is_reached();
            if ends.pass(&batch.cursor) {
                self.add_up(&fold.statuses, is_resumed).await?;
            }
            for command in commands {
                if caught_up || matches!(command, Command::RemoveTerminated { .. }) {
                    // The downstream side ends only with the controller.
                    let _ = self.commands.send(command).await;
                }
            }
        }
    }

    /// Demands again what an earlier run may not have met: to meet it twice changes nothing.
    async fn repeat_terminations(&self) -> Result<(), EngineError> {
        let told: Result<Vec<_>, _> = TERMINATIONS.rows(&*self.engine).collect();
        for (pod, uid) in told? {
            let _ = self.commands.send(Command::RemoveTerminated { pod, uid }).await;
        }
        Ok(())
    }

    /// Having caught up, asks the nodes whose statuses do not add up for all of them; a picture
    /// that went on from an earlier fold is folded anew first.
    async fn add_up(&self, statuses: &PodStatusFold, is_resumed: bool) -> Result<(), FoldError> {
        for node in statuses.differing() {
            if is_resumed {
                return Err(FoldError::Differs);
            }
            let _ = self.commands.send(Command::RequestSnapshot(node.clone())).await;
        }
        let known: Result<Vec<_>, _> = STANDINGS.rows(&*self.engine).collect();
        for (node, Json(standing)) in known? {
            if is_lost(&node, &standing, statuses) {
                let _ = self.commands.send(Command::RequestSnapshot(node)).await;
            }
        }
        Ok(())
    }

    /// Where to read on in each partition, and whether that is where an earlier fold stood.
    async fn cursors(&self) -> Result<(Vec<Cursor>, bool), FoldError> {
        let mut cursors = start_cursors(&*self.log).await?;
        let mut is_resumed = false;
        for cursor in &mut cursors {
            if let Some(stored) = CURSORS.get(&*self.engine, &cursor.partition)? {
                *cursor = stored;
                is_resumed = true;
            }
        }
        Ok((cursors, is_resumed))
    }

    fn fold_batch(&self, fold: &mut Fold, records: &LogBatch) -> Result<Vec<Command>, EngineError> {
        let mut batch = Batch::new();
        let mut commands = Vec::new();
        // They end when the picture has what they are about.
        let mut spans = Vec::new();
        let mut changed = self.changes.begin();
        for recorded in &records.records {
            let kind = match ReportKey::decode(&recorded.record.key) {
                Ok((node, ReportKey::Position)) => {
                    let standing = fold_standing(&mut batch, &node, recorded);
                    changed.node(&node);
                    if standing.is_some_and(|it| is_lost(&node, &it, &fold.statuses)) {
                        commands.push(Command::RequestSnapshot(node));
                    }
                    RecordKind::Position
                }
                Ok(_) => {
                    let (commands, spans) = (&mut commands, &mut spans);
                    self.fold_report(fold, recorded, &mut batch, commands, spans, &mut changed)?
                }
                Err(error) => {
                    let (partition, offset) = (recorded.partition, recorded.offset);
                    tracing::warn!(%partition, %offset, %error, "left out of the picture");
                    RecordKind::Unreadable
                }
            };
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
        Ok(commands)
    }

    fn fold_report(
        &self,
        fold: &mut Fold,
        recorded: &StoredRecord,
        batch: &mut Batch<Folded>,
        commands: &mut Vec<Command>,
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
            Ok(None) => return Ok(RecordKind::Void),
            Err(error) => {
                let (partition, offset) = (recorded.partition, recorded.offset);
                tracing::warn!(%partition, %offset, %error, "left out of the picture");
                return Ok(RecordKind::Unreadable);
            }
        };
        let Fold { statuses, stale } = fold;
        let kind = RecordKind::of(&report.body);
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
        let told = statuses.fold(&node, report.id, &report.body, batch);
        self.metrics.statuses_moved(before, pods(statuses));
        let mut is_stale = told == ReportOutcome::Stale;
        if matches!(told, ReportOutcome::Closed { .. }) {
            // Nobody says of these that they are gone, once a later closing is in its place.
            for (pod, id) in unnamed.into_iter().flatten() {
                let gone = ReportBody::PodStatusRemoved { pod, uid: String::new() };
                let report = Report { id, body: gone, traceparent: None };
                self.meet(stale, node.clone(), &report, true, recorded.partition, batch);
            }
        }
        match &told {
            ReportOutcome::StatusChanged(pod)
            | ReportOutcome::StatusUnchanged(pod)
            | ReportOutcome::Removed(pod) => changed.object(pod),
            ReportOutcome::Closed { dropped, .. } => {
                dropped.iter().for_each(|pod| changed.object(pod))
            }
            ReportOutcome::NoChange | ReportOutcome::Stale => {}
        }
        match told {
            // The node no longer has the pod, so its end needs no word any more.
            ReportOutcome::Removed(pod) => batch.delete(&TERMINATIONS, &pod),
            ReportOutcome::Closed { dropped, agrees, .. } => {
                dropped.iter().for_each(|pod| batch.delete(&TERMINATIONS, pod));
                if !agrees {
                    commands.push(Command::RequestSnapshot(node.clone()));
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
                    batch.put(&NODES, &node, &Json(NodeReport { id: report.id, object, first_ms }));
                    changed.node(&node);
                }
            }
            ReportBody::PodTerminated { pod, uid } => {
                batch.put(&TERMINATIONS, pod, uid);
                commands.push(Command::RemoveTerminated { pod: pod.clone(), uid: uid.clone() });
            }
            ReportBody::PodStatus { .. }
            | ReportBody::PodStatusRemoved { .. }
            | ReportBody::SnapshotClosed(_)
            | ReportBody::Message { .. } => {}
        }
        if kind.is_ordered() {
            if is_stale {
                self.metrics.passed_over();
            }
            self.meet(stale, node, &report, is_stale, recorded.partition, batch);
        }
        Ok(kind)
    }

    /// Remembers whether the last record of a key is older than what counts.
    fn meet(
        &self,
        keys: &mut StaleKeys,
        node: NodeName,
        report: &Report,
        is_stale: bool,
        partition: Partition,
        batch: &mut Batch<Folded>,
    ) {
        // It was read under its key, so it has one.
        let Ok(key) = report.body.key(&node) else { return };
        let stale = Stale { partition, id: report.id, uid: uid(&report.body).to_owned() };
        if !keys.meet((node.clone(), key), is_stale.then_some(stale), batch) {
            let id = report.id;
            tracing::warn!(%node, %id, "too many old reports came late; this one is not mended");
        }
    }
}

/// Notes where the node stands, and gives it.
fn fold_standing(
    batch: &mut Batch<Folded>,
    node: &NodeName,
    recorded: &StoredRecord,
) -> Option<NodeProgress> {
    let Some(value) = &recorded.record.value else {
        batch.delete(&STANDINGS, node);
        return None;
    };
    match serde_json::from_slice::<NodeProgress>(value) {
        Ok(standing) => {
            batch.put(&STANDINGS, node, &Json(standing.clone()));
            Some(standing)
        }
        Err(error) => {
            let (partition, offset) = (recorded.partition, recorded.offset);
            tracing::warn!(%partition, %offset, %error, "a position record cannot be read");
            None
        }
    }
}

/// Whether the log has lost what this node told. It had the closing of a snapshot, since the node
/// says that it closed one and that nothing waits to be acknowledged; and none was read.
fn is_lost(node: &NodeName, standing: &NodeProgress, statuses: &PodStatusFold) -> bool {
    let has_told_all = standing.meta_sync_ms > 0 && standing.outbox_depth == 0;
    has_told_all && statuses.node(node).and_then(NodeStatuses::closing).is_none()
}
