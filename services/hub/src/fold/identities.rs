//! The highest identity that the cloud knows of each node, and its last contact.
//!
//! Every hub appends the positions of its nodes to the upstream log. Each record names the
//! identity that the node had, so a fold of them knows identities that connected to other hubs.
//! The fold is stored with its cursors, and a restart reads only the records behind them. A log that
//! was made again is folded from its start; the identities that are known stay.
//!
//! A partition that cannot be read when the log is opened is left out, and the others are followed. Only
//! its nodes wait ([`super::partition_readiness`]). Each such partition has a look of its own. Once it can
//! be read, a reader of it alone is opened, and the readers of the others stay. Each reader is a client of the
//! log, so one reader of all replaces them when all partitions are read to the ends that they had:
//!
//! ```text
//!   start ──► readable ──► one reader ────────────────────┬──► fold, commit with the cursor
//!     └─────► away ──► look ──► look ──► its own reader ──┤
//!                                    one reader of all ◄──┘ none is away, all ends are reached
//! ```

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream, FuturesUnordered, SelectAll};
use headwater_event::{Cursor, Identity, NodeName, NodeProgress, Partition, ReportKey};
use headwater_follow::{
    LOOK_AGAIN_AFTER, ResumePoint, STARTS_AT_ONCE, must_refold, partition_start, resume_point,
};
use headwater_log::{
    Batch as LogBatch, CatchUpTarget, Log, ReadError, Reader, StoredRecord, partition_name,
};
use headwater_session::highest_after;
use headwater_store::{
    Batch, CommitPosition, Durability, EngineError, Folded, Json, Table, TableId,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Fold;
use super::contacts::CONTACTS;
use super::follower::reopen_backoff;
use super::partition_readiness::PartitionReadiness;
use crate::metrics::FoldMetrics;

/// How long the partitions that are not read to their ends may have no record before they count as
/// away: longer than the election of a leader takes.
const AWAY_AFTER: Duration = Duration::from_secs(10);

/// The time limit of one look at a partition. It takes a few requests, of which the log bounds each to 10 s,
/// so only a client that no longer answers reaches it.
const LOOK_WITHIN: Duration = Duration::from_secs(60);

/// The identities, by node.
const IDENTITIES: Table<NodeName, Json<Identity>, Folded> = Table::new(TableId::NodeIdentities);

/// The cursor of each partition of the upstream log.
const CURSORS: Table<Partition, Cursor, Folded> = Table::new(TableId::IdentityCursors);

/// Commits a batch of identities with the cursor behind their records.
struct IdentityCursor(Cursor);

impl CommitPosition for IdentityCursor {
    fn put(&self, batch: &mut Batch<Folded>) {
        batch.put(&CURSORS, &self.0.partition, &self.0);
    }
}

/// Why the upstream log is no longer followed.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("the upstream log cannot be read")]
    Read(#[from] ReadError),
    #[error("the identities of nodes cannot be stored")]
    Engine(#[from] EngineError),
}

/// Identities by node.
#[derive(Debug, Default)]
pub(crate) struct KnownIdentities {
    identities: Mutex<HashMap<NodeName, Identity>>,
    readiness: Mutex<PartitionReadiness>,
}

/// A partition that was away, and can be read.
struct ReturnedPartition {
    cursor: Cursor,
    target: CatchUpTarget,
    reader: Box<dyn Reader>,
}

/// Follows the upstream log for as long as the hub runs.
pub(crate) struct IdentityFollower {
    /// The log to follow.
    pub(crate) log: Arc<dyn Log>,
    /// The fold whose identities it keeps.
    pub(crate) fold: Arc<Fold>,
    /// Counts failures.
    pub(crate) metrics: FoldMetrics,
}

impl KnownIdentities {
    /// The highest identity of `node`, if one is known.
    pub(super) fn of(&self, node: &NodeName) -> Option<Identity> {
        self.lock().get(node).cloned()
    }

    /// Records an identity; see [`highest_after`].
    pub(crate) fn observe(&self, identity: &Identity) {
        let mut identities = self.lock();
        if let Some(highest) = highest_after(identities.get(&identity.node), identity) {
            identities.insert(identity.node.clone(), highest);
        }
    }

    /// Whether the identities of `node` are complete: nothing of before the hub's start is missing.
    pub(super) fn are_complete_for(&self, node: &NodeName) -> bool {
        self.readiness().is_complete_for(node)
    }

    /// Whether the hub has read every partition of the upstream log that can be read.
    pub(crate) fn are_settled(&self) -> bool {
        self.readiness().is_settled()
    }

    /// The partitions that cannot be read, in words. Their nodes wait.
    pub(crate) fn partitions_away(&self) -> Vec<String> {
        self.readiness().away()
    }

    fn readiness(&self) -> MutexGuard<'_, PartitionReadiness> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.readiness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, Identity>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdentityFollower {
    /// Follows the log, and opens it again after each failure.
    pub(crate) async fn run(self) {
        let mut backoff = reopen_backoff();
        let mut anew = false;
        loop {
            let Err(error) = self.follow(anew).await;
            self.metrics.identities_failed();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the hub cannot follow the upstream log; it will try again"
            );
            anew = matches!(&error, FollowError::Read(error) if must_refold(error));
            backoff.wait().await;
        }
    }

    /// Follows the log from the stored cursors, or `anew` from its start. Until it has read a
    /// partition again, the cursor of the former log stays, which is refused at the next start.
    async fn follow(&self, anew: bool) -> Result<Infallible, FollowError> {
        let engine = &**self.fold.engine();
        for row in IDENTITIES.rows(engine) {
            let (_, Json(identity)) = row?;
            self.fold.identities().observe(&identity);
        }
        for row in CONTACTS.rows(engine) {
            let (node, Json(position)) = row?;
            self.fold.contacts().observe(&node, position);
        }
        let described = self.log.describe().await?;
        self.fold.identities().readiness().begin(&described);
        // Anew, it is read from its start.
        let stored = (!anew).then_some(&CURSORS);
        let resume = resume_point::<FollowError>(&*self.log, &described, engine, stored, &[]);
        let ResumePoint { cursors, mut ends, away, .. } = resume.await?;
        let mut read: BTreeMap<Partition, Cursor> =
            cursors.iter().map(|cursor| (cursor.partition, *cursor)).collect();
        let mut batches = SelectAll::new();
        batches.push(batches_of(self.log.read(cursors).await?));
        self.complete(read.keys().copied().filter(|partition| !ends.is_ahead(*partition)));
        self.suspend(away.iter().copied());
        let looks = Semaphore::new(STARTS_AT_ONCE);
        let returns =
            away.into_iter().map(|partition| self.wait_for_return(partition, anew, &looks));
        let mut returns: FuturesUnordered<_> = returns.collect();
        let mut away_from = Instant::now() + AWAY_AFTER;
        let mut is_late = false;
        loop {
            if returns.is_empty() && ends.is_reached() && batches.len() > 1 {
                // What the former readers have read ahead is read again: it is behind the cursors.
                batches = SelectAll::new();
                batches.push(batches_of(self.log.read(read.values().copied().collect()).await?));
            }
            tokio::select! {
                biased;
                // A log that always has records must not delay it.
                Some(returned) = returns.next() => {
                    let ReturnedPartition { cursor, target, reader } = returned?;
                    let partition = cursor.partition;
                    read.insert(partition, cursor);
                    batches.push(batches_of(reader));
                    if target.is_reached() {
                        self.complete([partition]);
                    } else {
                        ends.include(target);
                        away_from = Instant::now() + AWAY_AFTER;
                        is_late = false;
                    }
                }
                () = sleep_until(away_from), if !ends.is_reached() && !is_late => {
                    is_late = true;
                    self.suspend(ends.partitions());
                }
                Some(batch) = batches.next() => {
                    let batch = batch?;
                    self.fold_batch(&batch)?;
                    let partition = batch.cursor.partition;
                    read.insert(partition, batch.cursor);
                    // A partition that is read to its end may always have records.
                    if !ends.is_ahead(partition) {
                        continue;
                    }
                    away_from = Instant::now() + AWAY_AFTER;
                    is_late = false;
                    ends.pass(&batch.cursor);
                    if !ends.is_ahead(partition) {
                        self.complete([partition]);
                    }
                }
            }
        }
    }

    /// Waits until a partition that is away can be read, and opens it. `looks` bounds how many partitions
    /// are asked at once; those that do not answer keep no other one waiting below that bound.
    ///
    /// # Errors
    /// When the partition cannot be read on from its cursor.
    async fn wait_for_return(
        &self,
        partition: Partition,
        anew: bool,
        looks: &Semaphore,
    ) -> Result<ReturnedPartition, FollowError> {
        loop {
            sleep(LOOK_AGAIN_AFTER).await;
            // No code closes the semaphore.
            let _look = looks.acquire().await;
            match timeout(LOOK_WITHIN, self.open(partition, anew)).await {
                Ok(Err(FollowError::Read(error))) if !must_refold(&error) => {
                    tracing::debug!(%partition, %error, "the partition is still away");
                }
                Ok(opened) => return opened,
                Err(_) => tracing::debug!(%partition, "the log does not answer a look in time"),
            }
        }
    }

    /// Opens a reader of one partition.
    async fn open(
        &self,
        partition: Partition,
        anew: bool,
    ) -> Result<ReturnedPartition, FollowError> {
        let stored = match anew {
            true => None,
            false => CURSORS.get(&**self.fold.engine(), &partition)?,
        };
        let (cursor, target) = partition_start(&*self.log, partition, stored).await?;
        let reader = self.log.read(vec![cursor]).await?;
        Ok(ReturnedPartition { cursor, target, reader })
    }

    /// Folds the identities of a batch of records, and commits them with its cursor.
    fn fold_batch(&self, records: &LogBatch) -> Result<(), EngineError> {
        let engine = &**self.fold.engine();
        let mut batch: Batch<Folded> = Batch::new();
        for (node, position) in records.records.iter().filter_map(position) {
            let NodeProgress { incarnation, boot, .. } = position;
            let identity = Identity { node, incarnation, boot };
            if let Some(last) = self.fold.contacts().observe(&identity.node, position) {
                batch.put(&CONTACTS, &identity.node, &Json(last));
            }
            self.fold.identities().observe(&identity);
            let stored = batch.get(engine, &IDENTITIES, &identity.node)?;
            if let Some(highest) =
                highest_after(stored.map(|Json(stored)| stored).as_ref(), &identity)
            {
                batch.put(&IDENTITIES, &identity.node, &Json(highest));
            }
        }
        batch.commit(engine, &[IdentityCursor(records.cursor)], Durability::Buffered)
    }

    /// Notes that partitions are read to their ends: sessions of their nodes go on.
    fn complete(&self, partitions: impl IntoIterator<Item = Partition>) {
        for partition in partitions {
            self.fold.identities().readiness().complete(partition);
        }
        self.fold.subscriptions().notify_all();
    }

    /// Notes that partitions cannot be read.
    fn suspend(&self, partitions: impl IntoIterator<Item = Partition>) {
        for partition in partitions {
            let is_new = self.fold.identities().readiness().suspend(partition);
            if is_new {
                let partition = partition_name(partition);
                tracing::warn!("{partition} cannot be read; nodes whose positions it has wait");
            }
        }
    }
}

/// The batches of a reader, without end.
fn batches_of(reader: Box<dyn Reader>) -> BoxStream<'static, Result<LogBatch, ReadError>> {
    let batches = stream::unfold(reader, |mut reader| async move {
        let batch = Reader::next(&mut *reader).await;
        Some((batch, reader))
    });
    batches.boxed()
}

/// The position that a record has.
fn position(recorded: &StoredRecord) -> Option<(NodeName, NodeProgress)> {
    let Ok((node, ReportKey::Position)) = ReportKey::decode(&recorded.record.key) else {
        return None;
    };
    Some((node, serde_json::from_slice(recorded.record.value.as_deref()?).ok()?))
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};
    use headwater_log::{MemoryLog, MemorySettings, PartitionFault};
    use headwater_store::MemoryEngine;
    use prometheus::Registry;

    use super::*;
    use crate::metrics::HubMetrics;

    /// How long a test waits for something that must happen.
    const SOON: Duration = Duration::from_secs(60);

    /// Waits until `done` is true. The clock of the test goes on only while every task waits.
    async fn until_true(what: &str, done: impl Fn() -> bool) {
        let poll = async {
            while !done() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(timeout(SOON, poll).await.is_ok(), "no {what} in time");
    }

    #[test]
    fn a_lower_identity_replaces_no_known_one_and_a_number_of_two_starts_is_of_neither() {
        let identity = |number, nonce| Identity {
            node: "gw-1".parse().expect("a name"),
            incarnation: Incarnation(1),
            boot: Boot { number, nonce },
        };
        let known = KnownIdentities::default();
        let node = identity(0, 0).node;
        for (number, nonce) in [(2, 7), (1, 1), (2, 7)] {
            known.observe(&identity(number, nonce));
        }
        assert_eq!(known.of(&node), Some(identity(2, 7)));
        known.observe(&identity(2, 9));
        let shared = known.of(&node).expect("known");
        assert!(shared.outranks(&identity(2, 7)) && shared.outranks(&identity(2, 9)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_that_returns_is_opened_alone_and_one_reader_replaces_all_at_the_end() {
        let log = MemoryLog::new(MemorySettings { partitions: 3, ..MemorySettings::default() });
        let away = [Partition(1), Partition(2)];
        for partition in away {
            log.set_partition_fault(partition, Some(PartitionFault::NoLeader));
        }
        let fold = Arc::new(Fold::new(Arc::new(MemoryEngine::new())));
        let metrics = HubMetrics::new(&Registry::new()).expect("a fresh registry").fold;
        let follower = IdentityFollower { log: Arc::new(log.clone()), fold: fold.clone(), metrics };
        let task = tokio::spawn(follower.run());
        let identities = fold.identities();
        until_true("hub that is ready", || identities.are_settled()).await;
        assert_eq!((log.partitions_opened(), identities.partitions_away().len()), (1, 2));
        log.set_partition_fault(away[0], None);
        until_true("return", || identities.partitions_away().len() == 1).await;
        assert_eq!(log.partitions_opened(), 2, "each one once");
        log.set_partition_fault(away[1], None);
        until_true("return", || identities.partitions_away().is_empty()).await;
        until_true("reader of all", || log.partitions_opened() == 3 + 3).await;
        task.abort();
    }
}
