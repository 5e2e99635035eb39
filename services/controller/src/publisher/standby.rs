//! The wait for a claim: follows the log, keeps the interest up to date, and waits until this
//! controller can list and no other controller keeps the log.

use std::pin::pin;

use headwater_follow::end_notes_interval;
use tokio::time::{Instant, sleep};

use super::leadership::newest_claim;
use super::{Command, LogFollower, PublishError, Publisher};
use crate::source::WriterRole;

impl Publisher {
    /// Returns when this controller may claim the log: its sources have listed, and the other
    /// writer, if there is one, released or yielded the log, or was silent for long enough.
    pub(super) async fn wait_to_claim(
        &mut self,
        follower: &mut LogFollower,
    ) -> Result<(), PublishError> {
        let silence_max = self.timings.silence_max();
        let mut silence = pin!(sleep(silence_max));
        let mut is_silent = false;
        let newest = newest_claim(follower);
        let mut end_notes = end_notes_interval();
        let mut events = Vec::new();
        if self.leadership.is_standby() {
            self.show_standby();
        }
        while !self.may_claim(follower, is_silent) {
            if self.leadership.is_standby() {
                self.intake.prepare(&*self.engine)?;
                self.show_prepared();
            }
            tokio::select! {
                biased;
                // A log that always has records must not delay it.
                _ = end_notes.tick() => follower.note_ends(self.leadership.log()).await?,
                step = follower.next() => {
                    step?;
                    self.heard_another = true;
                    is_silent = false;
                    silence.as_mut().reset(Instant::now() + silence_max);
                    let now = newest_claim(follower);
                    if !self.leadership.is_standby()
                        && now != newest
                        && self.leadership.is_anothers(now)
                    {
                        self.leadership.begin_standby();
                        self.show_standby();
                    }
                }
                () = &mut silence, if !is_silent => is_silent = true,
                () = self.sources.changed() => {}
                // The sink of the next writer repeats it.
                Some(Command::RemoveObject { .. }) = self.commands.recv() => {}
                // The channel stays open.
                _ = self.source.next_group(&mut events) => {
                    let _ = self.intake.apply(events.drain(..));
                }
            }
        }
        Ok(())
    }

    /// Whether this controller may claim; `is_silent`: the log had no record for a whole silence.
    ///
    /// Objects of a source that is lost may be older than what another writer has published since.
    /// A controller that wrote last itself has published nothing newer.
    fn may_claim(&self, follower: &LogFollower, is_silent: bool) -> bool {
        let acceptance = follower.acceptance();
        let is_free = !self.leadership.is_standby()
            || is_silent
            || acceptance.is_released()
            || acceptance.is_yielded();
        if !is_free || !self.intake.has_listed() {
            return false;
        }
        self.sources.is_well() || self.leadership.wrote_last(follower)
    }

    fn show_standby(&self) {
        self.role.send_replace(WriterRole::Standby);
        self.progress.send_modify(|progress| {
            progress.is_standby = true;
            progress.is_prepared = false;
            progress.trouble = None;
        });
    }

    fn show_prepared(&self) {
        let is_prepared = self.intake.has_listed();
        self.progress.send_if_modified(|progress| {
            std::mem::replace(&mut progress.is_prepared, is_prepared) != is_prepared
        });
    }
}
