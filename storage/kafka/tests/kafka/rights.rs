//! Rights: those that each part needs, and the error where one is missing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headwater_broker::{Cluster, ClusterSettings, Listener};
use headwater_event::Partition;
use headwater_kafka::topics;
use headwater_kafka::{KafkaLog, KafkaMetrics, KafkaSettings};
use headwater_log::conformance::Settings;
use headwater_log::{
    Append, AppendError, DOWNSTREAM_TOPIC, Log, POSITIONS_TOPIC, Reader, Record, UPSTREAM_TOPIC,
};
use prometheus::Registry;
use tokio::time::timeout;

use crate::rights_table::{ADMIN, RIGHTS, Right};
use crate::support::plan;

/// How long an answer may take, be it no: nothing hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// How often something is looked at until it is as it should be.
const POLL: Duration = Duration::from_millis(50);

/// A broker that demands a user, and gives only brokers a right.
fn strict(users: &[&str]) -> Cluster {
    let properties = [
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256"),
        (
            "listener.name.client.scram-sha-256.sasl.jaas.config",
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        ),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", "User:ANONYMOUS"),
    ];
    let user = |name: &&str| format!("SCRAM-SHA-256=[name={name},password={name}-secret]");
    Cluster::start(ClusterSettings {
        listener: Listener::SaslPlaintext,
        properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        scram: users.iter().map(user).collect(),
        ..ClusterSettings::default()
    })
    .expect("a broker")
}

fn login(cluster: &Cluster, user: &str, topic: &str) -> KafkaSettings {
    let password = format!("{user}-secret");
    let extra = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanisms", "SCRAM-SHA-256"),
        ("sasl.username", user),
        ("sasl.password", &password),
    ];
    KafkaSettings {
        client_id: format!("headwater.{user}"),
        extra: extra.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..KafkaSettings::new(cluster.bootstrap(), topic)
    }
}

fn record(key: &str) -> Append {
    let (key, value) = (key.to_owned().into(), Some(Bytes::from_static(b"v")));
    let record = Record { key, value, header: Bytes::new(), traceparent: None };
    Append { partition: Partition(0), record }
}

/// Removes the key, as a repair does.
fn removal(key: &str) -> Append {
    let Append { partition, record } = record(key);
    Append { partition, record: Record { value: None, ..record } }
}

async fn reads(reader: &mut dyn Reader, key: &str) {
    loop {
        let batch = timeout(DEADLINE, reader.next()).await.expect("in time").expect("readable");
        if batch.records.iter().any(|it| it.record.key == key) {
            return;
        }
    }
}

/// The rights of the table, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn each_part_works_with_the_rights_that_it_needs_and_a_missing_one_is_named() {
    const DOWN: &str = DOWNSTREAM_TOPIC;
    const UP: &str = UPSTREAM_TOPIC;
    const POSITIONS: &str = POSITIONS_TOPIC;
    let cluster = strict(&[ADMIN, "controller", "hub", "nobody"]);
    let rights: Vec<_> = RIGHTS.iter().flat_map(Right::for_broker).collect();
    let rights: Vec<_> = rights.iter().map(|right| right.each_ref().map(String::as_str)).collect();
    cluster.allow(&rights).expect("granted");

    let (planned, nobody) = (plan(&Settings::default()), login(&cluster, "nobody", DOWN));
    let denied = topics::create(&nobody, &planned).await.expect_err("nobody may").to_string();
    assert!(denied.contains("denies this client a right to"), "{denied}");
    for topic in [DOWN, UP, POSITIONS] {
        let settings = login(&cluster, ADMIN, topic);
        topics::create(&settings, &planned).await.expect("made");
        topics::describe(&settings).await.expect("described");
        topics::offsets(&settings).await.expect("listed");
    }
    topics::brokers(&login(&cluster, ADMIN, DOWN)).await.expect("described");
    let denied = topics::brokers(&login(&cluster, "hub", DOWN)).await.expect_err("no right");
    let denied = std::error::Error::source(&denied).expect("a cause").to_string();
    assert!(denied.contains("the right DescribeConfigs of Broker(1)"), "{denied}");

    // The controller appends to both logs: upstream it repairs keys and removes records.
    for (user, topic, appends) in [
        ("controller", DOWN, vec![record("k")]),
        ("controller", UP, vec![record("k"), removal("k")]),
        ("hub", UP, vec![record("k")]),
        ("hub", DOWN, Vec::new()),
        ("hub", POSITIONS, vec![record("k")]),
        ("controller", POSITIONS, Vec::new()),
    ] {
        let settings = login(&cluster, user, topic);
        topics::describe(&settings).await.expect("a part checks its topics");
        let log = KafkaLog::new(settings).expect("good settings");
        timeout(DEADLINE, log.append(appends)).await.expect("in time").expect(user);
        let start = log.start(Partition(0)).await.expect(user);
        let mut reader = log.read(vec![start]).await.expect(user);
        reads(reader.as_mut(), "k").await;
    }
    // A hub that may not write downstream gets an error, and works once it may.
    let log = KafkaLog::new(login(&cluster, "hub", DOWN)).expect("good settings");
    let denied = timeout(DEADLINE, log.append(vec![record("k")])).await.expect("in time");
    let denied = denied.expect_err("no right").to_string();
    assert!(denied.contains("denies this client a right to the topic"), "{denied}");
    cluster.allow(&[["User:hub", "WRITE", "TOPIC", DOWN]]).expect("granted");
    let deadline = Instant::now() + DEADLINE;
    while let Err(error) = log.append(vec![record("k")]).await {
        assert!(Instant::now() < deadline, "{error}");
        assert!(!matches!(error, AppendError::Fatal { .. }), "{error}");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_are_committed_for_display_and_without_that_right_everything_else_goes_on() {
    let cluster = strict(&["hub", "mute"]);
    let of_topic = |user, operation| [user, operation, "TOPIC", "headwater.*"];
    let mut rights = vec![["User:hub", "READ", "GROUP", "headwater.*"]];
    for user in ["User:hub", "User:mute"] {
        for operation in ["CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS"] {
            rights.push(of_topic(user, operation));
        }
    }
    cluster.allow(&rights).expect("granted");
    let topic = "headwater.t";
    let settings = login(&cluster, "hub", topic);
    topics::create(&settings, &plan(&Settings::default())).await.expect("made");

    let registry = Registry::new();
    let metrics = KafkaMetrics::new(&registry).expect("new names");
    let hub = KafkaLog::with_metrics(settings.clone(), &metrics).expect("good settings");
    let of_mute = Registry::new();
    let of_mute_metrics = KafkaMetrics::new(&of_mute).expect("new names");
    let mute = KafkaLog::with_metrics(login(&cluster, "mute", topic), &of_mute_metrics);
    let mute = mute.expect("good settings");
    hub.append(vec![record("a"), record("b")]).await.expect("appended");
    let start = hub.start(Partition(0)).await.expect("there");
    let mut readers = Vec::new();
    for log in [&hub, &mute] {
        let mut reader = log.read(vec![start]).await.expect("readable");
        reads(reader.as_mut(), "b").await;
        readers.push(reader);
    }
    // What was given out last is handled once more is asked for.
    let mut asked: Vec<_> = readers
        .into_iter()
        .map(|mut reader| {
            tokio::spawn(async move {
                reads(reader.as_mut(), "c").await;
                reader
            })
        })
        .collect();
    let committed = || committed(&settings, topic);
    let deadline = Instant::now() + DEADLINE;
    while committed() != Some(2) {
        assert!(Instant::now() < deadline, "committed: {:?}", committed());
        tokio::time::sleep(POLL).await;
    }
    // By now the other has been denied; it reads on.
    hub.append(vec![record("c")]).await.expect("appended");
    for asked in asked.drain(..) {
        timeout(DEADLINE, asked).await.expect("in time").expect("it reads on");
    }
    let value = |registry: &Registry, name: &str| {
        let family = registry.gather().into_iter().find(|family| family.name() == name);
        let metric = family.and_then(|family| family.get_metric().first().cloned());
        metric.map(|metric| metric.get_gauge().get_value() + metric.get_counter().get_value())
    };
    for registry in [&registry, &of_mute] {
        assert_eq!(value(registry, "headwater_kafka_records_read_total"), Some(3.0));
        assert_eq!(value(registry, "headwater_kafka_read_failures_total"), None);
    }
    assert_eq!(value(&registry, "headwater_kafka_records_appended_total"), Some(3.0));
    assert_eq!(value(&registry, "headwater_kafka_end_offset"), Some(3.0));
}

/// What `kafka-consumer-groups.sh` would say of the group.
fn committed(settings: &KafkaSettings, topic: &str) -> Option<i64> {
    use rdkafka::consumer::{BaseConsumer, Consumer};
    let mut config = rdkafka::ClientConfig::new();
    config.set("bootstrap.servers", &settings.brokers).set("group.id", &settings.client_id);
    for (name, value) in &settings.extra as &BTreeMap<String, String> {
        config.set(name, value);
    }
    let consumer: BaseConsumer = config.create().expect("good settings");
    let mut asked = rdkafka::TopicPartitionList::new();
    asked.add_partition(topic, 0);
    let committed = consumer.committed_offsets(asked, Duration::from_secs(5)).ok()?;
    match committed.elements().first()?.offset() {
        rdkafka::Offset::Offset(offset) => Some(offset),
        _ => None,
    }
}
