//! The standby: follows the log of another writer, keeps the interest up to date, and waits until
//! the other has stopped in order or was silent for long enough.

use std::pin::pin;

use headwater_follow::Follower;
use tokio::time::{Instant, sleep};

use super::{Command, GROUP_EVENTS, PublishError, Publisher};

impl Publisher {
    /// Returns when the log may be claimed.
    pub(super) async fn stand_by(
        &mut self,
        follower: &mut Follower<()>,
    ) -> Result<(), PublishError> {
        let silence_max = self.timings.silence_max();
        let mut silence = pin!(sleep(silence_max));
        let mut events = Vec::new();
        // The writer may have released the log before this standby began.
        while !follower.acceptance().is_released() {
            tokio::select! {
                biased;
                step = follower.next() => {
                    step?;
                    silence.as_mut().reset(Instant::now() + silence_max);
                }
                () = &mut silence => return Ok(()),
                Some(command) = self.commands.recv() => self.keep(command),
                // The channel stays open.
                _ = self.source.recv_many(&mut events, GROUP_EVENTS) => {
                    let _ = self.intake.apply(events.drain(..));
                }
            }
        }
        tracing::info!("the other writer has released the log");
        Ok(())
    }

    /// Keeps a command until this controller is the writer: at most one for each node.
    fn keep(&mut self, command: Command) {
        match command {
            Command::RequestSnapshot(node) => self.snapshot_requests.add(node, Instant::now()),
            // The sink of the next writer finds it again.
            Command::RemoveObject { .. } => {}
        }
    }
}
