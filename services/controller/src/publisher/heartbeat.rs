//! Heartbeats in a task of their own: a writer that compares everything for minutes still lives.

use headwater_log::{Heartbeats, WriterError};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;

use super::source_health::SourceHealth;
use super::{Progress, PublishError, WriterTimings};

/// After this part of the interval, a heartbeat that partition 0 has not taken goes to the others, too.
const PATIENCES: u32 = 2;

/// Appends the heartbeats of one writer until it is dropped.
pub(super) struct HeartbeatTask(AbortOnDropHandle<WriterError>);

impl HeartbeatTask {
    /// Starts the task. The claim counts as the first heartbeat, so the next one follows after the
    /// interval. The heartbeats yield the log while `sources` have been lost for too long. Each one
    /// that the log took prolongs the time in which this writer is the only one, in `progress`.
    pub(super) fn start(
        heartbeats: Heartbeats,
        timings: WriterTimings,
        mut sources: SourceHealth,
        progress: watch::Sender<Progress>,
    ) -> Self {
        let period = timings.heartbeat_interval;
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut yielded = false;
            loop {
                ticks.tick().await;
                let yields = sources.lost_for(Instant::now()) > timings.source_loss_max;
                if yields && !yielded {
                    tracing::warn!(
                        "the sources are lost; this writer yields the log to a standby whose \
                         sources follow"
                    );
                }
                yielded = yields;
                let sent = Instant::now();
                if let Err(error) = heartbeats.append(yields, period / PATIENCES).await {
                    return error;
                }
                progress.send_modify(|progress| {
                    progress.writes_until = Some(sent + timings.writes_for());
                });
            }
        })))
    }

    /// Waits until a heartbeat fails. Cancel safe; to be called until it has returned once.
    pub(super) async fn failed(&mut self) -> PublishError {
        match (&mut self.0).await {
            Ok(error) => error.into(),
            Err(error) => PublishError::Heartbeats(error.to_string()),
        }
    }

    /// Stops the task. When this returns, no heartbeat is appended any more.
    pub(super) async fn stop(self) {
        self.0.abort();
        // It was aborted, or a heartbeat had failed: the writer stops anyway.
        let _ = self.0.await;
    }
}
