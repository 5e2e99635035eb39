//! Waits between attempts to reach the edge.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

use crate::config::Settings;

/// A wait that doubles from attempt to attempt, until it is reset.
#[derive(Debug)]
pub(crate) struct ReconnectBackoff {
    builder: ExponentialBuilder,
    waits: ExponentialBackoff,
    cap: Duration,
}

impl ReconnectBackoff {
    /// Starts at `reconnect_base`.
    pub(crate) fn new(settings: &Settings) -> Self {
        let cap = settings.reconnect_cap;
        let builder = ExponentialBuilder::new()
            .with_min_delay(settings.reconnect_base.min(cap))
            .with_max_delay(cap)
            .without_max_times();
        Self { builder, waits: builder.build(), cap }
    }

    /// The next wait, at most `reconnect_cap`.
    pub(crate) fn next_wait(&mut self) -> Duration {
        self.waits.next().unwrap_or(self.cap)
    }

    /// Starts at `reconnect_base` again.
    pub(crate) fn reset(&mut self) {
        self.waits = self.builder.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_starts_over_after_a_reset() {
        let settings = Settings {
            reconnect_base: Duration::from_millis(500),
            reconnect_cap: Duration::from_secs(3),
            ..Settings::default()
        };
        let mut backoff = ReconnectBackoff::new(&settings);
        let waits = [(); 5].map(|()| backoff.next_wait().as_millis());
        assert_eq!(waits, [500, 1000, 2000, 3000, 3000]);
        backoff.reset();
        assert_eq!(backoff.next_wait().as_millis(), 500);
    }
}
