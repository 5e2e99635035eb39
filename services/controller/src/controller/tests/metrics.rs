//! What the controller counts is what happened.

use headwater_event::Event;
use prometheus::TextEncoder;

use super::*;

/// The value of a series, as a scraper reads it.
pub(super) fn value(registry: &Registry, series: &str) -> Option<f64> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().expect("a number"))
}

#[tokio::test]
async fn what_is_published_is_counted() {
    let world = World::new();
    let running = world.start().await;
    let of = |series: &str| value(&running.registry, &format!("headwater_controller_{series}"));
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    running.reconciled(0).await;
    running.send([SourceEvent::Apply(config("c", 2, "y"), Cause::default())]).await;
    let gone = SourceEvent::Delete {
        key: "d/pod/p".parse().expect("a key"),
        uid: pod("p", "c").uid().to_owned(),
        cause: Cause { source: SourceKind::MANIFESTS, ..Cause::default() },
    };
    running.send([gone]).await;
    until_true("the removals", async || {
        world.events_in("node/a").await.iter().filter(|event| event.starts_with('-')).count() == 2
    })
    .await;
    let (events, _) = world.read().await;
    let removed = events.iter().filter(|at| matches!(at.event, Event::Removed(_))).count();
    let applied = events.iter().filter(|at| matches!(at.event, Event::Applied(_))).count();
    let count = |count: usize| u32::try_from(count).ok().map(f64::from);
    until_true("the last append", async || {
        of(r#"events_appended_total{kind="removed"}"#) == count(removed)
    })
    .await;
    // A head may follow the removals.
    until_true("every event", async || {
        of("append_events_sum") == count(world.read().await.0.len())
    })
    .await;
    for (series, expected) in [
        (r#"events_appended_total{kind="applied"}"#, count(applied)),
        ("append_duration_seconds_count", of("append_events_count")),
        (r#"append_failures_total{kind="dead"}"#, Some(0.0)),
        ("claims_total", Some(1.0)),
        ("writer_epoch", Some(1.0)),
        ("reconciled", Some(1.0)),
        ("source_listed_objects_total", Some(2.0)),
        (r#"source_changes_total{kind="applied",source="other"}"#, Some(1.0)),
        (r#"source_changes_total{kind="removed",source="manifests"}"#, Some(1.0)),
        (r#"source_changes_total{kind="removed",source="other"}"#, Some(0.0)),
        ("publish_queue_events", Some(0.0)),
        ("objects", Some(1.0)),
    ] {
        assert_eq!(of(series), expected, "{series}");
    }
    assert!(of("append_bytes_sum").is_some_and(|bytes| bytes > 0.0));
    let registry = running.registry.clone();
    running.controller.stop().await;
    assert_eq!(value(&registry, "headwater_controller_objects"), None, "nothing runs");
}

#[tokio::test]
async fn a_lost_writer_is_counted() {
    let world = World::new();
    let running = world.start().await;
    let of = |series: &str| value(&running.registry, &format!("headwater_controller_{series}"));
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    running.reconciled(0).await;
    running.log.inject_fault(AppendFault::UnknownLost);
    running.send([SourceEvent::Apply(config("c", 2, "y"), Cause::default())]).await;
    until_true("another claim", async || of("claims_total") == Some(2.0)).await;
    assert_eq!(of(r#"append_failures_total{kind="dead"}"#), Some(1.0));
    assert_eq!(of(r#"setbacks_total{kind="partition"}"#), Some(1.0));
    assert_eq!(of("writer_epoch"), Some(2.0));
    assert_eq!(of("partitions_away"), Some(0.0));
    running.controller.stop().await;
}

#[tokio::test]
async fn what_is_folded_upstream_is_counted() {
    let world = World::new();
    let running = world.start().await;
    let of = |series: &str| value(&running.registry, &format!("headwater_controller_{series}"));
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let status = |pod: &str| ReportBody::PodStatus {
        pod: format!("d/pod/{pod}").parse().expect("a key"),
        uid: "u".to_owned(),
        status: Bytes::from_static(b"{}"),
    };
    world.report("a", 2, status("p")).await;
    world.report("a", 3, status("q")).await;
    world.report("a", 1, status("p")).await;
    let node = |seq| world.report("a", seq, ReportBody::Node { object: "{}".into() });
    node(5).await;
    node(4).await;
    let record = Record {
        key: Bytes::from_static(b"nonsense"),
        value: None,
        header: Bytes::new(),
        traceparent: None,
    };
    world.append_upstream(&"a".parse().expect("a name"), record).await;
    // Two of each kind, and the newer of two that is appended once more.
    for (kind, count) in [("unreadable", 1.0), ("pod_status", 4.0), ("node", 3.0)] {
        let series = format!(r#"upstream_records_total{{kind="{kind}"}}"#);
        until_true(kind, async || of(&series) == Some(count)).await;
    }
    for (series, expected) in [
        ("stale_reports_total", 2.0),
        ("repaired_reports_total", 2.0),
        ("picture_pod_statuses", 2.0),
        ("snapshot_requests_total", 0.0),
    ] {
        assert_eq!(of(series), Some(expected), "{series}");
    }
    let closed =
        SnapshotClosed { hash: StateHash::EMPTY, pods: 7, full: false, first: ReportId::default() };
    world.report("a", 6, ReportBody::SnapshotClosed(closed)).await;
    until_true("a request", async || of("snapshot_requests_total") == Some(1.0)).await;
    running.controller.stop().await;
}
