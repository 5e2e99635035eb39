//! The log of a part of the cloud: two topics of Kafka's, looked at before anything relies on
//! them.

use std::time::Duration;

use headwater_kafka::KafkaMetrics;
use headwater_kafka::topics::{self, Direction, TopicError};
use headwater_operator::Logs;
use headwater_telemetry::error_chain;
use prometheus::Registry;

use crate::kafka::{Kafka, KafkaFault, KafkaTableError};

/// Between two tries to ask a Kafka that does not answer: a cluster that starts is found at once,
/// and one that is away for long is asked little.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why the log is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] KafkaTableError),
    /// A topic is missing, may lose data, or cannot be asked about.
    #[error(transparent)]
    Fault(#[from] KafkaFault),
    /// A topic that is missing cannot be made.
    #[error(transparent)]
    Make(#[from] TopicError),
    /// Two parts count under one name.
    #[error("the metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// Opens the log for the part of this name, unless it would lose data. A Kafka that cannot be asked
/// is waited for, aloud: it may start after its parts, as it may go away while they run.
///
/// # Errors
/// See [`LogError`].
pub(crate) async fn open_when_there(
    kafka: &Kafka,
    part: &str,
    registry: &Registry,
) -> Result<Logs, LogError> {
    let mut said = None;
    loop {
        let opened = open(kafka, part, registry).await;
        let Err(LogError::Fault(KafkaFault::Topic(TopicError::Unavailable { source, .. }))) =
            &opened
        else {
            if said.is_some() && opened.is_ok() {
                tracing::info!("Kafka answers");
            }
            return opened;
        };
        let why = error_chain(source);
        if said.as_ref() != Some(&why) {
            tracing::warn!(why, "Kafka cannot be asked about the topics: waiting for it");
            said = Some(why);
        }
        tokio::time::sleep(ASKED_AGAIN_AFTER).await;
    }
}

/// Opens the log for the part of this name, unless it would lose data.
///
/// # Errors
/// See [`LogError`].
async fn open(kafka: &Kafka, part: &str, registry: &Registry) -> Result<Logs, LogError> {
    kafka.refuse_unsafe().await?;
    let opened = kafka.open(part, &KafkaMetrics::new(registry)?)?;
    Ok(Logs { downstream: opened.downstream, upstream: opened.upstream })
}

/// As [`open`], for one person on one machine: topics that are missing are made, aloud.
///
/// # Errors
/// See [`LogError`].
pub(crate) async fn open_for_one(
    kafka: &Kafka,
    part: &str,
    registry: &Registry,
) -> Result<Logs, LogError> {
    for direction in [Direction::Downstream, Direction::Upstream] {
        let (settings, plan) = (kafka.settings(direction, part), kafka.plan(direction));
        match topics::create(&settings, &plan).await {
            Ok(()) => tracing::warn!(
                topic = %settings.topic, replicas = plan.replicas,
                "the topic was missing and was made; with one replica it is fit to try things"
            ),
            Err(TopicError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    open(kafka, part, registry).await
}
