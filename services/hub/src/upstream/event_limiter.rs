//! How many Events of each node a hub appends. An edge sends one a second and some at once; a node that
//! reports more than that is hostile or broken, and the Events beyond are refused. Everything else that
//! it reports passes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use headwater_event::report::EVENT_BYTES_MAX;
use headwater_event::{NodeName, Report, ReportBody};
use tokio::time::Instant;

use crate::admission::TokenBucket;

/// Events of a node that are appended at once: as many as the outbox of an edge keeps while the node is
/// away, and those of the burst that follows.
const EVENTS_AT_ONCE: u32 = 600;

/// Events of a node a second, beyond those at once: twice what edged sends, so that a clock that is fast
/// costs none.
const EVENTS_PER_SECOND: u32 = 2;

/// Nodes whose Events are counted. A node whose bucket is full again is dropped; a hub has fewer
/// sessions than this.
const NODES_MAX: usize = 65_536;

/// The Events of each node. They outlive a session.
#[derive(Debug)]
pub(super) struct EventLimiter {
    started: Instant,
    nodes: Mutex<HashMap<NodeName, TokenBucket>>,
}

impl EventLimiter {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), nodes: Mutex::default() }
    }

    /// Counts a report of `node`, if it is an Event.
    ///
    /// # Errors
    /// Why the Event is refused, for people.
    pub(super) fn admit(&self, node: &NodeName, report: &Report) -> Result<(), String> {
        let ReportBody::Event { key, object } = &report.body else { return Ok(()) };
        let bytes = object.len();
        if bytes > EVENT_BYTES_MAX {
            return Err(format!("Event {key} has {bytes} bytes; the most is {EVENT_BYTES_MAX}"));
        }
        let now = self.started.elapsed();
        // No code here panics while it holds the lock; a poisoned one is still whole.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= NODES_MAX && !nodes.contains_key(node) {
            nodes.retain(|_, bucket| !bucket.is_full(now));
        }
        let is_full = nodes.len() >= NODES_MAX;
        let full = TokenBucket::new(EVENTS_PER_SECOND, EVENTS_AT_ONCE);
        let is_taken = match nodes.get_mut(node) {
            Some(bucket) => bucket.take(now),
            None if is_full => false,
            None => nodes.entry(node.clone()).or_insert(full).take(now),
        };
        match is_taken {
            true => Ok(()),
            false => Err(format!(
                "node {node} reports too many Events, {EVENTS_AT_ONCE} at once and then \
                 {EVENTS_PER_SECOND} a second are taken"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use headwater_event::ReportId;
    use tokio::time::advance;

    use super::*;

    fn event(bytes: usize) -> Report {
        let key = "d/event/p.1".parse().expect("a key");
        let body = ReportBody::Event { key, object: Bytes::from(vec![b' '; bytes]) };
        Report { id: ReportId::default(), body, traceparent: None }
    }

    #[tokio::test(start_paused = true)]
    async fn of_ten_thousand_events_the_first_ones_are_taken_and_no_other_node_is_concerned() {
        let limiter = EventLimiter::new();
        let node = |name: &str| -> NodeName { name.parse().expect("a name") };
        let (hostile, other) = (node("hostile"), node("other"));
        let taken =
            |node, count| (0..count).filter(|_| limiter.admit(node, &event(100)).is_ok()).count();
        assert_eq!(taken(&hostile, 10_000), EVENTS_AT_ONCE as usize);
        assert_eq!(taken(&other, 1), 1);
        let reason = limiter.admit(&hostile, &event(100)).expect_err("refused");
        assert!(reason.contains("hostile") && reason.contains("too many Events"), "{reason}");
        let status =
            Report { body: ReportBody::Node { object: Bytes::from_static(b"{}") }, ..event(0) };
        assert_eq!(limiter.admit(&hostile, &status), Ok(()), "everything else passes");
        advance(Duration::from_secs(10)).await;
        assert_eq!(taken(&hostile, 100), 10 * EVENTS_PER_SECOND as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_too_large_is_refused_by_its_key() {
        let limiter = EventLimiter::new();
        let node: NodeName = "a".parse().expect("a name");
        assert_eq!(limiter.admit(&node, &event(EVENT_BYTES_MAX)), Ok(()));
        let reason = limiter.admit(&node, &event(EVENT_BYTES_MAX + 1)).expect_err("refused");
        assert!(reason.contains("d/event/p.1") && reason.contains("8193 bytes"), "{reason}");
    }
}
