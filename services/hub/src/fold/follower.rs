//! The task that folds the downstream log, and notifies the sessions of what changed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use headwater_follow::{FollowError, Follower, Step, WallClock};
use headwater_log::acceptance::{FencedRecord, Hole};
use headwater_log::{Log, Outcome};
use headwater_telemetry::error_chain;

use super::Fold;
use crate::backoff::Backoff;
use crate::metrics::FoldMetrics;

/// The first wait before a log that cannot be followed is opened again.
const REOPEN_FIRST: Duration = Duration::from_millis(100);

/// The longest wait before a log that cannot be followed is opened again.
const REOPEN_LONGEST: Duration = Duration::from_secs(5);

/// Follows the downstream log for as long as the hub runs.
pub(crate) struct DownstreamFollower {
    /// The log to follow.
    pub(crate) log: Arc<dyn Log>,
    /// The hub's clock.
    pub(crate) clock: WallClock,
    /// The fold that the log goes into.
    pub(crate) fold: Arc<Fold>,
    /// Counts records and failures.
    pub(crate) metrics: FoldMetrics,
}

impl DownstreamFollower {
    /// Follows the log, and opens it again after each failure.
    pub(crate) async fn run(self) {
        let mut backoff = reopen_backoff();
        let mut rebuild = false;
        loop {
            let Err(error) = self.follow(rebuild, &mut backoff).await;
            self.metrics.failed(&error);
            // A hub may start before the first writer of its log.
            if !matches!(error, FollowError::EmptyLog) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the hub cannot follow the downstream log; it will try again"
                );
                rebuild = error.needs_rebuild();
            }
            self.fold.suspend(error_chain(&error));
            self.fold.subscriptions().notify_all();
            backoff.wait().await;
        }
    }

    async fn follow(
        &self,
        rebuild: bool,
        backoff: &mut Backoff,
    ) -> Result<Infallible, FollowError> {
        let (log, engine, clock) = (&*self.log, self.fold.engine().clone(), self.clock.clone());
        let history = self.fold.history();
        let mut follower = if rebuild {
            Follower::rebuild(log, engine, history, clock).await?
        } else {
            Follower::open(log, engine, history, clock).await?
        };
        self.fold.refresh(&follower)?;
        self.notify_all();
        loop {
            let step = follower.next().await?;
            backoff.reset();
            self.count(&step);
            if self.fold.refresh(&follower)? {
                self.notify_all();
            } else {
                let streams = step.outcomes.iter().filter_map(|outcome| match outcome {
                    Outcome::Accepted(envelope) => Some(&envelope.stream),
                    _ => None,
                });
                self.fold.subscriptions().notify(streams);
            }
        }
    }

    /// The state of the whole fold changed.
    fn notify_all(&self) {
        self.metrics.reconciled(self.fold.state().is_complete());
        self.fold.subscriptions().notify_all();
    }

    fn count(&self, step: &Step) {
        for outcome in &step.outcomes {
            self.metrics.folded(outcome);
            match outcome {
                Outcome::Hole(Hole { stream, expected, found, .. }) => {
                    tracing::debug!(
                        %stream, seq = found.0, expected = expected.0,
                        "events are missing; the stream is stopped"
                    );
                }
                Outcome::Malformed(malformed) => {
                    tracing::error!(
                        error = %error_chain(malformed),
                        "a record cannot be read; its stream is stopped until a writer of a \
                         higher epoch continues it"
                    );
                }
                Outcome::Fenced(FencedRecord { stream, seq, epoch, claimed, .. }) => {
                    tracing::debug!(
                        %stream, seq = seq.0, epoch = epoch.0, claimed = claimed.0,
                        "an event of a fenced writer is ignored"
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

/// The waits before a log is opened again.
pub(super) fn reopen_backoff() -> Backoff {
    Backoff::new(REOPEN_FIRST, REOPEN_LONGEST)
}
