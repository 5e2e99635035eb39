//! What a hub reads of the upstream log when it starts.

use headwater_event::{Boot, Incarnation, NodeName, NodeProgress, Offset, Partition, ReportKey};
use headwater_log::{Append, Record};
use headwater_session::StreamSource;

use super::*;

/// The most records that a hub reads for the topic's metadata, which are in the other partition.
const METADATA_READS_MAX: u64 = 8;

/// Asserts that a hub has read `count` positions, besides the metadata.
fn assert_read(read: u64, count: u64) {
    assert!((count..=count + METADATA_READS_MAX).contains(&read), "{read} records, not {count}");
}

/// Appends the position of a start of `node`, as another hub does.
async fn append_position(cloud: &TestCloud, node: &str, boot: u64) {
    append_start(cloud, node, Boot { number: boot, nonce: boot }).await;
}

async fn append_start(cloud: &TestCloud, node: &str, boot: Boot) {
    let node: NodeName = node.parse().expect("a name");
    let progress = NodeProgress {
        hub: "hub-2".to_owned(),
        connected: true,
        incarnation: Incarnation(1),
        boot,
        connection: 0,
        outbox_depth: 0,
        contact_ms: 0,
        meta_sync_ms: 0,
        consumes_cluster: None,
        streams: Vec::new(),
    };
    let record = Record {
        key: ReportKey::Position.record_key(&node).into(),
        value: Some(serde_json::to_vec(&progress).expect("JSON").into()),
        header: Default::default(),
        traceparent: None,
    };
    let append = Append { partition: Partition(1), record };
    cloud.upstream.append(vec![append]).await.expect("appended");
}

/// The boots of the nodes that `engine` has identities of, once a hub over it serves; and the
/// records of the upstream log that this hub has read.
async fn known_after_start(
    cloud: &TestCloud,
    engine: &Arc<MemoryEngine>,
    nodes: &[&str],
) -> (Vec<Option<u64>>, u64) {
    let upstream = cloud.upstream.handle();
    let dependencies = HubDependencies {
        upstream: Arc::new(upstream.clone()),
        ..dependencies(&cloud.logs(), engine, &Registry::new())
    };
    let hub = Hub::start(config(settings(), limits()), dependencies).await.expect("starts");
    until_true("a hub that serves", async || hub.view().is_reconciled()).await;
    let fold = &hub.hub.fold;
    let boot = |node: &&str| {
        let known = fold.source().known_identity(&node.parse().expect("a name"));
        known.expect("readable").map(|known| known.boot.number)
    };
    let known = nodes.iter().map(boot).collect();
    let read = upstream.records_read();
    hub.stop().await;
    (known, read)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_with_its_disk_reads_only_what_came_since_and_one_without_reads_it_once() {
    let cloud = TestCloud::new(&["a", "z"]).await;
    let disk = Arc::new(MemoryEngine::new());
    for boot in 1..=50 {
        append_position(&cloud, "a", boot).await;
        append_position(&cloud, "z", boot).await;
    }
    let nodes = ["a", "z", "b"];
    for count in [100, 0] {
        let (known, read) = known_after_start(&cloud, &disk, &nodes).await;
        assert_eq!(known, [Some(50), Some(50), None]);
        assert_read(read, count);
    }
    append_position(&cloud, "b", 7).await;
    // A record of an earlier start comes late: the rank never goes back.
    append_position(&cloud, "a", 3).await;
    append_position(&cloud, "z", 51).await;
    let (known, read) = known_after_start(&cloud, &disk, &nodes).await;
    assert_eq!(known, [Some(50), Some(51), Some(7)]);
    assert_read(read, 3);
    let (known, read) = known_after_start(&cloud, &Arc::default(), &nodes).await;
    assert_eq!(known, [Some(50), Some(51), Some(7)]);
    assert_read(read, 103);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_log_made_again_is_folded_anew_and_known_identities_stay() {
    let cloud = TestCloud::new(&["a", "z"]).await;
    let disk = Arc::new(MemoryEngine::new());
    append_position(&cloud, "a", 5).await;
    append_position(&cloud, "z", 5).await;
    assert_eq!(known_after_start(&cloud, &disk, &["a", "z"]).await.0, [Some(5), Some(5)]);
    cloud.upstream.recreate(2);
    append_position(&cloud, "a", 2).await;
    append_position(&cloud, "z", 6).await;
    for _ in 0..2 {
        let (known, _) = known_after_start(&cloud, &disk, &["a", "z"]).await;
        assert_eq!(known, [Some(5), Some(6)], "the lower one does not replace");
    }

    // The tail was lost, and others took its place.
    append_position(&cloud, "a", 6).await;
    assert_eq!(known_after_start(&cloud, &disk, &["a"]).await.0, [Some(6)]);
    cloud.upstream.truncate(Partition(1), Offset(1));
    append_position(&cloud, "a", 7).await;
    let (known, _) = known_after_start(&cloud, &disk, &["a", "z"]).await;
    assert_eq!(known, [Some(7), Some(6)]);

    // What a downstream log made again discards of the fold does not concern the identities.
    headwater_follow::discard_fold(&*disk).expect("discarded");
    let (known, _) = known_after_start(&cloud, &disk, &["a", "z"]).await;
    assert_eq!(known, [Some(7), Some(6)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_that_only_listens_hears_of_a_later_start_that_another_hub_appends() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let settings = HubSettings { outranked_ms_min: 0, ..settings() };
    let hub = start(&cloud.logs(), &Arc::default(), settings, limits()).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    let mut other = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    other.receive_until("a welcome", TestEdge::is_open).await;
    // The hub that had the later start appends late what it took while the log was away.
    append_position(&cloud, "a", 5).await;
    assert_eq!(refused(edge.receive_end().await), RefusalCode::StaleIdentity);

    // The number that the edge raised its own to belongs to another start, too.
    let replicas = std::mem::take(&mut edge.replicas);
    let mut edge = TestEdge::resume(hub.address(), identity("a", 6, 6), replicas).await;
    edge.receive_until("some heartbeats", |edge| edge.heartbeats >= 2).await;
    append_start(&cloud, "a", Boot { number: 6, nonce: 5 }).await;
    assert_eq!(refused(edge.receive_end().await), RefusalCode::StaleIdentity);

    let replicas = std::mem::take(&mut edge.replicas);
    let mut edge = TestEdge::resume(hub.address(), identity("a", 7, 7), replicas).await;
    edge.receive_until("some heartbeats", |edge| edge.heartbeats >= 2).await;
    other.receive_until("some heartbeats", |edge| edge.heartbeats >= 2).await;
    assert!(edge.is_open() && other.is_open());
    hub.stop().await;
}
