//! A pod whose volumes or sandbox cannot be set up: the reason, and the next attempt.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::container::WaitReason;

/// The first wait between attempts: a disk or a path that comes back is noticed soon.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// The failed attempts since the last one that succeeded.
#[derive(Debug)]
pub(super) struct SetupFailure {
    reason: WaitReason,
    retry_at: Instant,
    backoff: Backoff,
}

impl SetupFailure {
    /// The first failed attempt. Waits double up to `cap`.
    pub(super) fn new(reason: WaitReason, now: Instant, cap: Duration) -> Self {
        let mut backoff = Backoff::new(FIRST_WAIT, cap);
        Self { reason, retry_at: now + backoff.next_wait(), backoff }
    }

    /// Records another failed attempt.
    pub(super) fn fail(&mut self, reason: WaitReason, now: Instant) {
        self.reason = reason;
        self.retry_at = now + self.backoff.next_wait();
    }

    /// Lets the next attempt follow at once: what it needs may be here now.
    pub(super) fn make_due(&mut self, now: Instant) {
        self.retry_at = self.retry_at.min(now);
    }

    /// Why the containers wait.
    pub(super) fn reason(&self) -> &WaitReason {
        &self.reason
    }

    /// The time of the next attempt.
    pub(super) fn retry_at(&self) -> Instant {
        self.retry_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_back_off_to_the_cap_and_a_change_makes_the_next_one_due() {
        let reason = || WaitReason { reason: "ContainerCreating", message: "no disk".to_owned() };
        let now = Instant::now();
        let mut failure = SetupFailure::new(reason(), now, Duration::from_secs(300));
        let mut waits = vec![failure.retry_at().duration_since(now).as_secs()];
        for _ in 0..9 {
            failure.fail(reason(), now);
            waits.push(failure.retry_at().duration_since(now).as_secs());
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        failure.make_due(now);
        assert_eq!(failure.retry_at(), now);
        failure.fail(reason(), now);
        assert_eq!(
            failure.retry_at(),
            now + Duration::from_secs(300),
            "the wait does not start over"
        );
    }
}
