//! What a hub allows all of its edges together, with settings so small that they are met.

use futures::future::join_all;
use headwater_proto::replication::replication_client::ReplicationClient;
use rand::SeedableRng as _;
use rand::distr::{Alphanumeric, SampleString as _};
use rand::rngs::StdRng;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::*;

/// A window that nothing here fills: what holds a session up is the socket.
const WINDOW: u64 = 64 << 20;

/// An object of 100 kB that no packing makes smaller than half of that.
fn large() -> Option<String> {
    let noise = Alphanumeric.sample_string(&mut StdRng::seed_from_u64(1), 100_000);
    Some(format!("{{\"data\":\"{noise}\"}}"))
}

/// A cloud whose node `a` has more state than a window or an unread socket takes.
async fn cloud_with_a_large_node(nodes: &[&str]) -> Cloud {
    let mut cloud = Cloud::new(nodes).await;
    for n in 0..60 {
        cloud.set("node/a", &format!("c{n}"), large()).await;
    }
    cloud
}

async fn hub_within(cloud: &Cloud, limits: HubLimits) -> HubHandle {
    let settings = HubSettings { frame_bytes_max: 110_000, window_bytes: WINDOW, ..settings() };
    let hub = start(&cloud.logs(), &Arc::new(MemoryEngine::new()), settings, limits).await;
    until_true("a hub that has read its log", async || hub.view().is_reconciled()).await;
    hub
}

/// A session of node `a` that reads the first push of its snapshot, says nothing of it, and
/// reads no more.
async fn stalled(hub: &HubHandle, window_bytes: u64) -> impl Sized + use<> {
    let (said, mut heard) = dial(hub.address()).await.expect("a session");
    let hello = Hello { window_bytes, ..hello(identity("a", 1, 1), Vec::new()) };
    said.send(EdgeMessage::Hello(hello).into()).await.expect("heard");
    loop {
        let message = timeout(SOON, heard.message()).await.expect("soon").expect("a session");
        let message = HubMessage::try_from(message.expect("a message")).expect("well-formed");
        if matches!(message, HubMessage::Push(_)) {
            return (said, heard);
        }
    }
}

fn is_connected(hub: &HubHandle, node: &str) -> bool {
    hub.view().standings().iter().any(|(of, at)| of.as_str() == node && at.connected)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_that_comes_before_the_log_is_born_waits_and_is_welcomed() {
    let logs = logs();
    let hub = start(&logs, &Arc::new(MemoryEngine::new()), settings(), limits()).await;
    let mut edge = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    let mut cloud = Cloud::over(&logs, None).await;
    cloud.assign("a").await;
    cloud.writer.reconciled().await.expect("appended");
    edge.hear_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    assert!(edge.end.is_none());
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_of_a_node_that_left_is_where_it_stood() {
    let cloud = Cloud::new(&["a"]).await;
    let hub = hub(&cloud).await;
    let mut edge = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.hear_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    let node = edge.node().clone();
    let private = StreamId::node(&node);
    let stood = || {
        let standing = hub.view().standings().remove(&node)?;
        let stream = standing.streams.into_iter().find(|stream| stream.stream == private)?;
        let s = stream;
        Some((standing.connected, [s.acked, s.durable, s.applied, s.sent, s.tail].map(|p| p.0)))
    };
    until_true("an acknowledgement", async || stood() == Some((true, [1; 5]))).await;
    hub.view().set_link(&node, true);
    assert_eq!(refused(edge.hear_end().await), RefusalCode::Unavailable);
    until_true("a node that left", async || stood() == Some((false, [1; 5]))).await;
    until_true("the same in the log", async || {
        let last = cloud.standings(&node).await.pop();
        last.is_some_and(|last| !last.connected && last.streams.iter().any(|s| s.acked == Seq(1)))
    })
    .await;
    // A connection that is refused changes nothing of it.
    let mut again = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    assert_eq!(refused(again.hear_end().await), RefusalCode::Unavailable);
    assert_eq!(stood(), Some((false, [1; 5])));
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_sessions_than_allowed_but_a_node_takes_its_own_place() {
    let cloud = Cloud::new(&["a", "b"]).await;
    let hub = hub_within(&cloud, HubLimits { sessions_max: 1, ..limits() }).await;
    let mut edge = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.hear_until("a welcome", Edge::is_open).await;
    let mut other = Edge::connect(hub.address(), identity("b", 1, 1)).await;
    assert_eq!(refused(other.hear_end().await), RefusalCode::Unavailable);
    let mut again = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    again.hear_until("a welcome", Edge::is_open).await;
    assert_eq!(refused(edge.hear_end().await), RefusalCode::Superseded);
    drop((edge, again));
    until_true("a place", async || {
        let mut other = Edge::connect(hub.address(), identity("b", 1, 1)).await;
        other.hear_until("an answer", |edge| edge.is_open() || edge.end.is_some()).await;
        other.is_open()
    })
    .await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_counted_and_one_that_says_nothing_is_closed() {
    let cloud = Cloud::new(&["a"]).await;
    let hub = hub_within(&cloud, HubLimits { connections_max: 2, ..limits() }).await;
    let mut edge = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.hear_until("a welcome", Edge::is_open).await;
    let opened = Instant::now();
    let mut silent = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let mut beyond = TcpStream::connect(hub.address()).await.expect("the hub listens");
    // Closed, or reset: both end the reading.
    let mut bytes = Vec::new();
    let _ = timeout(SOON, beyond.read_to_end(&mut bytes)).await.expect("no room for it");
    assert!(bytes.is_empty(), "nothing was served on it");
    let _ = timeout(SOON, silent.read_to_end(&mut bytes)).await.expect("its time is over");
    assert!(opened.elapsed() >= limits().hello_within, "the silent one had its time");
    // Whoever said hello stays.
    edge.report(1).await;
    edge.hear_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_that_falls_silent_is_given_up() {
    let silence_ms_max = HubSettings::default().silence_ms_max;
    assert!(silence_ms_max <= 45_000, "a half-open link ends within 45 s");
    let cloud = Cloud::new(&["a"]).await;
    let settings = HubSettings { silence_ms_max: 400, ..settings() };
    let hub = start(&cloud.logs(), &Arc::new(MemoryEngine::new()), settings, limits()).await;
    let mut edge = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.hear_until("a welcome", Edge::is_open).await;
    // It hears the hub's heartbeats and says nothing any more, as one whose words get lost.
    assert_eq!(refused(edge.hear_end().await), RefusalCode::Unavailable);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hellos_beyond_the_rate_are_told_to_come_back() {
    let cloud = Cloud::new(&["a"]).await;
    let limits = HubLimits { hellos_per_second: 1, hellos_at_once: 2, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let address = hub.address();
    let edges = (0..40).map(|n| async move {
        let mut edge = Edge::connect(address, identity(&format!("n{n}"), 1, 1)).await;
        edge.hear_until("an answer", |edge| edge.is_open() || edge.end.is_some()).await;
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
        let mut edge = Edge::connect(address, identity("a", 1, 1)).await;
        edge.hear_until("an answer", |edge| edge.is_open() || edge.end.is_some()).await;
        edge.is_open()
    })
    .await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_session_is_told_to_connect_again_and_goes_on_where_it_was() {
    let mut cloud = Cloud::new(&["a"]).await;
    let age = Duration::from_millis(300);
    let jitter = Duration::ZERO;
    let limits = HubLimits { connection_age: age, connection_age_jitter: jitter, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let mut edge = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.hear_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    assert!(matches!(edge.hear_end().await, EdgeCloseReason::Moved { .. }));
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    let mut edge = Edge::resume(hub.address(), identity("a", 1, 1), edge.replicas).await;
    edge.hear_until("the rest", |edge| edge.seq("node/a") == 2).await;
    assert_eq!(edge.modes("node/a"), [PushMode::Tail]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_nothing_loses_its_session_and_resumes() {
    let cloud = cloud_with_a_large_node(&["a", "b"]).await;
    let within = Duration::from_millis(200);
    let limits = HubLimits { outbound_messages_max: 1, outbound_within: within, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let mut edge = Edge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.hear_until("a snapshot", |edge| edge.seq("node/b") == 1).await;
    let held_open = stalled(&hub, WINDOW).await;
    let node = identity("a", 1, 1).node;
    until_true("the end of the session", async || {
        cloud.standings(&node).await.last().is_some_and(|last| !last.connected)
    })
    .await;
    edge.report(1).await;
    edge.hear_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    let mut again = Edge::connect(hub.address(), identity("a", 1, 1)).await;
    again.hear_until("everything", |edge| edge.seq("node/a") == 61).await;
    again.check_prefix(&cloud);
    drop(held_open);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_catches_up_at_a_time_where_one_may_and_the_rest_goes_on() {
    let cloud = cloud_with_a_large_node(&["a", "b"]).await;
    let long = Duration::from_secs(3600);
    let limits = HubLimits { catch_ups_max: 1, catch_up_turn: long, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let stalled = stalled(&hub, 1 << 20).await;
    let mut edge = Edge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.report(1).await;
    edge.hear_until("a welcome", Edge::is_open).await;
    edge.report(2).await;
    edge.hear_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    assert!(edge.pushes.is_empty(), "it is not its turn");
    drop(stalled);
    edge.hear_until("its turn", |edge| edge.seq("node/b") == 1).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_catch_up_delays_another_for_no_longer_than_a_turn() {
    let cloud = cloud_with_a_large_node(&["a", "b"]).await;
    let short = Duration::from_millis(50);
    let limits = HubLimits { catch_ups_max: 1, catch_up_turn: short, ..limits() };
    let hub = hub_within(&cloud, limits).await;
    let _stalled = stalled(&hub, 1 << 20).await;
    let mut edge = Edge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.hear_until("its turn", |edge| edge.seq("node/b") == 1).await;
    assert!(is_connected(&hub, "a"), "who is slow keeps its session");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_gets_through_few_turns_and_all_take_the_same_shared_snapshot() {
    let names: Vec<_> = (0..20).map(|n| format!("n{n}")).collect();
    let mut cloud = Cloud::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for n in 0..7 {
        cloud.set("cluster", &format!("s{n}"), large()).await;
    }
    let hub = hub_within(&cloud, HubLimits { catch_ups_max: 2, ..limits() }).await;
    let address = hub.address();
    let edges = join_all(names.iter().map(|name| async move {
        let mut edge = Edge::connect(address, identity(name, 1, 1)).await;
        let private = format!("node/{name}");
        edge.hear_until("a snapshot", |e| e.seq(&private) == 1 && e.seq("cluster") == 7).await;
        edge
    }));
    for edge in edges.await {
        edge.check_prefix(&cloud);
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_ends_its_own_session_only() {
    let mut cloud = Cloud::new(&["a", "b"]).await;
    cloud.set("node/a", "large", large()).await;
    let limits = HubLimits {
        send_bytes_max: 50_000,
        receive_bytes_max: 50_000,
        header_list_bytes_max: 1_000,
        ..limits()
    };
    let hub = hub_within(&cloud, limits).await;
    let mut edge = Edge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.hear_until("a snapshot", |edge| edge.seq("node/b") == 1).await;

    // What the hub would send.
    let (said, mut heard) = dial(hub.address()).await.expect("a session");
    let message = EdgeMessage::Hello(hello(identity("a", 1, 1), Vec::new()));
    said.send(message.into()).await.expect("heard");
    let ended = async { while heard.message().await.is_ok_and(|message| message.is_some()) {} };
    timeout(SOON, ended).await.expect("too large to send");

    // What the hub would read.
    let (said, mut heard) = dial(hub.address()).await.expect("a session");
    let object = vec![b' '; 60_000].into();
    let body = ReportBody::Node { object };
    let reports = vec![Report { id: ReportId::default(), body, traceparent: None }];
    let message = EdgeMessage::Reports(Reports { after: None, reports });
    said.send(message.into()).await.expect("heard");
    timeout(SOON, heard.message()).await.expect("soon").expect_err("too large to read");

    // Headers.
    let address = format!("http://{}", hub.address());
    let mut client = ReplicationClient::connect(address).await.expect("the hub listens");
    let mut request = tonic::Request::new(tokio_stream::empty());
    let header = "x".repeat(2_000).parse().expect("a header");
    request.metadata_mut().insert("x-large", header);
    let answered = async { client.session(request).await?.into_inner().message().await };
    timeout(SOON, answered).await.expect("soon").expect_err("too many headers");

    edge.report(1).await;
    edge.hear_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_no_more_streams_than_allowed() {
    let cloud = Cloud::new(&["a"]).await;
    let hub = hub_within(&cloud, HubLimits { streams_per_connection: 1, ..limits() }).await;
    let address = format!("http://{}", hub.address());
    let mut client = ReplicationClient::connect(address).await.expect("the hub listens");
    let (said, saying) = tokio::sync::mpsc::channel(4);
    let saying = tokio_stream::wrappers::ReceiverStream::new(saying);
    let mut first = client.session(saying).await.expect("a session").into_inner();
    let message = EdgeMessage::Hello(hello(identity("a", 1, 1), Vec::new()));
    said.send(message.into()).await.expect("heard");
    // The second waits in the client, since the hub has said how many it takes.
    let mut second = std::pin::pin!(client.session(tokio_stream::empty()));
    // A welcome, its streams, a heartbeat.
    for _ in 0..4 {
        tokio::select! {
            biased;
            _ = &mut second => panic!("two streams at once"),
            heard = timeout(SOON, first.message()) => {
                heard.expect("soon").expect("a session").expect("a message");
            }
        }
    }
    drop((said, first));
    timeout(SOON, second).await.expect("soon").expect("the first is over");
    hub.stop().await;
}
