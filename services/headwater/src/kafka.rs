//! The settings of Kafka: the `[kafka]` table of a settings file, the flags, and the logs that they
//! open.
//!
//! Every name in the table has dots, as Kafka's names have. A few names are ours. All others are
//! librdkafka's and go to it unchanged, except those that would break a promise.

mod topic_safety;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use headwater_kafka::topics::{Direction, TopicPlan};
use headwater_kafka::{KafkaLog, KafkaMetrics, KafkaSettings, SettingsError};
use headwater_log::UpstreamLog;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use topic_safety::{KafkaFault, advice};

/// The default prefix of topics and groups. Fleets that share a Kafka cluster need different ones.
const TOPIC_PREFIX: &str = "headwater";

/// The longest prefix. Kafka takes names of 249 characters, and a suffix follows the prefix.
const TOPIC_PREFIX_CHARS_MAX: usize = 200;

/// librdkafka's setting: how long a broker holds a request while there is nothing to read, in milliseconds.
const FETCH_WAIT: &str = "fetch.wait.max.ms";

/// That of positions, unless the user sets another. Each request costs its reader some 0.1 ms, and few of them find a
/// position. One that comes is sent at once. A reader that starts may wait once for this time.
const POSITIONS_FETCH_WAIT_MS: &str = "500";

/// The settings of the table: brokers, topics and clients.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub(crate) struct Kafka {
    /// `brokers`: `host:port`, separated by commas. Without brokers the log is embedded.
    pub(crate) brokers: Option<String>,
    /// `topic.prefix`: the prefix of the names of topics and groups.
    pub(crate) topic_prefix: String,
    /// `topic.partitions`: the number of partitions of each topic.
    pub(crate) partitions: u32,
    /// `topic.replication.factor`: the number of brokers that store each record.
    pub(crate) replicas: u32,
    /// `topic.min.insync.replicas`: the number of brokers that must have a record before its append
    /// is acknowledged. The default is one fewer than the replication factor.
    pub(crate) replicas_min: Option<u32>,
    /// `topic.replay.window`: the time for which every event stays readable.
    pub(crate) replay_window: Duration,
    /// `delivery.timeout`: the time after which the outcome of an append is unknown.
    pub(crate) delivery_timeout: Duration,
    /// `request.timeout`: the time limit of one request.
    pub(crate) request_timeout: Duration,
    /// `topic.check.interval`: the interval at which a reader checks that the topic is the same.
    pub(crate) topic_check_interval: Duration,
    /// `unreachable.after`: the time without a successful check after which Kafka is unreachable.
    pub(crate) unreachable_after: Duration,
    /// `show.positions`: whether readers commit their positions to a group named after the part, so
    /// that Kafka's tools show lag. Headwater never reads them.
    pub(crate) show_positions: bool,
    /// `allow.unsafe.topics`: whether to start although a setting would lose data.
    pub(crate) allow_unsafe_topics: bool,
    /// The settings of librdkafka, by its own names.
    pub(crate) client: BTreeMap<String, String>,
}

/// The reason why the table is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KafkaTableError {
    /// A value of ours is invalid.
    #[error("kafka.{name} = {given}: {reason}")]
    Wrong {
        /// Its name in the table.
        name: String,
        /// The value.
        given: String,
        /// The cause and the expected form.
        reason: String,
    },
    /// A setting of librdkafka is refused, by us or by librdkafka.
    #[error(transparent)]
    Client(#[from] SettingsError),
}

/// The two logs on Kafka. The upstream log has two topics.
pub(crate) struct KafkaLogs {
    pub(crate) downstream: Arc<KafkaLog>,
    pub(crate) upstream: Arc<UpstreamLog>,
}

impl Default for Kafka {
    fn default() -> Self {
        let plan = TopicPlan::new(Direction::Downstream);
        let settings = KafkaSettings::new("", "");
        Self {
            brokers: None,
            topic_prefix: TOPIC_PREFIX.to_owned(),
            partitions: plan.partitions,
            replicas: plan.replicas,
            replicas_min: None,
            replay_window: plan.replay_window,
            delivery_timeout: settings.delivery_timeout,
            request_timeout: settings.request_timeout,
            topic_check_interval: settings.topic_check_interval,
            unreachable_after: settings.unreachable_after,
            show_positions: settings.commit_positions,
            allow_unsafe_topics: false,
            client: BTreeMap::new(),
        }
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("brokers", &self.brokers)
            .field("topic_prefix", &self.topic_prefix)
            // The values include passwords and keys.
            .field("client", &self.client.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Kafka {
    /// Checks the values, without a request to Kafka.
    ///
    /// # Errors
    /// The first invalid value.
    pub(crate) fn check(&self) -> Result<(), KafkaTableError> {
        let wrong = |name: &str, given: &dyn fmt::Display, reason: &str| {
            let (name, given, reason) = (name.to_owned(), given.to_string(), reason.to_owned());
            Err(KafkaTableError::Wrong { name, given, reason })
        };
        let prefix = &self.topic_prefix;
        let is_legal = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
        if prefix.is_empty()
            || prefix.len() > TOPIC_PREFIX_CHARS_MAX
            || !prefix.chars().all(is_legal)
        {
            return wrong("topic.prefix", &prefix, "want letters, digits, dots and dashes");
        }
        if self.brokers.as_ref().is_some_and(|brokers| brokers.trim().is_empty()) {
            return wrong("brokers", &"", "want host:port, separated by commas");
        }
        if self.partitions == 0 {
            return wrong("topic.partitions", &0, "want at least 1");
        }
        if self.replicas == 0 {
            return wrong("topic.replication.factor", &0, "want at least 1");
        }
        if let Some(min) = self.replicas_min.filter(|min| *min == 0 || *min > self.replicas) {
            let reason = format!("want 1 to {}, the replication factor", self.replicas);
            return wrong("topic.min.insync.replicas", &min, &reason);
        }
        // Its clients are made, and so look at their settings; nothing listens at no address.
        KafkaLog::new(self.settings(Direction::Downstream, "check"))?;
        Ok(())
    }

    /// Returns the name of a topic.
    pub(crate) fn topic(&self, direction: Direction) -> String {
        let prefix = &self.topic_prefix;
        match direction {
            Direction::Downstream => format!("{prefix}.downstream.v1"),
            Direction::Upstream => format!("{prefix}.upstream.v1"),
            Direction::Positions => format!("{prefix}.positions.v1"),
        }
    }

    /// Returns the planned settings of a topic.
    pub(crate) fn plan(&self, direction: Direction) -> TopicPlan {
        TopicPlan {
            partitions: self.partitions,
            replicas: self.replicas,
            replicas_min: self.replicas_min.unwrap_or(self.replicas.saturating_sub(1).max(1)),
            replay_window: self.replay_window,
            ..TopicPlan::new(direction)
        }
    }

    /// Returns the settings of the log of `direction` for the part of this name: `controller.a`,
    /// `hub.b`. In client ids and groups the name has the prefix.
    pub(crate) fn settings(&self, direction: Direction, part: &str) -> KafkaSettings {
        let mut extra = self.client.clone();
        if direction == Direction::Positions {
            extra
                .entry(FETCH_WAIT.to_owned())
                .or_insert_with(|| POSITIONS_FETCH_WAIT_MS.to_owned());
        }
        KafkaSettings {
            client_id: format!("{}.{part}", self.topic_prefix),
            delivery_timeout: self.delivery_timeout,
            request_timeout: self.request_timeout,
            topic_check_interval: self.topic_check_interval,
            unreachable_after: self.unreachable_after,
            commit_positions: self.show_positions,
            extra,
            ..KafkaSettings::new(self.brokers.clone().unwrap_or_default(), self.topic(direction))
        }
    }

    /// Opens the logs for the part of this name; they count in `metrics`. Sends no request to
    /// Kafka yet.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub(crate) fn open(
        &self,
        part: &str,
        metrics: &KafkaMetrics,
    ) -> Result<KafkaLogs, KafkaTableError> {
        let settings = |direction| self.settings(direction, part);
        let downstream = KafkaLog::with_metrics(settings(Direction::Downstream), metrics)?;
        let beside = |direction| downstream.beside(settings(direction), metrics).map(Arc::new);
        let (reports, positions) = (beside(Direction::Upstream)?, beside(Direction::Positions)?);
        let upstream = Arc::new(UpstreamLog::new(reports, positions));
        Ok(KafkaLogs { downstream: Arc::new(downstream), upstream })
    }
}

impl TryFrom<Map<String, Value>> for Kafka {
    type Error = KafkaTableError;

    fn try_from(table: Map<String, Value>) -> Result<Self, KafkaTableError> {
        let mut kafka = Self::default();
        for (name, text) in leaves(&table) {
            let text = text.as_str();
            match name.as_str() {
                "brokers" => kafka.brokers = Some(text.to_owned()),
                "topic.prefix" => text.clone_into(&mut kafka.topic_prefix),
                "topic.partitions" => kafka.partitions = parsed(&name, text)?,
                "topic.replication.factor" => kafka.replicas = parsed(&name, text)?,
                "topic.min.insync.replicas" => kafka.replicas_min = Some(parsed(&name, text)?),
                "topic.replay.window" => kafka.replay_window = duration(&name, text)?,
                "delivery.timeout" => kafka.delivery_timeout = duration(&name, text)?,
                "request.timeout" => kafka.request_timeout = duration(&name, text)?,
                "topic.check.interval" => kafka.topic_check_interval = duration(&name, text)?,
                "unreachable.after" => kafka.unreachable_after = duration(&name, text)?,
                "show.positions" => kafka.show_positions = parsed(&name, text)?,
                "allow.unsafe.topics" => kafka.allow_unsafe_topics = parsed(&name, text)?,
                _ => {
                    kafka.client.insert(name, text.to_owned());
                }
            }
        }
        Ok(kafka)
    }
}

impl From<Kafka> for Map<String, Value> {
    fn from(kafka: Kafka) -> Self {
        let mut table = Map::new();
        let mut put = |name: &str, value: Value| nest(&mut table, name, value);
        put("brokers", kafka.brokers.into());
        put("topic.prefix", kafka.topic_prefix.into());
        put("topic.partitions", kafka.partitions.into());
        put("topic.replication.factor", kafka.replicas.into());
        put("topic.min.insync.replicas", kafka.replicas_min.into());
        let text = |duration| humantime::format_duration(duration).to_string().into();
        put("topic.replay.window", text(kafka.replay_window));
        put("delivery.timeout", text(kafka.delivery_timeout));
        put("request.timeout", text(kafka.request_timeout));
        put("topic.check.interval", text(kafka.topic_check_interval));
        put("unreachable.after", text(kafka.unreachable_after));
        put("show.positions", kafka.show_positions.into());
        put("allow.unsafe.topics", kafka.allow_unsafe_topics.into());
        for (name, value) in kafka.client {
            put(&name, value.into());
        }
        table
    }
}

/// Inserts `value` as a settings file has it: TOML reads a dot as a table.
fn nest(table: &mut Map<String, Value>, name: &str, value: Value) {
    let Some((first, rest)) = name.split_once('.') else {
        table.insert(name.to_owned(), value);
        return;
    };
    let within = table.entry(first).or_insert_with(|| Value::Object(Map::new()));
    match within {
        Value::Object(within) => nest(within, rest, value),
        // Both `a` and `a.b` have values: the longer name stays beside the shorter one.
        _ => {
            table.insert(name.to_owned(), value);
        }
    }
}

/// Returns every value of the table as text, by its full name. If a name occurs twice, the one
/// without nested tables wins: flags have this form.
fn leaves(table: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut nested = BTreeMap::new();
    let mut whole = BTreeMap::new();
    for (name, value) in table {
        match value {
            Value::Object(within) => {
                let within = leaves(within).into_iter();
                nested.extend(within.map(|(rest, text)| (format!("{name}.{rest}"), text)));
            }
            Value::Null => {}
            Value::String(text) => {
                whole.insert(name.clone(), text.clone());
            }
            value => {
                whole.insert(name.clone(), value.to_string());
            }
        }
    }
    nested.extend(whole);
    nested
}

fn parsed<T: FromStr<Err: fmt::Display>>(name: &str, given: &str) -> Result<T, KafkaTableError> {
    given.parse().map_err(|error: T::Err| wrong(name, given, error.to_string()))
}

fn duration(name: &str, given: &str) -> Result<Duration, KafkaTableError> {
    let duration = humantime::parse_duration(given)
        .map_err(|error| wrong(name, given, format!("want a duration like 30s or 7d: {error}")))?;
    if duration.is_zero() {
        return Err(wrong(name, given, "a duration must not be zero".to_owned()));
    }
    Ok(duration)
}

fn wrong(name: &str, given: &str, reason: String) -> KafkaTableError {
    KafkaTableError::Wrong { name: name.to_owned(), given: given.to_owned(), reason }
}

#[cfg(test)]
mod tests;
