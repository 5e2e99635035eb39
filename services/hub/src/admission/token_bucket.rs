//! A rate with a burst.

use std::time::Duration;

/// A token bucket, kept as the time at which it is full again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    /// The time in which one token is added.
    interval: Duration,
    /// How far `full_at` may be ahead of the clock while the bucket still has a token.
    ahead_max: Duration,
    full_at: Duration,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens that gains `per_second` tokens a second; at least one each.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self { interval, ahead_max: interval * (burst.max(1) - 1), full_at: Duration::ZERO }
    }

    /// Takes a token if there is one. `now` is of a monotonic clock.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let full_at = self.full_at.max(now);
        if full_at - now > self.ahead_max {
            return false;
        }
        self.full_at = full_at + self.interval;
        true
    }

    pub(crate) fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now
    }

    /// Takes `count` tokens, also those that are not there yet. Returns how long until they are.
    pub(super) fn take_in_advance(&mut self, count: u32, now: Duration) -> Duration {
        self.full_at = self.full_at.max(now).saturating_add(self.interval.saturating_mul(count));
        (self.full_at - now).saturating_sub(self.ahead_max + self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut bucket = TokenBucket::new(10, 3);
        let mut taken = |ms| (0..9).filter(|_| bucket.take(Duration::from_millis(ms))).count();
        assert_eq!(taken(5_000), 3);
        assert_eq!(taken(5_099), 0);
        assert_eq!(taken(5_100), 1);
        assert_eq!(taken(5_300), 2);
        assert_eq!(taken(60_000), 3, "the bucket holds no more");
        assert!(TokenBucket::new(0, 0).take(Duration::ZERO), "no division by zero");
    }

    #[test]
    fn tokens_that_are_taken_in_advance_come_at_the_rate() {
        let mut bucket = TokenBucket::new(10, 3);
        let at = Duration::from_millis;
        assert_eq!(bucket.take_in_advance(3, at(5_000)), Duration::ZERO);
        assert_eq!(bucket.take_in_advance(1, at(5_000)), at(100));
        assert_eq!(bucket.take_in_advance(10, at(5_000)), at(1_100));
        assert_eq!(bucket.take_in_advance(1, at(6_100)), at(100));
        assert_eq!(bucket.take_in_advance(3, at(60_000)), Duration::ZERO);
    }
}
