//! The log on Kafka does what every log does, on a real broker.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use headwater_kafka::KafkaLog;
use headwater_log::Log;
use headwater_log::conformance::{Capability, Harness, Settings, Subject, check};

use crate::support::{Kafka, plan};

struct OnBroker(Arc<Kafka>);

struct OnTopic {
    kafka: Arc<Kafka>,
    topic: String,
    settings: Settings,
    log: Mutex<Arc<dyn Log>>,
}

impl OnTopic {
    fn open(kafka: &Kafka, topic: &str) -> Arc<dyn Log> {
        Arc::new(KafkaLog::new(kafka.impatient_settings(topic)).expect("good settings"))
    }

    fn hold(&self, log: Arc<dyn Log>) {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = log;
    }
}

#[async_trait]
impl Harness for OnBroker {
    fn capabilities(&self) -> &[Capability] {
        // Retention has a test of its own: what was read ahead of it is given out all the same.
        &[Capability::Reopen, Capability::Recreation, Capability::Outage]
    }

    async fn create(&self, settings: Settings) -> Box<dyn Subject> {
        let topic = self.0.make(&plan(&settings)).await;
        let log = Mutex::new(OnTopic::open(&self.0, &topic));
        Box::new(OnTopic { kafka: self.0.clone(), topic, settings, log })
    }
}

#[async_trait]
impl Subject for OnTopic {
    fn log(&self) -> Arc<dyn Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn reopen(&self) {
        self.hold(Self::open(&self.kafka, &self.topic));
    }

    async fn recreate(&self) {
        self.kafka.delete(&self.topic).await;
        self.kafka.make_named(&self.topic, &plan(&self.settings)).await;
        self.hold(Self::open(&self.kafka, &self.topic));
    }

    fn set_available(&self, available: bool) {
        self.kafka.set_answering(available);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_on_kafka_does_what_every_log_does() {
    let kafka = Arc::new(Kafka::start());
    check(&OnBroker(kafka)).await;
}
