//! Creates and describes topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headwater_event::{Partition, TopicId};
use headwater_log::{Bounds, ReadError};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::plan::TopicPlan;
use crate::client::{ClientContext, describe as describe_code};
use crate::cluster::{ClusterClient, blocking};
use crate::settings::{KafkaSettings, SettingsError};
use crate::topic_config::{ConfigValues, PartitionAssignment};

/// The wait before a broker that does not know a new topic is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id, which changes when it is deleted and created again.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: u32,
    /// The fewest replicas that any of its partitions has.
    pub replicas: u32,
    /// The brokers of each partition.
    pub assignments: BTreeMap<Partition, PartitionAssignment>,
    /// Its settings, with the broker's defaults.
    pub config: ConfigValues,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: i32,
    /// Its settings, with the defaults.
    pub config: ConfigValues,
}

/// Why a topic was not created or cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The topic exists already. It is not changed.
    #[error("the topic {topic} exists already: `headwater topics check` checks whether it is safe")]
    Exists {
        /// Its name.
        topic: String,
    },
    /// The topic does not exist.
    #[error("there is no topic {topic}: create it with `headwater topics create`")]
    Missing {
        /// Its name.
        topic: String,
    },
    /// Kafka refused to create it.
    #[error("Kafka refused to create the topic {topic}: {reason}")]
    Refused {
        /// Its name.
        topic: String,
        /// Kafka's reason.
        reason: String,
    },
    /// Kafka did not describe the topic.
    #[error("Kafka did not describe the topic {topic}")]
    Unavailable {
        /// Its name.
        topic: String,
        /// Why.
        source: ReadError,
    },
    /// Kafka did not describe its brokers.
    #[error("Kafka did not describe its brokers")]
    Brokers(#[source] ReadError),
}

/// Creates the topic of `settings` by `plan`. When this returns `Ok`, Kafka has the topic, and the
/// broker that answers knows a leader of each partition, unless that takes longer than the request
/// timeout.
///
/// # Errors
/// See [`TopicError`]; [`TopicError::Exists`] among others.
pub async fn create(settings: &KafkaSettings, plan: &TopicPlan) -> Result<(), TopicError> {
    let topic = settings.topic.clone();
    let refused = |reason: String| TopicError::Refused { topic: topic.clone(), reason };
    let admin: AdminClient<ClientContext> =
        AdminClient::from_config_and_context(&settings.client_config()?, ClientContext::default())
            .map_err(|error: KafkaError| refused(error.to_string()))?;
    let partitions = i32::try_from(plan.partitions).unwrap_or(i32::MAX);
    let replicas = TopicReplication::Fixed(i32::try_from(plan.replicas).unwrap_or(i32::MAX));
    let config = plan.settings();
    let mut new = NewTopic::new(&settings.topic, partitions, replicas);
    for (name, value) in &config {
        new = new.set(name, value);
    }
    let options = AdminOptions::new()
        .request_timeout(Some(settings.request_timeout))
        .operation_timeout(Some(settings.request_timeout));
    let created = admin.create_topics([&new], &options).await;
    tokio::task::spawn_blocking(move || drop(admin));
    let created = created.map_err(|error| refused(error.to_string()))?;
    match created.into_iter().next() {
        Some(Ok(_)) => {
            wait_until_known(settings).await;
            Ok(())
        }
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
            Err(TopicError::Exists { topic: topic.clone() })
        }
        Some(Err((_, code))) => Err(refused(describe_code(code, &settings.topic))),
        None => Err(refused("Kafka sent no answer".to_owned())),
    }
}

/// Waits until a new topic can be used: brokers learn of it one after the other, and one that does
/// not know it yet denies that it exists. Other errors are left to the topic's users.
async fn wait_until_known(settings: &KafkaSettings) {
    let Ok(cluster) = ClusterClient::new(Arc::new(settings.clone())) else { return };
    let deadline = Instant::now() + settings.request_timeout;
    let known = blocking(move || {
        loop {
            let is_known = cluster.find_topic_id()?.is_some()
                && cluster
                    .assignments()
                    .is_ok_and(|all| all.values().all(|one| one.leader.is_some()));
            if is_known || Instant::now() > deadline {
                return Ok(is_known);
            }
            thread::sleep(RETRY_AFTER);
        }
    });
    match known.await {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(topic = settings.topic, "brokers do not know the new topic yet")
        }
        Err(error) => {
            tracing::debug!(%error, topic = settings.topic, "the new topic cannot be looked up")
        }
    }
}

/// Describes the topic of `settings`.
///
/// # Errors
/// [`TopicError::Missing`]: it does not exist. [`TopicError::Unavailable`]: Kafka cannot be reached,
/// or denies the request.
pub async fn describe(settings: &KafkaSettings) -> Result<Topic, TopicError> {
    let name = settings.topic.clone();
    let unavailable = |source| TopicError::Unavailable { topic: name.clone(), source };
    let cluster = Arc::new(ClusterClient::new(Arc::new(settings.clone()))?);
    let client = cluster.clone();
    let found = blocking(move || match client.find_topic_id()? {
        Some(id) => Ok(Some((id, client.assignments()?))),
        None => Ok(None),
    });
    let found = found.await.map_err(unavailable)?;
    let (id, assignments) = found.ok_or_else(|| TopicError::Missing { topic: name.clone() })?;
    let config = cluster.config().await.map_err(unavailable)?;
    let fewest = assignments.values().map(|place| place.replicas.len()).min().unwrap_or_default();
    Ok(Topic {
        name: name.clone(),
        id,
        partitions: u32::try_from(assignments.len()).unwrap_or(u32::MAX),
        replicas: u32::try_from(fewest).unwrap_or(u32::MAX),
        assignments,
        config,
    })
}

/// The readable offsets of each partition of the topic of `settings`.
///
/// # Errors
/// [`TopicError::Unavailable`]: the topic does not exist, or Kafka cannot be reached.
pub async fn offsets(settings: &KafkaSettings) -> Result<BTreeMap<Partition, Bounds>, TopicError> {
    let cluster = ClusterClient::new(Arc::new(settings.clone()))?;
    let bounds = blocking(move || {
        let partitions: Vec<Partition> = (0..cluster.partitions()?).map(Partition).collect();
        cluster.bounds_of_all(&partitions)
    });
    let unavailable = |source| TopicError::Unavailable { topic: settings.topic.clone(), source };
    bounds.await.map_err(unavailable)
}

/// Describes the brokers of the cluster. It needs a right that not every client has: to describe
/// the settings of the cluster.
///
/// # Errors
/// [`TopicError::Brokers`]: Kafka denies the request, or cannot be reached.
pub async fn brokers(settings: &KafkaSettings) -> Result<Vec<Broker>, TopicError> {
    let cluster = Arc::new(ClusterClient::new(Arc::new(settings.clone()))?);
    let client = cluster.clone();
    let ids = blocking(move || client.brokers()).await.map_err(TopicError::Brokers)?;
    let mut brokers = Vec::new();
    for id in ids {
        let config = cluster.config_of(ResourceSpecifier::Broker(id)).await;
        brokers.push(Broker { id, config: config.map_err(TopicError::Brokers)? });
    }
    Ok(brokers)
}
