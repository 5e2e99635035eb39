//! The waits before a failed operation is retried.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Waits that double from the first to the longest, until they are reset.
#[derive(Debug)]
pub(crate) struct Backoff {
    builder: ExponentialBuilder,
    waits: ExponentialBackoff,
    longest: Duration,
}

impl Backoff {
    /// Waits from `first` to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(longest)
            .without_max_times();
        Self { builder, waits: builder.build(), longest }
    }

    /// Sleeps for the next wait.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next_wait()).await;
    }

    fn next_wait(&mut self) -> Duration {
        self.waits.next().unwrap_or(self.longest)
    }

    /// Starts at the first wait again.
    pub(crate) fn reset(&mut self) {
        self.waits = self.builder.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_over_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(300));
        let waits = [(); 5].map(|()| backoff.next_wait().as_millis());
        assert_eq!(waits, [50, 100, 200, 300, 300]);
        backoff.reset();
        assert_eq!(backoff.next_wait().as_millis(), 50);
    }
}
