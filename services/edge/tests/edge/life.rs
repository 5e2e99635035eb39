//! An edge joins, follows, reports, goes offline, dies and comes back.

use headwater_event::{Boot, Identity, Incarnation, ReportBody, Seq, StreamId};
use headwater_proto::local::watch_event::Kind;
use headwater_store::Survival;
use headwater_view::StreamReader;
use tokio::net::TcpSocket;

use crate::bench::{Bench, eventually, node, private, reported};
use crate::hub::{Hub, checkpoint};

fn is_status(body: &ReportBody, pod: &str, phase: &str) -> bool {
    matches!(body, ReportBody::PodStatus { pod: key, status, .. }
        if key.name() == pod && status.as_ref() == format!(r#"{{"phase":"{phase}"}}"#).as_bytes())
}

#[tokio::test]
async fn an_edge_joins_follows_and_reports() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", r#"{"a":1}"#);
    hub.apply(&StreamId::Cluster, "d/service/web", "u2", "{}");
    let bench = Bench::start(&[hub.address]).await;

    let mut edged = bench.meta.watch("edged").await;
    assert_eq!(edged.complete_listing().await, ["d/pod/web"]);
    hub.apply(&private(), "d/configmap/c", "u3", "{}");
    assert_eq!(edged.change().await, (Kind::Apply, "d/configmap/c".to_owned()));
    hub.remove(&private(), "d/configmap/c");
    assert_eq!(edged.change().await, (Kind::Delete, "d/configmap/c".to_owned()));
    bench.until_durable(&StreamId::Cluster, Seq(1)).await;
    let mut mesh = bench.meta.watch("mesh").await;
    assert_eq!(mesh.complete_listing().await, ["d/service/web"]);

    assert!(bench.meta.report("web", "u1", "Running").await);
    reported(&hub, "the status", |body| is_status(body, "web", "Running")).await;
    reported(&hub, "its end", |body| matches!(body, ReportBody::SnapshotClosed(_))).await;
    let status = bench.until("an empty outbox", |status| status.outbox_depth == 0).await;
    assert!(status.connected && status.trouble.is_none());
    let (seq, hash) = hub.head(&private());
    let stream = status.streams.iter().find(|found| found.stream == private()).expect("its own");
    assert_eq!((stream.applied, stream.hash), (Some(checkpoint(seq)), hash));
    bench.edge.stop().await;
}

#[tokio::test]
async fn an_offline_edge_keeps_its_reports_and_sends_them_later() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    let bench = Bench::start(&[hub.address]).await;
    let mut edged = bench.meta.watch("edged").await;
    edged.complete_listing().await;
    bench.meta.report("web", "u1", "Pending").await;
    bench.until("an empty outbox", |status| status.outbox_depth == 0).await;

    bench.edge.cut_link().await.expect("runs");
    bench.until("the cut", |status| !status.connected).await;
    hub.apply(&private(), "d/pod/other", "u2", "{}");
    bench.meta.report("web", "u1", "Running").await;
    bench.meta.report("web", "u1", "Failed").await;
    let status = bench.status().await;
    assert!(!status.connected);
    assert_eq!(status.outbox_depth, 2, "the latest status, and the end of its snapshot");
    let mut again = bench.meta.watch("edged").await;
    assert_eq!(again.listing().await, (vec!["d/pod/web".to_owned()], true));

    bench.edge.restore_link().await.expect("runs");
    assert_eq!(edged.change().await, (Kind::Apply, "d/pod/other".to_owned()));
    reported(&hub, "the latest status", |body| is_status(body, "web", "Failed")).await;
    bench.until("an empty outbox", |status| status.outbox_depth == 0).await;
    assert!(!hub.reports().iter().any(|report| is_status(&report.body, "web", "Running")));
    bench.edge.stop().await;
}

#[tokio::test]
async fn after_a_loss_of_power_an_edge_goes_on_from_what_was_synced() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    hub.hold_reports(true);
    let bench = Bench::start(&[hub.address]).await;
    bench.meta.watch("edged").await.complete_listing().await;
    bench.meta.report("web", "u1", "Running").await;
    bench.until("the reports", |status| status.outbox_depth >= 2).await;
    let boot = bench.status().await.identity.boot.number;

    let bench = bench.crash().await;
    hub.hold_reports(false);
    let mut edged = bench.meta.watch("edged").await;
    assert_eq!(edged.listing().await, (vec!["d/pod/web".to_owned()], true), "before any hub");
    assert_eq!(bench.status().await.identity.boot.number, boot + 1);
    reported(&hub, "the status of before", |body| is_status(body, "web", "Running")).await;
    bench.until("an empty outbox", |status| status.outbox_depth == 0).await;
    let mut ids: Vec<_> = hub.reports().iter().map(|report| report.id).collect();
    assert!(ids.is_sorted());
    ids.dedup();
    assert_eq!(ids.len(), hub.reports().len(), "no id twice");
    hub.apply(&private(), "d/pod/other", "u2", "{}");
    assert_eq!(edged.change().await, (Kind::Apply, "d/pod/other".to_owned()));
    bench.edge.stop().await;
}

#[tokio::test]
async fn an_edge_without_a_hub_serves_its_view() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    let bench = Bench::start(&[hub.address]).await;
    bench.meta.watch("edged").await.complete_listing().await;
    drop(hub);
    let bench = bench.crash().await;
    let (keys, complete) = bench.meta.watch("edged").await.listing().await;
    assert_eq!((keys, complete), (vec!["d/pod/web".to_owned()], true));
    assert!(bench.meta.report("web", "u1", "Running").await);
    bench.edge.stop().await;
}

#[tokio::test]
async fn an_edge_tries_the_next_hub() {
    let hub = Hub::start(&node()).await;
    // It is bound and does not listen, so no hub of another test gets its port.
    let closed = TcpSocket::new_v4().expect("a socket");
    closed.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let closed_address = closed.local_addr().expect("bound");
    let bench = Bench::start(&[closed_address, hub.address]).await;
    bench.until("a connection", |status| status.connected).await;
    bench.edge.stop().await;
}

#[tokio::test]
async fn an_edge_leaves_a_hub_that_stops() {
    let (one, other) = (Hub::start(&node()).await, Hub::start(&node()).await);
    for hub in [&one, &other] {
        hub.apply(&private(), "d/pod/web", "u1", "{}");
    }
    let bench = Bench::start(&[one.address, other.address]).await;
    let mut edged = bench.meta.watch("edged").await;
    assert_eq!(edged.complete_listing().await, ["d/pod/web"]);
    let (seq, _) = one.head(&private());
    let first = || [&one, &other].into_iter().find(|hub| hub.durable(&private()) == seq);
    let left = eventually("a session", || async { first() }).await;
    left.dismiss();
    let joined = if std::ptr::eq(left, &one) { &other } else { &one };
    joined.apply(&private(), "d/pod/new", "u2", "{}");
    assert_eq!(edged.change().await, (Kind::Apply, "d/pod/new".to_owned()));
    bench.edge.stop().await;
}

#[tokio::test]
async fn only_what_survives_a_power_cut_is_released() {
    for received in [1, 10, 60, 150] {
        let hub = Hub::start(&node()).await;
        let bench = Bench::start(&[hub.address]).await;
        let mut edged = bench.meta.watch("edged").await;
        edged.complete_listing().await;
        for n in 0..200 {
            hub.apply(&private(), &format!("d/pod/p{n}"), "u", "{}");
        }
        let mut seen = Vec::new();
        while seen.len() < received {
            seen.push(edged.change().await.1);
        }
        let acknowledged = hub.durable(&private());
        let left = bench.state.crash(Survival::Synced);
        let reader = StreamReader::new(&left);
        let (at, _) = reader.position(&private()).expect("reads").expect("some of it");
        assert!(acknowledged <= at.seq, "{acknowledged} was acknowledged, {} is left", at.seq);
        for key in &seen {
            let key = key.parse().expect("a key");
            let entry = reader.entry(&private(), &key).expect("reads");
            assert!(entry.is_some(), "{key} was released, and is lost");
        }
        assert!(reader.verify(&private()).expect("reads").expect("some of it").agrees());
        bench.edge.stop().await;
    }
}

#[tokio::test]
async fn an_old_disk_moves_past_what_the_cloud_knows_before_it_reports() {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    hub.know(Identity {
        node: node(),
        incarnation: Incarnation(1),
        boot: Boot { number: 40, nonce: 3 },
    });
    let bench = Bench::start(&[hub.address]).await;
    let status = bench.until("a connection", |status| status.connected).await;
    assert_eq!(status.identity.boot.number, 41);
    bench.meta.watch("edged").await.complete_listing().await;
    bench.meta.report("web", "u1", "Running").await;
    reported(&hub, "the status", |body| is_status(body, "web", "Running")).await;
    assert!(hub.reports().iter().all(|report| report.id.boot == 41));
    bench.edge.stop().await;
}

#[tokio::test]
async fn a_large_transfer_comes_in_parts_and_is_visible_at_once() {
    let hub = Hub::start(&node()).await;
    hub.cut_into(4 << 10);
    for n in 0..200 {
        let object = format!(r#"{{"n":{n},"x":"{}"}}"#, "x".repeat(200));
        hub.apply(&private(), &format!("d/configmap/c{n:03}"), "u", &object);
    }
    let bench = Bench::start(&[hub.address]).await;
    let mut edged = bench.meta.watch("edged").await;
    assert_eq!(edged.complete_listing().await.len(), 200);
    bench.edge.cut_link().await.expect("runs");
    bench.until("the cut", |status| !status.connected).await;
    for n in 0..100 {
        hub.remove(&private(), &format!("d/configmap/c{n:03}"));
        hub.apply(&private(), &format!("d/configmap/d{n:03}"), "u", "{}");
    }
    bench.edge.restore_link().await.expect("runs");
    let (seq, _) = hub.head(&private());
    bench.until_durable(&private(), seq).await;
    let keys = bench.meta.watch("edged").await.complete_listing().await;
    assert_eq!(keys.len(), 200);
    assert!(!keys.contains(&"d/configmap/c000".to_owned()));
    bench.edge.stop().await;
}

#[tokio::test]
async fn a_stream_that_is_taken_from_the_node_leaves_it() {
    let hub = Hub::start(&node()).await;
    hub.apply(&StreamId::Cluster, "d/service/web", "u", "{}");
    let bench = Bench::start(&[hub.address]).await;
    bench.until_durable(&StreamId::Cluster, Seq(1)).await;
    bench.until_durable(&private(), Seq(1)).await;
    let mut mesh = bench.meta.watch("mesh").await;
    assert_eq!(mesh.complete_listing().await, ["d/service/web"]);
    hub.assign(&node(), []);
    assert_eq!(mesh.change().await, (Kind::Delete, "d/service/web".to_owned()));
    let status = bench.until("one stream", |status| status.streams.len() == 1).await;
    assert_eq!(status.streams[0].stream, private());
    bench.edge.stop().await;
}

#[tokio::test]
async fn an_edge_says_whether_a_program_reads_the_shared_stream() {
    let hub = Hub::start(&node()).await;
    let says = async |consumes| {
        eventually("its heartbeat", || async {
            (hub.consumes_cluster() == Some(consumes)).then_some(())
        })
        .await;
    };
    let bench = Bench::start(&[hub.address]).await;
    says(false).await;
    let edged = bench.meta.watch("edged").await;
    let mesh = bench.meta.watch("mesh").await;
    says(true).await;
    bench.until_durable(&private(), Seq(1)).await;
    drop((edged, mesh));

    // It has the stream: its programs start with it, and read the stream once more.
    let bench = bench.crash().await;
    bench.until("the hub", |status| status.connected).await;
    says(true).await;
    bench.edge.stop().await;
}
