//! librdkafka's settings: those that the log's promises rest on, and the user's own.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;

/// How long a record may be in flight before its outcome counts as unknown: longer than the failover
/// of a broker (about 10 s), shorter than a caller waits.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long one request to a broker may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a reader checks the id of its topic: librdkafka goes on in silence when the topic was
/// deleted and created again.
const TOPIC_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long that check may go without an answer before a reader fails.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(10);

/// The address of Kafka, and the settings of its clients.
#[derive(Clone)]
pub struct KafkaSettings {
    /// The bootstrap brokers: `host:port`, separated by commas.
    pub brokers: String,
    /// The topic.
    pub topic: String,
    /// The name of this client in the brokers' logs and quotas.
    pub client_id: String,
    /// How long a record may be in flight before its outcome counts as unknown.
    pub delivery_timeout: Duration,
    /// How long one request may take; less than `delivery_timeout`.
    pub request_timeout: Duration,
    /// How often a reader checks the id of its topic.
    pub topic_check_interval: Duration,
    /// How long that check may go without an answer.
    pub unreachable_after: Duration,
    /// Whether readers commit their positions to the group `client_id`, for display only.
    pub commit_positions: bool,
    /// librdkafka's settings by its own names: security, sockets, quotas.
    pub extra: BTreeMap<String, String>,
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSettings")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("client_id", &self.client_id)
            // The values include passwords and keys.
            .field("extra", &self.extra.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Why settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A promise of the log rests on this setting.
    #[error("kafka.{name} cannot be set: {reason}")]
    Refused {
        /// Its name.
        name: String,
        /// What another value would break.
        reason: &'static str,
    },
    /// librdkafka refuses the settings.
    #[error("Kafka's client refuses its settings: {reason}")]
    Invalid {
        /// librdkafka's text.
        reason: String,
    },
}

impl KafkaSettings {
    /// The defaults, for `topic` of the cluster at `brokers`.
    pub fn new(brokers: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: topic.into(),
            client_id: "headwater".to_owned(),
            delivery_timeout: DELIVERY_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            topic_check_interval: TOPIC_CHECK_INTERVAL,
            unreachable_after: UNREACHABLE_AFTER,
            commit_positions: true,
            extra: BTreeMap::new(),
        }
    }

    /// Checks that no promise rests on one of the user's own settings.
    ///
    /// # Errors
    /// [`SettingsError::Refused`] names the first one.
    pub fn check(&self) -> Result<(), SettingsError> {
        for name in self.extra.keys() {
            if let Some(reason) = refused(name) {
                return Err(SettingsError::Refused { name: name.clone(), reason });
            }
        }
        Ok(())
    }

    /// The configuration of a client for requests to the cluster.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, SettingsError> {
        self.client(&[])
    }

    /// The configuration of the log's own producer; public for measurements against a bare one.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn producer_config(&self) -> Result<ClientConfig, SettingsError> {
        let mut config = self.client(PRODUCER)?;
        config.set("message.timeout.ms", self.delivery_timeout.as_millis().to_string());
        Ok(config)
    }

    /// The configuration of the log's own consumers; public for measurements against a bare one.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn consumer_config(&self) -> Result<ClientConfig, SettingsError> {
        let mut config = self.client(CONSUMER)?;
        config.set("group.id", &self.client_id);
        Ok(config)
    }

    fn client(&self, safe: &[Setting]) -> Result<ClientConfig, SettingsError> {
        self.check()?;
        let mut config = ClientConfig::new();
        for one in COMMON.iter().chain(safe).filter(|one| one.is_open) {
            config.set(one.name, one.value);
        }
        let request_ms = self.request_timeout.as_millis().to_string();
        config.set("socket.timeout.ms", &request_ms);
        config.set("request.timeout.ms", &request_ms);
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", &self.client_id);
        for (name, value) in &self.extra {
            config.set(name, value);
        }
        for one in COMMON.iter().chain(safe).filter(|one| !one.is_open) {
            config.set(one.name, one.value);
        }
        Ok(config)
    }
}

/// A setting of librdkafka's that differs from its default.
struct Setting {
    name: &'static str,
    value: &'static str,
    reason: &'static str,
    /// Whether a user may set another value.
    is_open: bool,
}

const fn fixed(name: &'static str, value: &'static str, reason: &'static str) -> Setting {
    Setting { name, value, reason, is_open: false }
}

const fn open(name: &'static str, value: &'static str, reason: &'static str) -> Setting {
    Setting { name, value, reason, is_open: true }
}

const COMMON: &[Setting] = &[
    open("socket.nagle.disable", "true", "with Nagle on, a small request waits for the last ack"),
    open("socket.keepalive.enable", "true", "a peer that is gone is noticed on an idle connection"),
    open("reconnect.backoff.ms", "50", "a broker that is back is found at once"),
    open("reconnect.backoff.max.ms", "500", "the default of 10 s outlasts most restarts"),
    open("topic.metadata.refresh.interval.ms", "10000", "a frozen leader's successor is found"),
    fixed("allow.auto.create.topics", "false", "a topic made by accident has unsafe settings"),
];

const PRODUCER: &[Setting] = &[
    fixed("enable.idempotence", "true", "a retry would double or reorder records"),
    fixed("acks", "all", "what one broker alone has is lost with it"),
    fixed("max.in.flight.requests.per.connection", "5", "more than 5 lose their order"),
    open("linger.ms", "0", "an append is a group already; waiting adds nothing but time"),
    open("compression.type", "lz4", "a third of the bytes for objects that are plain JSON"),
    // Larger than any topic's limit, which the log requests and checks itself.
    fixed("message.max.bytes", "16777216", "a record is refused by name before it comes here"),
    open("queue.buffering.max.kbytes", "65536", "the default takes 1 GiB before it refuses"),
];

const CONSUMER: &[Setting] = &[
    fixed("auto.offset.reset", "error", "anything else passes over what is gone, in silence"),
    fixed("enable.auto.commit", "false", "positions lie with the state that they belong to"),
    fixed("enable.auto.offset.store", "false", "positions lie with the state that they belong to"),
    fixed("enable.partition.eof", "true", "only so is it seen that the end is empty"),
    fixed(
        "isolation.level",
        "read_uncommitted",
        "a stranger's open transaction would stop reading",
    ),
    fixed("check.crcs", "true", "a damaged record would be taken for a good one"),
    open("fetch.wait.max.ms", "100", "measured: shorter waits cut the tail of the latency"),
    open("fetch.error.backoff.ms", "100", "a leader that has moved is found soon"),
    open("queued.max.messages.kbytes", "8192", "the default takes 64 MiB for each reader"),
    open("fetch.queue.backoff.ms", "10", "a full queue would stop a replay for a second each time"),
];

/// Settings that have another place, or would take a promise away.
const REFUSED: &[(&str, &str)] = &[
    ("bootstrap.servers", "set it as kafka.brokers"),
    ("metadata.broker.list", "set it as kafka.brokers"),
    ("client.id", "it is made of kafka.topic.prefix and of the part's name"),
    ("group.id", "readers are assigned their partitions, and no group divides them"),
    ("group.protocol", "readers are assigned their partitions, and no group divides them"),
    ("transactional.id", "fencing is in the log's claims; a transaction would stop its readers"),
    ("request.required.acks", "what one broker alone has is lost with it"),
    ("max.in.flight", "more than 5 lose their order"),
    ("retries", "a record that is not tried again is lost in the midst of others"),
    ("message.send.max.retries", "a record that is not tried again is lost in the midst of others"),
    ("message.timeout.ms", "set it as kafka.delivery.timeout"),
    ("delivery.timeout.ms", "set it as kafka.delivery.timeout"),
    ("socket.timeout.ms", "set it as kafka.request.timeout"),
    ("request.timeout.ms", "set it as kafka.request.timeout"),
    ("partitioner", "a stream's partition is fixed by the log metadata"),
    ("log.queue", "the messages of the client go into the log of this process"),
    ("enabled_events", "the messages of the client go into the log of this process"),
    ("plugin.library.paths", "it would load code into this process"),
    ("test.mock.num.brokers", "a mock keeps nothing"),
];

/// Why a user may not set `name`.
fn refused(name: &str) -> Option<&'static str> {
    let all = COMMON.iter().chain(PRODUCER).chain(CONSUMER);
    let ours = all.filter(|one| !one.is_open).map(|one| (one.name, one.reason));
    ours.chain(REFUSED.iter().copied()).find(|(it, _)| *it == name).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> KafkaSettings {
        let mut settings = KafkaSettings::new("127.0.0.1:9", "t");
        settings.extra.insert(name.to_owned(), value.to_owned());
        settings
    }

    #[test]
    fn a_setting_that_a_promise_rests_on_is_refused_by_name() {
        for name in ["acks", "auto.offset.reset", "enable.idempotence", "transactional.id"] {
            let error = with(name, "x").producer_config().expect_err("refused").to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn an_open_setting_can_have_another_value() {
        let config = with("linger.ms", "5").producer_config().expect("taken");
        assert_eq!(config.get("linger.ms"), Some("5"));
        assert_eq!(config.get("acks"), Some("all"));
        let config = with("security.protocol", "SSL").consumer_config().expect("taken");
        assert_eq!(config.get("security.protocol"), Some("SSL"));
        assert_eq!(config.get("auto.offset.reset"), Some("error"));
    }

    #[test]
    fn librdkafka_knows_every_name() {
        let settings = KafkaSettings::new("127.0.0.1:9", "t");
        for config in
            [settings.client_config(), settings.producer_config(), settings.consumer_config()]
        {
            config.expect("taken").create_native_config().expect("known to librdkafka");
        }
    }
}
