//! MetaManager's operations, by a real client on the unix socket.

use std::os::unix::fs::PermissionsExt;

use headwater_event::{ReportBody, StreamId};
use headwater_proto::local::StatusRequest;
use headwater_proto::local::failure::Code;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{WatchEvent, WatchRequest};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::bench::{Bench, channel, node, private, reported};
use crate::hub::Hub;

async fn joined() -> (Hub, Bench) {
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", r#"{"kind":"Pod"}"#);
    hub.apply(&private(), "d/configmap/c", "u2", "{}");
    hub.apply(&private(), "e/configmap/c", "u3", "{}");
    hub.apply(&StreamId::Cluster, "d/service/web", "u4", "{}");
    let bench = Bench::start(&[hub.address]).await;
    bench.meta.watch("edged").await.complete_listing().await;
    let (seq, _) = hub.head(&StreamId::Cluster);
    bench.until_durable(&StreamId::Cluster, seq).await;
    (hub, bench)
}

#[tokio::test]
async fn a_status_is_taken_once_and_of_known_pods_only() {
    let (hub, bench) = joined().await;
    assert!(bench.meta.report("web", "u1", "Running").await);
    assert!(!bench.meta.report("web", "u1", "Running").await, "unchanged");
    let content = r#"{"uid":"u9","status":{}}"#;
    for resource in ["d/podstatus/web", "d/podstatus/nobody"] {
        let code = bench.meta.refused("edged", Verb::Update, resource, content).await;
        assert_eq!(code, Code::NotFound, "{resource}");
    }
    let found = bench.meta.objects("operator", "d/podstatus/web").await;
    assert_eq!(found[0].object.as_ref(), br#"{"phase":"Running"}"#);
    assert_eq!(bench.meta.objects("operator", "*/podstatus").await.len(), 1);
    assert!(bench.meta.objects("operator", "null/podstatus").await.is_empty(), "a namespace");
    assert!(
        !bench.meta.done("edged", Verb::MetaSync, "", "").await,
        "the node has reported already"
    );
    bench.until("an empty outbox", |status| status.outbox_depth == 0).await;
    assert!(bench.meta.done("edged", Verb::Delete, "d/podstatus/web", "").await);
    reported(&hub, "the removal", |body| matches!(body, ReportBody::PodStatusRemoved { .. })).await;
    bench.edge.stop().await;
}

#[tokio::test]
async fn edged_registers_its_node_and_ends_its_pods() {
    let (hub, bench) = joined().await;
    let object = r#"{"kind":"Node","status":{"phase":"Running"}}"#;
    assert!(bench.meta.done("edged", Verb::Insert, "null/node/gw-1", object).await);
    reported(&hub, "the node", |body| {
        matches!(body, ReportBody::Node { object: sent } if sent.as_ref() == object.as_bytes())
    })
    .await;
    assert!(bench.meta.done("edged", Verb::Delete, "d/pod/web", r#"{"uid":"u1"}"#).await);
    reported(&hub, "the end", |body| {
        matches!(body, ReportBody::PodTerminated { pod, uid }
            if pod.as_str() == "d/pod/web" && uid == "u1")
    })
    .await;
    assert!(!bench.meta.done("edged", Verb::Delete, "d/pod/web", r#"{"uid":"u0"}"#).await);
    let code = bench.meta.refused("edged", Verb::Update, "null/node/gw-2", "{}").await;
    assert_eq!(code, Code::Forbidden);
    bench.edge.stop().await;
}

#[tokio::test]
async fn a_query_reads_the_view_first_and_the_cloud_where_it_must() {
    let (hub, bench) = joined().await;
    let meta = &bench.meta;
    let found = meta.objects("edged", "d/configmap/c").await;
    assert_eq!((found[0].uid.as_str(), found[0].object.as_ref()), ("u2", &b"{}"[..]));
    assert_eq!(meta.objects("edged", "d/configmap").await.len(), 1);
    assert_eq!(meta.objects("edged", "*/configmap").await.len(), 2, "of every namespace");
    assert!(meta.objects("edged", "null/configmap").await.is_empty(), "of a namespace `null`");
    assert_eq!(meta.objects("edged", "d/service/web").await[0].uid, "u4");
    assert_eq!(meta.refused("edged", Verb::Query, "d/pod/nobody", "").await, Code::NotFound);

    let mut edged = meta.watch("edged").await;
    edged.listing().await;
    hub.answer("d/secret/s", r#"{"metadata":{"uid":"u7","resourceVersion":"12"}}"#);
    let found = meta.objects("mesh", "d/secret/s").await;
    assert_eq!((found[0].uid.as_str(), found[0].resource_version.as_str()), ("u7", "12"));
    let woken = edged.next().await.operation.expect("an operation");
    assert_eq!((woken.verb(), woken.resource.as_str()), (Verb::Response, "d/secret/s"));
    assert_eq!(meta.refused("edged", Verb::Query, "d/secret/t", "").await, Code::Forbidden);

    // The own node and its attachments are in the view; those of others are not for this node.
    hub.answer("null/node/gw-1", r#"{"in":"the cloud"}"#);
    hub.answer("null/node/gw-2", r#"{"in":"the cloud"}"#);
    let found = meta.objects("edged", "null/node/gw-1").await;
    assert_eq!(found[0].object.as_ref(), br#"{"in":"the cloud"}"#, "the view has none yet");
    hub.apply(&private(), "null/node/gw-1", "u8", r#"{"in":"the view"}"#);
    assert_eq!(edged.change().await, (Kind::Apply, "null/node/gw-1".to_owned()));
    let found = meta.objects("edged", "null/node/gw-1").await;
    assert_eq!(found[0].object.as_ref(), br#"{"in":"the view"}"#);
    assert_eq!(meta.refused("edged", Verb::Query, "null/node/gw-2", "").await, Code::Forbidden);

    bench.edge.cut_link().await.expect("runs");
    bench.until("the cut", |status| !status.connected).await;
    let found = meta.objects("edged", "null/node/gw-1").await;
    assert_eq!(found[0].object.as_ref(), br#"{"in":"the view"}"#);
    assert_eq!(meta.refused("edged", Verb::Query, "d/secret/s", "").await, Code::Unavailable);
    bench.edge.stop().await;
}

#[tokio::test]
async fn functions_send_to_the_cloud_and_their_manager_to_them() {
    let (hub, bench) = joined().await;
    assert!(bench.meta.done("function", Verb::Update, "d/result/f", "[1]").await);
    reported(&hub, "the message", |body| {
        matches!(body, ReportBody::Message { key, content }
            if key.as_str() == "d/result/f" && content.as_ref() == b"[1]")
    })
    .await;
    let ask = ("function-manager", Verb::Insert, "d/rule/r", r#"{"x":1}"#);
    assert_eq!(bench.meta.refused(ask.0, ask.1, ask.2, ask.3).await, Code::NoExecutor);
    let mut function = bench.meta.watch("function").await;
    function.listing().await;
    assert!(bench.meta.done(ask.0, ask.1, ask.2, ask.3).await);
    let WatchEvent { operation: Some(operation), .. } = function.next().await else {
        panic!("should be an operation");
    };
    assert_eq!((operation.id.as_str(), operation.resource.as_str()), ("op", "d/rule/r"));
    assert_eq!(operation.content.as_ref(), br#"{"x":1}"#);
    bench.edge.stop().await;
}

#[tokio::test]
async fn an_operation_without_an_executor_or_a_verb_is_refused() {
    let (_hub, bench) = joined().await;
    for verb in [
        Verb::Action,
        Verb::ActionResult,
        Verb::CreateVolume,
        Verb::DeleteVolume,
        Verb::ControllerPublishVolume,
        Verb::ControllerUnpublishVolume,
    ] {
        let code = bench.meta.refused("function-manager", verb, "d/x/y", "{}").await;
        assert_eq!(code, Code::NoExecutor, "{verb:?}");
    }
    assert_eq!(bench.meta.refused("edged", Verb::Unspecified, "", "").await, Code::Invalid);
    let connected = r#"{"connected":true}"#;
    let connection = "null/connection/gw-1";
    assert!(!bench.meta.done("edged", Verb::Connection, connection, connected).await);
    let cut = r#"{"connected":false}"#;
    let code = bench.meta.refused("edged", Verb::Connection, connection, cut).await;
    assert_eq!(code, Code::Forbidden);
    bench.edge.stop().await;
}

#[tokio::test]
async fn only_the_user_may_open_the_socket_and_it_reports_what_it_serves() {
    let (_hub, bench) = joined().await;
    let mode = std::fs::metadata(&bench.config.socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut health = HealthClient::new(channel(&bench.config.socket).await);
    let asked = HealthCheckRequest { service: "headwater.local.v1.Meta".to_owned() };
    let health = health.check(asked).await.expect("answers").into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    let status = bench.meta.client().status(StatusRequest {}).await.expect("answers").into_inner();
    assert!(status.connected && status.node == "gw-1" && status.boot == 1);
    assert_eq!(status.streams.len(), 2);
    let unknown = WatchRequest { subscriber: "nobody".to_owned(), ..WatchRequest::default() };
    let refused = bench.meta.client().watch(unknown).await.expect_err("no such group");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    bench.edge.stop().await;
}
