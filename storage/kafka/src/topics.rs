//! Topics: made with the settings that the promises rest on, and checked for them.
//!
//! What a broker would do to a log is decided by the topic's settings and by some of its own.
//! [`findings`] is the pure part: it names each setting that is not as it should be, with what it
//! would cost and the command that mends it.

mod admin;
mod findings;

use std::collections::BTreeMap;
use std::time::Duration;

pub use admin::{
    Broker, PartitionAssignment, Topic, TopicError, brokers, create, describe, offsets,
};
pub use findings::{Finding, Severity, Subject, broker_findings, findings, under_replicated};

/// A topic's settings as Kafka names and prints them.
pub type ConfigValues = BTreeMap<String, String>;

/// The largest batch that the topic takes, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

/// For how long a superseded record stays, in milliseconds.
pub(crate) const MIN_COMPACTION_LAG_MS: &str = "min.compaction.lag.ms";

/// How many brokers must have a record before it counts.
pub(crate) const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";

/// What takes an object of 1.5 MiB, Kubernetes' own limit, with what is said of it.
const RECORD_BYTES: u64 = 2 << 20;

/// The replay window: how long every event stays readable.
const REPLAY_WINDOW: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How often a segment is closed: nothing in an open one is compacted. Kafka's own default of a
/// week would double the replay window.
const SEGMENT: Duration = Duration::from_secs(60 * 60);

/// How many partitions a log has unless told: enough for a dozen hubs' worth of reading, and few
/// enough that a claim in each is quick.
const PARTITIONS: u32 = 12;

/// Replicas, and how many of them must have a record before it counts.
const REPLICAS: u32 = 3;

/// Which log a topic is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What nodes are to know.
    Downstream,
    /// What nodes report.
    Upstream,
}

/// How a topic is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlan {
    /// Which log it is for.
    pub direction: Direction,
    /// How many partitions; fixed for the topic's life.
    pub partitions: u32,
    /// How many brokers have each record.
    pub replicas: u32,
    /// How many of them must have a record before it counts.
    pub replicas_min: u32,
    /// For how long every event stays readable; tombstones stay twice as long.
    pub replay_window: Duration,
    /// The largest record with what Kafka adds to it, in bytes.
    pub record_bytes: u64,
}

impl TopicPlan {
    /// How a topic should be in production.
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            partitions: PARTITIONS,
            replicas: REPLICAS,
            replicas_min: REPLICAS - 1,
            replay_window: REPLAY_WINDOW,
            record_bytes: RECORD_BYTES,
        }
    }

    /// The settings of a topic made by this plan, by Kafka's names.
    pub fn settings(&self) -> ConfigValues {
        let ms = |duration: Duration| duration.as_millis().to_string();
        let settings = [
            ("cleanup.policy", "compact".to_owned()),
            (MIN_COMPACTION_LAG_MS, ms(self.replay_window)),
            ("delete.retention.ms", ms(self.replay_window * 2)),
            ("segment.ms", ms(self.segment())),
            ("message.timestamp.type", "LogAppendTime".to_owned()),
            (MAX_MESSAGE_BYTES, self.record_bytes.to_string()),
            (MIN_INSYNC_REPLICAS, self.replicas_min.to_string()),
            ("unclean.leader.election.enable", "false".to_owned()),
            ("compression.type", "producer".to_owned()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Segments are closed several times within the window, so that it is what it says.
    fn segment(&self) -> Duration {
        SEGMENT.min(self.replay_window / 4).max(Duration::from_millis(100))
    }
}
