//! How many hellos a hub takes: a rate and a burst, for all nodes together and for each node.

use std::collections::HashMap;
use std::time::Duration;

use headwater_event::NodeName;

use super::error::AdmissionError;
use super::token_bucket::TokenBucket;
use crate::limits::HubLimits;

/// Nodes whose hellos are counted one by one. A node whose bucket is full again is dropped, so
/// that the default rates keep some 6 000 at most; a hub with higher rates counts no more nodes.
const NODES_MAX: usize = 8_192;

/// The rates of a hub. A node that connects in a loop does not use up the rate of all nodes.
#[derive(Debug)]
pub(super) struct RateLimiter {
    all: TokenBucket,
    /// The bucket of an idle node.
    full: TokenBucket,
    nodes: HashMap<NodeName, TokenBucket>,
}

impl RateLimiter {
    pub(super) fn new(limits: &HubLimits) -> Self {
        Self {
            all: TokenBucket::new(limits.hellos_per_second, limits.hellos_at_once),
            full: TokenBucket::new(limits.node_hellos_per_second, limits.node_hellos_at_once),
            nodes: HashMap::new(),
        }
    }

    /// Takes a hello of `node`. `now` is of a monotonic clock.
    ///
    /// # Errors
    /// [`AdmissionError::NodeRate`] or [`AdmissionError::HubRate`]; the hello counts for neither
    /// rate then.
    pub(super) fn take(&mut self, node: &NodeName, now: Duration) -> Result<(), AdmissionError> {
        let mut of_node = self.nodes.get(node).copied().unwrap_or(self.full);
        if !of_node.take(now) {
            return Err(AdmissionError::NodeRate);
        }
        if !self.all.take(now) {
            return Err(AdmissionError::HubRate);
        }
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(node) {
            self.nodes.retain(|_, bucket| !bucket.is_full(now));
        }
        if self.nodes.len() < NODES_MAX || self.nodes.contains_key(node) {
            self.nodes.insert(node.clone(), of_node);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_connects_in_a_loop_does_not_use_up_the_rate_of_the_hub() {
        let limits = HubLimits {
            hellos_per_second: 10,
            hellos_at_once: 10,
            node_hellos_per_second: 1,
            node_hellos_at_once: 3,
            ..HubLimits::default()
        };
        let mut limiter = RateLimiter::new(&limits);
        let node = |name: &str| -> NodeName { name.parse().expect("a name") };
        let (looping, other) = (node("looping"), node("other"));
        let now = Duration::from_secs(5);
        let outcomes: Vec<_> = (0..100).map(|_| limiter.take(&looping, now)).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3);
        assert!(outcomes[3..].iter().all(|outcome| *outcome == Err(AdmissionError::NodeRate)));
        assert_eq!(limiter.take(&other, now), Ok(()));
        // A hello that the hub's rate refuses does not count against the node.
        let crowd = (0..6).map(|n| limiter.take(&node(&format!("n{n}")), now));
        assert_eq!(crowd.filter(Result::is_ok).count(), 6);
        assert_eq!(limiter.take(&other, now), Err(AdmissionError::HubRate));
        let later = now + Duration::from_millis(100);
        assert_eq!(limiter.take(&other, later), Ok(()));
        assert_eq!(limiter.take(&looping, now + Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn idle_nodes_are_dropped_and_nodes_beyond_the_bound_are_not_counted() {
        let limits = HubLimits {
            hellos_per_second: 1_000_000,
            hellos_at_once: 1_000_000,
            node_hellos_per_second: 1,
            node_hellos_at_once: 1,
            ..HubLimits::default()
        };
        let mut limiter = RateLimiter::new(&limits);
        let node = |n: usize| -> NodeName { format!("n{n}").parse().expect("a name") };
        let now = Duration::from_secs(5);
        for n in 0..=NODES_MAX {
            assert_eq!(limiter.take(&node(n), now), Ok(()));
        }
        assert_eq!(limiter.nodes.len(), NODES_MAX);
        assert_eq!(limiter.take(&node(0), now), Err(AdmissionError::NodeRate));
        let later = now + Duration::from_secs(2);
        assert_eq!(limiter.take(&node(NODES_MAX), later), Ok(()));
        assert_eq!(limiter.nodes.len(), 1);
    }
}
