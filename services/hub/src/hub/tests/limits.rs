//! The limits of a hub, with settings so small that a test reaches them.

use futures::future::join_all;
use headwater_proto::replication::replication_client::ReplicationClient;
use rand::SeedableRng as _;
use rand::distr::{Alphanumeric, SampleString as _};
use rand::rngs::StdRng;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::*;
use crate::session::{Arrival, SessionTask};

/// Bytes of the task of a session; a hub has ten thousand. Its largest parts are the session, and the
/// wait for the next input.
const SESSION_TASK_BYTES_MAX: usize = 2_560;

/// A window that nothing here fills, so that the socket is what blocks a session.
const WINDOW: u64 = 64 << 20;

/// An object of 100 kB that no packing makes smaller than half of that.
fn large() -> Option<String> {
    let noise = Alphanumeric.sample_string(&mut StdRng::seed_from_u64(1), 100_000);
    Some(format!("{{\"data\":\"{noise}\"}}"))
}

/// A cloud whose node `a` has more state than a window or an unread socket takes.
async fn cloud_with_a_large_node(nodes: &[&str]) -> TestCloud {
    let mut cloud = TestCloud::new(nodes).await;
    for n in 0..60 {
        cloud.set("node/a", &format!("c{n}"), large()).await;
    }
    cloud
}

async fn hub_within(cloud: &TestCloud, limits: HubLimits) -> HubHandle {
    let settings = HubSettings { frame_bytes_max: 110_000, window_bytes: WINDOW, ..settings() };
    let hub = start(&cloud.logs(), &Arc::new(MemoryEngine::new()), settings, limits).await;
    until_true("a hub that has read its log", async || hub.view().is_reconciled()).await;
    hub
}

/// A session of node `a` that reads the first push of its snapshot, acknowledges nothing, and
/// reads no more.
async fn stalled(hub: &HubHandle, window_bytes: u64) -> impl Sized + use<> {
    let (sender, mut receiver) = dial(hub.address()).await.expect("a session");
    let hello = Hello { window_bytes, ..hello(identity("a", 1, 1), Vec::new()) };
    sender.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    loop {
        let message = timeout(SOON, receiver.message()).await.expect("soon").expect("a session");
        let message = HubMessage::try_from(message.expect("a message")).expect("well-formed");
        if matches!(message, HubMessage::Push(_)) {
            return (sender, receiver);
        }
    }
}

fn is_connected(hub: &HubHandle, node: &str) -> bool {
    hub.view().node_positions().iter().any(|(of, at)| of.as_str() == node && at.connected)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_that_comes_before_the_log_is_born_waits_and_is_welcomed() {
    let logs = logs();
    let hub = start(&logs, &Arc::new(MemoryEngine::new()), settings(), limits()).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    let mut cloud = TestCloud::over(&logs, None).await;
    cloud.assign("a").await;
    cloud.writer.reconciled().await.expect("appended");
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    assert!(edge.end.is_none());
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kept_position_of_a_node_that_left_is_its_last_one() {
    let cloud = TestCloud::new(&["a"]).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    let node = edge.node().clone();
    let private = StreamId::node(&node);
    let position = || {
        let progress = hub.view().node_positions().remove(&node)?;
        let stream = progress.streams.into_iter().find(|stream| stream.stream == private)?;
        let s = stream;
        Some((progress.connected, [s.acked, s.durable, s.applied, s.sent, s.tail].map(|p| p.0)))
    };
    until_true("an acknowledgement", async || position() == Some((true, [1; 5]))).await;
    hub.view().set_link(&node, true);
    assert_eq!(refused(edge.receive_end().await), RefusalCode::Unavailable);
    until_true("a node that left", async || position() == Some((false, [1; 5]))).await;
    until_true("the same in the log", async || {
        let last = cloud.positions(&node).await.pop();
        last.is_some_and(|last| !last.connected && last.streams.iter().any(|s| s.acked == Seq(1)))
    })
    .await;
    // A connection that is refused changes nothing of it.
    let mut again = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    assert_eq!(refused(again.receive_end().await), RefusalCode::Unavailable);
    assert_eq!(position(), Some((false, [1; 5])));
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_hub_admits_only_nodes_that_have_a_session() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let hub = hub_within(&cloud, HubLimits { sessions_max: 1, ..limits() }).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    let mut other = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    assert_eq!(refused(other.receive_end().await), RefusalCode::Unavailable);
    let mut again = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    again.receive_until("a welcome", TestEdge::is_open).await;
    assert_eq!(refused(edge.receive_end().await), RefusalCode::Superseded);
    drop((edge, again));
    until_true("a place", async || {
        let mut other = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
        other.receive_until("an answer", |edge| edge.is_open() || edge.end.is_some()).await;
        other.is_open()
    })
    .await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_counted_and_a_silent_one_is_closed() {
    let cloud = TestCloud::new(&["a"]).await;
    let limits = HubLimits { connections_max: 2, ..impatient() };
    let hub = hub_within(&cloud, limits.clone()).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    let opened = Instant::now();
    let mut silent = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let mut beyond = TcpStream::connect(hub.address()).await.expect("the hub listens");
    // Closed, or reset: both end the reading.
    let mut bytes = Vec::new();
    let _ = timeout(SOON, beyond.read_to_end(&mut bytes)).await.expect("no room for it");
    assert!(bytes.is_empty(), "nothing was served on it");
    let _ = timeout(SOON, silent.read_to_end(&mut bytes)).await.expect("its time is over");
    assert!(opened.elapsed() >= limits.hello_within, "the silent one had its time");
    // The edge that sent a hello stays.
    edge.report(1).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_a_bounded_number_of_connections_without_a_hello() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let patient = Duration::from_secs(3600);
    let limits = HubLimits { address_pending_max: 1, hello_within: patient, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    // A connection counts until its hello.
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.report(1).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    let silent = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let mut beyond = TcpStream::connect(hub.address()).await.expect("the hub listens");
    // Closed, or reset: both end the reading.
    let mut bytes = Vec::new();
    let _ = timeout(SOON, beyond.read_to_end(&mut bytes)).await.expect("no room for it");
    assert!(bytes.is_empty(), "nothing was served on it");
    edge.report(2).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    drop(silent);
    until_true("room for another edge", async || {
        let address = format!("http://{}", hub.address());
        let Ok(mut client) = ReplicationClient::connect(address).await else { return false };
        client.session(tokio_stream::empty()).await.is_ok()
    })
    .await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_silent_edge_ends() {
    let silence_ms_max = HubSettings::default().silence_ms_max;
    assert!(silence_ms_max <= 45_000, "a half-open link ends within 45 s");
    let cloud = TestCloud::new(&["a"]).await;
    let settings = HubSettings { silence_ms_max: 3_000, ..settings() };
    let hub = start(&cloud.logs(), &Arc::new(MemoryEngine::new()), settings, limits()).await;
    until_true("a hub that has read its log", async || hub.view().is_reconciled()).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    // It receives the hub's heartbeats and sends nothing, as an edge whose messages get lost.
    assert_eq!(refused(edge.receive_end().await), RefusalCode::Unavailable);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hellos_beyond_the_rate_are_refused_for_now() {
    let cloud = TestCloud::new(&["a"]).await;
    let limits = HubLimits { hellos_per_second: 1, hellos_at_once: 2, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let address = hub.address();
    let edges = (0..40).map(|n| async move {
        let mut edge = TestEdge::connect(address, identity(&format!("n{n}"), 1, 1)).await;
        edge.receive_until("an answer", |edge| edge.is_open() || edge.end.is_some()).await;
        edge
    });
    let edges = join_all(edges).await;
    assert!(edges.iter().filter(|edge| edge.is_open()).count() >= 2);
    let ends: Vec<_> = edges.into_iter().filter_map(|edge| edge.end).collect();
    assert!(!ends.is_empty(), "forty at once are too many");
    for end in ends {
        assert_eq!(refused(end), RefusalCode::Unavailable);
    }
    until_true("a token", async || {
        let mut edge = TestEdge::connect(address, identity("a", 1, 1)).await;
        edge.receive_until("an answer", |edge| edge.is_open() || edge.end.is_some()).await;
        edge.is_open()
    })
    .await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_edge_of_an_old_session_connects_again_and_continues() {
    let mut cloud = TestCloud::new(&["a"]).await;
    let age = Duration::from_secs(2);
    let jitter = Duration::ZERO;
    let limits = HubLimits { connection_age: age, connection_age_jitter: jitter, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    assert!(matches!(edge.receive_end().await, EdgeCloseReason::Moved { .. }));
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    let mut edge = TestEdge::resume(hub.address(), identity("a", 1, 1), edge.replicas).await;
    edge.receive_until("the rest", |edge| edge.seq("node/a") == 2).await;
    assert_eq!(edge.modes("node/a"), [PushMode::Tail]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_nothing_loses_its_session_and_resumes() {
    let cloud = cloud_with_a_large_node(&["a", "b"]).await;
    let within = Duration::from_secs(5);
    let limits = HubLimits { outbound_messages_max: 1, outbound_within: within, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let mut edge = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/b") == 1).await;
    let held_open = stalled(&hub, WINDOW).await;
    let node = identity("a", 1, 1).node;
    until_true("the end of the session", async || {
        cloud.positions(&node).await.last().is_some_and(|last| !last.connected)
    })
    .await;
    edge.report(1).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    let mut again = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    again.receive_until("everything", |edge| edge.seq("node/a") == 61).await;
    again.check_prefix(&cloud);
    drop(held_open);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_slot_one_session_catches_up_at_a_time_and_reports_continue() {
    let cloud = cloud_with_a_large_node(&["a", "b"]).await;
    let long = Duration::from_secs(3600);
    let limits = HubLimits { transfers_max: 1, transfer_within: long, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let stalled = stalled(&hub, 1 << 20).await;
    let mut edge = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.report(1).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    edge.report(2).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    assert!(edge.pushes.is_empty(), "it has no slot yet");
    drop(stalled);
    edge.receive_until("its slot", |edge| edge.seq("node/b") == 1).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_transfer_delays_another_for_no_longer_than_its_slot() {
    let cloud = cloud_with_a_large_node(&["a", "b"]).await;
    let short = Duration::from_millis(50);
    let limits = HubLimits { transfers_max: 1, transfer_within: short, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let _stalled = stalled(&hub, 1 << 20).await;
    let mut edge = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.receive_until("its slot", |edge| edge.seq("node/b") == 1).await;
    assert!(is_connected(&hub, "a"), "a slow edge keeps its session");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_passes_few_slots_and_all_take_the_same_shared_snapshot() {
    let names: Vec<_> = (0..20).map(|n| format!("n{n}")).collect();
    let mut cloud = TestCloud::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for n in 0..7 {
        cloud.set("cluster", &format!("s{n}"), large()).await;
    }
    let hub = hub_within(&cloud, HubLimits { transfers_max: 2, ..limits() }).await;
    let address = hub.address();
    let edges = join_all(names.iter().map(|name| async move {
        let mut edge = TestEdge::connect(address, identity(name, 1, 1)).await;
        let private = format!("node/{name}");
        edge.receive_until("a snapshot", |e| e.seq(&private) == 1 && e.seq("cluster") == 7).await;
        edge
    }));
    for edge in edges.await {
        edge.check_prefix(&cloud);
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_ends_its_own_session_only() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    cloud.set("node/a", "large", large()).await;
    let limits = HubLimits {
        send_bytes_max: 50_000,
        receive_bytes_max: 50_000,
        header_list_bytes_max: 1_000,
        ..limits()
    };
    let hub = hub_within(&cloud, limits).await;
    let mut edge = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/b") == 1).await;

    // A message to the edge.
    let (sender, mut receiver) = dial(hub.address()).await.expect("a session");
    let message = EdgeMessage::Hello(hello(identity("a", 1, 1), Vec::new()));
    sender.send(message.into()).await.expect("sent");
    let ended = async { while receiver.message().await.is_ok_and(|message| message.is_some()) {} };
    timeout(SOON, ended).await.expect("too large to send");

    // A message of the edge.
    let (sender, mut receiver) = dial(hub.address()).await.expect("a session");
    let object = vec![b' '; 60_000].into();
    let body = ReportBody::Node { object };
    let reports = vec![Report { id: ReportId::default(), body, traceparent: None }];
    let message = EdgeMessage::Reports(Reports { after: None, reports });
    sender.send(message.into()).await.expect("sent");
    timeout(SOON, receiver.message()).await.expect("soon").expect_err("too large to read");

    // Headers.
    let address = format!("http://{}", hub.address());
    let mut client = ReplicationClient::connect(address).await.expect("the hub listens");
    let mut request = tonic::Request::new(tokio_stream::empty());
    let header = "x".repeat(2_000).parse().expect("a header");
    request.metadata_mut().insert("x-large", header);
    let answered = async { client.session(request).await?.into_inner().message().await };
    timeout(SOON, answered).await.expect("soon").expect_err("too many headers");

    edge.report(1).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_no_more_streams_than_allowed() {
    let cloud = TestCloud::new(&["a"]).await;
    let hub = hub_within(&cloud, HubLimits { streams_per_connection: 1, ..limits() }).await;
    let address = format!("http://{}", hub.address());
    let mut client = ReplicationClient::connect(address).await.expect("the hub listens");
    let (sender, outgoing) = tokio::sync::mpsc::channel(4);
    let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut first = client.session(outgoing).await.expect("a session").into_inner();
    let message = EdgeMessage::Hello(hello(identity("a", 1, 1), Vec::new()));
    sender.send(message.into()).await.expect("sent");
    // The second waits in the client, since the hub has sender how many it takes.
    let mut second = std::pin::pin!(client.session(tokio_stream::empty()));
    // A welcome, its streams, a heartbeat.
    for _ in 0..4 {
        tokio::select! {
            biased;
            _ = &mut second => panic!("two streams at once"),
            receiver = timeout(SOON, first.message()) => {
                receiver.expect("soon").expect("a session").expect("a message");
            }
        }
    }
    drop((sender, first));
    timeout(SOON, second).await.expect("soon").expect("the first is over");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_session_is_small() {
    let cloud = TestCloud::new(&["a"]).await;
    let hub = hub_within(&cloud, limits()).await;
    let (outbound, _outgoing) = tokio::sync::mpsc::channel(1);
    let arrival = Arrival {
        session: hub.hub.sessions.next_id(),
        node: "a".parse().expect("a name"),
        valid_until: None,
        trust: None,
        hello: hello(identity("a", 1, 1), Vec::new()),
    };
    let messages = futures::stream::pending();
    let task = SessionTask::serve(hub.hub.clone(), Box::new(arrival), messages, outbound);
    let bytes = size_of_val(&task);
    assert!(bytes <= SESSION_TASK_BYTES_MAX, "{bytes} bytes");
    drop(task);
    hub.stop().await;
}
