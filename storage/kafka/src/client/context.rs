//! What librdkafka reports of a client while it runs: logged, and kept for the next error.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::client;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{NoCustomPartitioner, ProducerContext};

use super::delivery::Delivery;
use crate::metrics::Counts;

/// The last error on the way to a broker. A refused certificate or a wrong password is reported
/// nowhere else.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastError(Arc<Mutex<Option<String>>>);

impl LastError {
    pub(crate) fn set(&self, text: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
    }

    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns `reason`, with the last error if there is one.
    pub(crate) fn explain(&self, reason: impl Into<String>) -> String {
        let reason = reason.into();
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) if !reason.contains(error.as_str()) => format!("{reason} ({error})"),
            _ => reason,
        }
    }
}

/// The context of each client.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientContext {
    pub(crate) last_error: LastError,
    /// None: failed connections are not counted.
    pub(crate) counts: Option<Arc<Counts>>,
}

impl ClientContext {
    /// A context that counts failed connections in `counts`.
    pub(crate) fn new(counts: Option<Arc<Counts>>) -> Self {
        Self { last_error: LastError::default(), counts }
    }

    /// Counts an error if it is that of a connection.
    pub(crate) fn count(&self, code: RDKafkaErrorCode) {
        use RDKafkaErrorCode as Code;
        let is_connection = matches!(
            code,
            Code::BrokerTransportFailure | Code::Resolve | Code::SSL | Code::Authentication
        );
        if let Some(counts) = self.counts.as_ref().filter(|_| is_connection) {
            counts.connection_failed();
        }
    }
}

impl client::ClientContext for ClientContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(target: "librdkafka", facility, "{text}");
            }
            _ => tracing::debug!(target: "librdkafka", facility, "{text}"),
        }
    }

    fn error(&self, error: KafkaError, text: &str) {
        tracing::debug!(target: "librdkafka", %error, "{text}");
        if let Some(code) = error.rdkafka_error_code() {
            self.count(code);
        }
        // "All brokers down" says less than why one of them is.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            self.last_error.set(text);
        }
    }
}

impl ConsumerContext for ClientContext {}

impl ProducerContext<NoCustomPartitioner> for ClientContext {
    type DeliveryOpaque = Box<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Box<Delivery>) {
        delivery.done(result);
    }
}

/// Describes `code` to a person, where its own name says too little.
pub(crate) fn describe(code: RDKafkaErrorCode, topic: &str) -> String {
    use RDKafkaErrorCode as Code;
    match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic => {
            format!("there is no topic {topic}: make it with `headwater topics create`")
        }
        Code::TopicAuthorizationFailed => {
            format!("Kafka denies this client a right to the topic {topic} that it needs")
        }
        Code::ClusterAuthorizationFailed => {
            "Kafka denies this client a right to the cluster (to write idempotently, to make \
             topics, or to describe brokers)"
                .to_owned()
        }
        Code::GroupAuthorizationFailed => {
            "Kafka denies this client the right to its group's name".to_owned()
        }
        Code::SaslAuthenticationFailed | Code::Authentication => {
            "Kafka does not accept this client's user or password".to_owned()
        }
        Code::SSL => "the TLS connection to Kafka cannot be made".to_owned(),
        Code::MessageSizeTooLarge => {
            format!("the record is larger than the topic {topic} takes (its max.message.bytes)")
        }
        Code::InvalidReplicationFactor => {
            "the cluster has fewer brokers than kafka.topic.replication.factor (default 3; use \
             `--replication-factor 1` for development)"
                .to_owned()
        }
        Code::OperationTimedOut | Code::RequestTimedOut | Code::MessageTimedOut => {
            "Kafka did not answer in time".to_owned()
        }
        Code::BrokerTransportFailure | Code::AllBrokersDown => "Kafka cannot be reached".to_owned(),
        code => code.to_string(),
    }
}
