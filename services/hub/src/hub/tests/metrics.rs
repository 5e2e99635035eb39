//! The metrics of the hub match what happened.

use headwater_session::message::Request;
use prometheus::TextEncoder;

use super::*;

/// The value of a series of the hub, as a scraper reads it.
pub(super) fn value(registry: &Registry, series: &str) -> Option<f64> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
    let series = format!("headwater_hub_{series} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&series))?;
    Some(line.parse().expect("a number"))
}

/// Waits until a series has a value.
pub(super) async fn until_value(registry: &Registry, series: &str, expected: f64) {
    let end = Instant::now() + SOON;
    while value(registry, series) != Some(expected) {
        let found = value(registry, series);
        assert!(Instant::now() < end, "{series} is {found:?}, not {expected}");
        tokio::task::yield_now().await;
    }
}

pub(super) async fn counted(cloud: &TestCloud, settings: HubSettings) -> (HubHandle, Registry) {
    let registry = Registry::new();
    let engine = Arc::new(MemoryEngine::new());
    let hub = start_counted(&cloud.logs(), &engine, settings, limits(), &registry).await;
    (hub, registry)
}

fn count(count: usize) -> f64 {
    u32::try_from(count).map(f64::from).expect("small")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_and_reports_are_counted_one_by_one() {
    let mut cloud = TestCloud::new(&["a"]).await;
    let (hub, registry) = counted(&cloud, settings()).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    until_value(&registry, r#"hellos_total{outcome="accepted"}"#, 1.0).await;
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    cloud.set("node/a", "one", None).await;
    edge.receive_until("what came", |edge| edge.seq("node/a") == 3).await;
    edge.report(1).await;
    edge.report(2).await;
    edge.receive_until("acknowledgements", |edge| edge.unacknowledged() == 0).await;

    let tails = edge.pushes.iter().filter(|push| push.1 == PushMode::Tail).count();
    let snapshots = edge.pushes.iter().filter(|push| push.1 == PushMode::Snapshot).count();
    for (series, expected) in [
        (r#"pushes_total{mode="tail"}"#, count(tails)),
        (r#"pushes_total{mode="snapshot"}"#, count(snapshots)),
        (r#"pushes_total{mode="delta"}"#, 0.0),
        (r#"pushed_changes_total{mode="tail"}"#, 2.0),
        (r#"resumes_total{mode="snapshot"}"#, count(snapshots)),
        ("delivery_latency_seconds_count", 2.0),
        ("events_folded_total", count(cloud.events.len())),
        (r#"reports_appended_total{kind="pod_status"}"#, 2.0),
        (r#"report_append_failures_total{kind="unknown"}"#, 0.0),
        ("reconciled", 1.0),
        ("parked_sessions", 0.0),
        ("sessions", 1.0),
        (r#"nodes{state="connected"}"#, 1.0),
    ] {
        assert_eq!(value(&registry, series), Some(expected), "{series}");
    }
    for series in [r#"push_bytes_total{mode="tail"}"#, "received_bytes_total", "sent_bytes_total"] {
        assert!(value(&registry, series).is_some_and(|bytes| bytes > 0.0), "{series}");
    }
    assert_eq!(value(&registry, "connections_total"), Some(1.0));
    for partition in 0..2 {
        let series = format!(r#"fold_lag_records{{partition="{partition}"}}"#);
        assert_eq!(value(&registry, &series), Some(0.0));
    }

    // The edge reads no more and falls behind; the age of its lag grows by an hour.
    until_value(&registry, "lag_events", 0.0).await;
    cloud.set("node/a", "two", Some("{}".to_owned())).await;
    cloud.set("node/a", "three", Some("{}".to_owned())).await;
    cloud.set("cluster", "shared", Some("{}".to_owned())).await;
    until_value(&registry, "lag_events", 3.0).await;
    assert_eq!(value(&registry, "lag_events_max"), Some(2.0));
    assert_eq!(value(&registry, "lag_seconds_max"), Some(0.0));
    cloud.downstream.advance_clock(3_600_000);
    assert_eq!(value(&registry, "lag_seconds_max"), Some(3600.0));

    let replicas = std::mem::take(&mut edge.replicas);
    drop(edge);
    until_value(&registry, r#"sessions_ended_total{reason="left"}"#, 1.0).await;
    until_value(&registry, "sessions", 0.0).await;
    until_value(&registry, r#"nodes{state="disconnected"}"#, 1.0).await;
    assert_eq!(value(&registry, "lag_events"), Some(0.0), "nobody connected is behind");
    // Events from before the session do not measure deliveries.
    let before = value(&registry, "delivery_latency_seconds_count");
    let mut edge = TestEdge::resume(hub.address(), identity("a", 1, 1), replicas).await;
    edge.receive_until("the rest", |edge| edge.seq("node/a") == 5 && edge.seq("cluster") == 1)
        .await;
    assert_eq!(value(&registry, "delivery_latency_seconds_count"), before);
    assert_eq!(value(&registry, r#"resumes_total{mode="tail"}"#), Some(2.0));
    hub.stop().await;
    assert_eq!(value(&registry, r#"sessions_ended_total{reason="moved"}"#), Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_not_admitted_or_parked_are_counted_by_reason() {
    let mut cloud = TestCloud::over(&logs(), None).await;
    cloud.assign("a").await;
    let (hub, registry) = counted(&cloud, settings()).await;
    hub.view().set_link(&"b".parse().expect("a name"), true);
    let mut cut = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    assert_eq!(refused(cut.receive_end().await), RefusalCode::Unavailable);
    until_value(&registry, r#"hellos_total{outcome="link_cut"}"#, 1.0).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a parking", |edge| !edge.parked.is_empty()).await;
    until_value(&registry, "parked_sessions", 1.0).await;
    cloud.writer.reconciled().await.expect("appended");
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    until_value(&registry, "parked_sessions", 0.0).await;
    let mut clone = TestEdge::connect(hub.address(), identity("a", 1, 2)).await;
    assert_eq!(refused(clone.receive_end().await), RefusalCode::Clone);
    until_value(&registry, r#"hellos_total{outcome="clone"}"#, 1.0).await;
    let request = Request::get(1, 1000, "d/secret/foreign".parse().expect("a key"));
    let mut another = TestEdge::connect(hub.address(), identity("c", 1, 1)).await;
    another.receive_until("a welcome", TestEdge::is_open).await;
    another.sender.send(EdgeMessage::Request(request).into()).await.expect("sent");
    until_value(&registry, r#"requests_total{outcome="forbidden"}"#, 1.0).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_window_is_counted_with_its_time() {
    let mut cloud = TestCloud::new(&["a"]).await;
    for n in 0..8 {
        let object = format!("{{\"data\":\"{}\"}}", "x".repeat(10_000));
        cloud.set("node/a", &format!("c{n}"), Some(object)).await;
    }
    let settings = HubSettings { window_bytes: 20_000, ..settings() };
    let (hub, registry) = counted(&cloud, settings).await;
    let (sender, receiver) = dial(hub.address()).await.expect("a session");
    let hello = hello(identity("a", 1, 1), Vec::new());
    sender.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    until_value(&registry, "window_full_total", 1.0).await;
    assert_eq!(value(&registry, "window_full_seconds_total"), Some(0.0), "it is full still");
    drop((sender, receiver));
    until_value(&registry, r#"sessions_ended_total{reason="left"}"#, 1.0).await;
    assert!(value(&registry, "window_full_seconds_total").is_some_and(|time| time > 0.0));
    hub.stop().await;
}
