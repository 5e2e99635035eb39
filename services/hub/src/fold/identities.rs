//! The highest identity that the cloud knows of each node, and its last contact.
//!
//! Every hub appends the positions of its nodes to the upstream log. Each record names the
//! identity that the node had, so a fold of them knows identities that connected to other hubs.
//! The fold is stored with its cursors, and a restart reads only the records behind them. A log that
//! was made again is folded from its start; the identities that are known stay.
//!
//! A partition that cannot be read when the log is opened is left out, and the others are followed. Only
//! its nodes wait ([`super::partition_readiness`]). Once it can be read, the log is opened again with it.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{join_all, select_ok};
use headwater_event::{Cursor, Identity, NodeName, NodeProgress, Partition, ReportKey};
use headwater_follow::must_refold;
use headwater_log::{Batch as LogBatch, CatchUpTarget, Description, Log, ReadError, StoredRecord};
use headwater_session::highest_after;
use headwater_store::{
    Batch, CommitPosition, Durability, EngineError, Folded, Json, Table, TableId,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::Fold;
use super::contacts::CONTACTS;
use super::follower::reopen_backoff;
use super::partition_readiness::{self, PartitionReadiness};
use crate::metrics::FoldMetrics;

/// How many partitions are asked for their ends at once. Each takes a thread until the log answers, and
/// one without a leader takes it for the whole timeout of a request.
const STARTS_AT_ONCE: usize = 64;

/// How long the partitions that are not read to their ends may have no record before they count as
/// away: longer than the election of a leader takes.
const AWAY_AFTER: Duration = Duration::from_secs(10);

/// How often the hub asks whether a partition that is away can be read: an election takes about as long.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);

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

/// Where the partitions of the log are read on.
#[derive(Default)]
struct PartitionStarts {
    cursors: Vec<Cursor>,
    /// The ends that partitions had, unless they are reached.
    targets: BTreeMap<Partition, CatchUpTarget>,
    /// The partitions that cannot be read.
    away: Vec<Partition>,
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
        self.follow_readable(anew).await?;
        loop {
            self.follow_readable(false).await?;
        }
    }

    /// Follows the partitions that can be read, until another one can be read too.
    async fn follow_readable(&self, anew: bool) -> Result<(), FollowError> {
        let described = self.log.describe().await?;
        self.fold.identities().readiness().begin(&described);
        let PartitionStarts { cursors, mut targets, away } = self.starts(&described, anew).await?;
        let read: Vec<Partition> = cursors.iter().map(|cursor| cursor.partition).collect();
        let mut reader = self.log.read(cursors).await?;
        self.complete(read.into_iter().filter(|partition| !targets.contains_key(partition)));
        self.suspend(away.iter().copied());
        let mut returned = pin!(self.wait_for_return(&away));
        let mut away_from = Instant::now() + AWAY_AFTER;
        let mut is_late = false;
        loop {
            tokio::select! {
                biased;
                // A log that always has records must not delay it.
                () = &mut returned => return Ok(()),
                () = sleep_until(away_from), if !targets.is_empty() && !is_late => {
                    is_late = true;
                    self.suspend(targets.keys().copied());
                }
                batch = reader.next() => {
                    let batch = batch?;
                    self.fold_batch(&batch)?;
                    let partition = batch.cursor.partition;
                    // A partition that is read to its end may always have records.
                    let Some(end) = targets.get_mut(&partition) else { continue };
                    away_from = Instant::now() + AWAY_AFTER;
                    is_late = false;
                    if end.pass(&batch.cursor) {
                        targets.remove(&partition);
                        self.complete([partition]);
                    }
                }
            }
        }
    }

    /// Finds where each partition is read on: behind its stored cursor, or `anew` from its start.
    ///
    /// # Errors
    /// When no partition can be read, or one for good.
    async fn starts(
        &self,
        described: &Description,
        anew: bool,
    ) -> Result<PartitionStarts, FollowError> {
        let partitions: Vec<Partition> = described.all_partitions().collect();
        let mut starts = PartitionStarts::default();
        let mut unavailable = None;
        for some in partitions.chunks(STARTS_AT_ONCE) {
            let found = join_all(some.iter().map(|partition| self.start(*partition, anew))).await;
            for (partition, start) in some.iter().zip(found) {
                match start {
                    Ok((cursor, target)) => {
                        starts.cursors.push(cursor);
                        if !target.is_reached() {
                            starts.targets.insert(*partition, target);
                        }
                    }
                    Err(FollowError::Read(error)) if !must_refold(&error) => {
                        starts.away.push(*partition);
                        unavailable = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        match unavailable {
            Some(error) if starts.cursors.is_empty() => Err(error.into()),
            _ => Ok(starts),
        }
    }

    async fn start(
        &self,
        partition: Partition,
        anew: bool,
    ) -> Result<(Cursor, CatchUpTarget), FollowError> {
        let stored = match anew {
            true => None,
            false => CURSORS.get(&**self.fold.engine(), &partition)?,
        };
        let cursor = match stored {
            Some(stored) => stored,
            None => self.log.start(partition).await?,
        };
        Ok((cursor, CatchUpTarget::ahead_of(&*self.log, &[cursor]).await?))
    }

    /// Waits until one of the partitions that are away can be read; for ever if there is none.
    async fn wait_for_return(&self, away: &[Partition]) {
        if away.is_empty() {
            return pending().await;
        }
        loop {
            sleep(LOOK_AGAIN_AFTER).await;
            let looks = away.iter().map(|partition| self.log.bounds(*partition));
            if select_ok(looks).await.is_ok() {
                return;
            }
        }
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
                let partition = partition_readiness::name(partition);
                tracing::warn!("{partition} cannot be read; nodes whose positions it has wait");
            }
        }
    }
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

    use super::*;

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
}
