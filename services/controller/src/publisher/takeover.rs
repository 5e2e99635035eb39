//! The takeover from another controller: sources answer it before anything is compared.
//!
//! A standby's sources do not see how the writer's rollouts go on. Without their new decision the
//! comparison would publish pods again that the writer has replaced. A standby's watch of a Kubernetes API
//! may be behind that of the writer. The comparison would then take back what the writer has published:
//! a deleted pod would come back under its UID, and a new one would go.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::backup::PublishedFold;
use super::writable_log::WritableLog;
use super::{PublishError, Publisher};
use crate::source::{SourceEvent, Takeover, WriterRole};

/// How long sources may take to answer: describing the largest folder takes seconds, and a watch catches up
/// in two. Afterwards the controller publishes what they sent before.
const ANSWER_MAX: Duration = Duration::from_secs(20);

impl Publisher {
    /// Makes the role of the writer known to the sources, and waits for the answers of those that answer a
    /// takeover, if another controller wrote the log.
    pub(super) async fn take_over(&mut self, log: &mut WritableLog) -> Result<(), PublishError> {
        let epoch = log.epoch().0;
        let is_due =
            self.answering_sources > 0 && self.intake.follows_another() && self.sources.is_well();
        if !is_due {
            self.role.send_replace(WriterRole::Writer { takeover: None });
            return Ok(());
        }
        log.flush().await?;
        let published = Arc::new(PublishedFold(self.engine.clone()));
        let takeover = Some(Takeover { epoch, published, is_live: self.heard_another });
        self.role.send_replace(WriterRole::Writer { takeover });
        let deadline = Instant::now() + ANSWER_MAX;
        let mut waiting = self.answering_sources;
        let mut events = Vec::new();
        while waiting > 0 {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                received = self.source.recv_many(&mut events, self.group_events) => {
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
                () = sleep_until(deadline) => {
                    tracing::warn!(waiting, "sources did not answer the takeover in time");
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
