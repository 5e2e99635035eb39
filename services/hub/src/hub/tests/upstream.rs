//! What edges see of an upstream log that does not take everything.

use bytes::Bytes;
use headwater_event::Partition;
use headwater_log::{MemorySettings, PartitionFault};

use super::*;

/// The silence that a hub allows here: longer than this process waits for a processor.
const SILENCE_MS_MAX: u64 = 5_000;

/// The names of two nodes whose streams are in partitions 0 and 1 of two.
fn two_nodes() -> [String; 2] {
    [0, 1].map(|partition| {
        let names = (0..).map(|n| format!("n{n}"));
        let of = |name: &String| StreamId::node(&name.parse().expect("a name")).partition(2);
        names.filter(|name| of(name) == Partition(partition)).take(1).collect()
    })
}

/// An edge of `node` that a hub has welcomed and that has its stream.
async fn connected(hub: &HubHandle, node: &str) -> TestEdge {
    let mut edge = TestEdge::connect(hub.address(), identity(node, 1, 1)).await;
    let stream = format!("node/{node}");
    edge.receive_until("a snapshot", |edge| edge.seq(&stream) > 0).await;
    edge
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_cannot_be_written_stops_neither_its_pushes_nor_other_nodes() {
    let [stalled_node, healthy_node] = two_nodes();
    let mut cloud = TestCloud::new(&[&stalled_node, &healthy_node]).await;
    // An edge whose messages wait is not silent.
    let settings = HubSettings { silence_ms_max: SILENCE_MS_MAX, ..settings() };
    let limits = HubLimits { upstream_groups_max: 1, ..limits() };
    let hub = start(&cloud.logs(), &Arc::new(MemoryEngine::new()), settings, limits).await;
    let mut stalled = connected(&hub, &stalled_node).await;
    let mut healthy = connected(&hub, &healthy_node).await;
    cloud.upstream.set_partition_fault(Partition(0), Some(PartitionFault::Hangs));
    // More in flight than the queue of a partition has room for, and more than an edge has in flight.
    let status = Bytes::from(format!("{{\"note\":\"{}\"}}", "x".repeat(2_500)));
    for seq in 1..=60 {
        stalled.report_status(seq, status.clone()).await;
    }
    for seq in 1..=20 {
        healthy.report(seq).await;
        healthy.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
    }
    let reports = cloud.reports(healthy.node()).await;
    assert_eq!(reports.len(), 20, "each report is appended once");
    let stream = format!("node/{stalled_node}");
    // The hub looks for silence when it sends a heartbeat. It sends them for longer than the silence that it allows.
    let heartbeats_of_silence = usize::try_from(SILENCE_MS_MAX / HEARTBEAT_MS).expect("few");
    for heartbeats in stalled.heartbeats..=stalled.heartbeats + heartbeats_of_silence {
        let seq = stalled.seq(&stream);
        cloud.set(&stream, "one", Some(format!("{{\"n\":{seq}}}"))).await;
        let came = |edge: &TestEdge| edge.seq(&stream) > seq && edge.heartbeats > heartbeats;
        stalled.receive_until("a push and a heartbeat", came).await;
    }
    assert!(stalled.end.is_none());
    let node = stalled.node().clone();
    let contact_ms = || hub.hub.sessions.position(&node).expect("a position").contact_ms;
    let before = contact_ms();
    cloud.logs().0.advance_clock(1_000);
    let seq = stalled.seq(&stream);
    cloud.set(&stream, "one", Some("{}".to_owned())).await;
    stalled.receive_until("a push", |edge| edge.seq(&stream) > seq).await;
    until_true("the contact of its acknowledgement", async || contact_ms() > before).await;
    cloud.upstream.set_partition_fault(Partition(0), None);
    stalled.receive_until("its answers", |edge| edge.unacknowledged() == 0).await;
    assert_eq!(cloud.reports(stalled.node()).await.len(), 60);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_starts_beside_a_partition_without_a_leader_serves_the_nodes_of_the_others() {
    let [healthy_node, stalled_node] = two_nodes();
    let mut cloud = TestCloud::new(&[&stalled_node, &healthy_node]).await;
    let first = hub(&cloud).await;
    let mut edge = TestEdge::connect(first.address(), identity(&stalled_node, 5, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    first.stop().await;

    cloud.upstream.set_partition_fault(Partition(1), Some(PartitionFault::NoLeader));
    let hub = hub(&cloud).await;
    // A start of before: the hub cannot know that there was a later one.
    let mut stale = TestEdge::connect(hub.address(), identity(&stalled_node, 4, 9)).await;
    let mut healthy = connected(&hub, &healthy_node).await;
    healthy.report(1).await;
    healthy.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
    let stream = format!("node/{healthy_node}");
    let seq = healthy.seq(&stream);
    cloud.set(&stream, "one", Some("{}".to_owned())).await;
    healthy.receive_until("a push", |edge| edge.seq(&stream) > seq).await;
    until_true("a hub that is ready", async || hub.view().is_reconciled()).await;
    let troubles = hub.view().troubles().concat();
    assert!(troubles.contains("partition 1 of the upstream topic cannot be read"), "{troubles}");

    cloud.upstream.set_partition_fault(Partition(1), None);
    let end = stale.receive_end().await;
    assert!(
        matches!(&end, EdgeCloseReason::RaisingBoot { known } if known.boot.number == 5),
        "{end}"
    );
    assert!(stale.pushes.is_empty(), "it was not served before");
    assert_eq!(hub.view().troubles(), [""; 0]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_the_log_never_takes_is_refused_to_its_edge_by_name() {
    let small = MemorySettings { partitions: 2, record_bytes_max: 10_000, ..Default::default() };
    let logs = (logs().0, MemoryLog::new(small));
    let mut cloud = TestCloud::over(&logs, None).await;
    cloud.assign("a").await;
    cloud.writer.reconciled().await.expect("appended");
    let hub = hub(&cloud).await;
    let mut edge = connected(&hub, "a").await;
    let first = edge.report(1).await;
    let large = edge.report_status(2, Bytes::from(vec![b' '; 10_000])).await;
    let last = edge.report(3).await;
    edge.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
    let refused: Vec<ReportId> = edge.refused.iter().map(|refused| refused.id).collect();
    assert_eq!(refused, [large]);
    assert!(edge.refused[0].reason.contains("the maximum is 10000"), "{:?}", edge.refused);
    assert_eq!(cloud.reports(edge.node()).await, [first, last]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_topic_made_again_with_fewer_partitions_loses_no_report() {
    let [_, node] = two_nodes();
    let cloud = TestCloud::new(&[&node]).await;
    let hub = hub(&cloud).await;
    let mut edge = connected(&hub, &node).await;
    let before = edge.report(1).await;
    edge.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
    assert_eq!(cloud.reports(edge.node()).await, [before]);
    cloud.upstream.recreate(1);
    let after = edge.report(2).await;
    assert!(matches!(edge.receive_end().await, EdgeCloseReason::Moved { .. }));
    assert_eq!(edge.unacknowledged(), 1, "nothing was acknowledged that the log does not have");
    let mut edge = TestEdge::resume(hub.address(), identity(&node, 1, 1), edge.replicas).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    assert_eq!(edge.report(2).await, after);
    edge.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
    assert_eq!(cloud.reports(edge.node()).await, [after]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_reports_too_fast_waits_and_delays_no_other() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let limits = HubLimits { node_reports_per_second: 20, node_reports_at_once: 1, ..limits() };
    let hub = start(&cloud.logs(), &Arc::new(MemoryEngine::new()), settings(), limits).await;
    let (mut fast, mut other) = (connected(&hub, "a").await, connected(&hub, "b").await);
    let began = Instant::now();
    for seq in 1..=11 {
        fast.report(seq).await;
    }
    other.report(1).await;
    other.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
    fast.receive_until("its answers", |edge| edge.unacknowledged() == 0).await;
    assert!(began.elapsed() >= Duration::from_millis(500), "ten reports after the first");
    assert_eq!(cloud.reports(fast.node()).await.len(), 11);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_thousand_events_of_a_node_most_are_refused_by_name_and_no_other_node_waits() {
    const EVENTS: u64 = 10_000;
    const AT_ONCE: u64 = 250;
    let cloud = TestCloud::new(&["a", "b"]).await;
    let limits = HubLimits {
        node_reports_per_second: 1_000_000,
        node_reports_at_once: 1_000_000,
        ..limits()
    };
    let hub = start(&cloud.logs(), &Arc::new(MemoryEngine::new()), settings(), limits).await;
    let (mut hostile, mut other) = (connected(&hub, "a").await, connected(&hub, "b").await);
    for first in (1..=EVENTS).step_by(AT_ONCE as usize) {
        for seq in first..first + AT_ONCE {
            hostile.report_event(seq).await;
        }
        // The other node has its answer while those of the hostile one are on their way.
        other.report(first).await;
        other.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
        hostile.receive_until("its answers", |edge| edge.unacknowledged() == 0).await;
    }
    let taken = cloud.reports(hostile.node()).await.len() as u64;
    assert!((600..1_000).contains(&taken), "{taken} are in the log");
    assert_eq!(hostile.refused.len() as u64, EVENTS - taken);
    let reason = &hostile.refused[0].reason;
    assert!(reason.contains("node a reports too many Events"), "{reason}");
    // What else it reports is taken.
    let status = hostile.report(EVENTS + 1).await;
    hostile.receive_until("an answer", |edge| edge.unacknowledged() == 0).await;
    assert_eq!(cloud.reports(hostile.node()).await.last(), Some(&status));
    assert_eq!(cloud.reports(other.node()).await.len() as u64, EVENTS / AT_ONCE);
    hub.stop().await;
}
