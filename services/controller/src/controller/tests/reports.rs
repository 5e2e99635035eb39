//! What nodes report, as the cloud's picture shows it.

use headwater_event::presence::{PRESENCE_BEAT, PRESENCE_SILENCE_MAX};
use headwater_event::{ConnectedNode, DisconnectedNode, NodeState, PresenceUpdate};
use headwater_log::UpstreamLog;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::picture::changes::{ChangeFeed, PictureChange};
use crate::picture::{NodePresence, PresenceReceiver};

#[tokio::test]
async fn the_picture_has_the_newest_status_also_after_a_restart_and_a_cut() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    assert_eq!(phase(&running).await.as_deref(), Some("Pending"), "no node has reported");
    world.report("a", 5, status("Running")).await;
    world.report("a", 4, status("Stale")).await;
    world.report("a", 6, status("Succeeded")).await;
    until_true("the newest", async || phase(&running).await.as_deref() == Some("Succeeded")).await;
    running.controller.stop().await;

    world.report("a", 2, status("Stale")).await;
    world.report("a", 7, status("Failed")).await;
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    until_true("the newest", async || phase(&running).await.as_deref() == Some("Failed")).await;

    // The upstream log loses its end: the picture is folded anew.
    let partition = StreamId::node(&"a".parse().expect("a name")).partition(2);
    world.upstream.truncate(partition, headwater_event::Offset(1));
    world.report("a", 6, status("Unknown")).await;
    until_true("what is left", async || phase(&running).await.as_deref() == Some("Unknown")).await;

    running.delete("d/pod/p", "u-p").await;
    until_true("no pod", async || phase(&running).await.is_none()).await;
    running.controller.stop().await;
}

#[tokio::test]
async fn a_picture_that_fell_back_behind_compaction_is_folded_anew() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    world.report("a", 1, status("Running")).await;
    until_true("a status", async || phase(&running).await.as_deref() == Some("Running")).await;
    running.controller.stop().await;

    // Weeks later nothing is left in the log of the status, nor of its removal.
    world
        .report("a", 2, ReportBody::PodStatusRemoved { pod: pod_key(), uid: "u-p".to_owned() })
        .await;
    let hash = PodStatusSnapshot::new(&"a".parse().expect("a name")).hash();
    let closed = SnapshotClosed { hash, pods: 0, full: false, first: ReportId::default() };
    world.report("a", 3, ReportBody::SnapshotClosed(closed)).await;
    for _ in 0..2 {
        world.upstream.advance_clock(100 * 24 * 3600 * 1000);
        world.upstream.compact();
    }
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    until_true("no status", async || phase(&running).await.as_deref() == Some("Pending")).await;
    running.controller.stop().await;
}

/// The end of a snapshot of three pods that no reports make up.
fn wrong_closing() -> ReportBody {
    let hash = StateHash::from_bytes(&[7; 32]);
    let closed = SnapshotClosed { hash, pods: 3, full: false, first: ReportId::default() };
    ReportBody::SnapshotClosed(closed)
}

#[tokio::test]
async fn a_node_whose_reports_do_not_add_up_has_the_log_folded_anew_once_at_most() {
    const SETBACKS: &str = "headwater_controller_upstream_setbacks_total{kind=\"read\"}";
    let world = World::new();
    let setbacks = |running: &Running| metrics::value(&running.registry, SETBACKS);
    let reads = async |running: &Running, seq: u64| {
        let name = format!("Phase{seq}");
        world.report("a", seq, status(&name)).await;
        until_true("a report", async || phase(running).await.as_deref() == Some(&*name)).await;
    };
    let begin = async |seq: u64| {
        let running = world.start().await;
        running.list([pod("p", "c")]).await;
        reads(&running, seq).await;
        running
    };
    begin(1).await.controller.stop().await;
    // While nothing reads, something may have been missed.
    world.report("a", 2, wrong_closing()).await;
    let running = begin(3).await;
    until_true("a fold from the start", async || setbacks(&running) == Some(1.0)).await;
    reads(&running, 4).await;
    running.controller.stop().await;
    let running = begin(5).await;
    assert_eq!(setbacks(&running), Some(0.0), "the node itself is the cause");
    // Nothing is missed while the fold reads.
    world.report("b", 1, wrong_closing()).await;
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}});
    world.report("b", 2, ReportBody::Node { object: object.to_string().into() }).await;
    let node = Filter { kind: "node", name: "b", ..Filter::default() };
    until_true("the last report", async || {
        !running.controller.picture().objects(&node, 0).expect("readable").is_empty()
    })
    .await;
    running.controller.stop().await;
    let running = begin(6).await;
    assert_eq!(setbacks(&running), Some(0.0));
    running.controller.stop().await;
}

#[tokio::test]
async fn many_large_reports_at_once_are_more_than_one_batch_of_the_engine() {
    let world = World::new();
    for seq in 1..=24 {
        let pod = format!("d/pod/p{seq}").parse().expect("a key");
        let status = json!({ "phase": "Running", "message": "x".repeat(1 << 20) });
        let status = status.to_string().into();
        world.report("a", seq, ReportBody::PodStatus { pod, uid: "u".to_owned(), status }).await;
    }
    world.report("a", 25, status("Running")).await;
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    until_true("the last", async || phase(&running).await.as_deref() == Some("Running")).await;
    running.controller.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_does_not_add_up_is_asked_for_down_the_stream() {
    let world = World::new();
    let running = world.start().await;
    world.report("a", 1, wrong_closing()).await;
    running.folds("a").await;
    assert!(world.events_in("node/a").await.is_empty(), "nothing before everything is listed");
    running.list([pod("p", "c")]).await;
    until_true("a request", async || {
        world.events_in("node/a").await.iter().any(|event| event.contains("request"))
    })
    .await;
    running.controller.stop().await;
    // It is not taken back by the next comparison.
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    running.controller.stop().await;
    assert!(!world.events_in("node/a").await.iter().any(|event| event.starts_with("-")));
}

#[tokio::test]
async fn reports_are_folded_before_the_first_list_however_many_nodes_are_to_be_asked() {
    const NODES: u64 = 2_000;
    let world = World::new();
    let running = world.start().await;
    for n in 0..NODES {
        world.report(&format!("n{n}"), 1, wrong_closing()).await;
    }
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    let body = ReportBody::Node { object: object.to_string().into() };
    world.report("a", 1, body).await;
    let filter = Filter { kind: "node", name: "a", ..Filter::default() };
    until_true("the last report", async || {
        let nodes = running.controller.picture().objects(&filter, 0).expect("readable");
        !nodes.is_empty()
    })
    .await;
    running.controller.stop().await;
}

#[tokio::test]
async fn a_node_whose_snapshots_never_match_is_asked_once_and_delays_no_other() {
    const CLOSINGS: u64 = 3_000;
    let world = World::new();
    let running = world.start().await;
    let began = Instant::now();
    running.list([pod("p", "c")]).await;
    let series = |name: &str| metrics::value(&running.registry, name).unwrap_or_default();
    let appends = || series("headwater_controller_append_events_count");
    let before = appends();
    for seq in 1..=CLOSINGS {
        let hash = StateHash::from_bytes(&[7; 32]);
        let closed = SnapshotClosed { hash, pods: 3, full: false, first: ReportId::default() };
        world.report("a", seq, ReportBody::SnapshotClosed(closed)).await;
    }
    running.set(config("c", 1, "x")).await;
    running.folds("a").await;
    until_true("the change", async || {
        world.events_in("node/a").await.contains(&"+d/configmap/c".to_owned())
    })
    .await;
    let asked = || series("headwater_controller_snapshot_requests_total");
    until_true("a request", async || asked() >= 1.0).await;
    let asked = asked();
    let intervals = began.elapsed().as_secs_f64() / 10.0;
    assert!((1.0..=intervals + 1.0).contains(&asked), "asked {asked} times");
    assert!(appends() - before <= asked + 1.0, "{} appends", appends() - before);
    running.controller.stop().await;
}

#[tokio::test]
async fn a_pod_under_deletion_is_removed_when_its_node_reports_that_it_has_stopped() {
    let world = World::new();
    let running = world.start().await;
    let mut dying = pod_value("p", "c");
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    running.list([object(dying), pod("q", "c"), config("c", 1, "x")]).await;
    let terminated = |name: &str| ReportBody::PodTerminated {
        pod: format!("d/pod/{name}").parse().expect("a key"),
        uid: format!("u-{name}"),
    };
    world.report("a", 1, terminated("q")).await;
    world.report("a", 2, terminated("p")).await;
    until_true("the removal", async || {
        world.events_in("node/a").await.contains(&"-d/pod/p".to_owned())
    })
    .await;
    running.controller.stop().await;
    world.check("node/a", &["d/pod/q", "d/configmap/c"]).await;
}

#[tokio::test]
async fn the_end_of_a_pod_is_not_forgotten_over_a_restart() {
    let world = World::new();
    let running = world.start().await;
    let terminated =
        ReportBody::PodTerminated { pod: "d/pod/p".parse().expect("a key"), uid: "u-p".to_owned() };
    world.report("a", 1, terminated).await;
    running.folds("a").await;
    // Stopped before it could be met: nothing was listed yet.
    running.controller.stop().await;
    let running = world.start().await;
    let mut dying = pod_value("p", "c");
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    running.list([object(dying), pod("q", "c")]).await;
    until_true("the removal", async || {
        world.events_in("node/a").await.contains(&"-d/pod/p".to_owned())
    })
    .await;
    running.controller.stop().await;
    world.check("node/a", &["d/pod/q"]).await;
}

#[tokio::test]
async fn a_node_is_ready_while_its_hub_has_contact() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    let node: NodeName = "a".parse().expect("a name");
    let object = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    world.report("a", 1, ReportBody::Node { object: object.to_string().into() }).await;
    world.append_upstream(&node, position(&node, Vec::new())).await;
    let ready = |now_ms| {
        let filter = Filter { kind: "node", namespace: "", name: "a" };
        let objects = running.controller.picture().objects(&filter, now_ms).expect("readable");
        let node = objects.values().next().cloned().unwrap_or_default();
        node["status"]["conditions"][0]["status"].as_str().unwrap_or_default().to_owned()
    };
    // Only the log has its contact: the clock of the hub does not matter.
    until_true("a ready node", async || ready(2_000) == "True").await;
    assert_eq!((&*ready(0), &*ready(400_000)), ("True", "True"));
    // Its hub sends presence directly.
    let mut changes = running.controller.picture().changes();
    let link = running.controller.presence().connect("hub-1");
    let presence = || {
        let NodePresence { is_present, has_drained } =
            running.controller.picture().node_presence(&node);
        (is_present, has_drained)
    };
    assert_eq!(presence(), (false, false), "only the log has it");
    let connected = |lacks_worker, has_drained| {
        let state = Some(NodeState { lacks_worker, has_drained });
        PresenceUpdate::Connected(vec![ConnectedNode { node: node.clone(), state }])
    };
    link.receive(connected(false, false));
    link.receive(PresenceUpdate::Complete);
    let key: ResourceKey = "null/node/a".parse().expect("a key");
    let changed = Some(PictureChange::Keys([key].into()));
    assert_eq!(changes.next().await, changed);
    assert_eq!((ready(400_000).as_str(), presence()), ("True", (true, false)));
    for (lacks_worker, expected) in [(true, "Unknown"), (false, "True")] {
        link.receive(connected(lacks_worker, true));
        assert_eq!(changes.next().await, changed);
        assert_eq!((&*ready(400_000), presence()), (expected, (!lacks_worker, true)));
    }
    let gone = DisconnectedNode { node: node.clone(), silent_for: Duration::ZERO };
    link.receive(PresenceUpdate::Disconnected(vec![gone]));
    assert_eq!(changes.next().await, changed);
    assert_eq!((&*ready(2_000), presence()), ("Unknown", (false, false)));
    running.controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_hub_that_falls_silent_are_named() {
    let changes = ChangeFeed::new();
    let mut subscription = changes.subscribe();
    let presence = PresenceReceiver::new(changes);
    let _watching = AbortOnDropHandle::new(tokio::spawn(presence.clone().watch_silence()));
    let named = |name: &str| {
        let key = format!("null/node/{name}").parse().expect("a key");
        Some(PictureChange::Keys([key].into()))
    };
    let connected = |name: &str| {
        let node = name.parse().expect("a name");
        PresenceUpdate::Connected(vec![ConnectedNode { node, state: None }])
    };
    let (one, two) = (presence.connect("hub-1"), presence.connect("hub-2"));
    for (link, name) in [(&one, "a"), (&two, "b")] {
        link.receive(connected(name));
        assert_eq!(subscription.next().await, named(name));
    }
    // The first hub falls silent, then the second one, whose stream has ended, too.
    tokio::time::sleep(PRESENCE_BEAT).await;
    two.receive(PresenceUpdate::Complete);
    assert_eq!(subscription.next().await, named("b"));
    drop(two);
    let start = tokio::time::Instant::now();
    assert_eq!(subscription.next().await, named("a"));
    assert!(start.elapsed() <= PRESENCE_SILENCE_MAX, "{:?}", start.elapsed());
    assert_eq!(subscription.next().await, named("b"));
    assert!(start.elapsed() > PRESENCE_SILENCE_MAX, "{:?}", start.elapsed());
    one.receive(PresenceUpdate::Beat);
    assert_eq!(subscription.next().await, named("a"), "it is back");
}

#[tokio::test]
async fn a_node_that_reports_the_pods_of_another_changes_nothing_of_them() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    world.report("a", 1, status("Running")).await;
    until_true("a status", async || phase(&running).await.as_deref() == Some("Running")).await;
    // Node b names the pod of node a, with its UID, in every kind of report.
    let (pod, uid) = (pod_key(), "u-p".to_owned());
    let removed = ReportBody::PodStatusRemoved { pod: pod.clone(), uid: uid.clone() };
    world.report("b", 1, status("Failed")).await;
    world.report("b", 2, removed).await;
    world.report("b", 3, ReportBody::PodTerminated { pod, uid }).await;
    let hash = PodStatusSnapshot::new(&"a".parse().expect("a name")).hash();
    let first = ReportId { incarnation: Incarnation(1), boot: 1, seq: 4 };
    let closed = SnapshotClosed { hash, pods: 0, full: true, first };
    world.report("b", 4, ReportBody::SnapshotClosed(closed)).await;
    running.folds("b").await;
    assert_eq!(phase(&running).await.as_deref(), Some("Running"));
    assert!(!world.events_in("node/a").await.contains(&"-d/pod/p".to_owned()));
    running.controller.stop().await;
}

#[tokio::test]
async fn what_one_node_adds_to_the_picture_is_bounded() {
    const TERMINATIONS_MAX: usize = 1_024;
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    world.report("a", 1, status("Running")).await;
    let of = |number: usize| format!("d/pod/x{number}").parse().expect("a key");
    let mut seq = 1;
    for number in 0..NODE_PODS_MAX + 500 {
        let (uid, status) = (format!("u{number}"), Bytes::from_static(b"{}"));
        let reported = ReportBody::PodStatus { pod: of(number), uid: uid.clone(), status };
        for body in [reported, ReportBody::PodTerminated { pod: of(number), uid }] {
            seq += 1;
            world.report("a", seq, body).await;
        }
    }
    world.report("a", seq + 1, status("Succeeded")).await;
    until_true("its pod", async || phase(&running).await.as_deref() == Some("Succeeded")).await;
    let node = "a".parse().expect("a name");
    let kept = PodStatusFold::statuses(&*world.picture, &node, None, usize::MAX);
    assert_eq!(kept.expect("readable").len(), NODE_PODS_MAX);
    let ended = running.controller.picture().terminations().expect("readable").len();
    assert!(ended <= TERMINATIONS_MAX, "{ended}");
    // It is not asked again and again for what has no room.
    let closed = SnapshotClosed {
        hash: StateHash::from_bytes(&[7; 32]),
        pods: 9_999,
        full: false,
        first: ReportId::default(),
    };
    world.report("a", seq + 2, ReportBody::SnapshotClosed(closed)).await;
    world.report("a", seq + 3, status("Failed")).await;
    until_true("the rest", async || phase(&running).await.as_deref() == Some("Failed")).await;
    running.set(config("c", 2, "y")).await;
    until_true("the change", async || world.events_in("node/a").await.len() > 2).await;
    let asked = world.events_in("node/a").await.iter().any(|event| event.contains("request"));
    assert!(!asked, "{:?}", world.events_in("node/a").await);
    running.controller.stop().await;
}

#[tokio::test]
async fn a_node_without_a_stream_that_is_gone_for_long_leaves_the_picture() {
    const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let contact = |node: &str| {
        // The clock of a hub decides nothing: that of b is decades ahead, the others as far behind.
        let contact_ms = if node == "b" { 3_000_000_000_000 } else { 0 };
        let (world, node): (_, NodeName) = (&world, node.parse().expect("a name"));
        async move {
            let progress = NodeProgress { contact_ms, ..node_progress(Vec::new()) };
            let record = position_record(&node, &progress);
            world.append_upstream(&node, record).await;
        }
    };
    for node in ["a", "b", "c"] {
        world.report(node, 1, status("Running")).await;
        contact(node).await;
    }
    world.upstream.advance_clock(WEEK_MS + 1);
    contact("c").await;
    running.folds("c").await;
    running.controller.stop().await;
    // A controller that starts looks at the nodes with the first record that it reads.
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    until_true("b to be forgotten", async || {
        contact("c").await;
        let known = running.controller.picture().node_progress(0).expect("readable");
        known.len() == 2
    })
    .await;
    let known = |node: &str| {
        let node = node.parse().expect("a name");
        let rows = PodStatusFold::statuses(&*world.picture, &node, None, usize::MAX);
        rows.expect("readable").len()
    };
    assert_eq!(["a", "b", "c"].map(known), [1, 0, 1], "a has a stream, c was there today");
    running.controller.stop().await;
}

#[tokio::test]
async fn a_controller_that_starts_beside_an_upstream_partition_without_a_leader_shows_the_others() {
    let world = World::new();
    let nodes = [Partition(0), Partition(1)].map(|partition| {
        let is_there = |node: &NodeName| StreamId::node(node).partition(2) == partition;
        let mut nodes = (0..100).map(|number| format!("n{number}").parse().expect("a name"));
        nodes.find(is_there).expect("one of a hundred")
    });
    let report = async |seq: u64, phase: &str| {
        for node in &nodes {
            world.report(node.as_str(), seq, status(phase)).await;
        }
    };
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    report(1, "Running").await;
    for node in &nodes {
        running.folds(node.as_str()).await;
    }
    running.controller.stop().await;
    report(2, "Succeeded").await;
    world.upstream.set_partition_fault(Partition(1), Some(PartitionFault::NoLeader));

    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    let phases = || {
        nodes.each_ref().map(|node| {
            let reported = running.controller.picture().reported_pod(node, &pod_key());
            let reported = reported.expect("readable").expect("reported");
            let status: Value = serde_json::from_slice(&reported.status).expect("JSON");
            status["phase"].as_str().unwrap_or_default().to_owned()
        })
    };
    until_true("the report of the first node", async || phases()[0] == "Succeeded").await;
    assert_eq!(phases()[1], "Running", "as it was known before");
    let troubles = running.controller.picture_troubles().borrow().concat();
    assert!(troubles.contains("partition 1 of the upstream topic cannot be read"), "{troubles}");

    world.upstream.set_partition_fault(Partition(1), None);
    until_true("the report of the second node", async || phases()[1] == "Succeeded").await;
    assert_eq!(*running.controller.picture_troubles().borrow(), [""; 0]);
    running.controller.stop().await;
}

/// The records of the upstream log that a controller over `world` reads until its picture has them
/// all, and the status of the pod then.
async fn read_at_start(world: &World) -> (u64, Option<String>) {
    let upstream = world.upstream.handle();
    let (source, script) = script();
    let running = world.start_reading(upstream.clone(), vec![script], source).await;
    running.list([pod("p", "c")]).await;
    let last = status_seq(world).await.to_string();
    until_true("the last", async || phase(&running).await.as_deref() == Some(&*last)).await;
    let read = (upstream.records_read(), phase(&running).await);
    running.controller.stop().await;
    read
}

/// The number of records in the upstream log's partition of node `a`: each status names its own.
async fn status_seq(world: &World) -> u64 {
    let partition = StreamId::node(&"a".parse().expect("a name")).partition(2);
    world.upstream.bounds(partition).await.expect("there").high.0
}

#[tokio::test]
async fn a_controller_with_its_disk_reads_only_the_reports_since_and_one_without_reads_them_once() {
    let world = World::new();
    // The controller that creates the log reads the upstream log once more, for its generation.
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    running.controller.stop().await;
    for seq in 1..=40 {
        world.report("a", seq, status(&seq.to_string())).await;
    }
    assert_eq!(read_at_start(&world).await, (40, Some("40".to_owned())));
    assert_eq!(read_at_start(&world).await, (0, Some("40".to_owned())));
    for seq in 41..=43 {
        world.report("a", seq, status(&seq.to_string())).await;
    }
    assert_eq!(read_at_start(&world).await, (3, Some("43".to_owned())));
    let without_disk = world.usurped();
    assert_eq!(read_at_start(&without_disk).await, (43, Some("43".to_owned())));
}

#[tokio::test]
async fn a_position_of_an_earlier_version_does_not_replace_one_that_is_kept_apart() {
    let world = World::new();
    let positions = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
    let node: NodeName = "a".parse().expect("a name");
    let upstream: Arc<dyn Log> =
        Arc::new(UpstreamLog::new(Arc::new(world.upstream.clone()), Arc::new(positions)));
    let apart = upstream.describe().await.expect("there").position_partition(&node);
    let append = async |is_apart: bool, boot: u64, contact_ms: i64| {
        let boot = Boot { number: boot, nonce: boot };
        let progress = NodeProgress { contact_ms, boot, ..node_progress(Vec::new()) };
        let partition = if is_apart { apart } else { StreamId::node(&node).partition(2) };
        let record = position_record(&node, &progress);
        upstream.append(vec![Append { partition, record }]).await.expect("appended");
    };
    append(false, 1, 1_000).await;
    append(true, 2, 2_000).await;
    // The order in which the topics are read is not fixed.
    for _ in 0..4 {
        let world = world.usurped();
        let (_source, script) = script();
        let logs =
            Logs { downstream: Arc::new(world.downstream.handle()), upstream: upstream.clone() };
        let (controller, registry) = world
            .start_over(logs, world.published.clone(), Box::new(PodRemoval), vec![script])
            .await;
        for partition in [StreamId::node(&node).partition(2), apart] {
            let lag =
                format!("headwater_controller_upstream_lag_records{{partition=\"{partition}\"}}");
            until_true("the fold", async || metrics::value(&registry, &lag) == Some(0.0)).await;
        }
        let known = controller.picture().node_progress(0).expect("readable");
        assert_eq!(known[&node].boot.number, 2);
        controller.stop().await;
    }
    // A hub of an earlier version that the node moves to is followed.
    append(false, 3, 3_000).await;
    let (_source, script) = script();
    let logs = Logs { downstream: Arc::new(world.downstream.handle()), upstream: upstream.clone() };
    let world = world.usurped();
    let (controller, _) =
        world.start_over(logs, world.published.clone(), Box::new(PodRemoval), vec![script]).await;
    until_true("the later one", async || {
        let known = controller.picture().node_progress(0).expect("readable");
        known.get(&node).is_some_and(|known| known.boot.number == 3)
    })
    .await;
    controller.stop().await;
}

#[tokio::test]
async fn the_late_end_of_a_connection_does_not_replace_the_next_connection() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "a")]).await;
    let node: NodeName = "a".parse().expect("a name");
    let connection = |hub: &str, connection, connected| NodeProgress {
        hub: hub.to_owned(),
        connection,
        connected,
        ..node_progress(Vec::new())
    };
    let (late, present) = (connection("one", 1, false), connection("two", 2, true));
    // The first hub finds the node silent after the second one has welcomed it.
    for progress in [&connection("one", 1, true), &present, &late] {
        world.append_upstream(&node, position_record(&node, progress)).await;
    }
    world.report("a", 1, status("Running")).await;
    until_true("the report", async || phase(&running).await.as_deref() == Some("Running")).await;
    let known = running.controller.picture().node_progress(0).expect("readable");
    assert_eq!((&*known[&node].hub, known[&node].connected), ("two", true));
    running.controller.stop().await;
}

/// An Event about pod d/p that happened so often.
fn event(name: &str, count: u32) -> ReportBody {
    let object = json!({
        "involvedObject": {"kind": "Pod", "namespace": "d", "name": "p", "uid": "u-p"},
        "reason": "BackOff", "message": "it fails", "type": "Warning", "count": count,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:09Z",
    });
    let key = format!("d/event/{name}").parse().expect("a key");
    ReportBody::Event { key, object: object.to_string().into() }
}

#[tokio::test]
async fn an_event_is_in_the_picture_until_it_is_discarded_and_then_leaves_the_log() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    let picture = running.controller.picture();
    let mut changes = picture.changes();
    let key: ResourceKey = "d/event/p.1".parse().expect("a key");
    let count = || {
        let event = picture.event(&key).expect("readable")?;
        event.event["count"].as_u64()
    };
    world.report("a", 1, event("p.1", 1)).await;
    until_true("an Event", async || count() == Some(1)).await;
    let is_named = async {
        loop {
            match changes.next().await {
                Some(PictureChange::Keys(keys)) if !keys.contains(&key) => {}
                Some(_) => break true,
                None => break false,
            }
        }
    };
    let is_named = timeout(Duration::from_secs(30), is_named).await;
    assert_eq!(is_named, Ok(true), "its key is among the changes");
    let stale = picture.event(&key).expect("readable").expect("there");
    assert_eq!(stale.node.as_str(), "a");
    world.report("a", 3, event("p.1", 2)).await;
    until_true("its repetition", async || count() == Some(2)).await;
    // An older report, another node's, and what is no Event change nothing.
    world.report("a", 2, event("p.1", 9)).await;
    world.report("b", 9, event("p.1", 9)).await;
    world.report("b", 10, event("p.other", 1)).await;
    let malformed = ReportBody::Event { key: key.clone(), object: "[]".into() };
    world.report("a", 4, malformed).await;
    running.folds("a").await;
    running.folds("b").await;
    assert_eq!(count(), Some(2));
    let node = |name: &str| name.parse::<NodeName>().expect("a name");
    let of = |name: &str| picture.events(&node(name)).expect("readable").len();
    assert_eq!((of("a"), of("b")), (1, 0), "an Event of node b is about a pod of node a");
    let filter = Filter { kind: "event", namespace: "d", name: "" };
    let listed = picture.objects(&filter, 0).expect("readable");
    assert_eq!(listed.keys().collect::<Vec<_>>(), [&key]);
    // The API has an older one, then this one.
    picture.discard_event(&stale);
    let latest = picture.event(&key).expect("readable").expect("there");
    picture.discard_event(&latest);
    until_true("its end", async || count().is_none()).await;
    let last = records_of(&world.upstream)
        .await
        .into_iter()
        .rev()
        .find(|recorded| recorded.record.key.ends_with(b"d/event/p.1"));
    assert_eq!(last.expect("there").record.value, None, "the log has it no longer");
    running.controller.stop().await;

    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    world.report("a", 20, event("p.2", 1)).await;
    let has =
        |key: &ResourceKey| running.controller.picture().event(key).expect("readable").is_some();
    let next = "d/event/p.2".parse().expect("a key");
    until_true("the next Event", async || has(&next)).await;
    assert!(!has(&key));
    running.controller.stop().await;
}
