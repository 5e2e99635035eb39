//! What librdkafka's clients say while they run: into the log, and kept for the next error.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{NoCustomPartitioner, ProducerContext};

use crate::metrics::Counts;
use crate::producing::Delivery;

/// The last thing that went wrong on the way to a broker: a refused certificate or a wrong
/// password shows nowhere else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(crate) fn note(&self, words: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(words.to_owned());
    }

    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// `reason`, and what went wrong on the way where something did.
    pub(crate) fn explain(&self, reason: impl Into<String>) -> String {
        let reason = reason.into();
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(trouble) if !reason.contains(trouble.as_str()) => format!("{reason} ({trouble})"),
            _ => reason,
        }
    }
}

/// What every client of ours is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) trouble: Trouble,
    /// None where nobody counts.
    pub(crate) counts: Option<Arc<Counts>>,
}

impl Context {
    /// For a client whose broken connections are counted.
    pub(crate) fn counted(counts: Option<Arc<Counts>>) -> Self {
        Self { trouble: Trouble::default(), counts }
    }

    /// What a client said is wrong, if it is a connection.
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

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, words: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(target: "librdkafka", facility, "{words}");
            }
            _ => tracing::debug!(target: "librdkafka", facility, "{words}"),
        }
    }

    fn error(&self, error: KafkaError, words: &str) {
        tracing::debug!(target: "librdkafka", %error, "{words}");
        if let Some(code) = error.rdkafka_error_code() {
            self.count(code);
        }
        // That all of them are down says less than why one of them is.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            self.trouble.note(words);
        }
    }
}

impl ConsumerContext for Context {}

impl ProducerContext<NoCustomPartitioner> for Context {
    type DeliveryOpaque = Box<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Box<Delivery>) {
        delivery.done(result);
    }
}

/// What `code` means to a person, where its own name says too little.
pub(crate) fn words(code: RDKafkaErrorCode, topic: &str) -> String {
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
            "the cluster has fewer brokers than kafka.topic.replication.factor says (3 unless told; \
             `--replication-factor 1` is for development)"
                .to_owned()
        }
        Code::OperationTimedOut | Code::RequestTimedOut | Code::MessageTimedOut => {
            "Kafka did not answer in time".to_owned()
        }
        Code::BrokerTransportFailure | Code::AllBrokersDown => "Kafka cannot be reached".to_owned(),
        code => code.to_string(),
    }
}
