//! The publisher's progress, as the rest of the controller and people see it.

use headwater_event::WriterEpoch;
use tokio::time::Instant;

/// How far publishing is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The writer's epoch; zero before the first claim.
    pub epoch: WriterEpoch,
    /// Whether the sources have listed and the log holds everything that they listed.
    pub reconciled: bool,
    /// Events that this process appended. It wakes no reader of the progress: another change shows it to those that
    /// wait, and a read shows it at any time.
    pub appended: u64,
    /// Whether another controller writes the log, and this one is its standby.
    pub is_standby: bool,
    /// Whether a standby can take over at once: its sources have listed, and it has adopted what the
    /// writer published.
    pub is_prepared: bool,
    /// Until when this controller is certainly the only writer: two thirds of the silence after the
    /// last heartbeat that the log took was sent. `None`: it is not the writer. What may have one
    /// writer only, such as the API of a cluster, is written before this instant.
    pub writes_until: Option<Instant>,
    /// Why nothing is appended just now, where something is wrong.
    pub trouble: Option<String>,
    /// The objects that the writer leaves out because they are too large for the log, in sentences.
    pub left_out: Vec<String>,
}

impl Progress {
    /// Whether this controller may act at `now` as the only writer.
    pub fn may_write(&self, now: Instant) -> bool {
        self.reconciled && self.writes_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_writer_acts_until_two_thirds_of_the_silence_after_its_heartbeat() {
        let sent = Instant::now();
        let timings = crate::WriterTimings::default();
        let silence = timings.silence_max();
        let writes_until = Some(sent + timings.writes_for());
        let writer = Progress { reconciled: true, writes_until, ..Progress::default() };
        assert!(writer.may_write(sent + silence * 2 / 3 - Duration::from_millis(1)));
        assert!(!writer.may_write(sent + silence * 2 / 3));
        assert!(!Progress { reconciled: false, ..writer.clone() }.may_write(sent));
        assert!(!Progress { writes_until: None, ..writer }.may_write(sent));
    }
}
