//! The settings that a topic should have: the promises of the log rest on them.

use std::time::Duration;

use crate::topic_config::{
    ConfigValues, MAX_MESSAGE_BYTES, MIN_COMPACTION_LAG_MS, MIN_INSYNC_REPLICAS,
};

/// Room for an object of 1.5 MiB, Kubernetes' own limit, with its metadata.
const RECORD_BYTES: u64 = 2 << 20;

/// The replay window: how long every event stays readable.
const REPLAY_WINDOW: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How often a segment is closed: Kafka compacts closed segments only. Its default of a week would
/// double the replay window.
const SEGMENT: Duration = Duration::from_secs(60 * 60);

/// How long a tombstone stays at least, so that a reader that was away for a day learns of it.
const TOMBSTONES: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a segment of positions is closed. An open one has every position, so it decides what
/// positions take on a disk: those of ten minutes, and twice the newest of each node.
const POSITIONS_SEGMENT: Duration = Duration::from_secs(10 * 60);

/// The default number of partitions: enough for the readers of a dozen hubs, and few enough that a
/// claim in each is quick.
const PARTITIONS: u32 = 12;

/// The default number of replicas.
const REPLICAS: u32 = 3;

/// The log that a topic is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The state that nodes receive.
    Downstream,
    /// The reports of nodes.
    Upstream,
    /// The positions of nodes, of which only the newest counts.
    Positions,
}

impl Direction {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Downstream, Self::Upstream, Self::Positions];
}

/// The settings that a topic should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlan {
    /// The log that the topic is for.
    pub direction: Direction,
    /// The number of partitions; fixed for the topic's life.
    pub partitions: u32,
    /// How many brokers are to have each record.
    pub replicas: u32,
    /// How many of them must have a record before it is acknowledged.
    pub replicas_min: u32,
    /// How long every event and report stays readable; tombstones stay twice as long. Positions
    /// have no such window.
    pub replay_window: Duration,
    /// The largest record with what Kafka adds to it, in bytes.
    pub record_bytes: u64,
}

impl TopicPlan {
    /// The plan of a topic in production.
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

    /// The settings of a topic by this plan, by Kafka's names.
    pub fn settings(&self) -> ConfigValues {
        let ms = |duration: Duration| duration.as_millis().to_string();
        let settings = [
            ("cleanup.policy", "compact".to_owned()),
            (MIN_COMPACTION_LAG_MS, ms(self.compaction_lag())),
            ("delete.retention.ms", ms(self.tombstones())),
            ("segment.ms", ms(self.segment())),
            ("message.timestamp.type", "LogAppendTime".to_owned()),
            (MAX_MESSAGE_BYTES, self.record_bytes.to_string()),
            (MIN_INSYNC_REPLICAS, self.replicas_min.to_string()),
            ("unclean.leader.election.enable", "false".to_owned()),
            ("compression.type", "producer".to_owned()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// How long a superseded record stays at least.
    pub(super) fn compaction_lag(&self) -> Duration {
        match self.direction {
            Direction::Downstream | Direction::Upstream => self.replay_window,
            Direction::Positions => Duration::ZERO,
        }
    }

    fn tombstones(&self) -> Duration {
        match self.direction {
            Direction::Downstream | Direction::Upstream => self.replay_window * 2,
            Direction::Positions => TOMBSTONES,
        }
    }

    /// Segments are closed several times within the window, so that compaction keeps to it.
    pub(super) fn segment(&self) -> Duration {
        match self.direction {
            Direction::Downstream | Direction::Upstream => {
                SEGMENT.min(self.replay_window / 4).max(Duration::from_millis(100))
            }
            Direction::Positions => POSITIONS_SEGMENT,
        }
    }
}
