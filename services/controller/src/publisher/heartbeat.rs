//! Heartbeats in a task of their own: a writer that compares everything for minutes still lives.

use std::time::Duration;

use headwater_log::{Heartbeats, WriterError};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;

use super::PublishError;

/// Appends the heartbeats of one writer until it is dropped.
pub(super) struct HeartbeatTask(AbortOnDropHandle<WriterError>);

impl HeartbeatTask {
    /// Starts the task. The claim counts as the first heartbeat, so the next one follows after
    /// `period`.
    pub(super) fn start(heartbeats: Heartbeats, period: Duration) -> Self {
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self(AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                ticks.tick().await;
                if let Err(error) = heartbeats.append().await {
                    return error;
                }
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
