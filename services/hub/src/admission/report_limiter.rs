//! How fast a hub appends the reports of each node. The reports of a node that reports faster wait;
//! none is refused.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use headwater_event::{NodeName, Report};
use headwater_session::message::report_bytes;
use tokio::time::Instant;

use super::token_bucket::TokenBucket;
use crate::limits::HubLimits;

/// Bytes of a report that count as one. Beyond the size of most statuses, a larger report counts as
/// several, so that the rate bounds bytes too.
const REPORT_BYTES: u64 = 8 << 10;

/// Nodes whose reports are counted. A node whose bucket is full again is dropped; a hub has fewer
/// sessions than this.
const NODES_MAX: usize = 65_536;

/// The reports of each node. They outlive a session: a node does not begin anew when it connects
/// again.
#[derive(Debug)]
pub(crate) struct ReportLimiter {
    /// The bucket of an idle node.
    full: TokenBucket,
    started: Instant,
    nodes: Mutex<HashMap<NodeName, TokenBucket>>,
}

impl ReportLimiter {
    /// No reports so far.
    pub(crate) fn new(limits: &HubLimits) -> Self {
        Self {
            full: TokenBucket::new(limits.node_reports_per_second, limits.node_reports_at_once),
            started: Instant::now(),
            nodes: Mutex::default(),
        }
    }

    /// Counts reports of `node`. Returns how long they must wait before they are appended.
    pub(crate) fn take(&self, node: &NodeName, reports: &[Report]) -> Duration {
        let tokens: u64 = reports.iter().map(|it| 1 + report_bytes(it) / REPORT_BYTES).sum();
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let now = self.started.elapsed();
        // No code here panics while it holds the lock; a poisoned one is still whole.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= NODES_MAX && !nodes.contains_key(node) {
            nodes.retain(|_, bucket| !bucket.is_full(now));
        }
        if let Some(bucket) = nodes.get_mut(node) {
            return bucket.take_in_advance(tokens, now);
        }
        let mut bucket = self.full;
        let wait = bucket.take_in_advance(tokens, now);
        if nodes.len() < NODES_MAX {
            nodes.insert(node.clone(), bucket);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use headwater_event::{ReportBody, ReportId};
    use tokio::time::advance;

    use super::*;

    fn reports(count: usize, bytes: usize) -> Vec<Report> {
        let body = ReportBody::Node { object: Bytes::from(vec![b' '; bytes]) };
        vec![Report { id: ReportId::default(), body, traceparent: None }; count]
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_reports_too_fast_waits_and_no_other() {
        let limits = HubLimits {
            node_reports_per_second: 10,
            node_reports_at_once: 100,
            ..HubLimits::default()
        };
        let limiter = ReportLimiter::new(&limits);
        let node = |name: &str| -> NodeName { name.parse().expect("a name") };
        let (fast, other) = (node("fast"), node("other"));
        assert_eq!(limiter.take(&fast, &reports(100, 10)), Duration::ZERO);
        assert_eq!(limiter.take(&fast, &reports(20, 10)), Duration::from_secs(2));
        assert_eq!(limiter.take(&other, &reports(1, 10)), Duration::ZERO);
        advance(Duration::from_secs(12)).await;
        let large = reports(1, 800 << 10);
        assert_eq!(limiter.take(&fast, &large), Duration::from_millis(100), "bytes count too");
    }
}
