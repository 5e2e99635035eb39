//! How long a pod has been active on the node. Pure.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// The time of a pod's activity: from its start until its worker began by the clock of the machine, and from then on by a clock
/// that nothing sets. A node without a clock of its own starts in the past, and is set forward by years.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveTime {
    before: Duration,
    since: Instant,
}

impl ActiveTime {
    /// The time of a pod that started at `start`, whose worker begins now: at `time`. A start that is to come is now.
    pub(super) fn begin(start: Timestamp, time: Timestamp, now: Instant) -> Self {
        let before = Duration::try_from(time.duration_since(start)).unwrap_or_default();
        Self { before, since: now }
    }

    /// How long the pod has been active.
    pub(super) fn at(&self, now: Instant) -> Duration {
        self.before.saturating_add(now.saturating_duration_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_active_from_its_start_and_a_clock_that_is_set_changes_nothing() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let now = Instant::now();
        let seconds = Duration::from_secs;
        let active = ActiveTime::begin(at(100), at(130), now);
        // No clock that is set is asked any more.
        assert_eq!(active.at(now), seconds(30));
        assert_eq!(active.at(now + seconds(5)), seconds(35));
        // The clock was set back between two runs of the pod worker.
        let active = ActiveTime::begin(at(100), at(7), now);
        assert_eq!(active.at(now + seconds(5)), seconds(5));
    }
}
