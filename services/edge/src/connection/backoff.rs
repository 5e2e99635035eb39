//! How long to wait before connecting again: full jitter, so that ten thousand edges that lost
//! one hub do not come back at one moment.
//!
//! Waits grow while somebody answers and has no session to give. Where nobody answers at all they
//! do not: nobody is burdened, and a link that is mended is to be used at once.

use std::time::Duration;

/// The bounds of the waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// The longest first wait; each further one may be twice as long.
    pub base: Duration,
    /// No wait is longer.
    pub cap: Duration,
    /// A session that lasted this long begins the waits anew.
    pub stable: Duration,
    /// The longest wait while nobody answers.
    pub probe: Duration,
}

/// The longest first wait: a restarted hub is found again without a person noticing.
pub const BACKOFF_BASE: Duration = Duration::from_millis(250);

/// The longest wait: a hub that comes back after a long outage sees every edge within it.
pub const BACKOFF_CAP: Duration = Duration::from_secs(300);

/// A session that held for a minute was no part of the trouble before it.
pub const BACKOFF_STABLE: Duration = Duration::from_secs(60);

/// The longest wait while nobody answers: with the second between two attempts at one connection, a
/// link is found again within two of its mending.
pub const BACKOFF_PROBE: Duration = Duration::from_secs(1);

/// Counts the failures in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    settings: BackoffSettings,
    /// How many hubs are tried in turn: the waits grow once none of them could be had.
    hubs: u32,
    failures: u32,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self { base: BACKOFF_BASE, cap: BACKOFF_CAP, stable: BACKOFF_STABLE, probe: BACKOFF_PROBE }
    }
}

impl Backoff {
    pub(crate) fn new(settings: BackoffSettings, hubs: usize) -> Self {
        let hubs = u32::try_from(hubs.max(1)).unwrap_or(u32::MAX);
        Self { settings, hubs, failures: 0 }
    }

    /// The wait after one more failure; `drawn` is random in every bit.
    pub(crate) fn after_failure(&mut self, drawn: u64) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures / self.hubs);
        let most = self.settings.base.saturating_mul(factor).min(self.settings.cap);
        self.failures = self.failures.saturating_add(1);
        share(most, drawn)
    }

    /// The wait after a session that ended in order: nothing failed.
    pub(crate) fn after_move(&self, drawn: u64) -> Duration {
        share(self.settings.base, drawn)
    }

    /// The wait after nobody answered: it says nothing of the hub.
    pub(crate) fn after_no_response(&self, drawn: u64) -> Duration {
        share(self.settings.probe, drawn)
    }

    /// A session has ended after `lasted`.
    pub(crate) fn session_ended(&mut self, lasted: Duration) {
        if lasted >= self.settings.stable {
            self.failures = 0;
        }
    }
}

/// Any wait up to `most`, all alike.
fn share(most: Duration, drawn: u64) -> Duration {
    let share = u128::from(drawn) * most.as_millis() / u128::from(u64::MAX);
    Duration::from_millis(u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_wait_doubles_up_to_the_cap() {
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
        assert_eq!(backoff.after_failure(u64::MAX).as_millis(), 100, "a stable one begins anew");
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
        assert_eq!(backoff.after_failure(u64::MAX).as_millis(), 350, "and nothing is forgotten");
    }

    #[test]
    fn while_nobody_answers_the_waits_stay_short() {
        let mut backoff = Backoff::new(BackoffSettings::default(), 1);
        for _ in 0..100 {
            assert_eq!(backoff.after_no_response(u64::MAX), BACKOFF_PROBE);
        }
        assert_eq!(backoff.after_failure(u64::MAX), BACKOFF_BASE, "nobody has refused yet");
        assert_eq!(backoff.after_no_response(0), Duration::ZERO, "the jitter is full");
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_the_cap(draws: Vec<u64>) {
            let mut backoff = Backoff::new(BackoffSettings::default(), 1);
            for drawn in draws {
                prop_assert!(backoff.after_failure(drawn) <= BACKOFF_CAP);
            }
        }
    }
}
