//! When the position of a node is appended to the upstream log.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use headwater_event::NodeProgress;
use tokio::time::Instant;

/// How often at most a position that changes is appended. A node that receives events all the time
/// costs the log a record of some 500 bytes each time.
const CHANGE_INTERVAL: Duration = Duration::from_secs(10);

/// How often a position that does not change is appended again. The contact in it is then at most
/// that old for a controller that has no presence of the node, and a log that lost its tail has the
/// position again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Decides which positions of a session are appended: those that differ from the last one, and from
/// time to time one that does not.
#[derive(Debug, Default)]
pub(super) struct AppendSchedule {
    /// When the last one was appended, and its digest: the position itself would be 400 bytes for as long
    /// as an edge is idle. With equal digests a change waits for the refresh.
    last: Option<(Instant, u64)>,
    /// Whether a later position differed and came too soon after the last one.
    is_waiting: bool,
}

impl AppendSchedule {
    /// Whether `position` is to be appended now.
    pub(super) fn is_due(&mut self, position: &NodeProgress, now: Instant) -> bool {
        let Some((at, last)) = &self.last else { return true };
        let age = now.saturating_duration_since(*at);
        self.is_waiting = *last != digest(position);
        age >= REFRESH_INTERVAL || (age >= CHANGE_INTERVAL && self.is_waiting)
    }

    /// Whether the position that [`AppendSchedule::is_due`] saw last may be due now.
    pub(super) fn may_be_due(&self, now: Instant) -> bool {
        let Some((at, _)) = &self.last else { return true };
        let age = now.saturating_duration_since(*at);
        age >= REFRESH_INTERVAL || (age >= CHANGE_INTERVAL && self.is_waiting)
    }

    /// Notes that `position` is appended now.
    pub(super) fn appended(&mut self, position: &NodeProgress, now: Instant) {
        self.last = Some((now, digest(position)));
        self.is_waiting = false;
    }

    /// Whether a position was appended.
    pub(super) fn has_appended(&self) -> bool {
        self.last.is_some()
    }
}

/// A hash of everything in a position but the time of the contact and of the last snapshot, which move
/// while nothing happens. That there was a snapshot at all is a difference.
fn digest(position: &NodeProgress) -> u64 {
    let NodeProgress {
        hub,
        connected,
        incarnation,
        boot,
        connection,
        outbox_depth,
        contact_ms: _,
        meta_sync_ms,
        consumes_cluster,
        streams,
    } = position;
    let mut hasher = DefaultHasher::new();
    (hub, connected, incarnation, boot, connection, outbox_depth).hash(&mut hasher);
    (*meta_sync_ms > 0, consumes_cluster, streams).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation, NodeStreamProgress, Seq, StreamId};

    use super::*;

    fn position(acked: u64) -> NodeProgress {
        let seq = Seq(acked);
        NodeProgress {
            hub: "hub-1".to_owned(),
            connected: true,
            incarnation: Incarnation(1),
            boot: Boot { number: 1, nonce: 1 },
            connection: 0,
            outbox_depth: 0,
            contact_ms: 0,
            meta_sync_ms: 1,
            consumes_cluster: None,
            streams: vec![NodeStreamProgress {
                stream: StreamId::Cluster,
                log_id: String::new(),
                tail: seq,
                sent: seq,
                applied: seq,
                durable: seq,
                acked: seq,
            }],
        }
    }

    /// The seconds at which positions are appended, of a session that has `at(second)` in each
    /// second of an hour.
    fn appended(at: impl Fn(u64) -> NodeProgress) -> Vec<u64> {
        let start = Instant::now();
        let mut schedule = AppendSchedule::default();
        let is_due = |second: &u64| {
            let (position, now) = (at(*second), start + Duration::from_secs(*second));
            let is_due = schedule.is_due(&position, now);
            if is_due {
                schedule.appended(&position, now);
            }
            is_due
        };
        (0..3600).filter(is_due).collect()
    }

    #[test]
    fn a_schedule_keeps_no_position() {
        assert!(size_of::<AppendSchedule>() < size_of::<NodeProgress>() / 2);
    }

    #[test]
    fn an_idle_node_costs_twelve_records_an_hour() {
        // Each heartbeat has a new contact and a new snapshot of the same statuses.
        let idle = |second| {
            let times = i64::try_from(second).expect("small") * 1_000;
            NodeProgress { contact_ms: times, meta_sync_ms: times + 1, ..position(7) }
        };
        let expected: Vec<u64> = (0..12).map(|n| n * 300).collect();
        assert_eq!(appended(idle), expected);
    }

    #[test]
    fn a_position_that_came_too_soon_may_be_due_later_without_another_one() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut schedule = AppendSchedule::default();
        assert!(schedule.may_be_due(at(0)));
        schedule.appended(&position(7), at(0));
        assert!(!schedule.is_due(&position(8), at(1)));
        assert!(!schedule.may_be_due(at(9)));
        assert!(schedule.may_be_due(at(10)) && schedule.is_due(&position(8), at(10)));
        schedule.appended(&position(8), at(10));
        assert!(!schedule.may_be_due(at(309)));
        assert!(schedule.may_be_due(at(310)), "it is refreshed");
    }

    #[test]
    fn a_change_is_appended_at_once_and_many_changes_at_a_bounded_rate() {
        let once = |second| position(if second < 100 { 7 } else { 8 });
        assert_eq!(appended(once)[..3], [0, 100, 400]);
        let always = appended(position);
        assert_eq!(always.len(), 360);
        assert_eq!(always[..3], [0, 10, 20]);
        let soon_again = |second| position(7 + u64::from(second >= 3) + u64::from(second >= 5));
        assert_eq!(appended(soon_again)[..3], [0, 10, 310], "the last of several is not lost");
    }

    #[test]
    fn every_part_of_a_position_counts_but_the_times() {
        let base = position(7);
        let changed = [
            NodeProgress { hub: "hub-2".to_owned(), ..base.clone() },
            NodeProgress { connected: false, ..base.clone() },
            NodeProgress { incarnation: Incarnation(2), ..base.clone() },
            NodeProgress { boot: Boot { number: 2, nonce: 1 }, ..base.clone() },
            NodeProgress { connection: 2, ..base.clone() },
            NodeProgress { outbox_depth: 1, ..base.clone() },
            NodeProgress { meta_sync_ms: 0, ..base.clone() },
            NodeProgress { consumes_cluster: Some(true), ..base.clone() },
            NodeProgress { streams: Vec::new(), ..base.clone() },
        ];
        for changed in &changed {
            assert_ne!(digest(&base), digest(changed), "{changed:?}");
        }
        let times = NodeProgress { contact_ms: 9, meta_sync_ms: 9, ..base.clone() };
        assert_eq!(digest(&base), digest(&times));
    }
}
