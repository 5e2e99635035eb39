//! The highest identity that the cloud knows of each node.
//!
//! Every hub appends the positions of its nodes to the upstream log. Each record names the
//! identity that the node had, so a fold of them knows identities that connected to other hubs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{Identity, NodeName, NodeProgress, ReportKey};
use headwater_log::{CatchUpTarget, Log, ReadError, start_cursors};

use super::Fold;
use super::follower::reopen_backoff;
use crate::metrics::FoldMetrics;

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

    /// Records an identity, unless a higher one is known.
    pub(crate) fn observe(&self, identity: &Identity) {
        let mut identities = self.lock();
        match identities.get(&identity.node) {
            Some(known) if known.rank() >= identity.rank() => {}
            _ => {
                identities.insert(identity.node.clone(), identity.clone());
            }
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
        loop {
            let Err(error) = self.follow().await;
            self.metrics.identities_failed();
            tracing::warn!(%error, "the hub cannot follow the upstream log; it will try again");
            backoff.wait().await;
        }
    }

    async fn follow(&self) -> Result<Infallible, ReadError> {
        let log = &*self.log;
        let cursors = start_cursors(log).await?;
        let mut ends = CatchUpTarget::ahead_of(log, &cursors).await?;
        let mut reader = log.read(cursors).await?;
        if ends.is_reached() {
            self.complete();
        }
        loop {
            let batch = reader.next().await?;
            for recorded in &batch.records {
                let Ok((node, ReportKey::Position)) = ReportKey::decode(&recorded.record.key)
                else {
                    continue;
                };
                let position = recorded.record.value.as_deref().map(serde_json::from_slice);
                if let Some(Ok(NodeProgress { incarnation, boot, .. })) = position {
                    self.fold.identities().observe(&Identity { node, incarnation, boot });
                }
            }
            if ends.pass(&batch.cursor) {
                self.complete();
            }
        }
    }

    fn complete(&self) {
        self.fold.identities_known();
        self.fold.subscriptions().notify_all();
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};

    use super::*;

    #[test]
    fn only_a_higher_identity_replaces_a_known_one() {
        let identity = |number, nonce| Identity {
            node: "gw-1".parse().expect("a name"),
            incarnation: Incarnation(1),
            boot: Boot { number, nonce },
        };
        let known = KnownIdentities::default();
        for (number, nonce) in [(2, 7), (1, 1), (2, 9)] {
            known.observe(&identity(number, nonce));
        }
        assert_eq!(known.of(&identity(0, 0).node), Some(identity(2, 7)));
    }
}
