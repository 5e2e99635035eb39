//! What Kafka does to a log, and what a reader or writer of ours then says.

use std::time::Duration;

use bytes::Bytes;
use headwater_event::{Offset, Partition};
use headwater_kafka::KafkaLog;
use headwater_log::conformance::Settings;
use headwater_log::{Append, Log, ReadError, Reader, Record, StoredRecord};
use tokio::time::{Instant, timeout};

use crate::support::{Kafka, plan};

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(60);

fn record(key: &str, value: Option<Bytes>) -> Append {
    let (key, header) = (key.to_owned().into(), Bytes::new());
    Append { partition: Partition(0), record: Record { key, value, header, traceparent: None } }
}

async fn reader(log: &KafkaLog) -> Box<dyn Reader> {
    let start = log.start(Partition(0)).await.expect("there");
    log.read(vec![start]).await.expect("readable")
}

/// Reads until the records satisfy `enough`.
async fn read_until(
    reader: &mut dyn Reader,
    enough: impl Fn(&[StoredRecord]) -> bool,
) -> Vec<StoredRecord> {
    let mut records = Vec::new();
    while !enough(&records) {
        let batch = timeout(DEADLINE, reader.next()).await.expect("in time");
        records.extend(batch.expect("readable").records);
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_outlives_a_broker_that_is_killed() {
    let kafka = Kafka::start();
    let topic = kafka.make(&plan(&Settings::default())).await;
    let log = KafkaLog::new(kafka.settings(&topic)).expect("good settings");
    let before = log.append(vec![record("a", None), record("b", None)]).await.expect("appended");
    kafka.kill_and_start();
    let deadline = Instant::now() + DEADLINE;
    let after = loop {
        match log.append(vec![record("c", None)]).await {
            Ok(after) => break after,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert!(after[0].offset > before[1].offset);
    let mut reader = reader(&log).await;
    let is_whole = |records: &[StoredRecord]| records.last().is_some_and(|it| it.record.key == "c");
    let records = read_until(reader.as_mut(), is_whole).await;
    let keys: Vec<_> = records.iter().map(|it| it.record.key.clone()).collect();
    assert_eq!(keys[..2], ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_by_itself_when_a_broker_comes_back() {
    let kafka = Kafka::start();
    let topic = kafka.make(&plan(&Settings::default())).await;
    let mut settings = kafka.settings(&topic);
    settings.unreachable_after = DEADLINE;
    let log = KafkaLog::new(settings).expect("good settings");
    log.append(vec![record("a", None)]).await.expect("appended");
    let mut reader = reader(&log).await;
    read_until(reader.as_mut(), |records| records.len() == 1).await;
    kafka.kill_and_start();
    let deadline = Instant::now() + DEADLINE;
    while let Err(error) = log.append(vec![record("b", None)]).await {
        assert!(Instant::now() < deadline, "{error}");
    }
    let more = read_until(reader.as_mut(), |records| !records.is_empty()).await;
    assert_eq!(more[0].record.key, "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_below_what_retention_left_stops() {
    let kafka = Kafka::start();
    let topic = "deletable";
    kafka.make_deletable(topic, &plan(&Settings::default())).await;
    let mut settings = kafka.settings(topic);
    // Reads ahead little, so that most of what is deleted has not been read.
    settings.extra.insert("queued.max.messages.kbytes".to_owned(), "64".to_owned());
    settings.extra.insert("compression.type".to_owned(), "none".to_owned());
    let log = KafkaLog::new(settings).expect("good settings");
    let value = Bytes::from(vec![b'x'; 60 << 10]);
    let mut last = Offset(0);
    for n in 0..300 {
        let appended = log.append(vec![record(&n.to_string(), Some(value.clone()))]).await;
        last = appended.expect("appended")[0].offset;
    }
    let start = log.start(Partition(0)).await.expect("there");
    let mut reader = log.read(vec![start]).await.expect("readable");
    let first = timeout(DEADLINE, reader.next()).await.expect("in time").expect("readable");
    assert_eq!(first.records[0].offset, start.next);
    kafka.delete_records(topic, Partition(0), last).await;
    let deadline = Instant::now() + DEADLINE;
    let error = loop {
        assert!(Instant::now() < deadline, "it reads on as if nothing were gone");
        match timeout(DEADLINE, reader.next()).await.expect("in time") {
            Ok(batch) => assert!(batch.cursor.next < last, "it has passed over what is gone"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReadError::Expired { low, .. } if low == last), "{error:?}");
    let error = log.read(vec![start]).await.err().expect("refused");
    assert!(matches!(error, ReadError::Expired { low, .. } if low == last), "{error:?}");
    assert_eq!(log.bounds(Partition(0)).await.expect("there").low, last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_reader_learns_that_the_topic_is_another() {
    let kafka = Kafka::start();
    let settings = plan(&Settings::default());
    let topic = kafka.make(&settings).await;
    let log = KafkaLog::new(kafka.settings(&topic)).expect("good settings");
    log.append(vec![record("a", None)]).await.expect("appended");
    let mut reader = reader(&log).await;
    read_until(reader.as_mut(), |records| records.len() == 1).await;
    let was = log.describe().await.expect("there").topic;
    kafka.delete(&topic).await;
    kafka.make_named(&topic, &settings).await;
    let is = log.describe().await.expect("there").topic;
    assert_ne!(was, is);
    let deadline = Instant::now() + DEADLINE;
    let error = loop {
        assert!(Instant::now() < deadline, "it never learned");
        if let Err(error) = timeout(DEADLINE, reader.next()).await.expect("in time") {
            break error;
        }
    };
    // Between the two lives there is a moment without any topic.
    let is_right = match &error {
        ReadError::Recreated { was: reported, .. } => *reported == was,
        ReadError::Unavailable { reason } => reason.contains("there is no topic"),
        _ => false,
    };
    assert!(is_right, "{error:?}");
}
