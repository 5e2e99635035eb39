//! How long to wait before the next connection. Each wait is a random share of its bound (full
//! jitter): ten thousand edges that lose one hub do not return at the same moment.
//!
//! The bound doubles while hubs respond without accepting a session. It does not grow while no
//! machine responds: such attempts burden no hub, and the edge must find a repaired link at once.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// The bounds of the waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// The first bound; each further one is twice as long.
    pub base: Duration,
    /// The largest bound.
    pub cap: Duration,
    /// A session that lasted this long resets the bound.
    pub stable: Duration,
    /// The bound while no machine responds.
    pub probe: Duration,
}

/// The first bound: an edge finds a restarted hub before a person notices.
pub const BACKOFF_BASE: Duration = Duration::from_millis(250);

/// The largest bound: after a long outage every edge returns to its hub within this time.
pub const BACKOFF_CAP: Duration = Duration::from_secs(300);

/// A session of a minute has nothing to do with the failures before it.
pub const BACKOFF_STABLE: Duration = Duration::from_secs(60);

/// The bound while no machine responds. With the second between two attempts at one connection, an
/// edge finds a repaired link within two seconds.
pub const BACKOFF_PROBE: Duration = Duration::from_secs(1);

/// The waits after failures in a row. Each method takes a number whose bits are all random.
#[derive(Debug)]
pub(crate) struct Backoff {
    settings: BackoffSettings,
    /// The bounds to come.
    bounds: ExponentialBackoff,
    /// The present bound.
    bound: Duration,
    /// The failures under the present bound.
    failures: usize,
    /// The bound doubles once each hub has failed under it.
    hubs: usize,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self { base: BACKOFF_BASE, cap: BACKOFF_CAP, stable: BACKOFF_STABLE, probe: BACKOFF_PROBE }
    }
}

impl Backoff {
    pub(crate) fn new(settings: BackoffSettings, hubs: usize) -> Self {
        let mut bounds = ExponentialBuilder::new()
            .with_min_delay(settings.base)
            .with_max_delay(settings.cap)
            .with_factor(2.0)
            .without_max_times()
            .build();
        let bound = bounds.next().unwrap_or(settings.cap).min(settings.cap);
        Self { settings, bounds, bound, failures: 0, hubs: hubs.max(1) }
    }

    /// The wait after one more failure.
    pub(crate) fn after_failure(&mut self, random: u64) -> Duration {
        if self.failures == self.hubs {
            self.bound = self.bounds.next().unwrap_or(self.settings.cap);
            self.failures = 0;
        }
        self.failures += 1;
        share(self.bound, random)
    }

    /// The wait after a hub asked the edge to connect to another one. That is no failure.
    pub(crate) fn after_move(&self, random: u64) -> Duration {
        share(self.settings.base, random)
    }

    /// The wait after no machine responded. That says nothing about a hub.
    pub(crate) fn after_no_response(&self, random: u64) -> Duration {
        share(self.settings.probe, random)
    }

    /// Resets the bound if the session that ended was stable.
    pub(crate) fn session_ended(&mut self, lasted: Duration) {
        if lasted >= self.settings.stable {
            *self = Self::new(self.settings, self.hubs);
        }
    }
}

/// A share of `bound`, uniformly distributed.
fn share(bound: Duration, random: u64) -> Duration {
    let share = u128::from(random) * bound.as_millis() / u128::from(u64::MAX);
    Duration::from_millis(u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_cap() {
        let settings = BackoffSettings {
            base: Duration::from_millis(100),
            cap: Duration::from_millis(350),
            stable: Duration::from_secs(1),
            ..BackoffSettings::default()
        };
        let mut backoff = Backoff::new(settings, 1);
        let waits: Vec<_> = (0..4).map(|_| backoff.after_failure(u64::MAX).as_millis()).collect();
        assert_eq!(waits, [100, 200, 350, 350]);
        backoff.session_ended(Duration::from_millis(999));
        assert_eq!(
            backoff.after_failure(u64::MAX).as_millis(),
            350,
            "a short session changes nothing"
        );
        backoff.session_ended(Duration::from_secs(1));
        assert_eq!(
            backoff.after_failure(u64::MAX).as_millis(),
            100,
            "a stable one resets the bound"
        );
        assert_eq!(backoff.after_failure(0), Duration::ZERO, "the jitter is full");
    }

    #[test]
    fn every_hub_is_tried_before_the_waits_grow() {
        let settings = BackoffSettings {
            base: Duration::from_millis(100),
            cap: Duration::from_millis(350),
            stable: Duration::from_secs(1),
            ..BackoffSettings::default()
        };
        let mut backoff = Backoff::new(settings, 2);
        let waits: Vec<_> = (0..5).map(|_| backoff.after_failure(u64::MAX).as_millis()).collect();
        assert_eq!(waits, [100, 100, 200, 200, 350]);
        assert_eq!(backoff.after_move(u64::MAX).as_millis(), 100, "nothing failed");
        assert_eq!(backoff.after_failure(u64::MAX).as_millis(), 350, "and the bound is kept");
    }

    #[test]
    fn while_no_machine_responds_the_bound_stays() {
        let mut backoff = Backoff::new(BackoffSettings::default(), 1);
        for _ in 0..100 {
            assert_eq!(backoff.after_no_response(u64::MAX), BACKOFF_PROBE);
        }
        assert_eq!(backoff.after_failure(u64::MAX), BACKOFF_BASE, "no hub has refused yet");
        assert_eq!(backoff.after_no_response(0), Duration::ZERO, "the jitter is full");
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_the_cap(draws: Vec<u64>) {
            let mut backoff = Backoff::new(BackoffSettings::default(), 1);
            for random in draws {
                prop_assert!(backoff.after_failure(random) <= BACKOFF_CAP);
            }
        }
    }
}
