//! Questions about the topic, asked of the cluster and answered in bounded time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headwater_event::{Offset, Partition, TopicId};
use headwater_log::{Bounds, Description, ReadError};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::Client;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer;

use crate::RECORD_OVERHEAD_BYTES;
use crate::clients::{Context, words};
use crate::native;
use crate::polled::Polled;
use crate::settings::{KafkaSettings, SettingsError};
use crate::topics::{self, ConfigValues, PartitionAssignment};

/// The wait before a question is asked again that a broker could not answer just then: partitions
/// of a topic just made have no leader for some tens of milliseconds.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Kafka's or librdkafka's name of what went wrong, and their words where there are more.
type Failed = (RDKafkaErrorCode, String);

/// Asks.
pub(crate) struct Asking {
    settings: Arc<KafkaSettings>,
    context: Context,
    client: Mutex<Arc<Asker>>,
}

/// Appends nothing: of librdkafka's clients it is the one that has a thread of its own, by which it
/// learns of its connections' troubles.
type Asker = Polled;

impl Asking {
    pub(crate) fn new(settings: Arc<KafkaSettings>) -> Result<Self, SettingsError> {
        let context = Context::default();
        let client = Mutex::new(Arc::new(asker(&settings, &context)?));
        Ok(Self { settings, context, client })
    }

    fn client(&self) -> Arc<Asker> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up a client that had no answer; the next question begins with another. librdkafka
    /// keeps what it was told last: a broker that comes back names no brokers and no partitions
    /// for a moment, and who asked just then knows of none ever after.
    fn retire(&self, used: &Arc<Asker>) {
        let mut held = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&held, used)
            && let Ok(another) = asker(&self.settings, &self.context)
        {
            *held = Arc::new(another);
        }
    }

    /// The topic's id; blocks.
    pub(crate) fn topic_id(&self) -> Result<TopicId, ReadError> {
        self.find_topic().map_err(|failed| self.unavailable(failed))
    }

    /// The topic's id, or none where there is no such topic; blocks.
    pub(crate) fn topic_id_if_any(&self) -> Result<Option<TopicId>, ReadError> {
        use RDKafkaErrorCode as Code;
        match self.find_topic() {
            Ok(id) => Ok(Some(id)),
            Err((Code::UnknownTopicOrPartition | Code::UnknownTopic, _)) => Ok(None),
            Err(failed) => Err(self.unavailable(failed)),
        }
    }

    fn find_topic(&self) -> Result<TopicId, Failed> {
        let topic = &self.settings.topic;
        self.tried(|client, wait| native::topic_id(client, topic, wait)).map(TopicId)
    }

    /// How many partitions the topic has; blocks.
    pub(crate) fn partitions(&self) -> Result<u32, ReadError> {
        Ok(u32::try_from(self.assignments()?.len()).unwrap_or(u32::MAX))
    }

    /// Who has each partition of the topic; blocks.
    pub(crate) fn assignments(
        &self,
    ) -> Result<BTreeMap<Partition, PartitionAssignment>, ReadError> {
        let topic = self.settings.topic.as_str();
        self.again(|client, wait| {
            let metadata = client.fetch_metadata(Some(topic), wait).map_err(plain)?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            let found = found.ok_or_else(|| coded(RDKafkaErrorCode::UnknownTopic))?;
            if let Some(error) = found.error() {
                return Err(coded(RDKafkaErrorCode::from(error)));
            }
            if found.partitions().is_empty() {
                return Err(coded(RDKafkaErrorCode::UnknownTopicOrPartition));
            }
            let partitions = found.partitions().iter().map(|partition| {
                let number = Partition(u32::try_from(partition.id()).unwrap_or_default());
                let place = PartitionAssignment {
                    leader: Some(partition.leader()).filter(|id| *id >= 0),
                    replicas: partition.replicas().to_vec(),
                    in_sync: partition.isr().to_vec(),
                };
                (number, place)
            });
            Ok(partitions.collect())
        })
    }

    /// What can be read of `partition`, which there is; blocks.
    pub(crate) fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        let topic = self.settings.topic.as_str();
        let number = i32::try_from(partition.0).unwrap_or(i32::MAX);
        let (low, high) =
            self.again(|client, wait| client.fetch_watermarks(topic, number, wait).map_err(plain))?;
        Ok(Bounds { low: offset(low), high: offset(high) })
    }

    /// What the topic is like.
    pub(crate) async fn describe(self: &Arc<Self>) -> Result<Description, ReadError> {
        let this = self.clone();
        let (topic, partitions) =
            blocking(move || Ok((this.topic_id()?, this.partitions()?))).await?;
        let configured = self.configured().await?;
        let number = |name: &str| configured.get(name).and_then(|value| value.parse::<u64>().ok());
        let bytes_max = number(topics::MAX_MESSAGE_BYTES).unwrap_or_default();
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Ok(Description {
            topic,
            partitions,
            record_bytes_max: bytes_max.saturating_sub(RECORD_OVERHEAD_BYTES),
            replay_window_ms: number(topics::MIN_COMPACTION_LAG_MS).unwrap_or_default(),
        })
    }

    /// The ids of the brokers of the cluster; blocks.
    pub(crate) fn brokers(&self) -> Result<Vec<i32>, ReadError> {
        // Asking for one topic answers with the brokers too, and works without any right to it.
        let topic = self.settings.topic.as_str();
        self.again(|client, wait| {
            let metadata = client.fetch_metadata(Some(topic), wait).map_err(plain)?;
            Ok(metadata.brokers().iter().map(|broker| broker.id()).collect())
        })
    }

    /// The topic's settings, by Kafka's names.
    pub(crate) async fn configured(&self) -> Result<ConfigValues, ReadError> {
        self.configured_of(ResourceSpecifier::Topic(&self.settings.topic)).await
    }

    /// The settings of a topic or a broker, by Kafka's names.
    pub(crate) async fn configured_of(
        &self,
        one: ResourceSpecifier<'_>,
    ) -> Result<ConfigValues, ReadError> {
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let config =
            self.settings.client_config().map_err(|error| unavailable(error.to_string()))?;
        let admin = AdminClient::from_config_and_context(&config, self.context.clone())
            .map_err(|error: KafkaError| unavailable(error.to_string()))?;
        let options = AdminOptions::new().request_timeout(Some(self.settings.request_timeout));
        let described = admin.describe_configs([&one], &options).await;
        // Its thread ends within a tenth of a second; nobody need wait for it.
        tokio::task::spawn_blocking(move || drop(admin));
        let described = described.map_err(|error| self.unavailable(plain(error)))?;
        let one = described.into_iter().next();
        let one = one.ok_or_else(|| unavailable("Kafka described nothing".to_owned()))?;
        let one = one.map_err(|code| self.unavailable(coded(code)))?;
        if one.entries.is_empty() {
            // So librdkafka's wrapper tells a denial; everything that there is has settings.
            let of = one.specifier;
            let reason = format!("Kafka denies this client the right DescribeConfigs of {of:?}");
            return Err(unavailable(reason));
        }
        let entries = one.entries.into_iter();
        Ok(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect())
    }

    /// Asks until there is an answer, or time is up, or the answer is no.
    fn again<T>(
        &self,
        ask: impl Fn(&Client<Context>, Duration) -> Result<T, Failed>,
    ) -> Result<T, ReadError> {
        self.tried(ask).map_err(|failed| self.unavailable(failed))
    }

    fn tried<T>(
        &self,
        ask: impl Fn(&Client<Context>, Duration) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let deadline = Instant::now() + self.settings.request_timeout;
        let client = self.client();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match ask(client.client(), left.max(AGAIN_AFTER)) {
                Ok(answer) => {
                    self.context.trouble.clear();
                    return Ok(answer);
                }
                Err((code, _)) if is_passing(code) && left > AGAIN_AFTER => {
                    thread::sleep(AGAIN_AFTER);
                }
                Err(failed) => {
                    if !is_answer(failed.0) {
                        self.retire(&client);
                    }
                    return Err(failed);
                }
            }
        }
    }

    fn unavailable(&self, (code, text): Failed) -> ReadError {
        let reason = words(code, &self.settings.topic);
        let reason = if text.is_empty() || reason.contains(&text) {
            reason
        } else {
            format!("{reason}: {text}")
        };
        ReadError::Unavailable { reason: self.context.trouble.explain(reason) }
    }
}

/// Runs `ask` where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    let asked = tokio::task::spawn_blocking(ask).await;
    asked.unwrap_or_else(|error| Err(ReadError::Unavailable { reason: error.to_string() }))
}

/// An offset of Kafka's that is one.
pub(crate) fn offset(offset: i64) -> Offset {
    Offset(u64::try_from(offset).unwrap_or_default())
}

fn plain(error: KafkaError) -> Failed {
    match error.rdkafka_error_code() {
        Some(code) => (code, String::new()),
        None => (RDKafkaErrorCode::Fail, error.to_string()),
    }
}

fn coded(code: RDKafkaErrorCode) -> Failed {
    (code, String::new())
}

fn asker(settings: &KafkaSettings, context: &Context) -> Result<Asker, SettingsError> {
    Polled::new(&settings.client_config()?, context.clone())
}

/// Whether a broker said so, just now.
fn is_answer(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::UnknownTopicOrPartition
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
    )
}

/// Whether the same question may have an answer in a moment.
fn is_passing(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::ReplicaNotAvailable
            | Code::BrokerTransportFailure
            | Code::NetworkException
            | Code::CoordinatorLoadInProgress
            | Code::UnknownLeaderEpoch
            | Code::FencedLeaderEpoch
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_an_answer_is_given_up() {
        // Nobody listens at port 1.
        let mut settings = KafkaSettings::new("127.0.0.1:1", "t");
        settings.request_timeout = Duration::from_millis(200);
        let asking = Asking::new(Arc::new(settings)).expect("settings");
        let first = asking.client();
        asking.topic_id().expect_err("nobody answers");
        assert!(!Arc::ptr_eq(&first, &asking.client()));
    }
}
