//! How fast hellos are taken: so many a second, and so many at once, of all nodes together and of
//! each.

use std::collections::HashMap;
use std::time::Duration;

use headwater_event::NodeName;

use crate::limits::HubLimits;
use crate::shared::TurnedAway;

/// Nodes whose hellos are counted one by one. A node that rests is forgotten, so that by the
/// hub's own pace there are some 6 000 at most; a hub that is told to be faster counts no more.
const NODES_MAX: usize = 8_192;

/// The pace of a hub: one node that connects in a loop does not use up what all nodes share.
#[derive(Debug)]
pub(crate) struct Paces {
    all: Pace,
    /// What a node that rests has.
    fresh: Pace,
    nodes: HashMap<NodeName, Pace>,
}

impl Paces {
    pub(crate) fn new(limits: &HubLimits) -> Self {
        Self {
            all: Pace::new(limits.hellos_per_second, limits.hellos_at_once),
            fresh: Pace::new(limits.node_hellos_per_second, limits.node_hellos_at_once),
            nodes: HashMap::new(),
        }
    }

    /// Takes a hello of `node`, or says what has to wait. `now` is of a clock that does not go
    /// back.
    pub(crate) fn take(&mut self, node: &NodeName, now: Duration) -> Result<(), TurnedAway> {
        let mut of_node = self.nodes.get(node).copied().unwrap_or(self.fresh);
        if !of_node.take(now) {
            return Err(TurnedAway::NodePace);
        }
        if !self.all.take(now) {
            return Err(TurnedAway::Pace);
        }
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(node) {
            self.nodes.retain(|_, pace| !pace.is_full(now));
        }
        if self.nodes.len() < NODES_MAX || self.nodes.contains_key(node) {
            self.nodes.insert(node.clone(), of_node);
        }
        Ok(())
    }
}

/// A bucket of tokens that fills steadily, kept as the time at which it is full again.
#[derive(Clone, Copy, Debug)]
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

    /// Whether nothing was taken that has not come again.
    fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now
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

    #[test]
    fn a_node_in_a_loop_does_not_use_up_what_all_nodes_share() {
        let limits = HubLimits {
            hellos_per_second: 10,
            hellos_at_once: 10,
            node_hellos_per_second: 1,
            node_hellos_at_once: 3,
            ..HubLimits::default()
        };
        let mut paces = Paces::new(&limits);
        let node = |name: &str| -> NodeName { name.parse().expect("a name") };
        let (looping, other) = (node("looping"), node("other"));
        let now = Duration::from_secs(5);
        let outcomes: Vec<_> = (0..100).map(|_| paces.take(&looping, now)).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3);
        assert!(outcomes[3..].iter().all(|outcome| *outcome == Err(TurnedAway::NodePace)));
        assert_eq!(paces.take(&other, now), Ok(()));
        // What the hub refuses does not count against the node.
        let crowd = (0..6).map(|n| paces.take(&node(&format!("n{n}")), now));
        assert_eq!(crowd.filter(Result::is_ok).count(), 6);
        assert_eq!(paces.take(&other, now), Err(TurnedAway::Pace));
        let later = now + Duration::from_millis(100);
        assert_eq!(paces.take(&other, later), Ok(()));
        assert_eq!(paces.take(&looping, now + Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn nodes_that_rest_are_forgotten_and_those_beyond_the_bound_are_not_counted() {
        let limits = HubLimits {
            hellos_per_second: 1_000_000,
            hellos_at_once: 1_000_000,
            node_hellos_per_second: 1,
            node_hellos_at_once: 1,
            ..HubLimits::default()
        };
        let mut paces = Paces::new(&limits);
        let node = |n: usize| -> NodeName { format!("n{n}").parse().expect("a name") };
        let now = Duration::from_secs(5);
        for n in 0..=NODES_MAX {
            assert_eq!(paces.take(&node(n), now), Ok(()));
        }
        assert_eq!(paces.nodes.len(), NODES_MAX);
        assert_eq!(paces.take(&node(0), now), Err(TurnedAway::NodePace));
        let later = now + Duration::from_secs(2);
        assert_eq!(paces.take(&node(NODES_MAX), later), Ok(()));
        assert_eq!(paces.nodes.len(), 1);
    }
}
