//! Findings about an existing topic or broker, from its settings: pure.

use std::cmp::Reverse;
use std::fmt;

use headwater_event::Partition;

use super::admin::{Broker, Topic};
use super::plan::{Direction, TopicPlan};
use crate::topic_config::{
    ConfigValues, MAX_MESSAGE_BYTES, MIN_COMPACTION_LAG_MS, MIN_INSYNC_REPLICAS,
};

/// The bytes of a request besides its one record: names, lengths, the batch's header.
const REQUEST_OVERHEAD_BYTES: u64 = 64 << 10;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It costs time or disk space.
    Warning,
    /// It could lose data, or send an edge a state that never existed: the parts refuse to start.
    Danger,
}

/// The subject of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The topic of this name.
    Topic(String),
    /// The broker with this id.
    Broker(i32),
}

/// A setting of a topic or a broker that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject.
    pub subject: Subject,
    /// The setting, by Kafka's name, or `partitions` or `replicas`.
    pub setting: String,
    /// The value found.
    pub found: String,
    /// The value wanted.
    pub wanted: String,
    /// What the value found would cost.
    pub why: &'static str,
    /// The severity of that.
    pub severity: Severity,
    /// The value that fixes it, if setting one does.
    pub fix: Option<String>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Broker(id) => write!(f, "broker {id}"),
        }
    }
}

impl Finding {
    /// The command that fixes it on the cluster at `brokers`, if there is one.
    pub fn command(&self, brokers: &str) -> Option<String> {
        let Self { subject, setting, fix, .. } = self;
        match (subject, fix) {
            (Subject::Topic(topic), _) if setting == "replicas" => Some(format!(
                "kafka-reassign-partitions.sh --bootstrap-server {brokers} --execute \
                 --reassignment-json-file FILE   (more replicas for each partition of {topic})"
            )),
            (Subject::Topic(topic), Some(value)) => Some(format!(
                "kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics \
                 --entity-name {topic} --add-config {setting}={value}"
            )),
            // A broker reads both of its checked settings once, at its start.
            (Subject::Broker(_), Some(value)) => {
                Some(format!("set {setting}={value} in its server.properties and restart it"))
            }
            (_, None) => None,
        }
    }
}

/// The findings about a topic, the worst first.
pub fn findings(topic: &Topic, plan: &TopicPlan) -> Vec<Finding> {
    let mut found = Vec::new();
    let planned = plan.settings();
    let text = |name: &str| text(&topic.config, name);
    let number = |name: &str| text(name).parse::<i64>().ok();
    let mut object = |setting: &str, is: String, wanted: String, why, severity| {
        found.push(Finding {
            subject: Subject::Topic(topic.name.clone()),
            setting: setting.to_owned(),
            found: is,
            wanted,
            why,
            severity,
            fix: planned.get(setting).cloned(),
        });
    };
    let window_ms = i64::try_from(plan.compaction_lag().as_millis()).unwrap_or(i64::MAX);
    let at_least = |wanted: i64| format!("at least {wanted}");

    let policy = text("cleanup.policy");
    if policy.trim() != "compact" {
        let why = "objects without a change for long would vanish from the log";
        object("cleanup.policy", policy, "compact".to_owned(), why, Severity::Danger);
    }
    if number("delete.retention.ms").is_none_or(|is| is < window_ms) {
        let why = "a reader that was away for longer would miss removals";
        let (name, wanted) = ("delete.retention.ms", at_least(window_ms.saturating_mul(2)));
        object(name, text(name), wanted, why, Severity::Danger);
    }
    if number(MIN_COMPACTION_LAG_MS).is_none_or(|is| is < window_ms) {
        let why = "events inside the replay window would be gone: resuming falls back to snapshots";
        let name = MIN_COMPACTION_LAG_MS;
        object(name, text(name), at_least(window_ms), why, Severity::Warning);
    }
    let segment_ms = i64::try_from(plan.segment().as_millis()).unwrap_or(i64::MAX);
    if plan.direction == Direction::Positions
        && number(MIN_COMPACTION_LAG_MS).is_some_and(|is| is > segment_ms)
    {
        let why =
            "superseded positions stay: those of ten thousand nodes fill hundreds of gigabytes";
        let name = MIN_COMPACTION_LAG_MS;
        object(name, text(name), format!("at most {segment_ms}"), why, Severity::Warning);
    }
    if text("unclean.leader.election.enable") != "false" {
        let why = "a broker without all acknowledged records may become the leader";
        let name = "unclean.leader.election.enable";
        object(name, text(name), "false".to_owned(), why, Severity::Danger);
    }
    if number(MIN_INSYNC_REPLICAS).is_none_or(|is| is < i64::from(plan.replicas_min)) {
        let why = "a record is acknowledged before enough brokers have it, and is lost with the one that has it";
        let (name, wanted) = (MIN_INSYNC_REPLICAS, at_least(i64::from(plan.replicas_min)));
        object(name, text(name), wanted, why, Severity::Danger);
    }
    if topic.replicas < plan.replicas {
        let why = "the log is lost with the disks of fewer brokers than planned";
        let (is, wanted) = (topic.replicas.to_string(), at_least(i64::from(plan.replicas)));
        object("replicas", is, wanted, why, Severity::Danger);
    }
    if i64::from(topic.replicas) <= number(MIN_INSYNC_REPLICAS).unwrap_or_default()
        && topic.replicas > 1
    {
        let why = "no append succeeds while one broker is away";
        let is = text(MIN_INSYNC_REPLICAS);
        let wanted = format!("less than the {} replicas", topic.replicas);
        object(MIN_INSYNC_REPLICAS, is, wanted, why, Severity::Warning);
    }
    if text("message.timestamp.type") != "LogAppendTime" {
        let why = "the wrong clock of a writer would decide the times of the past";
        let name = "message.timestamp.type";
        object(name, text(name), "LogAppendTime".to_owned(), why, Severity::Danger);
    }
    let bytes = i64::try_from(plan.record_bytes).unwrap_or(i64::MAX);
    if number(MAX_MESSAGE_BYTES).is_none_or(|is| is < bytes) {
        let why = "objects that Kubernetes accepts would be refused";
        object(MAX_MESSAGE_BYTES, text(MAX_MESSAGE_BYTES), at_least(bytes), why, Severity::Danger);
    }
    if number("segment.ms").is_none_or(|is| is > window_ms.max(segment_ms)) {
        let why = "Kafka compacts no open segment: the log grows far beyond the window";
        let wanted = format!("at most {}", window_ms.max(segment_ms));
        object("segment.ms", text("segment.ms"), wanted, why, Severity::Warning);
    }
    if plan.direction == Direction::Downstream && topic.partitions != plan.partitions {
        let why = "not an error: a log keeps the number of partitions that it began with";
        let (is, wanted) = (topic.partitions.to_string(), plan.partitions.to_string());
        object("partitions", is, wanted, why, Severity::Warning);
    }
    found.sort_by_key(|finding| Reverse(finding.severity));
    found
}

/// The findings about a broker's own settings for topics by `plan`, the worst first.
pub fn broker_findings(broker: &Broker, plan: &TopicPlan) -> Vec<Finding> {
    let mut found = Vec::new();
    let text = |name: &str| text(&broker.config, name);
    let mut object = |setting: &str, wanted: String, fix: String, why, severity| {
        found.push(Finding {
            subject: Subject::Broker(broker.id),
            setting: setting.to_owned(),
            found: text(setting),
            wanted,
            why,
            severity,
            fix: Some(fix),
        });
    };
    let name = "socket.request.max.bytes";
    let bytes = plan.record_bytes.saturating_add(REQUEST_OVERHEAD_BYTES);
    if text(name).parse::<u64>().is_ok_and(|is| is < bytes) {
        let why = "the broker closes the connection of a client that appends a large object";
        object(name, format!("at least {bytes}"), bytes.to_string(), why, Severity::Danger);
    }
    let name = "log.cleaner.enable";
    if text(name) == "false" {
        let why = "Kafka compacts nothing: the log grows until the disk is full";
        object(name, "true".to_owned(), "true".to_owned(), why, Severity::Warning);
    }
    let name = "auto.create.topics.enable";
    if text(name) == "true" {
        let why = "reading a missing topic would create it with unsafe settings";
        object(name, "false".to_owned(), "false".to_owned(), why, Severity::Warning);
    }
    found.sort_by_key(|finding| Reverse(finding.severity));
    found
}

/// The partitions of a topic that cannot be written now: too few brokers have them.
pub fn under_replicated(topic: &Topic) -> Vec<Partition> {
    let needed = topic.config.get(MIN_INSYNC_REPLICAS).and_then(|is| is.parse().ok());
    let needed: usize = needed.unwrap_or(1);
    let short = topic.assignments.iter().filter(|(_, place)| place.in_sync.len() < needed);
    short.map(|(partition, _)| *partition).collect()
}

fn text(config: &ConfigValues, name: &str) -> String {
    config.get(name).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::topic_config::PartitionAssignment;

    fn as_planned(plan: &TopicPlan) -> Topic {
        let place = |in_sync: &[i32]| PartitionAssignment {
            leader: Some(1),
            replicas: vec![1, 2, 3],
            in_sync: in_sync.to_vec(),
        };
        Topic {
            name: "t".to_owned(),
            id: headwater_event::TopicId(uuid::Uuid::nil()),
            partitions: plan.partitions,
            replicas: plan.replicas,
            assignments: BTreeMap::from([
                (Partition(0), place(&[1, 2, 3])),
                (Partition(1), place(&[1])),
            ]),
            config: plan.settings(),
        }
    }

    #[test]
    fn a_topic_by_its_plan_has_no_findings() {
        for direction in Direction::ALL {
            let plan = TopicPlan::new(direction);
            assert_eq!(findings(&as_planned(&plan), &plan), []);
        }
    }

    #[test]
    fn every_dangerous_setting_is_named_with_the_command_that_fixes_it() {
        let plan = TopicPlan::new(Direction::Downstream);
        for (name, value) in [
            ("cleanup.policy", "compact,delete"),
            ("delete.retention.ms", "86400000"),
            ("unclean.leader.election.enable", "true"),
            ("min.insync.replicas", "1"),
            ("message.timestamp.type", "CreateTime"),
            ("max.message.bytes", "1048588"),
        ] {
            let mut topic = as_planned(&plan);
            topic.config.insert(name.to_owned(), value.to_owned());
            let found = findings(&topic, &plan);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!((found[0].setting.as_str(), found[0].severity), (name, Severity::Danger));
            assert_eq!(found[0].found, value);
            let command = found[0].command("k:9092").expect("one fixes it");
            let mended = format!("--entity-name t --add-config {name}={}", plan.settings()[name]);
            assert!(command.ends_with(&mended), "{command}");
            topic.config.remove(name);
            assert!(!findings(&topic, &plan).is_empty(), "{name} missing");
        }
    }

    #[test]
    fn warnings_come_last() {
        let plan = TopicPlan::new(Direction::Downstream);
        let mut topic = as_planned(&plan);
        topic.config.insert(MIN_COMPACTION_LAG_MS.to_owned(), "0".to_owned());
        topic.replicas = 1;
        let found = findings(&topic, &plan);
        let severities: Vec<_> = found.iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [Severity::Danger, Severity::Warning], "{found:?}");
        assert!(found[0].command("k").is_some_and(|it| it.starts_with("kafka-reassign")));
    }

    #[test]
    fn positions_that_stay_for_a_window_are_a_warning() {
        let plan = TopicPlan::new(Direction::Positions);
        assert_eq!(plan.settings()[MIN_COMPACTION_LAG_MS], "0");
        let mut topic = as_planned(&plan);
        topic.config.insert(MIN_COMPACTION_LAG_MS.to_owned(), "604800000".to_owned());
        let found = findings(&topic, &plan);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].severity, Severity::Warning);
        let command = found[0].command("k").expect("one fixes it");
        assert!(command.ends_with("--add-config min.compaction.lag.ms=0"), "{command}");
        topic.config = plan.settings();
        topic.config.insert("segment.ms".to_owned(), "604800000".to_owned());
        assert_eq!(findings(&topic, &plan)[0].wanted, "at most 600000");
    }

    #[test]
    fn a_broker_that_closes_connections_at_a_large_object_is_dangerous() {
        let plan = TopicPlan::new(Direction::Downstream);
        let broker = |pairs: &[(&str, &str)]| Broker {
            id: 7,
            config: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        let usual = [("socket.request.max.bytes", "104857600"), ("log.cleaner.enable", "true")];
        assert_eq!(broker_findings(&broker(&usual), &plan), []);
        let bad = [
            ("auto.create.topics.enable", "true"),
            ("log.cleaner.enable", "false"),
            ("socket.request.max.bytes", "1048576"),
        ];
        let found = broker_findings(&broker(&bad), &plan);
        let names: Vec<_> = found.iter().map(|it| (it.setting.as_str(), it.severity)).collect();
        let expected = [
            ("socket.request.max.bytes", Severity::Danger),
            ("log.cleaner.enable", Severity::Warning),
            ("auto.create.topics.enable", Severity::Warning),
        ];
        assert_eq!(names, expected);
        assert_eq!(found[0].subject.to_string(), "broker 7");
    }

    #[test]
    fn a_partition_with_too_few_brokers_is_named() {
        let topic = as_planned(&TopicPlan::new(Direction::Upstream));
        assert_eq!(under_replicated(&topic), [Partition(1)]);
    }
}
