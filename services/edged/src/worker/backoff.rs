//! Waits that double: between starts of a failing container, and between pulls of an image.
//!
//! Statuses show these waits, so they are exact multiples of their base.

use std::time::Duration;

use tokio::time::Instant;

/// A wait that doubles from a base to a cap.
#[derive(Clone, Debug)]
pub(super) struct DoublingWait {
    base: Duration,
    cap: Duration,
    next: Duration,
}

impl DoublingWait {
    /// Starts at `base`.
    pub(super) fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, next: base.min(cap) }
    }

    /// The next wait.
    pub(super) fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.cap);
        wait
    }

    /// Starts at the base again.
    pub(super) fn reset(&mut self) {
        self.next = self.base.min(self.cap);
    }
}

/// The back-off of a failing container, as a kubelet's CrashLoopBackOff: the first restart follows
/// immediately, each later one after twice the wait before it, up to the cap. A container that ran
/// for twice the cap starts over.
#[derive(Clone, Debug)]
pub(super) struct CrashLoop {
    wait: DoublingWait,
    failed_before: bool,
    blocked: Option<(Instant, Duration)>,
}

impl CrashLoop {
    /// A container that has not failed yet.
    pub(super) fn new(base: Duration, cap: Duration) -> Self {
        Self { wait: DoublingWait::new(base, cap), failed_before: false, blocked: None }
    }

    /// Records that the container ended at `now` after it had run for `ran`.
    pub(super) fn ended(&mut self, now: Instant, ran: Duration) {
        if ran >= self.wait.cap * 2 {
            self.wait.reset();
            self.failed_before = false;
        }
        if self.failed_before {
            let wait = self.wait.next_wait();
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
