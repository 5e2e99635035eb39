//! The logs of a part of the cloud: three topics of Kafka. They are checked before any use.

use std::time::Duration;

use headwater_kafka::KafkaMetrics;
use headwater_kafka::topics::{self, Direction, TopicError};
use headwater_operator::Logs;
use headwater_telemetry::error_chain;
use prometheus::Registry;

use crate::kafka::{Kafka, KafkaFault, KafkaTableError};

/// The wait between two requests to a Kafka that does not respond: short enough for a cluster that
/// starts, and long enough to cost little during an outage.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The reason why the log is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] KafkaTableError),
    /// A topic is missing or unsafe, or Kafka cannot be asked about it.
    #[error(transparent)]
    Fault(#[from] KafkaFault),
    /// A missing topic cannot be created.
    #[error(transparent)]
    Make(#[from] TopicError),
    /// A metric is registered twice.
    #[error("the metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// Opens the log for the part of this name, unless the log would lose data. While Kafka does not
/// respond, it logs that and waits: Kafka may start after its parts.
///
/// # Errors
/// See [`LogError`].
pub(crate) async fn open_when_reachable(
    kafka: &Kafka,
    part: &str,
    registry: &Registry,
) -> Result<Logs, LogError> {
    let mut logged = None;
    loop {
        let opened = open(kafka, part, registry).await;
        let Err(LogError::Fault(KafkaFault::Topic(TopicError::Unavailable { source, .. }))) =
            &opened
        else {
            if logged.is_some() && opened.is_ok() {
                tracing::info!("Kafka responds");
            }
            return opened;
        };
        let why = error_chain(source);
        if logged.as_ref() != Some(&why) {
            tracing::warn!(why, "Kafka does not respond; this part waits for it");
            logged = Some(why);
        }
        tokio::time::sleep(ASKED_AGAIN_AFTER).await;
    }
}

/// Opens the log for the part of this name, unless the log would lose data.
///
/// # Errors
/// See [`LogError`].
async fn open(kafka: &Kafka, part: &str, registry: &Registry) -> Result<Logs, LogError> {
    kafka.refuse_unsafe().await?;
    let opened = kafka.open(part, &KafkaMetrics::new(registry)?)?;
    Ok(Logs { downstream: opened.downstream, upstream: opened.upstream })
}

/// As [`open`], for one machine: creates missing topics, and logs that.
///
/// # Errors
/// See [`LogError`].
pub(crate) async fn open_for_one(
    kafka: &Kafka,
    part: &str,
    registry: &Registry,
) -> Result<Logs, LogError> {
    for direction in Direction::ALL {
        let (settings, plan) = (kafka.settings(direction, part), kafka.plan(direction));
        match topics::create(&settings, &plan).await {
            Ok(()) => tracing::warn!(
                topic = %settings.topic, replicas = plan.replicas,
                "the missing topic was created; one replica is enough for experiments only"
            ),
            Err(TopicError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    open(kafka, part, registry).await
}
