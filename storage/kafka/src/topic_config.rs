//! The settings and the brokers of a topic, as Kafka describes them.

use std::collections::BTreeMap;

/// The settings of a topic or a broker, by Kafka's names, with Kafka's values.
pub type ConfigValues = BTreeMap<String, String>;

/// The largest batch that the topic accepts, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

/// How long a superseded record stays, in milliseconds.
pub(crate) const MIN_COMPACTION_LAG_MS: &str = "min.compaction.lag.ms";

/// How many brokers must have a record before it is acknowledged.
pub(crate) const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";

/// The brokers of a partition, by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAssignment {
    /// The leader, which takes writes; none while there is no leader.
    pub leader: Option<i32>,
    /// The brokers that are to have the partition.
    pub replicas: Vec<i32>,
    /// The brokers that have all of it.
    pub in_sync: Vec<i32>,
}
