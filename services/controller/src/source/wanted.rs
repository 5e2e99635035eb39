//! Which objects the nodes use, as a source sees it.
//!
//! A cluster has far more objects than its edge nodes use. A source of such a cluster sends the
//! roots (Nodes and pods), reads here what these name, and sends that. The set is level-triggered:
//! a source that is slow reads the newest set once, and no queue between source and controller can
//! fill up in both directions.

use headwater_event::ResourceKey;
use tokio::sync::watch;

use crate::interest::SharedInterest;

/// The objects that the streams of the nodes name, whether or not they exist.
#[derive(Clone, Debug)]
pub struct Wanted {
    interest: SharedInterest,
    /// The version of the set of missing objects.
    version: watch::Receiver<u64>,
}

impl Wanted {
    pub(crate) fn new(interest: SharedInterest, version: watch::Receiver<u64>) -> Self {
        Self { interest, version }
    }

    /// Whether some stream names `key`.
    pub fn is_used(&self, key: &ResourceKey) -> bool {
        self.interest.read().is_used(key)
    }

    /// The objects that some stream names and no source has sent, in order.
    pub fn missing(&self) -> Vec<ResourceKey> {
        self.interest.read().missing().cloned().collect()
    }

    /// Returns once the set of [missing](Wanted::missing) objects has changed since the last call, but for objects that
    /// came; never after the controller stopped.
    pub async fn changed(&mut self) {
        if self.version.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
