//! Topics are made safe, and dangerous ones are named.

use std::time::Duration;

use headwater_kafka::topics::{self, Direction, Severity, TopicError, TopicPlan};
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_log::conformance::Settings;
use headwater_log::{Log, ReadError};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

use crate::support::{Kafka, plan};

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_is_found_safe_and_is_not_made_again() {
    let kafka = Kafka::start();
    let plan = plan(&Settings::default());
    let topic = kafka.make(&plan).await;
    let settings = kafka.settings(&topic);
    let described = topics::describe(&settings).await.expect("there");
    assert_eq!((described.partitions, described.replicas), (plan.partitions, 1));
    assert_eq!(topics::findings(&described, &plan), []);
    assert_eq!(topics::under_replicated(&described), []);
    let again = topics::create(&settings, &plan).await;
    assert!(matches!(again, Err(TopicError::Exists { .. })), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_with_kafkas_own_defaults_is_dangerous() {
    let kafka = Kafka::start();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap());
    let admin: AdminClient<DefaultClientContext> = config.create().expect("good settings");
    let new = NewTopic::new("plain", 1, TopicReplication::Fixed(1));
    let made = admin.create_topics([&new], &AdminOptions::new()).await.expect("an answer");
    made.into_iter().for_each(|one| assert_eq!(one.expect("made"), "plain"));
    let described = topics::describe(&kafka.settings("plain")).await.expect("there");
    let found = topics::findings(&described, &TopicPlan::new(Direction::Downstream));
    let dangers = found.iter().filter(|finding| finding.severity == Severity::Danger);
    let mut dangers: Vec<_> = dangers.map(|finding| finding.setting.as_str()).collect();
    dangers.sort_unstable();
    let expected = [
        "cleanup.policy",
        "delete.retention.ms",
        "max.message.bytes",
        "message.timestamp.type",
        "min.insync.replicas",
        "replicas",
    ];
    assert_eq!(dangers, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_there_is_named() {
    let kafka = Kafka::start();
    let log = KafkaLog::new(kafka.settings("nowhere")).expect("good settings");
    let error = log.describe().await.expect_err("there is none").to_string();
    assert!(error.contains("there is no topic nowhere"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_away_is_reported_in_bounded_time() {
    // Port 1 of this machine has no listener.
    let address = "127.0.0.1:1";
    let log = KafkaLog::new(KafkaSettings::new(address, "t")).expect("good settings");
    let asked = tokio::time::timeout(Duration::from_secs(60), log.describe()).await;
    let error = asked.expect("an answer in bounded time").expect_err("there is no cluster");
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(address), "{error}");
}
