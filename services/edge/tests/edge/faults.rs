//! Clones, full and damaged disks, and edges that must not start.

use std::sync::Arc;

use headwater_edge::{Database, Edge, EdgeConfig, EdgeExit, EdgeStopped, HubAddress, StartError};
use headwater_event::{Incarnation, ReportBody};
use headwater_store::{
    Durability, Engine, Failure, MemoryEngine, Range, Read, Survival, TableId, WriteBatch, schema,
};

use crate::bench::{Bench, dependencies, eventually, node, private};
use crate::hub::Hub;

#[tokio::test]
async fn two_machines_with_one_disk_are_held_and_named() {
    let hub = Hub::start(&node()).await;
    let bench = Bench::start(&[hub.address]).await;
    bench.until("a connection", |status| status.connected).await;
    bench.edge.stop().await;
    let copy = |engine: &MemoryEngine| engine.crash(Survival::Everything);
    let hubs = [hub.address];
    let one = Bench::over(&hubs, copy(&bench.state), copy(&bench.outbox), 100).await;
    one.until("a connection", |status| status.connected).await;
    let other = Bench::over(&hubs, copy(&bench.state), copy(&bench.outbox), 200).await;
    for clone in [&one, &other] {
        // Before that, a busy hub may be the trouble, which answers late.
        let names_both = |trouble: &String| trouble.contains("two machines");
        let status =
            clone.until("the trouble", |it| it.trouble.as_ref().is_some_and(names_both)).await;
        assert!(!status.connected);
    }
    one.edge.stop().await;
    other.edge.stop().await;
}

#[tokio::test]
async fn a_full_disk_ends_the_edge_and_room_lets_it_go_on() {
    let hub = Hub::start(&node()).await;
    let bench = Bench::start(&[hub.address]).await;
    bench.meta.watch("edged").await.complete_listing().await;
    bench.state.fail_write(1, Failure { disk_full: true, took_effect: false });
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    let exit = bench.edge.exited().await;
    assert!(exit.is_disk_full(), "{exit:?}");
    assert!(matches!(exit, EdgeExit::Engine { database: Database::State, .. }), "{exit:?}");
    assert_eq!(bench.edge.status().await, Err(EdgeStopped));
    assert_eq!(Arc::strong_count(&bench.state), 1, "the engine is let go");
    assert_eq!(Arc::strong_count(&bench.outbox), 1, "both of them");

    let (state, outbox) = (bench.state.reopen(), bench.outbox.reopen());
    let bench = Bench::over(&[hub.address], state, outbox, 50).await;
    let (seq, _) = hub.head(&private());
    bench.until_durable(&private(), seq).await;
    bench.edge.stop().await;
}

#[tokio::test]
async fn a_lost_state_is_rebuilt_and_the_outbox_survives_it() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    let bench = Bench::start(&[hub.address]).await;
    bench.meta.watch("edged").await.complete_listing().await;
    bench.edge.cut_link().await.expect("runs");
    bench.meta.report("web", "u1", "Running").await;
    bench.edge.stop().await;
    let outbox = bench.outbox.reopen();
    let bench = Bench::over(&[hub.address], MemoryEngine::new(), outbox, 50).await;
    let mut edged = bench.meta.watch("edged").await;
    assert_eq!(edged.complete_listing().await, ["d/pod/web"]);
    bench.until("an empty outbox", |status| status.outbox_depth == 0).await;
    let reports = hub.reports();
    assert!(!reports.is_empty());
    assert!(
        !reports.iter().any(|report| matches!(report.body, ReportBody::PodStatusRemoved { .. }))
    );
    bench.edge.stop().await;
}

#[tokio::test]
async fn a_replica_that_lost_an_object_is_named() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    let bench = Bench::start(&[hub.address]).await;
    bench.meta.watch("edged").await.complete_listing().await;
    bench.edge.stop().await;
    let state = bench.state.reopen();
    let rows = state.scan(&Range::prefix(vec![TableId::Entries.prefix()]), 100).expect("reads");
    let (lost, _) = rows.last().expect("an entry").clone();
    let mut batch = WriteBatch::default();
    batch.delete(lost);
    state.write(batch, Durability::Synced).expect("writes");
    let engines = (Arc::new(state), Arc::new(bench.outbox.reopen()));
    let refused = Edge::start(bench.config.clone(), engines.0, engines.1, dependencies(9)).await;
    let refused = refused.expect_err("the objects are not those that were folded");
    assert_eq!(refused.damaged(), Some(Database::State), "{refused:?}");
}

#[tokio::test]
async fn a_damaged_outbox_is_named_and_a_new_one_begins_with_everything() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    let damaged = MemoryEngine::new();
    schema::OUTBOX.check(&damaged).expect("new");
    let mut garbage = WriteBatch::default();
    garbage.put(vec![TableId::OutboxReports.prefix(), 1], &b"garbage"[..]);
    damaged.write(garbage, Durability::Synced).expect("writes");
    let dir = tempfile::tempdir().expect("a directory");
    let config = EdgeConfig::new(node(), vec![hub.address], dir.path().join("edge.sock"));
    let engines = (Arc::new(MemoryEngine::new()), Arc::new(damaged));
    let refused =
        Edge::start(config, engines.0, engines.1, dependencies(1)).await.expect_err("damaged");
    assert_eq!(refused.damaged(), Some(Database::Outbox), "{refused:?}");

    let bench = Bench::start(&[hub.address]).await;
    bench.meta.watch("edged").await.complete_listing().await;
    bench.meta.report("web", "u1", "Running").await;
    eventually("a full snapshot", || async {
        hub.reports()
            .iter()
            .any(|report| {
                matches!(report.body, ReportBody::SnapshotClosed(closed)
                    if closed.full && closed.pods == 1)
            })
            .then_some(())
    })
    .await;
    bench.edge.stop().await;
}

fn offline() -> [HubAddress; 0] {
    []
}

#[tokio::test]
async fn what_must_not_start_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("edge.sock");
    let engines = || (Arc::new(MemoryEngine::new()), Arc::new(MemoryEngine::new()));
    let start = |config: EdgeConfig, (state, outbox): (Arc<MemoryEngine>, Arc<MemoryEngine>)| {
        Edge::start(config, state, outbox, dependencies(1))
    };
    let afar: HubAddress = "192.0.2.1:7300".parse().expect("an address");
    let config = EdgeConfig::new(node(), [afar.clone()], socket.clone());
    let refused = start(config, engines()).await.expect_err("no TLS");
    assert!(matches!(refused, StartError::NotLoopback { address } if address == afar));

    let long = dir.path().join("x".repeat(120));
    let refused =
        start(EdgeConfig::new(node(), offline(), long), engines()).await.expect_err("too long");
    assert!(matches!(refused, StartError::SocketPath { .. }), "{refused:?}");

    let (state, outbox) = engines();
    let mut config = EdgeConfig::new(node(), offline(), socket);
    config.incarnation = Incarnation(2);
    let edge = start(config.clone(), (state.clone(), outbox.clone())).await.expect("starts");
    assert!(matches!(edge.stop().await, EdgeExit::Stopped));
    config.incarnation = Incarnation(1);
    let refused = start(config, (state, outbox)).await.expect_err("an older enrolment");
    assert!(matches!(refused, StartError::OlderIncarnation(_)), "{refused:?}");
}
