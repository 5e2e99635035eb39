//! A log that cannot be read for a while: sessions stay, and go on.

use super::metrics::{counted, until_value, value};
use super::*;

/// Failed attempts to read the log that make a long pause: by then the waits between them are
/// as long as the first three together.
const ATTEMPTS: f64 = 4.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_stay_through_a_pause_of_the_log_and_receive_what_follows() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    let (hub, registry) = counted(&cloud, settings()).await;
    // A hub parks the streams of an edge that connects before.
    until_value(&registry, "reconciled", 1.0).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;

    cloud.downstream.set_available(false);
    until_true("long pause", async || {
        let count = |kind| value(&registry, &format!("setbacks_total{{kind=\"{kind}\"}}"));
        count("read").zip(count("metadata")).is_some_and(|(a, b)| a + b >= ATTEMPTS)
    })
    .await;
    assert!(!hub.view().troubles().is_empty(), "an operator sees the pause");
    assert!(hub.view().is_reconciled(), "the fold is still right");
    assert_eq!(value(&registry, "reconciled"), Some(1.0));
    // The fold serves an edge that connects meanwhile.
    let mut late = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    late.receive_until("a snapshot", |edge| edge.seq("node/b") == 1).await;

    cloud.downstream.set_available(true);
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    edge.receive_until("what followed", |edge| edge.seq("node/a") == 2).await;
    assert_eq!(edge.modes("node/a"), [PushMode::Snapshot, PushMode::Tail]);
    edge.check_prefix(&cloud);
    assert_eq!((&edge.end, &edge.parked[..]), (&None, &[][..]));
    until_true("recovery", async || hub.view().troubles().is_empty()).await;
    until_value(&registry, r#"hellos_total{outcome="accepted"}"#, 2.0).await;
    assert_eq!(value(&registry, "sessions"), Some(2.0));
    hub.stop().await;
}
