//! The metrics of a log move with what they say.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogMetrics, LogTopic};
use headwater_event::Partition;
use headwater_log::{Append, Log, Record};
use headwater_store::{Failure, MemoryEngine};
use prometheus::{Registry, TextEncoder};

/// The value of one series, as a scraper reads it; `None` where there is none.
fn read(registry: &Registry, series: &str) -> Option<f64> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().expect("a number"))
}

fn append(partition: u32, key: &'static str, value: Option<&'static str>) -> Append {
    let record = Record {
        key: Bytes::from_static(key.as_bytes()),
        value: value.map(|value| Bytes::from_static(value.as_bytes())),
        header: Bytes::from_static(&[1, 2, 3]),
        traceparent: None,
    };
    Append { partition: Partition(partition), record }
}

const DOWN: &str = r#"topic="headwater.downstream.v1""#;

#[tokio::test]
async fn appends_are_counted_by_partition_and_syncs_by_group() {
    let registry = Registry::new();
    let metrics = LogMetrics::new(&registry).expect("a fresh registry");
    let engine = Arc::new(MemoryEngine::new());
    let settings =
        EmbeddedSettings { partitions: 2, ..EmbeddedSettings::new(LogTopic::Downstream) };
    let open = |settings| {
        EmbeddedLog::open_with_metrics(engine.clone(), settings, Arc::new(|| 1000), &metrics)
            .expect("opens")
    };
    let log = open(settings);
    let of = |name: &str| read(&registry, &format!("headwater_log_{name}"));
    let of_log = |name: &str| of(&format!("{name}{{{DOWN}}}"));
    let of_partition =
        |name: &str, partition: u32| of(&format!(r#"{name}{{partition="{partition}",{DOWN}}}"#));

    let two = vec![append(1, "a", Some("12345")), append(1, "b", None)];
    log.append(two).await.expect("taken");
    log.append(vec![append(0, "c", Some("1"))]).await.expect("taken");
    assert_eq!(of_log("appends_total"), Some(2.0));
    assert_eq!(of_partition("records_appended_total", 1), Some(2.0));
    assert_eq!(of_partition("records_appended_total", 0), Some(1.0));
    assert_eq!(of_partition("appended_bytes_total", 1), Some(9.0 + 4.0));
    assert_eq!(of_partition("appended_bytes_total", 0), Some(5.0));
    assert_eq!(of_partition("end_offset", 1), Some(2.0));
    assert_eq!(of_log("sync_duration_seconds_count"), Some(2.0), "one after the other");
    assert_eq!(of_log("group_appends_sum"), Some(2.0));
    assert!(of_log("tail_bytes").is_some_and(|bytes| bytes >= 18.0));

    let failures = |kind: &str| of(&format!(r#"append_failures_total{{kind="{kind}",{DOWN}}}"#));
    log.append(vec![append(7, "d", None)]).await.expect_err("there is no such partition");
    assert_eq!((failures("rejected"), failures("fatal")), (Some(1.0), Some(0.0)));
    engine.fail_write(1, Failure { disk_full: true, took_effect: false });
    log.append(vec![append(0, "d", None)]).await.expect_err("the disk is gone");
    assert_eq!((failures("rejected"), failures("fatal")), (Some(1.0), Some(1.0)));
    assert_eq!(of_log("appends_total"), Some(2.0));
    log.close().await;

    // Another log beside it, and the same one again.
    let other = EmbeddedSettings::new(LogTopic::Upstream);
    drop(EmbeddedLog::open_with_metrics(
        Arc::new(MemoryEngine::new()),
        other,
        Arc::new(|| 0),
        &metrics,
    ));
    assert_eq!(of(r#"appends_total{topic="headwater.upstream.v1"}"#), Some(0.0));
    assert_eq!(of_partition("end_offset", 1), Some(2.0));
}

#[tokio::test]
async fn compaction_counts_what_it_met_and_dropped() {
    let registry = Registry::new();
    let metrics = LogMetrics::new(&registry).expect("a fresh registry");
    let now = Arc::new(AtomicI64::new(1000));
    let clock = now.clone();
    let settings = EmbeddedSettings {
        partitions: 1,
        replay_window_ms: 10,
        delete_retention_ms: 10,
        ..EmbeddedSettings::new(LogTopic::Downstream)
    };
    let log = EmbeddedLog::open_with_metrics(
        Arc::new(MemoryEngine::new()),
        settings,
        Arc::new(move || clock.load(Ordering::SeqCst)),
        &metrics,
    )
    .expect("opens");
    for _ in 0..3 {
        log.append(vec![append(0, "a", Some("x"))]).await.expect("taken");
    }
    log.compact(100).await.expect("the engine works");
    let of = |name: &str| read(&registry, &format!("headwater_log_compaction_{name}{{{DOWN}}}"));
    assert_eq!(of("runs_total"), Some(1.0));
    assert_eq!(of("met_records_total"), Some(0.0), "all are inside the window");
    now.fetch_add(100, Ordering::SeqCst);
    let done = log.compact(100).await.expect("the engine works");
    assert_eq!((done.examined, done.dropped), (3, 2));
    assert_eq!(of("runs_total"), Some(2.0));
    assert_eq!(of("met_records_total"), Some(3.0));
    assert_eq!(of("dropped_records_total"), Some(2.0));
    assert_eq!(of("failures_total"), Some(0.0));
    log.close().await;
}
