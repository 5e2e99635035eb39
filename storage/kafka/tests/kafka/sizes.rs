//! The largest objects: what is taken comes back whole, what is not is refused by name.

use bytes::Bytes;
use headwater_broker::{Cluster, ClusterSettings};
use headwater_event::Partition;
use headwater_kafka::topics::{self, Direction, Severity, TopicPlan};
use headwater_kafka::{KafkaLog, KafkaSettings, RECORD_OVERHEAD_BYTES};
use headwater_log::{Append, AppendError, Log, Record};
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
use tokio::time::{Duration, Instant, timeout};

use crate::support::Kafka;

/// Kubernetes' own limit of an object.
const OBJECT_BYTES: usize = 3 << 19;

/// Kafka's own limit of a batch.
const DEFAULT_LIMIT: u64 = 1_048_588;

/// How long one batch may take to come back: two cores may be busy with other work.
const READ_WITHIN: Duration = Duration::from_secs(30);

fn small(record_bytes: u64) -> TopicPlan {
    TopicPlan {
        partitions: 1,
        replicas: 1,
        replicas_min: 1,
        record_bytes,
        ..TopicPlan::new(Direction::Downstream)
    }
}

/// Bytes that no compression makes fewer: what the limit counts is then what was given.
fn noise(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn record(key: &str, value: Bytes) -> Append {
    let (key, header) = (key.to_owned().into(), Bytes::from_static(b"header"));
    let traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    let record = Record { key, value: Some(value), header, traceparent };
    Append { partition: Partition(0), record }
}

async fn refused(log: &KafkaLog, append: Append) -> String {
    match log.append(vec![append]).await {
        Err(AppendError::Rejected { reason }) => reason,
        other => panic!("{other:?} is no refusal"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_as_large_as_kubernetes_takes_comes_back_whole() {
    let kafka = Kafka::start();
    let plan = small(TopicPlan::new(Direction::Downstream).record_bytes);
    let topic = kafka.make(&plan).await;
    let log = KafkaLog::new(kafka.settings(&topic)).expect("good settings");
    let most = log.describe().await.expect("there").record_bytes_max;
    assert_eq!(most, (2 << 20) - RECORD_OVERHEAD_BYTES);
    let around = b"key".len() + b"header".len();
    let sizes =
        [OBJECT_BYTES - 1, OBJECT_BYTES, OBJECT_BYTES + 1, most - around - 1, most - around];
    let whole = noise(most);
    let start = log.start(Partition(0)).await.expect("there");
    for size in sizes {
        let append = record("key", whole.slice(..size));
        log.append(vec![append]).await.unwrap_or_else(|error| panic!("{size}: {error}"));
    }
    let mut reader = log.read(vec![start]).await.expect("readable");
    let mut read = Vec::new();
    while read.len() < sizes.len() {
        let batch = timeout(READ_WITHIN, reader.next()).await.expect("in time");
        read.extend(batch.expect("readable").records);
    }
    for (recorded, size) in read.iter().zip(sizes) {
        assert!(recorded.record.value.as_ref() == Some(&whole.slice(..size)), "{size} differs");
    }
    let reason = refused(&log, record("key", whole.slice(..most - around + 1))).await;
    assert_eq!(reason, format!("the record has {} bytes, the topic accepts {most}", most + 1));
    // A topic that takes less since it was looked at says so itself.
    let lower = AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("max.message.bytes", "1000");
    let altered = kafka.admin().alter_configs([&lower], &AdminOptions::new()).await;
    altered.expect("Kafka answers").remove(0).expect("Kafka alters it");
    // Kafka answers before the broker of the partition knows of it.
    let deadline = Instant::now() + READ_WITHIN;
    let reason = loop {
        match log.append(vec![record("key", whole.slice(..OBJECT_BYTES))]).await {
            Err(AppendError::Rejected { reason }) => break reason,
            Ok(_) if Instant::now() < deadline => {}
            other => panic!("{other:?} is no refusal"),
        }
    };
    assert!(reason.contains("max.message.bytes"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_and_a_broker_that_take_less_are_named_before_anything_is_lost() {
    let limits = [
        ("socket.request.max.bytes".to_owned(), "1048576".to_owned()),
        ("message.max.bytes".to_owned(), DEFAULT_LIMIT.to_string()),
    ];
    let kafka = Kafka::with(limits.into());
    let planned = small(TopicPlan::new(Direction::Downstream).record_bytes);
    let topic = kafka.make(&small(DEFAULT_LIMIT)).await;
    // This one has no limit of its own: the broker's holds.
    let mut inherited = planned.settings();
    inherited.remove("max.message.bytes");
    kafka.make_plain("inherited", &inherited).await;
    for topic in [topic.as_str(), "inherited"] {
        let settings = kafka.settings(topic);
        let found = topics::findings(&topics::describe(&settings).await.expect("there"), &planned);
        let found: Vec<_> = found.iter().map(|it| (it.setting.as_str(), it.severity)).collect();
        assert_eq!(found, [("max.message.bytes", Severity::Danger)], "{topic}");
        let log = KafkaLog::new(settings).expect("good settings");
        let reason = refused(&log, record("key", noise(OBJECT_BYTES))).await;
        let most = usize::try_from(DEFAULT_LIMIT).expect("small") - RECORD_OVERHEAD_BYTES;
        assert!(reason.ends_with(&format!("the topic accepts {most}")), "{reason}");
    }
    let brokers = topics::brokers(&kafka.settings(&topic)).await.expect("described");
    let found = topics::broker_findings(&brokers[0], &planned);
    let found: Vec<_> = found.iter().map(|it| (it.setting.as_str(), it.severity)).collect();
    assert_eq!(found, [("socket.request.max.bytes", Severity::Danger)]);
}

/// The formula of the documentation: what Kafka adds to a record that is appended alone.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_record_takes_on_a_disk_is_within_the_formula() {
    const ADDED_BYTES: u64 = 100;
    let data = tempfile::tempdir().expect("a folder");
    let settings =
        ClusterSettings { data: Some(data.path().to_owned()), ..ClusterSettings::default() };
    let cluster = Cluster::start(settings).expect("a broker");
    let settings = KafkaSettings::new(cluster.bootstrap(), "t");
    let plan = small(TopicPlan::new(Direction::Downstream).record_bytes);
    topics::create(&settings, &plan).await.expect("made");
    let log = KafkaLog::new(settings).expect("good settings");
    let mut given = 0;
    let sizes = [2, 14, 300, 850, 1_600, 70_000];
    for size in sizes {
        let mut append = record("node/node-1 default/pod/web-1", noise(size));
        append.record.header = noise(110);
        append.record.traceparent = None;
        given += append.record.bytes() as u64;
        log.append(vec![append]).await.expect("appended");
    }
    let segment = data.path().join("broker-1/data/t-0/00000000000000000000.log");
    let taken = std::fs::metadata(segment).expect("a segment").len();
    let most = given + ADDED_BYTES * sizes.len() as u64;
    assert!((given..=most).contains(&taken), "{given} bytes given, {taken} taken, {most} at most");
}
