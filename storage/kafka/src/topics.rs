//! Topics: made with the settings that the promises rest on, and checked for them.
//!
//! What a broker would do to a log is decided by the topic's settings. [`findings`] is the pure
//! part: it names each setting that is not as it should be, with what it would cost.

mod admin;

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_event::Partition;

pub use admin::{Topic, TopicError, create, describe};

/// A topic's settings as Kafka names and prints them.
pub type Configured = BTreeMap<String, String>;

/// The largest batch that the topic takes, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

/// For how long a superseded record stays, in milliseconds.
pub(crate) const MIN_COMPACTION_LAG_MS: &str = "min.compaction.lag.ms";

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
pub struct Plan {
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

impl Plan {
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
    pub fn settings(&self) -> Configured {
        let ms = |duration: Duration| duration.as_millis().to_string();
        let settings = [
            ("cleanup.policy", "compact".to_owned()),
            (MIN_COMPACTION_LAG_MS, ms(self.replay_window)),
            ("delete.retention.ms", ms(self.replay_window * 2)),
            ("segment.ms", ms(self.segment())),
            ("message.timestamp.type", "LogAppendTime".to_owned()),
            (MAX_MESSAGE_BYTES, self.record_bytes.to_string()),
            ("min.insync.replicas", self.replicas_min.to_string()),
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

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It costs time or room.
    Warning,
    /// It would lose data, or show an edge what never was: the parts refuse to start.
    Danger,
}

/// One thing about a topic that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The setting, by Kafka's name, or `partitions` or `replicas`.
    pub setting: String,
    /// What it is.
    pub found: String,
    /// What it should be.
    pub wanted: String,
    /// What it would cost.
    pub why: &'static str,
    /// How bad that is.
    pub severity: Severity,
}

/// What is not as it should be about a topic, the worst first.
pub fn findings(topic: &Topic, plan: &Plan) -> Vec<Finding> {
    let mut found = Vec::new();
    let configured = &topic.configured;
    let text = |name: &str| configured.get(name).cloned().unwrap_or_default();
    let number = |name: &str| text(name).parse::<i64>().ok();
    let mut object = |setting: &str, is: String, wanted: String, why, severity| {
        found.push(Finding { setting: setting.to_owned(), found: is, wanted, why, severity });
    };
    let window_ms = i64::try_from(plan.replay_window.as_millis()).unwrap_or(i64::MAX);
    let at_least = |wanted: i64| format!("at least {wanted}");

    let policy = text("cleanup.policy");
    if policy.trim() != "compact" {
        let why = "objects that nobody has changed for long would vanish from the log";
        object("cleanup.policy", policy, "compact".to_owned(), why, Severity::Danger);
    }
    if number("delete.retention.ms").is_none_or(|is| is < window_ms) {
        let why = "a reader away for longer would not learn what was removed";
        let (name, wanted) = ("delete.retention.ms", at_least(window_ms.saturating_mul(2)));
        object(name, text(name), wanted, why, Severity::Danger);
    }
    if number(MIN_COMPACTION_LAG_MS).is_none_or(|is| is < window_ms) {
        let why = "events inside the replay window would be gone: resuming falls back to snapshots";
        let name = MIN_COMPACTION_LAG_MS;
        object(name, text(name), at_least(window_ms), why, Severity::Warning);
    }
    if text("unclean.leader.election.enable") != "false" {
        let why = "a broker that lacks acknowledged records may become the leader";
        let name = "unclean.leader.election.enable";
        object(name, text(name), "false".to_owned(), why, Severity::Danger);
    }
    if number("min.insync.replicas").is_none_or(|is| is < i64::from(plan.replicas_min)) {
        let why =
            "a record counts before enough brokers have it, and is lost with the one that has";
        let (name, wanted) = ("min.insync.replicas", at_least(i64::from(plan.replicas_min)));
        object(name, text(name), wanted, why, Severity::Danger);
    }
    if topic.replicas < plan.replicas {
        let why = "the log is lost with the disks of fewer brokers than planned";
        let (is, wanted) = (topic.replicas.to_string(), at_least(i64::from(plan.replicas)));
        object("replicas", is, wanted, why, Severity::Danger);
    }
    if i64::from(topic.replicas) <= number("min.insync.replicas").unwrap_or_default()
        && topic.replicas > 1
    {
        let why = "nothing can be appended as soon as one broker is away";
        let is = text("min.insync.replicas");
        let wanted = format!("less than the {} replicas", topic.replicas);
        object("min.insync.replicas", is, wanted, why, Severity::Warning);
    }
    if text("message.timestamp.type") != "LogAppendTime" {
        let why = "a writer's wrong clock would decide what the past was";
        let name = "message.timestamp.type";
        object(name, text(name), "LogAppendTime".to_owned(), why, Severity::Danger);
    }
    let bytes = i64::try_from(plan.record_bytes).unwrap_or(i64::MAX);
    if number(MAX_MESSAGE_BYTES).is_none_or(|is| is < bytes) {
        let why = "objects that Kubernetes takes would be refused";
        object(MAX_MESSAGE_BYTES, text(MAX_MESSAGE_BYTES), at_least(bytes), why, Severity::Danger);
    }
    let segment_ms = i64::try_from(plan.segment().as_millis()).unwrap_or(i64::MAX);
    if number("segment.ms").is_none_or(|is| is > window_ms.max(segment_ms)) {
        let why = "nothing in an open segment is compacted: the log grows far beyond the window";
        let wanted = format!("at most {window_ms}");
        object("segment.ms", text("segment.ms"), wanted, why, Severity::Warning);
    }
    if plan.direction == Direction::Downstream && topic.partitions != plan.partitions {
        let why = "not an error: a log's birth fixes how many it has";
        let (is, wanted) = (topic.partitions.to_string(), plan.partitions.to_string());
        object("partitions", is, wanted, why, Severity::Warning);
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// The partitions of a topic that cannot be written just now: fewer brokers have them than must.
pub fn short_of_replicas(topic: &Topic) -> Vec<Partition> {
    let needed = topic.configured.get("min.insync.replicas").and_then(|is| is.parse().ok());
    let needed: usize = needed.unwrap_or(1);
    let short = topic.in_sync.iter().filter(|(_, count)| **count < needed);
    short.map(|(partition, _)| *partition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_planned(plan: &Plan) -> Topic {
        Topic {
            name: "t".to_owned(),
            id: headwater_event::TopicId(uuid::Uuid::nil()),
            partitions: plan.partitions,
            replicas: plan.replicas,
            in_sync: BTreeMap::from([(Partition(0), 3), (Partition(1), 1)]),
            configured: plan.settings(),
        }
    }

    #[test]
    fn a_topic_made_by_its_plan_is_as_it_should_be() {
        for direction in [Direction::Downstream, Direction::Upstream] {
            let plan = Plan::new(direction);
            assert_eq!(findings(&as_planned(&plan), &plan), []);
        }
    }

    #[test]
    fn every_dangerous_setting_is_named() {
        let plan = Plan::new(Direction::Downstream);
        for (name, value) in [
            ("cleanup.policy", "compact,delete"),
            ("delete.retention.ms", "86400000"),
            ("unclean.leader.election.enable", "true"),
            ("min.insync.replicas", "1"),
            ("message.timestamp.type", "CreateTime"),
            ("max.message.bytes", "1048588"),
        ] {
            let mut topic = as_planned(&plan);
            topic.configured.insert(name.to_owned(), value.to_owned());
            let found = findings(&topic, &plan);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!((found[0].setting.as_str(), found[0].severity), (name, Severity::Danger));
            assert_eq!(found[0].found, value);
            topic.configured.remove(name);
            assert!(!findings(&topic, &plan).is_empty(), "{name} missing");
        }
    }

    #[test]
    fn what_only_costs_something_comes_last() {
        let plan = Plan::new(Direction::Downstream);
        let mut topic = as_planned(&plan);
        topic.configured.insert(MIN_COMPACTION_LAG_MS.to_owned(), "0".to_owned());
        topic.replicas = 1;
        let found = findings(&topic, &plan);
        let severities: Vec<_> = found.iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [Severity::Danger, Severity::Warning], "{found:?}");
    }

    #[test]
    fn a_partition_with_too_few_brokers_is_named() {
        let topic = as_planned(&Plan::new(Direction::Upstream));
        assert_eq!(short_of_replicas(&topic), [Partition(1)]);
    }
}
