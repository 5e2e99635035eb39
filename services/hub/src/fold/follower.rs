//! The task that folds the downstream log, and notifies the sessions of what changed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::StreamId;
use headwater_follow::{FollowError, Follower, Step, WallClock, end_notes_interval};
use headwater_log::acceptance::{FencedRecord, Hole};
use headwater_log::{Log, Outcome};
use headwater_telemetry::error_chain;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::Fold;
use super::history::History;
use super::notification_pacer::NotificationPacer;
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
    /// Follows the log, and opens it again after each failure that ends the fold.
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
                // A rebuild that found no log is still due.
                rebuild = error.needs_rebuild() || (rebuild && error.is_unavailable());
            }
            self.fold.suspend(error_chain(&error));
            self.notify_all();
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
        let mut pacer = NotificationPacer::default();
        let mut end_notes = end_notes_interval();
        loop {
            let due = pacer.due();
            let step = tokio::select! {
                biased;
                // A log that always has records must not delay it.
                _ = end_notes.tick() => {
                    follower.note_ends(log).await?;
                    continue;
                }
                step = next(&mut follower) => step,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.notify_due(&mut pacer);
                    continue;
                }
            };
            let step = match step {
                Ok(step) => step,
                Err(error) if error.is_unavailable() => {
                    self.reconnect(&mut follower, error, backoff).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            backoff.reset();
            self.count(&step);
            if self.fold.refresh(&follower)? {
                self.notify_all();
            } else {
                self.notify_changed(&mut pacer, &step);
                // A log that always has records must not delay the streams that wait.
                self.notify_due(&mut pacer);
            }
        }
    }

    /// Notifies the sessions of the streams that a step has changed, or lets them wait.
    fn notify_changed(&self, pacer: &mut NotificationPacer, step: &Step) {
        let changed = step.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Accepted(envelope) => Some(&envelope.stream),
            _ => None,
        });
        let (subscriptions, now) = (self.fold.subscriptions(), Instant::now());
        let changed: BTreeSet<&StreamId> = changed.collect();
        let is_now = |stream: &&StreamId| pacer.change(stream, subscriptions.sessions(stream), now);
        let notified: Vec<&StreamId> = changed.into_iter().filter(is_now).collect();
        subscriptions.notify(notified);
    }

    /// Notifies the sessions whose streams have waited for long enough.
    fn notify_due(&self, pacer: &mut NotificationPacer) {
        let subscriptions = self.fold.subscriptions();
        let due = pacer.take_due(Instant::now(), |stream| subscriptions.sessions(stream));
        subscriptions.notify(&due);
    }

    /// Waits until the log can be read again. The fold stays, and so do the sessions that read it:
    /// ten thousand edges that connect again cost more than the pause.
    async fn reconnect(
        &self,
        follower: &mut Follower<History>,
        mut error: FollowError,
        backoff: &mut Backoff,
    ) -> Result<(), FollowError> {
        loop {
            self.metrics.failed(&error);
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the hub cannot read the downstream log; its sessions wait for it"
            );
            self.fold.pause(error_chain(&error));
            backoff.wait().await;
            match follower.reconnect(&*self.log).await {
                Ok(()) => break,
                Err(again) if again.is_unavailable() => error = again,
                Err(other) => return Err(other),
            }
        }
        // Nothing but the trouble has changed, which concerns no session.
        self.fold.refresh(follower)?;
        Ok(())
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

/// The next batch. A hub serves its stored fold at once, and verifies a stream of it whenever no batch
/// is there. Until then an edge refuses a damaged stream by its hash.
async fn next(follower: &mut Follower<History>) -> Result<Step, FollowError> {
    loop {
        tokio::select! {
            biased;
            step = follower.next() => {
                let step = step?;
                follower.verify_next()?;
                return Ok(step);
            }
            () = yield_now(), if !follower.is_verified() => {
                follower.verify_next()?;
            }
        }
    }
}

/// The waits before a log is opened again.
pub(super) fn reopen_backoff() -> Backoff {
    Backoff::new(REOPEN_FIRST, REOPEN_LONGEST)
}
