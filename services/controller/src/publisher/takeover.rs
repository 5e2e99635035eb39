//! The takeover from another controller: sources answer it before anything is compared.
//!
//! A standby's sources do not see how the writer's rollouts go on. Without their new decision the
//! comparison would publish pods again that the writer has replaced. A standby's watch of a Kubernetes API
//! may be behind that of the writer. The comparison would then take back what the writer has published:
//! a deleted pod would come back under its UID, and a new one would go. So there is no time after which the
//! comparison begins without an answer: a writer whose sources stay behind gives the log up, for a standby whose
//! sources may follow.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::backup::PublishedFold;
use super::heartbeat::HeartbeatTask;
use super::writable_log::WritableLog;
use super::{PublishError, Publisher};
use crate::source::{SourceEvent, Takeover, WriterRole};

/// How long answers usually take at most: describing the largest folder takes seconds, and a watch catches up
/// in two. An answer that takes longer is a trouble that the status names.
const ANSWER_USUAL: Duration = Duration::from_secs(20);

/// The trouble of a writer whose sources take longer.
const LATE: &str = "the sources have not caught up with what another controller published; nothing is \
                    published until they have";

impl Publisher {
    /// Makes the role of the writer known to the sources, and waits for the answers of those that answer a
    /// takeover, if another controller wrote the log.
    ///
    /// # Errors
    /// The log is lost meanwhile, or given up; nothing was compared.
    pub(super) async fn take_over(
        &mut self,
        log: &mut WritableLog,
        heartbeats: &mut HeartbeatTask,
    ) -> Result<(), PublishError> {
        let epoch = log.epoch().0;
        if self.answering_sources == 0 || !self.intake.follows_another() {
            self.role.send_replace(WriterRole::Writer { takeover: None });
            return Ok(());
        }
        log.flush().await?;
        let published = Arc::new(PublishedFold(self.engine.clone()));
        let takeover = Some(Takeover { epoch, published, is_live: self.heard_another });
        self.role.send_replace(WriterRole::Writer { takeover });
        let mut usual = pin!(sleep(ANSWER_USUAL));
        let mut given_up = pin!(sleep(ANSWER_USUAL + self.timings.source_loss_max));
        let mut is_late = false;
        let mut waiting = self.answering_sources;
        let mut events = Vec::new();
        while waiting > 0 {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                error = heartbeats.failed() => return Err(error),
                result = log.advance() => {
                    result?;
                    if is_late {
                        // It may have shown another trouble.
                        self.show_late();
                    }
                }
                received = self.source.next_group(&mut events) => {
                    if received == 0 {
                        return Ok(());
                    }
                    let is_ours = |event: &&SourceEvent| {
                        matches!(event, SourceEvent::TakenOver { epoch: of } if *of == epoch)
                    };
                    waiting = waiting.saturating_sub(events.iter().filter(is_ours).count());
                    // Everything is compared afterwards.
                    let _ = self.intake.apply(events.drain(..));
                }
                () = &mut usual, if !is_late => {
                    is_late = true;
                    tracing::warn!(waiting, "{LATE}");
                    self.show_late();
                }
                () = &mut given_up => return Err(PublishError::SourcesBehind),
            }
        }
        if is_late {
            tracing::info!("the sources have caught up");
            log.show_away();
        }
        Ok(())
    }

    fn show_late(&self) {
        self.progress.send_if_modified(|progress| {
            let is_shown = progress.trouble.as_deref() == Some(LATE);
            progress.trouble = Some(LATE.to_owned());
            !is_shown
        });
    }
}
