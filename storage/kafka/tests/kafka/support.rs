//! A broker of one test, and what is done to its topics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_broker::{Cluster, ClusterSettings};
use headwater_event::{Offset, Partition};
use headwater_kafka::topics::{self, Direction, TopicPlan};
use headwater_kafka::{KafkaSettings, RECORD_OVERHEAD_BYTES};
use headwater_log::conformance::Settings;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, TopicPartitionList};

/// How long Kafka may take for anything that it is asked to do.
const DEADLINE: Duration = Duration::from_secs(30);

/// How often it is looked at meanwhile.
const POLL: Duration = Duration::from_millis(20);

pub(crate) struct Kafka {
    cluster: Mutex<Cluster>,
    topics: AtomicU32,
}

impl Kafka {
    pub(crate) fn start() -> Self {
        Self::with(BTreeMap::new())
    }

    pub(crate) fn with(properties: BTreeMap<String, String>) -> Self {
        Self::of(ClusterSettings { properties, ..ClusterSettings::default() })
    }

    pub(crate) fn of(settings: ClusterSettings) -> Self {
        let cluster = Cluster::start(settings).expect("a broker");
        Self { cluster: Mutex::new(cluster), topics: AtomicU32::new(0) }
    }

    /// The waits of production, which a busy machine does not exceed. The topic is checked more often.
    pub(crate) fn settings(&self, topic: &str) -> KafkaSettings {
        KafkaSettings {
            topic_check_interval: Duration::from_millis(200),
            ..KafkaSettings::new(self.bootstrap(), topic)
        }
    }

    /// A short wait for appends, longer than one for a request: a case whose broker answers neither ends
    /// within its bound.
    pub(crate) fn impatient_settings(&self, topic: &str) -> KafkaSettings {
        KafkaSettings { delivery_timeout: Duration::from_secs(12), ..self.settings(topic) }
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).bootstrap()
    }

    /// A new topic; its name.
    pub(crate) async fn make(&self, plan: &TopicPlan) -> String {
        let topic = format!("topic-{}", self.topics.fetch_add(1, Ordering::Relaxed));
        self.make_named(&topic, plan).await;
        topic
    }

    pub(crate) async fn make_named(&self, topic: &str, plan: &TopicPlan) {
        let settings = KafkaSettings {
            request_timeout: Duration::from_secs(10),
            ..KafkaSettings::new(self.bootstrap(), topic)
        };
        let deadline = Instant::now() + DEADLINE;
        // One that was deleted is gone a moment after Kafka says so.
        while let Err(error) = topics::create(&settings, plan).await {
            assert!(Instant::now() < deadline, "{error}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// A topic whose records may be deleted, as an operator may have made it.
    pub(crate) async fn make_deletable(&self, topic: &str, plan: &TopicPlan) {
        let mut settings = plan.settings();
        settings.insert("cleanup.policy".to_owned(), "delete".to_owned());
        self.make_plain(topic, &settings).await;
    }

    /// A topic of one partition with these settings and no others.
    pub(crate) async fn make_plain(&self, topic: &str, settings: &topics::ConfigValues) {
        let mut new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let made = self.admin().create_topics([&new], &AdminOptions::new()).await;
        made.expect("Kafka answers").remove(0).expect("Kafka makes it");
    }

    /// A topic whose partitions are on these brokers.
    pub(crate) async fn make_on(&self, topic: &str, plan: &TopicPlan, brokers: &[&[i32]]) {
        let partitions = i32::try_from(brokers.len()).expect("few");
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Variable(brokers));
        let settings = plan.settings();
        for (name, value) in &settings {
            new = new.set(name, value);
        }
        let made = self.admin().create_topics([&new], &AdminOptions::new()).await;
        made.expect("Kafka answers").remove(0).expect("Kafka makes it");
    }

    pub(crate) async fn delete(&self, topic: &str) {
        let deleted = self.admin().delete_topics(&[topic], &AdminOptions::new()).await;
        let deleted = deleted.expect("Kafka answers").remove(0);
        deleted.expect("Kafka deletes it");
    }

    pub(crate) async fn delete_records(&self, topic: &str, partition: Partition, up_to: Offset) {
        let mut list = TopicPartitionList::new();
        let offset = rdkafka::Offset::Offset(i64::try_from(up_to.0).expect("small"));
        let partition = i32::try_from(partition.0).expect("small");
        list.add_partition_offset(topic, partition, offset).expect("well-formed");
        let done = self.admin().delete_records(&list, &AdminOptions::new()).await;
        let done = done.expect("Kafka answers");
        done.elements().iter().for_each(|one| one.error().expect("Kafka deletes them"));
    }

    /// A broker that does not answer holds its connections.
    pub(crate) fn set_answering(&self, is_answering: bool) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let broker = cluster.broker(1);
        let done = if is_answering { broker.thaw() } else { broker.freeze() };
        done.expect("it can be signalled");
    }

    pub(crate) fn kill(&self, broker: u32) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.broker(broker).kill().expect("it can be killed");
    }

    pub(crate) fn start_again(&self, broker: u32) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.broker(broker).start().expect("it comes back");
    }

    pub(crate) fn kill_and_start(&self) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.broker(1).kill().expect("it can be killed");
        cluster.broker(1).start().expect("it comes back");
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap());
        config.create().expect("good settings")
    }
}

/// A topic for a log under test.
pub(crate) fn plan(settings: &Settings) -> TopicPlan {
    TopicPlan {
        direction: Direction::Downstream,
        partitions: settings.partitions,
        replicas: 1,
        replicas_min: 1,
        replay_window: Duration::from_millis(settings.replay_window_ms),
        record_bytes: (settings.record_bytes_max + RECORD_OVERHEAD_BYTES) as u64,
    }
}
