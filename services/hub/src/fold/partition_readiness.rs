//! Which partitions of the upstream log the hub has read to their ends.
//!
//! A hub that welcomed an edge before it knows the identities of its node could take reports under ids
//! that another start of the node has used: the log would pass them over. So each node waits for the
//! partitions that have its positions, and for no other one.
//!
//! ```text
//!           read to its end
//!   unread ─────────────────────────────────► read
//!     │ no leader, or no record in time         ▲
//!     └────────────────────► away ──────────────┘ read to its end
//! ```

use std::collections::BTreeSet;

use headwater_event::{NodeName, Partition, StreamId};
use headwater_log::{Description, partition_name};

/// The partitions of the upstream log, by whether the hub has read them.
#[derive(Debug, Default)]
pub(super) struct PartitionReadiness {
    /// `None`: the log has not answered yet.
    described: Option<Description>,
    /// Once read, a partition stays so: the identities that are known stay known.
    read: BTreeSet<Partition>,
    /// Those of the others that cannot be read at present.
    away: BTreeSet<Partition>,
}

impl PartitionReadiness {
    /// Takes over the partitions that the log has now.
    pub(super) fn begin(&mut self, described: &Description) {
        let all: BTreeSet<Partition> = described.all_partitions().collect();
        self.read.retain(|partition| all.contains(partition));
        self.away.retain(|partition| all.contains(partition));
        self.described = Some(described.clone());
    }

    /// Notes that a partition was read to its end.
    pub(super) fn complete(&mut self, partition: Partition) {
        self.away.remove(&partition);
        self.read.insert(partition);
    }

    /// Notes that a partition cannot be read, and returns whether that is new. One that was read to its
    /// end keeps no node waiting.
    pub(super) fn suspend(&mut self, partition: Partition) -> bool {
        !self.read.contains(&partition) && self.away.insert(partition)
    }

    /// Whether every partition is read that may have positions of `node`. Earlier versions appended
    /// them to the partition of its reports.
    pub(super) fn is_complete_for(&self, node: &NodeName) -> bool {
        let Some(described) = &self.described else { return false };
        let of_reports = StreamId::node(node).partition(described.partitions);
        [described.position_partition(node), of_reports]
            .iter()
            .all(|partition| self.read.contains(partition))
    }

    /// Whether the hub has read what it can: every partition that is not away, and at least one.
    pub(super) fn is_settled(&self) -> bool {
        let is_done =
            |partition: Partition| self.read.contains(&partition) || self.away.contains(&partition);
        let described = self.described.as_ref();
        !self.read.is_empty() && described.is_some_and(|it| it.all_partitions().all(is_done))
    }

    /// The partitions that cannot be read, in words.
    pub(super) fn away(&self) -> Vec<String> {
        self.away.iter().copied().map(partition_name).collect()
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::TopicId;
    use headwater_log::POSITIONS_FROM;
    use uuid::Uuid;

    use super::*;

    fn described(partitions: u32, position_partitions: u32) -> Description {
        Description {
            topic: TopicId(Uuid::nil()),
            partitions,
            record_bytes_max: 1_000,
            replay_window_ms: 0,
            position_partitions,
            position_topic: TopicId(Uuid::nil()),
        }
    }

    /// A node whose reports are in `of_reports`, and its positions in `of_positions`.
    fn node_in(log: &Description, of_reports: u32, of_positions: u32) -> NodeName {
        let is_there = |node: &NodeName| {
            StreamId::node(node).partition(log.partitions) == Partition(of_reports)
                && log.position_partition(node) == Partition(of_positions)
        };
        let name = |number: u32| -> NodeName { format!("n{number}").parse().expect("a name") };
        (0..).map(name).find(is_there).expect("one of all names")
    }

    #[test]
    fn a_node_waits_for_its_own_partitions_only() {
        let log = described(2, 3);
        let node = node_in(&log, 0, POSITIONS_FROM + 1);
        let other = node_in(&log, 1, POSITIONS_FROM + 2);
        let mut readiness = PartitionReadiness::default();
        assert!(!readiness.is_complete_for(&node) && !readiness.is_settled());
        readiness.begin(&log);
        readiness.complete(Partition(0));
        assert!(!readiness.is_complete_for(&node), "its positions may be in either topic");
        readiness.complete(Partition(POSITIONS_FROM + 1));
        assert!(readiness.is_complete_for(&node) && !readiness.is_complete_for(&other));
    }

    #[test]
    fn a_partition_that_is_away_keeps_the_hub_from_nothing_but_its_own_nodes() {
        let log = described(2, 0);
        let [stalled, healthy] = [0, 1].map(|partition| node_in(&log, partition, partition));
        let mut readiness = PartitionReadiness::default();
        readiness.begin(&log);
        readiness.suspend(Partition(0));
        assert!(!readiness.is_settled(), "the other one is still being read");
        readiness.complete(Partition(1));
        assert!(readiness.is_settled() && readiness.is_complete_for(&healthy));
        assert!(!readiness.is_complete_for(&stalled));
        assert_eq!(readiness.away(), ["partition 0 of the upstream topic"]);
        readiness.complete(Partition(0));
        assert!(readiness.is_complete_for(&stalled) && readiness.away().is_empty());
        // It was read: what it gets from now on is read when it is back.
        readiness.suspend(Partition(0));
        assert!(readiness.is_complete_for(&stalled) && readiness.away().is_empty());
    }

    #[test]
    fn a_hub_that_can_read_no_partition_is_not_ready_and_a_new_partition_is_waited_for() {
        let mut readiness = PartitionReadiness::default();
        readiness.begin(&described(2, 0));
        for partition in [0, 1] {
            readiness.suspend(Partition(partition));
        }
        assert!(!readiness.is_settled());
        for partition in [0, 1] {
            readiness.complete(Partition(partition));
        }
        readiness.begin(&described(3, 0));
        assert!(!readiness.is_settled());
        readiness.complete(Partition(2));
        assert!(readiness.is_settled());
        // A topic that was made again with fewer.
        readiness.begin(&described(1, 0));
        assert!(readiness.is_settled());
    }
}
