//! Follows the downstream log for as long as the hub runs, and wakes the sessions that wait.

use std::sync::Arc;
use std::time::Duration;

use headwater_follow::{FollowError, Follower, Step, WallClock};
use headwater_log::acceptance::{Fenced, Hole};
use headwater_log::{Log, Outcome};
use headwater_store::Engine;

use crate::fold::Fold;
use crate::metrics::FoldMetrics;
use crate::wakers::Wakers;

/// Waits before a log that cannot be followed is opened again: doubling from the first to the
/// last.
pub(crate) const REOPEN_FIRST: Duration = Duration::from_millis(100);
pub(crate) const REOPEN_LAST: Duration = Duration::from_secs(5);

/// Follows the downstream log for as long as the hub runs.
pub(crate) struct Following {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: WallClock,
    pub(crate) fold: Arc<Fold>,
    pub(crate) wakers: Arc<Wakers>,
    pub(crate) metrics: FoldMetrics,
}

impl Following {
    /// Follows, and opens the log again when it is lost.
    pub(crate) async fn run(self) {
        let mut wait = REOPEN_FIRST;
        let mut rebuild = false;
        loop {
            let Err(error) = self.follow(rebuild, &mut wait).await;
            self.metrics.lost(&error);
            // One that nobody has written to yet is no news at a hub that starts.
            if !matches!(error, FollowError::EmptyLog) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the downstream log is not followed just now"
                );
                rebuild = error.needs_rebuild();
            }
            self.fold.lose(chain(&error));
            self.wakers.wake_all();
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(REOPEN_LAST);
        }
    }

    async fn follow(
        &self,
        rebuild: bool,
        wait: &mut Duration,
    ) -> Result<std::convert::Infallible, FollowError> {
        let (log, engine, clock) = (&*self.log, self.engine.clone(), self.clock.clone());
        let mut follower = if rebuild {
            Follower::rebuild(log, engine, self.fold.history(), clock).await?
        } else {
            Follower::open(log, engine, self.fold.history(), clock).await?
        };
        self.fold.follow(&follower)?;
        self.metrics.reconciled(self.fold.facts().is_complete());
        self.wakers.wake_all();
        loop {
            let step = follower.next().await?;
            *wait = REOPEN_FIRST;
            self.count(&step);
            if self.fold.follow(&follower)? {
                self.metrics.reconciled(self.fold.facts().is_complete());
                self.wakers.wake_all();
            } else {
                let streams = step.outcomes.iter().filter_map(|outcome| match outcome {
                    Outcome::Accepted(envelope) => Some(&envelope.stream),
                    _ => None,
                });
                self.wakers.wake(streams);
            }
        }
    }

    fn count(&self, step: &Step) {
        for outcome in &step.outcomes {
            self.metrics.folded(outcome);
            match outcome {
                Outcome::Hole(Hole { stream, expected, found, .. }) => {
                    tracing::debug!(
                        %stream, seq = found.0, expected = expected.0,
                        "events are missing; the stream stands"
                    );
                }
                Outcome::Malformed(malformed) => {
                    tracing::error!(
                        error = %chain(malformed),
                        "its stream stands until a writer of a higher epoch takes it up"
                    );
                }
                Outcome::Fenced(Fenced { stream, seq, epoch, claimed, .. }) => {
                    tracing::debug!(
                        %stream, seq = seq.0, epoch = epoch.0, claimed = claimed.0,
                        "an event of a fenced writer is passed over"
                    );
                }
                _ => {}
            }
        }
        if let Some((cursor, high)) = &step.read {
            self.metrics.read_to(cursor, *high);
        }
    }
}

/// An error and what it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
