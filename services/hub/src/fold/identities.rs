//! The highest identity that the cloud knows of each node, and its last contact.
//!
//! Every hub appends the positions of its nodes to the upstream log. Each record names the
//! identity that the node had, so a fold of them knows identities that connected to other hubs.
//! The fold is stored with its cursors, and a restart reads only the records behind them. A log that
//! was made again is folded from its start; the identities that are known stay.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{Cursor, Identity, NodeName, NodeProgress, Partition, ReportKey};
use headwater_follow::{must_refold, resume_point};
use headwater_log::{
    Batch as LogBatch, CatchUpTarget, Log, ReadError, StoredRecord, start_cursors,
};
use headwater_session::highest_after;
use headwater_store::{
    Batch, CommitPosition, Durability, EngineError, Folded, Json, Table, TableId,
};

use super::Fold;
use super::contacts::CONTACTS;
use super::follower::reopen_backoff;
use crate::metrics::FoldMetrics;

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
        let (log, engine) = (&*self.log, &**self.fold.engine());
        for row in IDENTITIES.rows(engine) {
            let (_, Json(identity)) = row?;
            self.fold.identities().observe(&identity);
        }
        for row in CONTACTS.rows(engine) {
            let (node, Json(position)) = row?;
            self.fold.contacts().observe(&node, position);
        }
        let cursors = if anew {
            start_cursors(log).await?
        } else {
            resume_point::<FollowError>(log, engine, &CURSORS).await?.cursors
        };
        let mut ends = CatchUpTarget::ahead_of(log, &cursors).await?;
        let mut reader = log.read(cursors).await?;
        if ends.is_reached() {
            self.complete();
        }
        loop {
            let batch = reader.next().await?;
            self.fold_batch(&batch)?;
            if ends.pass(&batch.cursor) {
                self.complete();
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

    fn complete(&self) {
        self.fold.identities_known();
        self.fold.subscriptions().notify_all();
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
