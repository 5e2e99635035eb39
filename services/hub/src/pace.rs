//! How fast hellos are taken: so many a second, and so many at once.

use std::time::Duration;

/// A bucket of tokens that fills steadily, kept as the time at which it is full again.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The time in which one token comes.
    each: Duration,
    /// How far ahead of the clock the bucket may be and still have a token.
    ahead_max: Duration,
    full_at: Duration,
}

impl Pace {
    /// `per_second` tokens a second, `at_once` when nobody took any; at least one each.
    pub(crate) fn new(per_second: u32, at_once: u32) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        Self { each, ahead_max: each * (at_once.max(1) - 1), full_at: Duration::ZERO }
    }

    /// Takes a token where there is one. `now` is of a clock that does not go back.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let full_at = self.full_at.max(now);
        if full_at - now > self.ahead_max {
            return false;
        }
        self.full_at = full_at + self.each;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_at_the_rate() {
        let mut pace = Pace::new(10, 3);
        let mut taken = |ms| (0..9).filter(|_| pace.take(Duration::from_millis(ms))).count();
        assert_eq!(taken(5_000), 3);
        assert_eq!(taken(5_099), 0);
        assert_eq!(taken(5_100), 1);
        assert_eq!(taken(5_300), 2);
        assert_eq!(taken(60_000), 3, "it does not save up more");
        assert!(Pace::new(0, 0).take(Duration::ZERO), "never a division by nothing");
    }
}
