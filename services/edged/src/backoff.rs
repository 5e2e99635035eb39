//! Waits that double: between attempts to reach the edge, between starts of a failing container, and
//! between pulls of an image.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// A wait that doubles from a base to a cap, until it is reset. Statuses show these waits: they are
/// exact multiples of a base of whole seconds.
#[derive(Debug)]
pub(crate) struct Backoff {
    builder: ExponentialBuilder,
    waits: ExponentialBackoff,
    cap: Duration,
}

impl Backoff {
    /// Starts at `base`.
    pub(crate) fn new(base: Duration, cap: Duration) -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(base.min(cap))
            .with_max_delay(cap)
            .without_max_times();
        Self { builder, waits: builder.build(), cap }
    }

    /// The next wait, at most the cap.
    pub(crate) fn next_wait(&mut self) -> Duration {
        self.waits.next().unwrap_or(self.cap)
    }

    /// The longest wait.
    pub(crate) fn cap(&self) -> Duration {
        self.cap
    }

    /// Starts at the base again.
    pub(crate) fn reset(&mut self) {
        self.waits = self.builder.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_starts_over_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(3));
        let waits = [(); 5].map(|()| backoff.next_wait().as_millis());
        assert_eq!(waits, [500, 1000, 2000, 3000, 3000]);
        backoff.reset();
        assert_eq!(backoff.next_wait().as_millis(), 500);
    }

    #[test]
    fn waits_of_whole_seconds_are_exact() {
        for base in 1..=60 {
            let base = Duration::from_secs(base);
            let mut backoff = Backoff::new(base, base * 4096);
            for doublings in 0..12 {
                assert_eq!(backoff.next_wait(), base * 2_u32.pow(doublings));
            }
        }
    }

    #[test]
    fn a_base_above_the_cap_is_the_cap() {
        let mut backoff = Backoff::new(Duration::from_secs(9), Duration::from_secs(4));
        assert_eq!([(); 2].map(|()| backoff.next_wait().as_secs()), [4, 4]);
    }
}
