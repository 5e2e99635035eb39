//! The client that requests are sent with.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::Producer;

use super::background_producer::BackgroundProducer;
use super::context::ClientContext;
use crate::native::Failure;
use crate::settings::{KafkaSettings, SettingsError};

/// The wait before a request is repeated that a broker could not answer: partitions of a new topic
/// have no leader for some tens of milliseconds.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// The client that requests are sent with, for any number of topics of a cluster: each client has four threads
/// and a connection to each broker.
pub(crate) struct RequestClient {
    /// The settings of the first topic. No request depends on a setting that differs between topics.
    settings: Arc<KafkaSettings>,
    context: ClientContext,
    /// Appends nothing. A producer is the only client with a thread that receives the errors of
    /// its connections.
    client: Mutex<Arc<BackgroundProducer>>,
}

impl RequestClient {
    pub(crate) fn new(settings: Arc<KafkaSettings>) -> Result<Self, SettingsError> {
        let context = ClientContext::default();
        let client = Mutex::new(Arc::new(new_client(&settings, &context)?));
        Ok(Self { settings, context, client })
    }

    /// The context of the client, which has its last error.
    pub(crate) fn context(&self) -> &ClientContext {
        &self.context
    }

    /// Repeats `ask` until it succeeds, fails for good, or the request timeout is over; blocks.
    pub(crate) fn request<T>(
        &self,
        ask: impl Fn(&Client<ClientContext>, Duration) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.settings.request_timeout;
        let client = self.client();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match ask(client.client(), left.max(RETRY_AFTER)) {
                Ok(answer) => {
                    self.context.last_error.clear();
                    return Ok(answer);
                }
                Err((code, _)) if is_transient(code) && left > RETRY_AFTER => {
                    thread::sleep(RETRY_AFTER);
                }
                Err(failed) => {
                    if !is_answer(failed.0) {
                        self.replace(&client);
                    }
                    return Err(failed);
                }
            }
        }
    }

    pub(crate) fn client(&self) -> Arc<BackgroundProducer> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces a client that got no answer. librdkafka keeps the last metadata that it received: a
    /// restarted broker names no brokers and no partitions for a moment, and a client that asked
    /// then never finds them again.
    fn replace(&self, used: &Arc<BackgroundProducer>) {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&client, used)
            && let Ok(another) = new_client(&self.settings, &self.context)
        {
            *client = Arc::new(another);
        }
    }
}

/// Whether the error is the answer of a broker.
pub(crate) fn is_answer(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::UnknownTopicOrPartition
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
    )
}

fn new_client(
    settings: &KafkaSettings,
    context: &ClientContext,
) -> Result<BackgroundProducer, SettingsError> {
    BackgroundProducer::new(&settings.client_config()?, context.clone())
}

/// Whether the same request may succeed in a moment.
fn is_transient(code: RDKafkaErrorCode) -> bool {
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
