//! Whether the sources follow. A controller that cannot list must neither take the log nor keep it
//! from one that can: its objects are older than those of a controller whose sources follow.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::source::SourceStates;

/// The states of the sources, and for how long some source has been lost.
#[derive(Clone, Debug)]
pub(super) struct SourceHealth {
    states: watch::Receiver<SourceStates>,
    lost_since: Option<Instant>,
}

impl SourceHealth {
    pub(super) fn new(states: watch::Receiver<SourceStates>) -> Self {
        Self { states, lost_since: None }
    }

    /// Whether every source as a whole follows now.
    pub(super) fn is_well(&self) -> bool {
        self.states.borrow().sources_follow()
    }

    /// Waits until a state changes; for ever once no source reports any more. Cancel safe.
    pub(super) async fn changed(&mut self) {
        if self.states.changed().await.is_err() {
            pending().await
        }
    }

    /// For how long, at `now`, each call has found some source lost.
    pub(super) fn lost_for(&mut self, now: Instant) -> Duration {
        if self.is_well() {
            self.lost_since = None;
            return Duration::ZERO;
        }
        now.duration_since(*self.lost_since.get_or_insert(now))
    }
}
