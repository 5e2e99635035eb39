//! A log whose past was replaced: its tail lost by the broker, or the whole topic made again.

use std::fs::{self, File};

use bytes::Bytes;
use headwater_broker::{Cluster, ClusterSettings};
use headwater_event::{Cursor, Offset, Partition};
use headwater_kafka::topics::{self, Direction, TopicPlan};
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_log::conformance::Settings;
use headwater_log::{Append, Log, ReadError, Record};
use tokio::time::{Duration, Instant, timeout};

use crate::support::{Kafka, plan};

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(60);

async fn append(log: &KafkaLog, keys: std::ops::Range<u32>) {
    for key in keys {
        let record = Record {
            key: key.to_string().into(),
            value: Some(Bytes::from_static(b"value")),
            header: Bytes::new(),
            traceparent: None,
        };
        let deadline = Instant::now() + DEADLINE;
        let one = Append { partition: Partition(0), record };
        while let Err(error) = log.append(vec![one.clone()]).await {
            assert!(Instant::now() < deadline, "{error}");
        }
    }
}

/// Reads `count` records from the start; where that ends.
async fn read(log: &KafkaLog, count: usize) -> Cursor {
    let mut cursor = log.start(Partition(0)).await.expect("there");
    let mut reader = log.read(vec![cursor]).await.expect("readable");
    let mut read = 0;
    while read < count {
        let batch = timeout(DEADLINE, reader.next()).await.expect("in time").expect("readable");
        (read, cursor) = (read + batch.records.len(), batch.cursor);
    }
    cursor
}

/// What an unclean election, or a disk that forgot what was not synced, does to a log.
#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_was_lost_is_noticed_also_when_the_log_has_grown_past_it_again() {
    let data = tempfile::tempdir().expect("a folder");
    let settings =
        ClusterSettings { data: Some(data.path().to_owned()), ..ClusterSettings::default() };
    let mut cluster = Cluster::start(settings).expect("a broker");
    let plan = TopicPlan {
        partitions: 1,
        replicas: 1,
        replicas_min: 1,
        ..TopicPlan::new(Direction::Downstream)
    };
    let settings = KafkaSettings::new(cluster.bootstrap(), "t");
    topics::create(&settings, &plan).await.expect("made");
    let log = KafkaLog::new(settings).expect("good settings");
    append(&log, 0..5).await;
    let segment = data.path().join("broker-1/data/t-0/00000000000000000000.log");
    let kept = fs::metadata(&segment).expect("a segment").len();
    append(&log, 5..10).await;
    let ahead = read(&log, 10).await;
    assert_eq!(ahead.next, Offset(10));

    cluster.broker(1).kill().expect("it can be killed");
    let file = File::options().write(true).open(&segment).expect("a segment");
    file.set_len(kept).expect("it can be cut");
    drop(file);
    cluster.broker(1).start().expect("it comes back");
    let deadline = Instant::now() + DEADLINE;
    let error = loop {
        match log.read(vec![ahead]).await {
            Err(error @ ReadError::Truncated { .. }) => break error,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
            Ok(_) => panic!("a cursor beyond the end was taken"),
        }
    };
    assert!(matches!(error, ReadError::Truncated { diverged: Offset(5), .. }), "{error:?}");

    append(&log, 20..30).await;
    assert_eq!(log.bounds(Partition(0)).await.expect("there").high, Offset(15));
    let mut reader = log.read(vec![ahead]).await.expect("inside the bounds");
    let error = loop {
        match timeout(DEADLINE, reader.next()).await.expect("in time") {
            Ok(batch) => assert!(batch.records.is_empty(), "it read on in another history"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReadError::Truncated { diverged: Offset(5), .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_again_is_another_whether_it_is_shorter_or_longer() {
    let kafka = Kafka::start();
    let planned = plan(&Settings::default());
    let topic = kafka.make(&planned).await;
    let log = KafkaLog::new(kafka.settings(&topic)).expect("good settings");
    append(&log, 0..3).await;
    let cursor = read(&log, 3).await;
    for records in [1, 9] {
        kafka.delete(&topic).await;
        kafka.make_named(&topic, &planned).await;
        append(&log, 0..records).await;
        let error = log.read(vec![cursor]).await.err().expect("refused");
        assert!(
            matches!(error, ReadError::Recreated { was, .. } if was == cursor.topic),
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_partition_is_named_at_once() {
    let kafka = Kafka::start();
    let topic = kafka.make(&plan(&Settings::default())).await;
    let log = KafkaLog::new(kafka.settings(&topic)).expect("good settings");
    let there = log.start(Partition(0)).await.expect("there");
    let beyond = Partition(1000);
    let error = log.read(vec![Cursor { partition: beyond, ..there }]).await.err();
    assert!(matches!(error, Some(ReadError::NoPartition { partition }) if partition == beyond));
    let error = log.bounds(beyond).await.err();
    assert!(matches!(error, Some(ReadError::NoPartition { partition }) if partition == beyond));
}
