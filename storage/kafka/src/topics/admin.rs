//! Making topics, and asking what they are like.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headwater_event::{Partition, TopicId};
use headwater_log::{Bounds, ReadError};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::{ConfigValues, TopicPlan};
use crate::asking::{Asking, blocking};
use crate::clients::{Context, words};
use crate::settings::{KafkaSettings, SettingsError};

/// The wait before a broker is asked again that does not know a topic yet.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A topic as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id: another one after it was deleted and made again.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: u32,
    /// The fewest replicas that any of its partitions has.
    pub replicas: u32,
    /// Who has each partition just now.
    pub assignments: BTreeMap<Partition, PartitionAssignment>,
    /// Its settings, those that are the broker's defaults included.
    pub config: ConfigValues,
}

/// Who has a partition, by the ids of brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAssignment {
    /// Whom it is written to; none while there is no leader.
    pub leader: Option<i32>,
    /// Who is to have it.
    pub replicas: Vec<i32>,
    /// Who has all of it.
    pub in_sync: Vec<i32>,
}

/// A broker as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: i32,
    /// Its settings, defaults included.
    pub config: ConfigValues,
}

/// Why a topic was not made or cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There is one of that name. It is left as it is.
    #[error("the topic {topic} is there already: `headwater topics check` says whether it is safe")]
    Exists {
        /// Its name.
        topic: String,
    },
    /// There is none.
    #[error("there is no topic {topic}: make it with `headwater topics create`")]
    Missing {
        /// Its name.
        topic: String,
    },
    /// Kafka does not make it.
    #[error("Kafka does not make the topic {topic}: {reason}")]
    Refused {
        /// Its name.
        topic: String,
        /// What Kafka says.
        reason: String,
    },
    /// Kafka cannot be asked.
    #[error("Kafka cannot be asked about the topic {topic}")]
    Unavailable {
        /// Its name.
        topic: String,
        /// What happened.
        source: ReadError,
    },
    /// Kafka does not say what its brokers are like.
    #[error("Kafka cannot be asked about its brokers")]
    Brokers(#[source] ReadError),
}

/// Makes the topic of `settings` by `plan`. When this returns `Ok`, Kafka has it, and the broker that
/// answers names a leader for each of its partitions, unless it does not come to know them within
/// the time for a request.
///
/// # Errors
/// [`TopicError::Exists`] where there is one, and the others.
pub async fn create(settings: &KafkaSettings, plan: &TopicPlan) -> Result<(), TopicError> {
    let topic = settings.topic.clone();
    let refused = |reason: String| TopicError::Refused { topic: topic.clone(), reason };
    let admin: AdminClient<Context> =
        AdminClient::from_config_and_context(&settings.client_config()?, Context::default())
            .map_err(|error: KafkaError| refused(error.to_string()))?;
    let partitions = i32::try_from(plan.partitions).unwrap_or(i32::MAX);
    let replicas = TopicReplication::Fixed(i32::try_from(plan.replicas).unwrap_or(i32::MAX));
    let configured = plan.settings();
    let mut new = NewTopic::new(&settings.topic, partitions, replicas);
    for (name, value) in &configured {
        new = new.set(name, value);
    }
    let options = AdminOptions::new()
        .request_timeout(Some(settings.request_timeout))
        .operation_timeout(Some(settings.request_timeout));
    let made = admin.create_topics([&new], &options).await;
    tokio::task::spawn_blocking(move || drop(admin));
    let made = made.map_err(|error| refused(error.to_string()))?;
    match made.into_iter().next() {
        Some(Ok(_)) => {
            wait_until_known(settings).await;
            Ok(())
        }
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
            Err(TopicError::Exists { topic: topic.clone() })
        }
        Some(Err((_, code))) => Err(refused(words(code, &settings.topic))),
        None => Err(refused("Kafka gave no answer".to_owned())),
    }
}

/// Waits until a topic that was just made can be used: brokers learn of it one after the other, and
/// who asks one too early is told that there is none. Whatever else is wrong, it is made, and whoever
/// uses it finds out.
async fn wait_until_known(settings: &KafkaSettings) {
    let Ok(asking) = Asking::new(Arc::new(settings.clone())) else { return };
    let deadline = Instant::now() + settings.request_timeout;
    let known = blocking(move || {
        loop {
            let is_known = asking.topic_id_if_any()?.is_some()
                && asking
                    .assignments()
                    .is_ok_and(|all| all.values().all(|one| one.leader.is_some()));
            if is_known || Instant::now() > deadline {
                return Ok(is_known);
            }
            thread::sleep(AGAIN_AFTER);
        }
    });
    match known.await {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(topic = settings.topic, "brokers do not know the new topic yet")
        }
        Err(error) => tracing::debug!(%error, topic = settings.topic, "the new topic is not seen"),
    }
}

/// The topic of `settings` as it is.
///
/// # Errors
/// [`TopicError::Missing`] where there is none, [`TopicError::Unavailable`] where Kafka cannot be
/// reached or denies it.
pub async fn describe(settings: &KafkaSettings) -> Result<Topic, TopicError> {
    let name = settings.topic.clone();
    let asked = |source| TopicError::Unavailable { topic: name.clone(), source };
    let asking = Arc::new(Asking::new(Arc::new(settings.clone()))?);
    let question = asking.clone();
    let found = blocking(move || match question.topic_id_if_any()? {
        Some(id) => Ok(Some((id, question.assignments()?))),
        None => Ok(None),
    });
    let found = found.await.map_err(asked)?;
    let (id, assignments) = found.ok_or_else(|| TopicError::Missing { topic: name.clone() })?;
    let config = asking.configured().await.map_err(asked)?;
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

/// What can be read of each partition of the topic of `settings`.
///
/// # Errors
/// [`TopicError::Unavailable`] where there is none, or Kafka cannot be reached.
pub async fn offsets(settings: &KafkaSettings) -> Result<BTreeMap<Partition, Bounds>, TopicError> {
    let asking = Asking::new(Arc::new(settings.clone()))?;
    let bounds = blocking(move || {
        let partitions = asking.partitions()?;
        (0..partitions).map(Partition).map(|one| Ok((one, asking.bounds(one)?))).collect()
    });
    let asked = |source| TopicError::Unavailable { topic: settings.topic.clone(), source };
    bounds.await.map_err(asked)
}

/// The brokers of the cluster as they are. It takes a right that not every client has: to
/// describe the settings of the cluster.
///
/// # Errors
/// [`TopicError::Brokers`] where Kafka denies it or cannot be reached.
pub async fn brokers(settings: &KafkaSettings) -> Result<Vec<Broker>, TopicError> {
    let asking = Arc::new(Asking::new(Arc::new(settings.clone()))?);
    let question = asking.clone();
    let ids = blocking(move || question.brokers()).await.map_err(TopicError::Brokers)?;
    let mut brokers = Vec::new();
    for id in ids {
        let configured = asking.configured_of(ResourceSpecifier::Broker(id)).await;
        brokers.push(Broker { id, config: configured.map_err(TopicError::Brokers)? });
    }
    Ok(brokers)
}
