//! The Leases of the nodes: which one is renewed next. They have a lane of their own, so that no status
//! delays them.

use std::collections::{BTreeSet, HashMap};

use headwater_event::NodeName;

/// How long a Lease counts, in seconds: as that of a kubelet.
pub(crate) const LEASE_SECONDS: u32 = 40;

/// How often a Lease is renewed: as that of a kubelet; with many nodes less often, because each renewal
/// costs the API server 1.6 ms.
const RENEWAL_MIN_MS: u64 = 10_000;
const RENEWAL_MAX_MS: u64 = 20_000;

/// The nodes whose Leases are renewed in a second.
const RENEWALS_PER_SECOND: u64 = 500;

/// The pause after a failure.
const RETRY_MS: u64 = 1_000;

/// The renewals on their way.
pub(crate) const RENEWALS_MAX: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    nodes: HashMap<NodeName, NodeLease>,
    due: BTreeSet<(u64, NodeName)>,
    in_flight: usize,
}

#[derive(Debug)]
struct NodeLease {
    due_ms: u64,
    is_missing: bool,
}

/// A renewal to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub(crate) node: NodeName,
    /// Whether the Lease is to be created.
    pub(crate) is_missing: bool,
}

/// How a renewal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewalEnd {
    /// It is renewed.
    Renewed,
    /// The Lease is not there.
    Missing,
    /// The Lease is there already.
    Exists,
    /// A right is missing.
    Forbidden,
    /// It failed.
    Failed,
}

impl Leases {
    /// Adds a node, which is present. Its Lease is renewed at once.
    pub(crate) fn add(&mut self, node: &NodeName, now_ms: u64) {
        if !self.nodes.contains_key(node) {
            let lease = NodeLease { due_ms: now_ms, is_missing: false };
            self.nodes.insert(node.clone(), lease);
            self.due.insert((now_ms, node.clone()));
        }
    }

    /// Removes a node, which is not present any more.
    pub(crate) fn remove(&mut self, node: &NodeName) {
        if let Some(lease) = self.nodes.remove(node) {
            self.due.remove(&(lease.due_ms, node.clone()));
        }
    }

    /// The next renewal to send. [`Leases::end`] is called once for each.
    pub(crate) fn take(&mut self, now_ms: u64) -> Option<Renewal> {
        if self.in_flight >= RENEWALS_MAX || self.due.first()?.0 > now_ms {
            return None;
        }
        let (_, node) = self.due.pop_first()?;
        self.in_flight += 1;
        Some(Renewal { is_missing: self.nodes.get(&node)?.is_missing, node })
    }

    /// A renewal that was sent at `sent_ms` has ended.
    pub(crate) fn end(&mut self, node: &NodeName, end: RenewalEnd, sent_ms: u64, now_ms: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let nodes = u64::try_from(self.nodes.len()).unwrap_or(u64::MAX);
        let Some(lease) = self.nodes.get_mut(node) else { return };
        // It may have been removed and added again meanwhile.
        self.due.remove(&(lease.due_ms, node.clone()));
        lease.due_ms = match end {
            RenewalEnd::Renewed => {
                sent_ms + (nodes * 1000 / RENEWALS_PER_SECOND).clamp(RENEWAL_MIN_MS, RENEWAL_MAX_MS)
            }
            RenewalEnd::Missing | RenewalEnd::Exists => now_ms,
            RenewalEnd::Forbidden => now_ms + RENEWAL_MIN_MS,
            RenewalEnd::Failed => now_ms + RETRY_MS,
        };
        lease.is_missing = end == RenewalEnd::Missing;
        self.due.insert((lease.due_ms, node.clone()));
    }

    /// When the next renewal is due.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let is_full = self.in_flight >= RENEWALS_MAX;
        self.due.first().filter(|_| !is_full).map(|(due_ms, _)| *due_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: usize) -> NodeName {
        format!("gw-{number}").parse().expect("a name")
    }

    fn renewal(is_missing: bool) -> Option<Renewal> {
        Some(Renewal { node: node(0), is_missing })
    }

    #[test]
    fn a_lease_is_renewed_at_once_and_then_every_ten_seconds_while_its_node_is_present() {
        let mut leases = Leases::default();
        leases.add(&node(0), 5);
        assert_eq!(leases.take(5), renewal(false));
        leases.end(&node(0), RenewalEnd::Renewed, 5, 9);
        leases.add(&node(0), 20);
        assert_eq!((leases.take(10_004), leases.next_due_ms()), (None, Some(10_005)));
        assert_eq!(leases.take(10_005), renewal(false));
        leases.remove(&node(0));
        leases.end(&node(0), RenewalEnd::Renewed, 10_005, 10_007);
        assert_eq!((leases.take(99_999), leases.next_due_ms()), (None, None));
        leases.add(&node(0), 99_999);
        assert_eq!(leases.take(99_999), renewal(false));
    }

    #[test]
    fn a_node_that_comes_back_during_a_renewal_has_one_next_renewal() {
        let mut leases = Leases::default();
        leases.add(&node(0), 0);
        assert_eq!(leases.take(0), renewal(false));
        leases.remove(&node(0));
        leases.add(&node(0), 3);
        leases.end(&node(0), RenewalEnd::Renewed, 0, 5);
        assert_eq!(leases.take(5), None);
        assert_eq!(leases.take(10_000), renewal(false));
        assert_eq!(leases.take(99_999), None);
    }

    #[test]
    fn a_lease_that_is_not_there_is_created_and_one_that_failed_is_tried_again() {
        let mut leases = Leases::default();
        leases.add(&node(0), 0);
        leases.take(0).expect("due");
        leases.end(&node(0), RenewalEnd::Missing, 0, 3);
        assert_eq!(leases.take(3), renewal(true));
        leases.end(&node(0), RenewalEnd::Exists, 3, 5);
        assert_eq!(leases.take(5), renewal(false));
        leases.end(&node(0), RenewalEnd::Failed, 5, 7);
        assert_eq!(leases.next_due_ms(), Some(7 + RETRY_MS));
    }

    #[test]
    fn many_nodes_are_renewed_less_often_and_some_at_a_time() {
        for (count, interval_ms) in [(100, 10_000), (7_500, 15_000), (20_000, 20_000)] {
            let mut leases = Leases::default();
            (0..count).for_each(|number| leases.add(&node(number), 0));
            let first: Vec<_> = std::iter::from_fn(|| leases.take(0)).collect();
            assert_eq!(first.len(), RENEWALS_MAX);
            assert_eq!(leases.next_due_ms(), None);
            leases.end(&first[0].node, RenewalEnd::Renewed, 0, 1);
            assert_eq!(leases.nodes[&first[0].node].due_ms, interval_ms);
        }
    }
}
