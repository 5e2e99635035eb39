//! Requests to the cluster about the topic, each answered in bounded time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_event::{Offset, Partition, TopicId};
use headwater_log::{Bounds, Description, ReadError};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::Client;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::time::Interval;

use crate::RECORD_OVERHEAD_BYTES;
use crate::answer_clock::{AnswerClock, PendingRequest};
use crate::client::{ClientContext, RequestClient, describe, is_answer};
use crate::native::{self, Failure, coded, offset, plain};
use crate::settings::{KafkaSettings, SettingsError};
use crate::topic_checks::TopicChecks;
use crate::topic_config::{
    ConfigValues, MAX_MESSAGE_BYTES, MIN_COMPACTION_LAG_MS, PartitionAssignment,
};

/// Sends requests about the topic.
pub(crate) struct ClusterClient {
    settings: Arc<KafkaSettings>,
    clock: AnswerClock,
    requests: Arc<RequestClient>,
    checks: Arc<TopicChecks>,
}

impl ClusterClient {
    pub(crate) fn new(settings: Arc<KafkaSettings>) -> Result<Self, SettingsError> {
        let requests = Arc::new(RequestClient::new(settings.clone())?);
        let checks = Arc::new(TopicChecks::new(&settings.topic));
        Ok(Self { settings, clock: AnswerClock::default(), requests, checks })
    }

    /// Sends requests about the topic of `settings` with the client of this one. The brokers and the security of the
    /// settings are those of this one.
    pub(crate) fn beside(&self, settings: Arc<KafkaSettings>) -> Self {
        self.checks.add(&settings.topic);
        let (requests, checks) = (self.requests.clone(), self.checks.clone());
        Self { settings, clock: AnswerClock::default(), requests, checks }
    }

    /// What is asked of the brokers.
    pub(crate) fn clock(&self) -> &AnswerClock {
        &self.clock
    }

    /// The id of the topic; blocks.
    pub(crate) fn topic_id(&self) -> Result<TopicId, ReadError> {
        self.find_topic().map_err(|failed| self.unavailable(failed))
    }

    /// The id of the topic; `None`: it does not exist. Blocks.
    pub(crate) fn find_topic_id(&self) -> Result<Option<TopicId>, ReadError> {
        use RDKafkaErrorCode as Code;
        match self.find_topic() {
            Ok(id) => Ok(Some(id)),
            Err((Code::UnknownTopicOrPartition | Code::UnknownTopic, _)) => Ok(None),
            Err(failed) => Err(self.unavailable(failed)),
        }
    }

    fn find_topic(&self) -> Result<TopicId, Failure> {
        let topic = &self.settings.topic;
        self.request(|client, wait| native::topic_id(client, topic, wait))
    }

    /// The times at which to [check](Self::check_topic), the same for every topic that shares the client.
    pub(crate) fn check_times(&self) -> Interval {
        self.checks.times(self.settings.topic_check_interval)
    }

    /// The id of the topic, by a request that was sent at `time` or later. The checks of all topics that share the
    /// client, at one time, are one request. The next check repeats one that failed for a topic alone.
    pub(crate) async fn check_topic(
        &self,
        time: tokio::time::Instant,
    ) -> Result<TopicId, ReadError> {
        let pending = self.clock.begin_request(Instant::now());
        let requests = self.requests.clone();
        let request = |topics: Vec<String>| {
            let ask = move |client: &Client<_>, wait| native::topic_ids(client, &topics, wait);
            tokio::task::spawn_blocking(move || requests.request(ask))
        };
        let id = self.checks.id(&self.settings.topic, time, request).await;
        end(pending, id.as_ref().err());
        id.map_err(|failed| self.unavailable(failed))
    }

    /// How many partitions the topic has; blocks.
    pub(crate) fn partitions(&self) -> Result<u32, ReadError> {
        Ok(u32::try_from(self.assignments()?.len()).unwrap_or(u32::MAX))
    }

    /// The brokers of each partition of the topic; blocks.
    pub(crate) fn assignments(
        &self,
    ) -> Result<BTreeMap<Partition, PartitionAssignment>, ReadError> {
        let topic = self.settings.topic.as_str();
        self.fetch(|client, wait| {
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

    /// The readable offsets of `partition`, which exists; blocks.
    pub(crate) fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        let bounds = self.bounds_of_all(&[partition])?;
        bounds.get(&partition).copied().ok_or(ReadError::NoPartition { partition })
    }

    /// The readable offsets of `partitions`, all of which exist; blocks.
    ///
    /// # Errors
    /// One of them has no leader, or none that answers in time.
    pub(crate) fn bounds_of_all(
        &self,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, Bounds>, ReadError> {
        let lows = self.offsets_of_all(rdkafka::Offset::Beginning, partitions)?;
        let highs = self.offsets_of_all(rdkafka::Offset::End, partitions)?;
        let bounds = lows.into_iter().map(|(partition, low)| {
            let high = highs.get(&partition).ok_or(ReadError::NoPartition { partition })?;
            Ok((partition, Bounds { low, high: *high }))
        });
        bounds.collect()
    }

    fn offsets_of_all(
        &self,
        place: rdkafka::Offset,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, Offset>, ReadError> {
        self.fetch(|client, wait| {
            let found = self.offsets_at(client, wait, place, partitions)?;
            let whole = found.into_iter().map(|(partition, found)| match found {
                Ok(at) => Ok((partition, at)),
                // The client knows of no leader: to repeat the request at once changes nothing.
                Err((RDKafkaErrorCode::LeaderNotAvailable, _)) => {
                    let text = format!("partition {partition} has no leader");
                    Err((RDKafkaErrorCode::UnknownPartition, text))
                }
                Err(failed) => Err(failed),
            });
            whole.collect()
        })
    }

    /// The ends of those of `partitions` that have a leader; blocks.
    ///
    /// # Errors
    /// A leader does not answer in time, or none of them has a leader.
    pub(crate) fn ends(
        &self,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, Offset>, ReadError> {
        let found = self.fetch(|client, wait| {
            self.offsets_at(client, wait, rdkafka::Offset::End, partitions)
        })?;
        Ok(found.into_iter().filter_map(|(partition, end)| Some((partition, end.ok()?))).collect())
    }

    fn offsets_at(
        &self,
        client: &Client<ClientContext>,
        wait: Duration,
        place: rdkafka::Offset,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, Result<Offset, Failure>>, Failure> {
        // librdkafka refuses an empty list.
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let topic = self.settings.topic.as_str();
        let number = |partition: &Partition| i32::try_from(partition.0).unwrap_or(i32::MAX);
        let numbers: Vec<i32> = partitions.iter().map(number).collect();
        let found = native::offsets_at(client, topic, &numbers, place, wait)?;
        let partition = |number| Partition(u32::try_from(number).unwrap_or_default());
        Ok(found.into_iter().map(|(number, at)| (partition(number), at.map(offset))).collect())
    }

    /// Describes the topic.
    pub(crate) async fn describe(self: &Arc<Self>) -> Result<Description, ReadError> {
        let this = self.clone();
        let (topic, partitions) =
            blocking(move || Ok((this.topic_id()?, this.partitions()?))).await?;
        let config = self.config().await?;
        let number = |name: &str| config.get(name).and_then(|value| value.parse::<u64>().ok());
        let bytes_max = number(MAX_MESSAGE_BYTES).unwrap_or_default();
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Ok(Description {
            topic,
            partitions,
            record_bytes_max: bytes_max.saturating_sub(RECORD_OVERHEAD_BYTES),
            replay_window_ms: number(MIN_COMPACTION_LAG_MS).unwrap_or_default(),
            position_partitions: 0,
            position_topic: topic,
        })
    }

    /// The ids of the brokers of the cluster; blocks.
    pub(crate) fn brokers(&self) -> Result<Vec<i32>, ReadError> {
        // The metadata of one topic has the brokers too, and needs no right to the topic.
        let topic = self.settings.topic.as_str();
        self.fetch(|client, wait| {
            let metadata = client.fetch_metadata(Some(topic), wait).map_err(plain)?;
            Ok(metadata.brokers().iter().map(|broker| broker.id()).collect())
        })
    }

    /// The topic's settings, by Kafka's names.
    pub(crate) async fn config(&self) -> Result<ConfigValues, ReadError> {
        self.config_of(ResourceSpecifier::Topic(&self.settings.topic)).await
    }

    /// The settings of a topic or a broker, by Kafka's names.
    pub(crate) async fn config_of(
        &self,
        one: ResourceSpecifier<'_>,
    ) -> Result<ConfigValues, ReadError> {
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let config =
            self.settings.client_config().map_err(|error| unavailable(error.to_string()))?;
        let admin = AdminClient::from_config_and_context(&config, self.requests.context().clone())
            .map_err(|error: KafkaError| unavailable(error.to_string()))?;
        let options = AdminOptions::new().request_timeout(Some(self.settings.request_timeout));
        let described = admin.describe_configs([&one], &options).await;
        // Its thread ends within a tenth of a second; dropping it waits for that.
        tokio::task::spawn_blocking(move || drop(admin));
        let described = described.map_err(|error| self.unavailable(plain(error)))?;
        let one = described.into_iter().next();
        let one = one.ok_or_else(|| unavailable("Kafka sent no description".to_owned()))?;
        let one = one.map_err(|code| self.unavailable(coded(code)))?;
        if one.entries.is_empty() {
            // This is how rdkafka reports a denial: everything that exists has settings.
            let of = one.specifier;
            let reason = format!("Kafka denies this client the right DescribeConfigs of {of:?}");
            return Err(unavailable(reason));
        }
        let entries = one.entries.into_iter();
        Ok(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect())
    }

    /// As [`Self::request`], for callers that report the failure.
    fn fetch<T>(
        &self,
        ask: impl Fn(&Client<ClientContext>, Duration) -> Result<T, Failure>,
    ) -> Result<T, ReadError> {
        self.request(ask).map_err(|failed| self.unavailable(failed))
    }

    /// As [`RequestClient::request`], and the clock measures it.
    fn request<T>(
        &self,
        ask: impl Fn(&Client<ClientContext>, Duration) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let pending = self.clock.begin_request(Instant::now());
        let result = self.requests.request(ask);
        end(pending, result.as_ref().err());
        result
    }

    fn unavailable(&self, (code, text): Failure) -> ReadError {
        let reason = describe(code, &self.settings.topic);
        let reason = if text.is_empty() || reason.contains(&text) {
            reason
        } else {
            format!("{reason}: {text}")
        };
        ReadError::Unavailable { reason: self.requests.context().last_error.explain(reason) }
    }
}

/// Runs `ask` on the blocking thread pool.
pub(crate) async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    let asked = tokio::task::spawn_blocking(ask).await;
    asked.unwrap_or_else(|error| Err(ReadError::Unavailable { reason: error.to_string() }))
}

/// A request has its result. An error may be the answer of a broker.
fn end(pending: PendingRequest<'_>, failure: Option<&Failure>) {
    let now = Instant::now();
    match failure {
        Some((code, _)) if !is_answer(*code) => pending.failed(now),
        _ => pending.answered(now),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;

    use super::*;

    #[test]
    fn a_client_without_an_answer_is_replaced() {
        // No process listens at port 1.
        let mut settings = KafkaSettings::new("127.0.0.1:1", "t");
        settings.request_timeout = Duration::from_millis(200);
        let cluster = ClusterClient::new(Arc::new(settings)).expect("settings");
        let other = cluster.beside(Arc::new(KafkaSettings::new("127.0.0.1:1", "u")));
        let first = cluster.requests.client();
        cluster.topic_id().expect_err("no answer");
        assert!(!Arc::ptr_eq(&first, &cluster.requests.client()));
        // A request about another topic needs a client that works, too.
        assert!(!Arc::ptr_eq(&first, &other.requests.client()));
        let silence = cluster.clock().waits(Instant::now()).expect("no broker has answered");
        assert!(silence >= Duration::from_millis(100), "{silence:?}");
    }

    #[test]
    fn a_partition_without_a_leader_keeps_no_other_ones_end_back() {
        let mock = MockCluster::new(2).expect("a cluster");
        mock.create_topic("t", 3, 1).expect("a topic");
        mock.partition_leader("t", 1, None).expect("no leader");
        let settings = KafkaSettings::new(mock.bootstrap_servers(), "t");
        let within = settings.request_timeout / 2;
        let cluster = ClusterClient::new(Arc::new(settings)).expect("settings");
        let all = [Partition(0), Partition(1), Partition(2)];
        let ends = cluster.ends(&all).expect("an answer");
        assert_eq!(ends, [(Partition(0), Offset(0)), (Partition(2), Offset(0))].into());
        let began = Instant::now();
        let error = cluster.bounds_of_all(&all).expect_err("one has no leader").to_string();
        assert!(error.contains("partition 1 has no leader"), "{error}");
        assert!(began.elapsed() < within, "{:?}", began.elapsed());
        assert_eq!(cluster.ends(&[]).expect("no request"), BTreeMap::new());
    }
}
