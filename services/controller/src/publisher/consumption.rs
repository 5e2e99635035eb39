//! The reports of nodes about their programs, on their way from the fold of reports to the publisher.
//!
//! The fold never waits for the publisher, which appends nothing as a standby or while the log is away.
//! There is one entry for each node at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::NodeName;
use tokio::sync::Notify;

/// Whether programs of nodes read the shared stream, as the fold notes it and the publisher takes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedConsumption {
    noted: Arc<Mutex<BTreeMap<NodeName, bool>>>,
    changed: Arc<Notify>,
}

impl SharedConsumption {
    /// Notes the newest report of `node`.
    pub(crate) fn note(&self, node: NodeName, consumes_cluster: bool) {
        self.lock().insert(node, consumes_cluster);
        self.changed.notify_one();
    }

    /// Waits until something was noted. Cancel safe.
    pub(super) async fn noted(&self) {
        self.changed.notified().await;
    }

    /// Takes what was noted since the last call.
    pub(super) fn take(&self) -> BTreeMap<NodeName, bool> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, bool>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
