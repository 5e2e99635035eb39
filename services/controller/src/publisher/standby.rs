//! What a controller does that finds the log another's, or lost it to another: it keeps up, and
//! waits for its silence, or for its word that it has stopped.
//!
//! Whether a writer lives that was read about, and not heard, nobody can tell: clocks of two
//! machines may be years apart. So it is given the time of a whole silence on this one's.

use std::pin::pin;

use headwater_event::WriterEpoch;
use headwater_follow::Follower;
use headwater_store::{Batch, Durability, EngineError, Free, Json, Table, TableId};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Command, GROUP_EVENTS, PublishError, Publisher};
use crate::publisher::backup;

/// Under which UUID this controller last became the writer. Whoever starts over the same database,
/// which only one process can open, knows that this writer is gone.
const OWN_CLAIM: Table<(), Json<Uuid>, Free> = Table::new(TableId::OwnClaim);

impl Publisher {
    /// Whether the newest writer, by the log as far as it was read, may be another that lives.
    pub(super) fn may_be_anothers(&self, follower: &Follower<()>) -> Result<bool, EngineError> {
        let acceptance = follower.acceptance();
        let Some(newest) = acceptance.writer() else { return Ok(false) };
        if self.sole_writer || acceptance.is_released() {
            return Ok(false);
        }
        let own = OWN_CLAIM.get(&*self.engine, &())?;
        Ok(own.is_none_or(|Json(own)| own != newest.writer))
    }

    /// Remembers the claim that was won, beyond a loss of power.
    pub(super) fn remember_claim(
        &self,
        writer: Uuid,
        epoch: WriterEpoch,
    ) -> Result<(), EngineError> {
        let mut batch = Batch::new();
        batch.put(&OWN_CLAIM, &(), &Json(writer));
        backup::met(&mut batch, epoch);
        batch.write(&*self.engine, Durability::Synced)
    }

    /// Waits for as long as another writer lives, which says so, and keeps up with the source.
    pub(super) async fn stand_by(
        &mut self,
        follower: &mut Follower<()>,
    ) -> Result<(), PublishError> {
        let silence_max = self.timings.silence_max();
        let mut silent = pin!(sleep(silence_max));
        let mut events = Vec::new();
        // It may have said so before this controller had begun to stand by.
        while !follower.acceptance().is_released() {
            tokio::select! {
                biased;
                step = follower.next() => {
                    step?;
                    silent.as_mut().reset(Instant::now() + silence_max);
                }
                () = &mut silent => return Ok(()),
                Some(command) = self.commands.recv() => self.keep(command),
                // The channel stays open.
                _ = self.source.recv_many(&mut events, GROUP_EVENTS) => {
                    self.take_in_unpublished(events.drain(..));
                }
            }
        }
        tracing::info!("the writer has stopped in order");
        Ok(())
    }

    /// Keeps a command until there is a writer, each once, so that whoever commands need not wait:
    /// no more than there are nodes and pods.
    fn keep(&mut self, command: Command) {
        let interest = self.interest.read();
        let is_there = |command: &Command| match command {
            Command::RemoveTerminated { pod, uid } => {
                interest.object(pod).is_some_and(|object| object.uid() == uid)
            }
            Command::RequestSnapshot(_) => true,
        };
        if self.listed {
            self.waiting.retain(is_there);
        }
        self.waiting.insert(command);
    }
}
