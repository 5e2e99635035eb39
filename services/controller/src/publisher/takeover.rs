//! The takeover from another controller: sources that decide by what is published decide anew before
//! anything is compared.
//!
//! A standby's sources do not see how the writer's rollouts go on. Without their new decision the
//! comparison would publish pods again that the writer has replaced.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::backup::PublishedFold;
use super::writable_log::WritableLog;
use super::{PublishError, Publisher};
use crate::source::{SourceEvent, Takeover, WriterRole};

/// How long sources may take to decide anew: describing the largest folder takes seconds. Afterwards
/// the controller publishes what they decided before.
const DECISION_MAX: Duration = Duration::from_secs(20);

impl Publisher {
    /// Makes the role of the writer known to the sources, and waits for the new decisions of those
    /// that decide by what is published, if another controller wrote it.
    pub(super) async fn take_over(&mut self, log: &mut WritableLog) -> Result<(), PublishError> {
        let epoch = log.epoch().0;
        let is_due =
            self.deciding_sources > 0 && self.intake.must_adopt() && self.sources.is_well();
        if !is_due {
            self.role.send_replace(WriterRole::Writer { takeover: None });
            return Ok(());
        }
        log.flush().await?;
        let published = Arc::new(PublishedFold(self.engine.clone()));
        let takeover = Some(Takeover { epoch, published });
        self.role.send_replace(WriterRole::Writer { takeover });
        let deadline = Instant::now() + DECISION_MAX;
        let mut waiting = self.deciding_sources;
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
                    tracing::warn!(waiting, "sources did not decide anew after the takeover");
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
