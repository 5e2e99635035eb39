//! Sessions over a real socket, with logs and store in memory.

mod cloud;
mod edge;
mod handover;
mod identities;
mod limits;
mod metrics;
mod pause;
mod positions;
mod real;
mod requests;
mod streams;
mod tls;
mod upstream;

use std::time::Instant;

use headwater_event::{
    Checkpoint, Identity, Report, ReportBody, ReportId, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_log::{Log, MemoryLog};
use headwater_proto::replication;
use headwater_session::message::{
    Ack, DialSupport, EdgeMessage, Hello, HubMessage, PROTOCOL, PushMode, RefusalCode,
    ReplicaPosition, Reports,
};
use headwater_session::{EdgeCloseReason, HubSettings};
use headwater_store::MemoryEngine;
use prometheus::Registry;

use super::*;
use crate::limits::HubLimits;
use crate::metrics::HubMetrics;
use crate::requests::{NoRequestHandler, RequestHandler};
use crate::upstream::base_count;
use cloud::{TestCloud, logs};
use edge::{SOON, TestEdge, dial, identity};

/// How often a hub sends a heartbeat.
const HEARTBEAT_MS: u64 = 200;

fn settings() -> HubSettings {
    HubSettings { heartbeat_ms: HEARTBEAT_MS, ..HubSettings::default() }
}

/// The defaults, but a hello may take as long as a test waits.
fn limits() -> HubLimits {
    HubLimits { hello_within: SOON, ..HubLimits::default() }
}

/// The defaults, but hellos must come within 5 s.
fn impatient() -> HubLimits {
    HubLimits { hello_within: Duration::from_secs(5), ..HubLimits::default() }
}

/// A hub over these logs. Its clock is the log's.
async fn start(
    logs: &(MemoryLog, MemoryLog),
    engine: &Arc<MemoryEngine>,
    settings: HubSettings,
    limits: HubLimits,
) -> HubHandle {
    start_counted(logs, engine, settings, limits, &Registry::new()).await
}

/// As [`start`], with the metrics in `registry`.
async fn start_counted(
    logs: &(MemoryLog, MemoryLog),
    engine: &Arc<MemoryEngine>,
    settings: HubSettings,
    limits: HubLimits,
    registry: &Registry,
) -> HubHandle {
    let hub = Hub::start(config(settings, limits), dependencies(logs, engine, registry));
    hub.await.expect("starts")
}

/// The configuration of a hub that serves this machine.
fn config(settings: HubSettings, limits: HubLimits) -> HubConfig {
    HubConfig {
        name: "hub-1".to_owned(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        tls: None,
        settings,
        limits,
    }
}

/// The dependencies of a hub over these logs.
fn dependencies(
    logs: &(MemoryLog, MemoryLog),
    engine: &Arc<MemoryEngine>,
    registry: &Registry,
) -> HubDependencies {
    let clock = logs.0.clone();
    HubDependencies {
        downstream: Arc::new(logs.0.handle()),
        upstream: Arc::new(logs.1.handle()),
        engine: engine.clone(),
        requests: Arc::new(NoRequestHandler),
        wall_clock: Arc::new(move || clock.now_ms()),
        metrics: HubMetrics::new(registry).expect("a fresh registry"),
    }
}

async fn hub_on(logs: &(MemoryLog, MemoryLog), engine: &Arc<MemoryEngine>) -> HubHandle {
    start(logs, engine, settings(), limits()).await
}

async fn hub(cloud: &TestCloud) -> HubHandle {
    hub_on(&cloud.logs(), &Arc::new(MemoryEngine::new())).await
}

/// Waits until `done` is true; fails after [`SOON`].
async fn until_true(what: &str, done: impl AsyncFn() -> bool) {
    let end = Instant::now() + SOON;
    while !done().await {
        assert!(Instant::now() < end, "no {what} in time");
        tokio::task::yield_now().await;
    }
}

fn refused(end: EdgeCloseReason) -> RefusalCode {
    match end {
        EdgeCloseReason::Refused(refusal) => refusal.code,
        end => panic!("not a refusal: {end}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_receives_a_snapshot_then_every_event_and_resumes_by_tail() {
    let mut cloud = TestCloud::new(&["a"]).await;
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    cloud.set("cluster", "shared", Some("{}".to_owned())).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |e| e.seq("node/a") == 2 && e.seq("cluster") == 1).await;
    assert_eq!(edge.modes("node/a"), [PushMode::Snapshot]);
    cloud.set("node/a", "two", Some("{}".to_owned())).await;
    cloud.set("node/a", "one", None).await;
    edge.receive_until("what came", |edge| edge.seq("node/a") == 4).await;
    assert!(edge.modes("node/a")[1..].iter().all(|mode| *mode == PushMode::Tail));
    edge.check_prefix(&cloud);

    let replicas = std::mem::take(&mut edge.replicas);
    drop(edge);
    cloud.set("node/a", "three", Some("{}".to_owned())).await;
    let mut edge = TestEdge::resume(hub.address(), identity("a", 1, 1), replicas).await;
    edge.receive_until("the rest", |edge| edge.seq("node/a") == 5).await;
    assert_eq!(edge.modes("node/a"), [PushMode::Tail]);
    edge.check_prefix(&cloud);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_edge_receives_the_events_of_the_shared_stream() {
    let mut cloud = TestCloud::new(&["a", "b", "c"]).await;
    cloud.set("cluster", "shared", Some("{}".to_owned())).await;
    let hub = hub(&cloud).await;
    let mut edges = Vec::new();
    for node in ["a", "b", "c"] {
        let mut edge = TestEdge::connect(hub.address(), identity(node, 1, 1)).await;
        edge.receive_until("a snapshot", |edge| edge.seq("cluster") == 1).await;
        edges.push(edge);
    }
    for n in 0..20 {
        cloud.set("cluster", "shared", Some(format!("{{\"n\":{n}}}"))).await;
    }
    for edge in &mut edges {
        edge.receive_until("every event", |edge| edge.seq("cluster") == 21).await;
        assert!(edge.modes("cluster")[1..].iter().all(|mode| *mode == PushMode::Tail));
        edge.check_prefix(&cloud);
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_that_is_far_behind_receives_each_key_once() {
    let mut cloud = TestCloud::new(&["a"]).await;
    cloud.set("node/a", "gone", Some("{}".to_owned())).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 2).await;
    let replicas = std::mem::take(&mut edge.replicas);
    drop(edge);
    cloud.set("node/a", "gone", None).await;
    for n in 0..1200 {
        cloud.set("node/a", &format!("c{}", n % 7), Some(format!("{{\"n\":{n}}}"))).await;
    }
    let stream = StreamId::node(&"a".parse().expect("a name"));
    until_true("a hub that has read it all", async || {
        hub.view().lag(&stream, Seq::ZERO).is_ok_and(|lag| lag.tail.seq == Seq(1203))
    })
    .await;
    let mut edge = TestEdge::resume(hub.address(), identity("a", 1, 1), replicas).await;
    edge.receive_until("a delta", |edge| edge.seq("node/a") == 1203).await;
    assert_eq!(edge.modes("node/a")[0], PushMode::Delta);
    edge.check_prefix(&cloud);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_snapshot_is_served_before_the_writer_has_reconciled() {
    let mut cloud = TestCloud::over(&logs(), None).await;
    cloud.assign("a").await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a parking", |edge| !edge.parked.is_empty()).await;
    assert!(edge.pushes.is_empty() && !hub.view().is_reconciled(), "I14");
    cloud.writer.reconciled().await.expect("appended");
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    assert!(hub.view().is_reconciled());
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_ahead_of_a_log_that_lost_its_end_is_brought_back_by_a_correction() {
    let mut cloud = TestCloud::new(&["a"]).await;
    let partition = StreamId::node(&"a".parse().expect("a name")).partition(2);
    let high = cloud.downstream.bounds(partition).await.expect("there").high;
    cloud.set("node/a", "lost", Some("{}".to_owned())).await;
    let first = hub(&cloud).await;
    let mut edge = TestEdge::connect(first.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 2).await;
    let replicas = std::mem::take(&mut edge.replicas);
    first.stop().await;
    cloud.downstream.truncate(partition, high);
    // The next writer claims and has nothing to append: its claim settles where the stream ends.
    let mut cloud = TestCloud::over(&cloud.logs(), None).await;
    cloud.writer.reconciled().await.expect("appended");
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::resume(hub.address(), identity("a", 2, 2), replicas).await;
    edge.receive_until("a step back", |edge| edge.seq("node/a") == 1).await;
    assert_eq!(edge.modes("node/a"), [PushMode::Correction]);
    edge.check_prefix(&cloud);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_acknowledged_once_it_is_in_the_log() {
    let cloud = TestCloud::new(&["a"]).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    let first = edge.report(1).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    assert_eq!(cloud.reports(edge.node()).await, [first], "I2");

    cloud.upstream.set_available(false);
    let second = edge.report(2).await;
    cloud.upstream.set_available(true);
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    assert_eq!(cloud.reports(edge.node()).await.last(), Some(&second), "I2");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_position_of_a_node_is_in_the_log_when_it_connects_and_when_it_leaves() {
    let cloud = TestCloud::new(&["a"]).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 3, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    let node = edge.node().clone();
    until_true("position of a connected node", async || {
        cloud.positions(&node).await.iter().any(|progress| progress.connected)
    })
    .await;
    drop(edge);
    until_true("position of a node that left", async || {
        cloud.positions(&node).await.last().is_some_and(|progress| !progress.connected)
    })
    .await;
    assert_eq!(cloud.positions(&node).await.last().map(|last| last.boot.number), Some(3));

    // Also when the hub ends the session, and stops.
    let mut edge = TestEdge::connect(hub.address(), identity("a", 4, 4)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    hub.stop().await;
    assert!(matches!(edge.receive_end().await, EdgeCloseReason::Moved { .. }));
    let last = cloud.positions(&node).await.pop().expect("sender");
    assert!(!last.connected && last.boot.number == 4, "{last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_has_never_seen_a_node_still_refuses_its_stale_disk() {
    let cloud = TestCloud::new(&["a"]).await;
    let first = hub(&cloud).await;
    let mut edge = TestEdge::connect(first.address(), identity("a", 5, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    first.stop().await;
    let hub = hub(&cloud).await;
    let mut old = TestEdge::connect(hub.address(), identity("a", 4, 9)).await;
    let end = old.receive_end().await;
    assert!(
        matches!(&end, EdgeCloseReason::RaisingBoot { known } if known.boot.number == 5),
        "{end}"
    );
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_machines_of_one_identity_are_both_refused_and_a_reconnect_takes_over() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    let mut again = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    again.receive_until("a welcome", TestEdge::is_open).await;
    assert_eq!(refused(edge.receive_end().await), RefusalCode::Superseded);
    let mut clone = TestEdge::connect(hub.address(), identity("a", 1, 2)).await;
    assert_eq!(refused(clone.receive_end().await), RefusalCode::Clone);
    assert_eq!(refused(again.receive_end().await), RefusalCode::Clone);
    let node = again.node().clone();
    let trouble = hub.view().troubles().concat();
    assert!(trouble.contains("`headwater node release a`"), "{trouble}");
    let mut held = TestEdge::connect(hub.address(), identity("a", 1, 2)).await;
    assert_eq!(refused(held.receive_end().await), RefusalCode::Clone);
    assert!(hub.view().release(&node) && !hub.view().release(&node));
    let mut released = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    released.receive_until("a welcome", TestEdge::is_open).await;
    let mut other = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    other.receive_until("a welcome", TestEdge::is_open).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_can_be_cut_and_restored() {
    let mut cloud = TestCloud::new(&["a"]).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    let node = edge.node().clone();
    hub.view().set_link(&node, true);
    assert_eq!(refused(edge.receive_end().await), RefusalCode::Unavailable);
    let mut refused_edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    assert_eq!(refused(refused_edge.receive_end().await), RefusalCode::Unavailable);
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    hub.view().set_link(&node, false);
    let mut edge = TestEdge::resume(hub.address(), identity("a", 1, 1), edge.replicas).await;
    edge.receive_until("the rest", |edge| edge.seq("node/a") == 2).await;
    assert_eq!(edge.modes("node/a"), [PushMode::Tail]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_reads_only_its_own_streams_whatever_its_hello_claims() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    cloud.set("node/b", "private", Some("{\"secret\":1}".to_owned())).await;
    let hub = hub(&cloud).await;
    // `TestEdge` checks I6 at every push.
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    // A hello that names another node's stream.
    let (sender, mut receiver) = dial(hub.address()).await.expect("a session");
    let stream: StreamId = "node/b".parse().expect("a stream");
    let checkpoint = Checkpoint { log_id: cloud.log_id(), epoch: WriterEpoch(1), seq: Seq(1) };
    let position = ReplicaPosition { stream, checkpoint, hash: StateHash::EMPTY };
    let hello = hello(identity("c", 1, 1), vec![position]);
    sender.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    let message = timeout(SOON, receiver.message()).await.expect("soon").expect("a reason");
    let message = HubMessage::try_from(message.expect("a message"));
    match message.expect("well-formed") {
        HubMessage::Refusal(refusal) => {
            assert_eq!(refusal.code, RefusalCode::Violation);
        }
        other => panic!("not refused: {other:?}"),
    }
    hub.stop().await;
}

fn hello(identity: Identity, positions: Vec<ReplicaPosition>) -> Hello {
    let window_bytes = 1 << 20;
    Hello {
        protocol: PROTOCOL,
        identity,
        positions,
        window_bytes,
        connection: 1,
        dials: DialSupport::None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_hello_or_with_garbage_is_closed_and_others_are_not_affected() {
    let cloud = TestCloud::new(&["a"]).await;
    let engine = Arc::new(MemoryEngine::new());
    let hub = start(&cloud.logs(), &engine, settings(), impatient()).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;

    let (_sender, mut receiver) = dial(hub.address()).await.expect("a session");
    let status = timeout(SOON, receiver.message()).await.expect("soon").expect_err("no hello");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);

    let (sender, mut receiver) = dial(hub.address()).await.expect("a session");
    sender.send(replication::EdgeMessage::default()).await.expect("sent");
    // It may be one of a later version, but no hello.
    let status =
        timeout(SOON, receiver.message()).await.expect("soon").expect_err("an empty message");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);

    let (sender, mut receiver) = dial(hub.address()).await.expect("a session");
    let ack = EdgeMessage::Ack(Ack::default());
    sender.send(ack.into()).await.expect("sent");
    timeout(SOON, receiver.message()).await.expect("soon").expect_err("no hello");

    // Larger than the hub takes.
    let (sender, mut receiver) = dial(hub.address()).await.expect("a session");
    let large = Report {
        id: ReportId::default(),
        body: ReportBody::Node { object: vec![b' '; 5 << 20].into() },
        traceparent: None,
    };
    let reports = Reports { after: None, reports: vec![large] };
    sender.send(EdgeMessage::Reports(reports).into()).await.expect("sent");
    timeout(SOON, receiver.message()).await.expect("soon").expect_err("too large");

    edge.report(1).await;
    edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_that_reads_nothing_delays_neither_others_nor_the_stop() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    let hub = hub(&cloud).await;
    // Sends a hello and never reads.
    let (sender, _heard) = dial(hub.address()).await.expect("a session");
    sender
        .send(EdgeMessage::Hello(hello(identity("a", 1, 1), Vec::new())).into())
        .await
        .expect("sent");
    let mut edge = TestEdge::connect(hub.address(), identity("b", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/b") == 1).await;
    let object = format!("{{\"data\":\"{}\"}}", "x".repeat(100_000));
    for n in 0..60 {
        cloud.set("node/a", &format!("c{n}"), Some(object.clone())).await;
    }
    cloud.set("node/b", "one", Some("{}".to_owned())).await;
    edge.receive_until("its own", |edge| edge.seq("node/b") == 2).await;
    timeout(SOON, hub.stop()).await.expect("a stop is bounded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_bases_are_on_disk_until_their_session_is_over() {
    let cloud = TestCloud::new(&["a"]).await;
    let disk = Arc::new(MemoryEngine::new());
    let hub = hub_on(&cloud.logs(), &disk).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    let mut reports = Vec::new();
    for seq in 1..=3 {
        reports.push(edge.report(seq).await);
        edge.receive_until("an acknowledgement", |edge| edge.unacknowledged() == 0).await;
    }
    assert_eq!(cloud.reports(edge.node()).await, reports, "in the log they are whole");
    assert_eq!(base_count(&*disk), 3);
    drop(edge);
    hub.stop().await;
    assert_eq!(base_count(&*disk), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_continues_from_its_own_disk_and_from_an_empty_one() {
    let mut cloud = TestCloud::new(&["a"]).await;
    let disk = Arc::new(MemoryEngine::new());
    let first = hub_on(&cloud.logs(), &disk).await;
    let mut edge = TestEdge::connect(first.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 1).await;
    first.stop().await;
    // A hub that reads the log for the first time keeps the state and no events.
    for (engine, mode) in [(disk, PushMode::Tail), (Arc::default(), PushMode::Delta)] {
        cloud.set("node/a", "one", Some(format!("{{\"n\":{}}}", edge.seq("node/a")))).await;
        let want = edge.seq("node/a") + 1;
        let hub = hub_on(&cloud.logs(), &engine).await;
        edge = TestEdge::resume(hub.address(), identity("a", 1, 1), edge.replicas).await;
        edge.receive_until("the rest", |edge| edge.seq("node/a") == want).await;
        assert_eq!(edge.modes("node/a"), [mode]);
        edge.check_prefix(&cloud);
        let stream: StreamId = "node/a".parse().expect("a stream");
        let verified = hub.view().verify(&stream).expect("readable").expect("there");
        assert!(verified.agrees());
        let lag = hub.view().lag(&stream, Seq(want - 1)).expect("readable");
        assert!(lag.tail.seq == Seq(want) && lag.since_ms.is_some());
        hub.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_made_again_under_a_higher_id_comes_down_by_correction_once_it_is_reconciled() {
    let mut cloud = TestCloud::new(&["a"]).await;
    cloud.set("node/a", "old", Some("{}".to_owned())).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 2).await;
    let previous = cloud.log_id();
    cloud.downstream.recreate(2);
    let mut cloud = TestCloud::over(&cloud.logs(), Some(previous)).await;
    assert_eq!(refused(edge.receive_end().await), RefusalCode::Unavailable);
    cloud.assign("a").await;
    let stream: StreamId = "node/a".parse().expect("a stream");
    until_true("a fold of the new log", async || {
        let lag = hub.view().lag(&stream, Seq::ZERO);
        lag.is_ok_and(|lag| lag.tail.log_id == cloud.log_id() && lag.tail.seq == Seq(1))
    })
    .await;
    let mut edge = TestEdge::resume(hub.address(), identity("a", 1, 1), edge.replicas).await;
    edge.receive_until("a parking", |edge| !edge.parked.is_empty()).await;
    assert_eq!(edge.seq("node/a"), 2, "I14: half a log removes nothing");
    cloud.writer.reconciled().await.expect("appended");
    edge.receive_until("it all", |edge| edge.modes("node/a") == [PushMode::Correction]).await;
    edge.check_prefix(&cloud);
    hub.stop().await;
}

#[tokio::test]
async fn a_hub_without_tls_listens_on_loopback_only() {
    let listen = "0.0.0.0:0".parse().expect("an address");
    let config = HubConfig { listen, ..config(settings(), limits()) };
    let dependencies = dependencies(&logs(), &Arc::new(MemoryEngine::new()), &Registry::new());
    assert!(matches!(Hub::start(config, dependencies).await, Err(HubError::NotLoopback { .. })));
}
