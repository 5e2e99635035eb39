//! The highest identity that the cloud knows of each node, folded from the position records
//! that hubs append upstream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{Identity, NodeName, NodeStanding, ReportKey};
use headwater_log::{Ends, Log, ReadError, starts};

use crate::fold::Fold;
use crate::following::{REOPEN_FIRST, REOPEN_LAST};
use crate::metrics::FoldMetrics;
use crate::wakers::Wakers;

/// Identities by node.
#[derive(Debug, Default)]
pub(crate) struct Known {
    identities: Mutex<HashMap<NodeName, Identity>>,
}

impl Known {
    /// The highest identity of `node`, where one is known.
    pub(crate) fn of(&self, node: &NodeName) -> Option<Identity> {
        self.lock().get(node).cloned()
    }

    /// Takes in an identity that was met, unless a higher one is known.
    pub(crate) fn meet(&self, identity: &Identity) {
        let mut identities = self.lock();
        match identities.get(&identity.node) {
            Some(known) if known.rank() >= identity.rank() => {}
            _ => {
                identities.insert(identity.node.clone(), identity.clone());
            }
        }
    }

    /// Takes in a hub's account of a node.
    pub(crate) fn meet_standing(&self, node: &NodeName, standing: &NodeStanding) {
        self.meet(&Identity {
            node: node.clone(),
            incarnation: standing.incarnation,
            boot: standing.boot,
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, Identity>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Folds which identities are known from the position records of all hubs.
pub(crate) async fn meet_identities(
    upstream: Arc<dyn Log>,
    known: Arc<Known>,
    fold: Arc<Fold>,
    wakers: Arc<Wakers>,
    metrics: FoldMetrics,
) {
    let mut wait = REOPEN_FIRST;
    loop {
        let Err(error) = follow_identities(&*upstream, &known, &fold, &wakers).await;
        metrics.identities_lost();
        tracing::warn!(%error, "the upstream log is not followed just now");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(REOPEN_LAST);
    }
}

async fn follow_identities(
    upstream: &dyn Log,
    known: &Known,
    fold: &Fold,
    wakers: &Wakers,
) -> Result<std::convert::Infallible, ReadError> {
    let cursors = starts(upstream).await?;
    let mut ends = Ends::ahead_of(upstream, &cursors).await?;
    let mut reader = upstream.read(cursors).await?;
    let complete = || {
        fold.identities_known();
        wakers.wake_all();
    };
    if ends.are_reached() {
        complete();
    }
    loop {
        let batch = reader.next().await?;
        for recorded in &batch.records {
            let Ok((node, ReportKey::Position)) = ReportKey::decode(&recorded.record.key) else {
                continue;
            };
            let standing = recorded.record.value.as_deref().map(serde_json::from_slice);
            if let Some(Ok(standing)) = standing {
                known.meet_standing(&node, &standing);
            }
        }
        if ends.pass(&batch.cursor) {
            complete();
        }
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
        let known = Known::default();
        for (number, nonce) in [(2, 7), (1, 1), (2, 9)] {
            known.meet(&identity(number, nonce));
        }
        assert_eq!(known.of(&identity(0, 0).node), Some(identity(2, 7)));
    }
}
