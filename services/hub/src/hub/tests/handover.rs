//! Several hubs on one log: one stops, and its edges continue at another one.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::*;

/// Two hubs on one log.
async fn two(cloud: &TestCloud, limits: HubLimits) -> (HubHandle, HubHandle) {
    let engine = || Arc::new(MemoryEngine::new());
    let first = start(&cloud.logs(), &engine(), settings(), limits.clone()).await;
    let second = start(&cloud.logs(), &engine(), settings(), limits).await;
    for hub in [&first, &second] {
        until_true("a hub that has read its log", async || hub.view().is_reconciled()).await;
    }
    (first, second)
}

fn moved(end: &EdgeCloseReason) -> bool {
    matches!(end, EdgeCloseReason::Moved { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_stops_sends_goodbyes_one_after_the_other() {
    let nodes: Vec<_> = (0..12).map(|n| format!("n{n}")).collect();
    let names: Vec<_> = nodes.iter().map(String::as_str).collect();
    let cloud = TestCloud::new(&names).await;
    let limits = HubLimits { hellos_per_second: 10, ..limits() };
    let (first, second) = two(&cloud, limits.clone()).await;
    let mut edges = Vec::new();
    for node in &nodes {
        let mut edge = TestEdge::connect(first.address(), identity(node, 1, 1)).await;
        edge.receive_until("a welcome", TestEdge::is_open).await;
        edges.push(edge);
    }
    let began = Instant::now();
    let stopping = tokio::spawn(first.stop());
    let ends = join_all(edges.iter_mut().map(async |edge| {
        let end = edge.receive_end().await;
        (end, began.elapsed())
    }))
    .await;
    assert!(ends.iter().all(|(end, _)| moved(end)), "{ends:?}");
    // Twice the steady rate and no faster: no goodbye comes before it is due.
    let mut times: Vec<_> = ends.iter().map(|(_, time)| *time).collect();
    times.sort();
    for (n, time) in (0..).zip(&times) {
        assert!(*time >= limits.between_goodbyes() * n, "{n}: {time:?}");
    }
    stopping.await.expect("stops");
    for (node, edge) in nodes.iter().zip(edges) {
        let replicas = edge.replicas;
        let mut edge = TestEdge::resume(second.address(), identity(node, 1, 1), replicas).await;
        edge.receive_until("a welcome", TestEdge::is_open).await;
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_stops_takes_no_longer_than_it_may_and_serves_until_then() {
    // A goodbye is due every 500 ms. The time is up before that of the last edge.
    let nodes: Vec<_> = (0..24).map(|n| format!("n{n}")).collect();
    let names: Vec<_> = nodes.iter().map(String::as_str).collect();
    let mut cloud = TestCloud::new(&names).await;
    let limits =
        HubLimits { hellos_per_second: 1, handover_within: Duration::from_secs(8), ..limits() };
    let (first, second) = two(&cloud, limits).await;
    let mut edges = Vec::new();
    for node in &nodes {
        let mut edge = TestEdge::connect(first.address(), identity(node, 1, 1)).await;
        edge.receive_until("a snapshot", |edge| edge.seq(&format!("node/{node}")) == 1).await;
        edges.push(edge);
    }
    let address = first.address();
    let stopping = tokio::spawn(first.stop());
    // The first goodbye comes at once.
    assert!(moved(&edges[0].receive_end().await));
    // The last edge is served meanwhile, and no new one is.
    cloud.set("node/n23", "late", Some("{}".to_owned())).await;
    edges[23].receive_until("an event", |edge| edge.seq("node/n23") == 2).await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens");
    timeout(SOON, stopping).await.expect("bounded").expect("stops");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_resumes_at_another_hub_in_one_round_trip() {
    let mut cloud = TestCloud::new(&["a"]).await;
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    let (first, second) = two(&cloud, limits()).await;
    let mut edge = TestEdge::connect(first.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 2).await;
    first.stop().await;
    assert!(moved(&edge.receive_end().await));
    cloud.set("node/a", "two", Some("{}".to_owned())).await;
    cloud.set("node/a", "one", None).await;

    let replica = edge.replicas.get(&StreamId::node(edge.node())).expect("held").clone();
    let (sender, mut receiver) = dial(second.address()).await.expect("a session");
    let position = ReplicaPosition {
        stream: StreamId::node(edge.node()),
        checkpoint: replica.checkpoint.expect("held"),
        hash: replica.hash,
    };
    let hello = hello(identity("a", 1, 1), vec![position]);
    sender.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    // The edge sends nothing more.
    let mut from = Seq(2);
    while from < Seq(4) {
        let message = timeout(SOON, receiver.message()).await.expect("soon").expect("a session");
        match HubMessage::try_from(message.expect("a message")).expect("well-formed") {
            HubMessage::Push(push) if push.stream == StreamId::node(edge.node()) => {
                assert_eq!((push.mode, push.from), (PushMode::Tail, from));
                from = push.to.seq;
            }
            HubMessage::Refusal(refusal) => panic!("refused: {refusal:?}"),
            _ => {}
        }
    }
    drop((sender, receiver));
    let mut edge = TestEdge::resume(second.address(), identity("a", 1, 1), edge.replicas).await;
    edge.receive_until("the rest", |edge| edge.seq("node/a") == 4).await;
    edge.check_prefix(&cloud);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_behind_an_edge_parks_it_until_it_has_caught_up() {
    let mut cloud = TestCloud::new(&["a"]).await;
    let first = hub(&cloud).await;
    // The other hub reads by a handle of its own, which freezes.
    let slow = (cloud.downstream.handle(), cloud.upstream.handle());
    let second = {
        let config = config(settings(), limits());
        let registry = Registry::new();
        let mut dependencies = dependencies(&slow, &Arc::new(MemoryEngine::new()), &registry);
        dependencies.downstream = Arc::new(slow.0.clone());
        Hub::start(config, dependencies).await.expect("starts")
    };
    until_true("a hub that has read its log", async || second.view().is_reconciled()).await;
    slow.0.set_frozen(true);
    let mut edge = TestEdge::connect(first.address(), identity("a", 1, 1)).await;
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    edge.receive_until("an event", |edge| edge.seq("node/a") == 2).await;
    first.stop().await;
    assert!(moved(&edge.receive_end().await));

    let mut edge = TestEdge::resume(second.address(), identity("a", 1, 1), edge.replicas).await;
    edge.receive_until("a parking", |edge| !edge.parked.is_empty()).await;
    assert_eq!(edge.seq("node/a"), 2, "nothing is taken back");
    slow.0.set_frozen(false);
    cloud.set("node/a", "one", None).await;
    edge.receive_until("what it lacks", |edge| edge.seq("node/a") == 3).await;
    let modes: BTreeSet<_> = edge.modes("node/a").iter().map(|mode| format!("{mode:?}")).collect();
    assert_eq!(modes, BTreeSet::from(["Tail".to_owned()]));
    edge.check_prefix(&cloud);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_on_an_empty_disk_serves_once_its_fold_is_complete() {
    let mut cloud = TestCloud::new(&["a"]).await;
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    let first = hub(&cloud).await;
    let mut edge = TestEdge::connect(first.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") == 2).await;
    cloud.set("node/a", "two", Some("{}".to_owned())).await;
    edge.receive_until("an event", |edge| edge.seq("node/a") == 3).await;
    first.stop().await;
    assert!(moved(&edge.receive_end().await));

    let slow = (cloud.downstream.handle(), cloud.upstream.handle());
    slow.0.set_frozen(true);
    let mut dependencies = dependencies(&slow, &Arc::new(MemoryEngine::new()), &Registry::new());
    dependencies.downstream = Arc::new(slow.0.clone());
    let second = Hub::start(config(settings(), limits()), dependencies).await.expect("starts");
    let mut new = TestEdge::connect(second.address(), identity("a", 1, 1)).await;
    assert!(!second.view().is_reconciled());
    assert!(
        timeout(Duration::from_millis(300), new.receive_until("nothing", TestEdge::is_open))
            .await
            .is_err(),
        "it knows no log yet"
    );
    slow.0.set_frozen(false);
    new.receive_until("everything", |edge| edge.seq("node/a") == 3).await;
    assert_eq!(new.modes("node/a"), [PushMode::Snapshot], "all of it at once");
    new.check_prefix(&cloud);
    second.stop().await;
}
