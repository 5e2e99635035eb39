//! Whether the client of a reader has lost every broker.
//!
//! A broker that starts may name no broker in its metadata. librdkafka then drops all brokers that it
//! knows, cancels its return to the bootstrap brokers because it has an answer, and sends no further
//! request (confluentinc/librdkafka issue 5301). A reader of such a client would wait for ever.
//!
//! A client that has lost all its brokers once does not return to the bootstrap brokers again by
//! itself, even if the addresses of all brokers change later: one that knows brokers is not looked at.

use std::time::{Duration, Instant};

/// How long a client knows no broker before its bootstrap brokers are added again. A new client learns the
/// brokers within milliseconds of its first connection.
const ADDED_AFTER: Duration = Duration::from_secs(2);

/// The longest wait between two additions. librdkafka keeps the list of each for the client's life.
const ADDED_AFTER_MAX: Duration = Duration::from_secs(60);

/// Decides when the bootstrap brokers are added again.
#[derive(Debug)]
pub(super) struct BrokerLoss {
    /// Since when the client knows no broker, or when the bootstrap brokers were last added.
    since: Option<Instant>,
    /// The wait before the next addition.
    wait: Duration,
}

impl BrokerLoss {
    pub(super) fn new() -> Self {
        Self { since: None, wait: ADDED_AFTER }
    }

    /// Whether the bootstrap brokers are to be added now. `known` is the number of brokers that the
    /// client has learned from the cluster.
    pub(super) fn is_addition_due(&mut self, now: Instant, known: usize) -> bool {
        if known > 0 {
            *self = Self::new();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < self.wait {
            return false;
        }
        self.since = Some(now);
        self.wait = (self.wait * 2).min(ADDED_AFTER_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootstrap_brokers_are_added_when_none_is_known_for_a_while_and_then_ever_less_often() {
        let start = Instant::now();
        let mut loss = BrokerLoss::new();
        let mut additions = |seconds: std::ops::Range<u64>, known| {
            let at = |second| start + Duration::from_secs(second);
            seconds.filter(|second| loss.is_addition_due(at(*second), known)).collect::<Vec<_>>()
        };
        assert!(additions(0..2, 0).is_empty(), "a new client has not connected yet");
        assert!(additions(2..100, 3).is_empty());
        assert_eq!(additions(100..250, 0), [102, 106, 114, 130, 162, 222]);
        assert!(additions(250..251, 1).is_empty());
        assert_eq!(additions(251..255, 0), [253], "another loss");
    }
}
