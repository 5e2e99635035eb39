//! The waits between the starts of a failing container.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

/// The back-off of a failing container, as a kubelet's CrashLoopBackOff: the first restart follows
/// immediately, each later one after twice the wait before it, up to the cap. A container that ran
/// for twice the cap starts over.
#[derive(Debug)]
pub(super) struct CrashLoop {
    backoff: Backoff,
    failed_before: bool,
    blocked: Option<(Instant, Duration)>,
}

impl CrashLoop {
    /// A container that has not failed yet.
    pub(super) fn new(base: Duration, cap: Duration) -> Self {
        Self { backoff: Backoff::new(base, cap), failed_before: false, blocked: None }
    }

    /// Records that the container ended at `now` after it had run for `ran`.
    pub(super) fn ended(&mut self, now: Instant, ran: Duration) {
        if ran >= self.backoff.cap() * 2 {
            self.backoff.reset();
            self.failed_before = false;
        }
        if self.failed_before {
            let wait = self.backoff.next_wait();
            self.blocked = Some((now + wait, wait));
        }
        self.failed_before = true;
    }

    /// The time before which the container must not start, and the length of that wait; `None` if
    /// it may start.
    pub(super) fn blocked(&self, now: Instant) -> Option<(Instant, Duration)> {
        self.blocked.filter(|(until, _)| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failing_container_waits_0_10_20_to_300_seconds() {
        let mut now = Instant::now();
        let mut crash = CrashLoop::new(10 * SECOND, 300 * SECOND);
        let mut waits = Vec::new();
        for _ in 0..8 {
            crash.ended(now, SECOND);
            let wait = crash.blocked(now).map_or(Duration::ZERO, |(_, wait)| wait);
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(crash.blocked(now), None, "after {wait:?} it may start");
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_container_that_ran_for_twice_the_cap_starts_over() {
        let now = Instant::now();
        let mut crash = CrashLoop::new(10 * SECOND, 300 * SECOND);
        for _ in 0..4 {
            crash.ended(now, SECOND);
        }
        crash.ended(now + 700 * SECOND, 650 * SECOND);
        assert_eq!(crash.blocked(now + 700 * SECOND), None);
        crash.ended(now + 701 * SECOND, SECOND);
        let wait = crash.blocked(now + 701 * SECOND).map(|(_, wait)| wait);
        assert_eq!(wait, Some(10 * SECOND));
    }
}
