//! The cloud's answers to the requests of nodes.

use headwater_event::{NodeRequest, RequestError, RequestVerb};
use headwater_object::payload::with_resource_version;

use super::*;

pub(super) fn get(node: &str, key: &str) -> NodeRequest {
    NodeRequest {
        node: node.parse().expect("a name"),
        timeout: SOON,
        verb: RequestVerb::Get,
        key: key.parse().expect("a key"),
        body: Bytes::new(),
    }
}

#[tokio::test]
async fn the_cloud_responds_with_an_object_that_a_pod_of_the_node_names() {
    let world = World::new();
    let running = world.start().await;
    let app = config("app", 1, "x");
    let mut on_b = pod_value("db", "absent");
    on_b["spec"]["nodeName"] = "b".into();
    let attachment = |node: &str| {
        object(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": format!("csi-{node}"), "uid": format!("u-csi-{node}")},
            "spec": {"nodeName": node, "attacher": "x"},
        }))
    };
    let objects = [app.clone(), pod("web", "app"), object(on_b), attachment("a"), attachment("b")];
    running.list(objects).await;
    let cloud = running.controller.cloud();
    let answer = cloud.respond(get("a", "d/configmap/app")).await;
    assert_eq!(answer.as_deref(), Ok(&*with_resource_version(app.payload(), "1")));
    assert_eq!(cloud.respond(get("b", "d/configmap/absent")).await, Err(RequestError::NotFound));
    cloud.respond(get("a", "null/volumeattachment/csi-a")).await.expect("it is of this node");
    for (node, key) in [
        ("a", "d/configmap/absent"),
        ("b", "d/configmap/app"),
        ("c", "null/node/a"),
        ("a", "null/volumeattachment/csi-b"),
    ] {
        let outcome = cloud.respond(get(node, key)).await;
        assert!(matches!(outcome, Err(RequestError::Forbidden(_))), "{node} {key}: {outcome:?}");
    }
    let token = NodeRequest { verb: RequestVerb::Token, ..get("a", "d/serviceaccount/robot") };
    assert!(matches!(cloud.respond(token).await, Err(RequestError::Invalid(_))));
    running.controller.stop().await;
}
