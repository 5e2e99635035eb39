//! The waits between the starts of a failing container.

use std::time::Duration;

use serde::{Deserialize, Serialize};
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

/// The wait of a container, which outlives the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrashRecord {
    /// The number of the run after which it waits.
    pub(crate) attempt: u32,
    /// The length of the wait in milliseconds; 0 after the first failure.
    pub(crate) wait_ms: u64,
}

impl CrashRecord {
    /// The length of the wait.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }
}

impl CrashLoop {
    /// A container that has not failed yet.
    pub(super) fn new(base: Duration, cap: Duration) -> Self {
        Self { backoff: Backoff::new(base, cap), failed_before: false, blocked: None }
    }

    /// Continues after a wait of an earlier worker, of which `left` is left at `now`.
    pub(super) fn resume(&mut self, wait: Duration, left: Duration, now: Instant) {
        self.backoff.reset();
        self.failed_before = true;
        self.blocked = None;
        // The first failure has no wait.
        if wait > Duration::ZERO {
            while self.backoff.next_wait() < wait.min(self.backoff.cap()) {}
            self.blocked = Some((now + left.min(wait), wait));
        }
    }

    /// Forgets all failures.
    pub(super) fn reset(&mut self) {
        self.backoff.reset();
        (self.failed_before, self.blocked) = (false, None);
    }

    /// The wait after the latest failure, if there was one.
    pub(super) fn wait(&self) -> Option<Duration> {
        let wait = self.blocked.map_or(Duration::ZERO, |(_, wait)| wait);
        self.failed_before.then_some(wait)
    }

    /// Records that the container ended at `now` after it had run for `ran`.
    pub(super) fn ended(&mut self, now: Instant, ran: Duration) {
        if ran >= self.backoff.cap() * 2 {
            self.reset();
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
    fn a_wait_goes_on_in_the_next_worker() {
        let now = Instant::now();
        let mut crash = CrashLoop::new(10 * SECOND, 300 * SECOND);
        crash.resume(40 * SECOND, 7 * SECOND, now);
        assert_eq!(crash.blocked(now), Some((now + 7 * SECOND, 40 * SECOND)));
        crash.ended(now + 8 * SECOND, SECOND);
        assert_eq!(crash.wait(), Some(80 * SECOND));
        // The first failure is no wait, and the second one waits.
        crash.resume(Duration::ZERO, Duration::ZERO, now);
        assert_eq!((crash.blocked(now), crash.wait()), (None, Some(Duration::ZERO)));
        crash.ended(now, SECOND);
        assert_eq!(crash.blocked(now), Some((now + 10 * SECOND, 10 * SECOND)));
        // The settings have changed meanwhile.
        crash.resume(900 * SECOND, 1000 * SECOND, now);
        crash.ended(now, SECOND);
        assert_eq!(crash.wait(), Some(300 * SECOND));
    }

    #[test]
    fn a_container_that_ran_for_twice_the_cap_starts_over() {
        let now = Instant::now();
        let mut crash = CrashLoop::new(10 * SECOND, 300 * SECOND);
        for _ in 0..4 {
            crash.ended(now, SECOND);
        }
        crash.ended(now + 700 * SECOND, 650 * SECOND);
        let first = (None, Some(Duration::ZERO));
        assert_eq!((crash.blocked(now + 700 * SECOND), crash.wait()), first);
        crash.ended(now + 701 * SECOND, SECOND);
        let wait = crash.blocked(now + 701 * SECOND).map(|(_, wait)| wait);
        assert_eq!(wait, Some(10 * SECOND));
    }
}
